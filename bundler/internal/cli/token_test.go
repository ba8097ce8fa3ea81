package cli_test

import (
	"crypto"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

const pin = "klown-pin"

// softToken makes a SoftHSM token with an EC and an RSA key, and returns what the
// program needs to find it, and the library's path.
func softToken(t *testing.T, dir string) (env []string, module string) {
	util := toolchain.Installed(t, "softhsm2-util")
	for _, path := range []string{"/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/softhsm/libsofthsm2.so", "/usr/local/lib/softhsm/libsofthsm2.so"} {
		if _, err := os.Stat(path); err == nil {
			module = path
		}
	}
	require.NotEmpty(t, module, "softhsm2-util is there, and its libsofthsm2.so is not")
	config := filepath.Join(dir, "softhsm2.conf")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tokens"), 0o700))
	require.NoError(t, os.WriteFile(config, []byte("directories.tokendir = "+filepath.Join(dir, "tokens")+"\nobjectstore.backend = file\n"), 0o600))
	env = []string{"SOFTHSM2_CONF=" + config}
	run := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), util, args...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("--init-token", "--free", "--label", "signing", "--so-pin", "12345678", "--pin", pin)
	signer := pki.Root(t, "signer")
	plain := filepath.Join(dir, "plain.key")
	require.NoError(t, os.WriteFile(plain, signer.KeyPEM(), 0o600))
	run("--import", plain, "--token", "signing", "--label", "release", "--id", "01", "--pin", pin)
	openssl(t, "genrsa", "-out", filepath.Join(dir, "rsa.key"), "2048")
	openssl(t, "pkcs8", "-topk8", "-nocrypt", "-in", filepath.Join(dir, "rsa.key"), "-out", filepath.Join(dir, "rsa8.key"))
	run("--import", filepath.Join(dir, "rsa8.key"), "--token", "signing", "--label", "rsa", "--id", "02", "--pin", pin)
	openssl(t, "pkey", "-in", plain, "-pubout", "-out", filepath.Join(dir, "release.pub"))
	openssl(t, "pkey", "-in", filepath.Join(dir, "rsa8.key"), "-pubout", "-out", filepath.Join(dir, "rsa.pub"))
	return env, module
}

func openssl(t *testing.T, args ...string) {
	out, err := exec.CommandContext(t.Context(), toolchain.Installed(t, "openssl"), args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestSignsWithAHardwareToken builds the program with support for tokens and signs
// with SoftHSM; the program without it verifies.
func TestSignsWithAHardwareToken(t *testing.T) {
	toolchain.Installed(t, "gcc")
	w := newWorld(t, t.TempDir())
	env, module := softToken(t, w.dir)
	w.vars = env
	release := "pkcs11:token=signing;object=release?module-path=" + module
	withTokens := *w
	withTokens.program = filepath.Join(w.dir, "vdo-bundle-pkcs11")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w",
		"-tags", "pkcs11", "-o", withTokens.program, "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/cmd/vdo-bundle")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	run := func(w *world, code int, args ...string) string {
		said := w.ends(t, code, args...)
		require.NotContains(t, said, pin, "the PIN is told")
		return said
	}
	w.write(t, "pin", []byte(pin+"\n"))
	w.write(t, "wrong", []byte("9999\n"))
	run(w, 0, "pull", "@up", "-q", "-o", "one.tar")

	run(&withTokens, 0, "sign", "one.tar", "--key", release, "--key-password-file", "pin")
	run(w, 0, "verify", "-q", "one.tar", "--key", "release.pub")
	run(&withTokens, 0, "sign", "one.tar", "--key", "pkcs11:token=signing;id=%02?module-path="+module+"&pin-source=file:"+filepath.Join(w.dir, "pin"))
	run(w, 0, "verify", "-q", "one.tar", "--key", "rsa.pub")
	run(&withTokens, 0, "pull", "@up", "-q", "-o", "two.tar", "--sign-key", release, "--key-password-file", "pin")
	run(w, 0, "verify", "-q", "two.tar", "--key", "release.pub")
	run(&withTokens, 0, "matrix", "sign", "matrix.yaml", "--key", release, "--key-password-file", "pin")
	run(w, 0, "lock", "@up", "-o", "lock.yaml", "--matrix-key", "release.pub")

	require.Contains(t, run(w, 8, "sign", "one.tar", "--key", release), "-tags pkcs11")
	require.Contains(t, run(w, 2, "sign", "one.tar", "--key", "pkcs11:token=signing;object=release?pin-value="+pin), "pin-value: everyone on this machine")
	require.Contains(t, run(&withTokens, 6, "sign", "one.tar", "--key", release, "--key-password-file", "wrong"), "PIN")
	require.Contains(t, run(&withTokens, 4, "sign", "one.tar", "--key", "pkcs11:token=signing;object=none?module-path="+module, "--key-password-file", "pin"), "no private key")
	require.Contains(t, run(&withTokens, 4, "sign", "one.tar", "--key", "pkcs11:token=none;object=none?module-path="+module, "--key-password-file", "pin"), "check that the token is there")
	require.Contains(t, run(&withTokens, 4, "sign", "one.tar", "--key", "pkcs11:token=signing;object=release?module-path=/none.so", "--key-password-file", "pin"), "no such file")
}

const vaultToken = "hvs.s3cret-of-the-vault"

// vault answers like the transit engine of HashiCorp Vault with one key: /v1/transit/keys/KEY
// and /v1/transit/sign/KEY/sha2-256, as the API documentation of the engine says.
func vault(t *testing.T, key pki.Authority) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		reply := func(code int, v any) {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(v)
		}
		token := req.Header.Get("X-Vault-Token")
		signs := map[string]int{vaultToken: 200, "hvs.reader": 403, "hvs.sealed": 503} // by login
		switch {
		case signs[token] == 0:
			reply(http.StatusForbidden, map[string]any{"errors": []string{"permission denied"}})
		case req.Method == http.MethodGet && req.URL.Path == "/v1/transit/keys/release":
			reply(http.StatusOK, map[string]any{"data": map[string]any{
				"latest_version": 1, "keys": map[string]any{"1": map[string]any{"name": "P-256", "public_key": string(key.PublicPEM())}},
			}})
		case signs[token] != http.StatusOK:
			reply(signs[token], map[string]any{"errors": []string{"no signature"}})
		case req.Method == http.MethodPut && req.URL.Path == "/v1/transit/sign/release/sha2-256":
			var in struct {
				Input     []byte `json:"input"`
				Prehashed bool   `json:"prehashed"`
			}
			if err := json.NewDecoder(req.Body).Decode(&in); err != nil || !in.Prehashed {
				reply(http.StatusBadRequest, map[string]any{"errors": []string{"bad input"}})
				return
			}
			signature, err := key.Key.Sign(rand.Reader, in.Input, crypto.SHA256)
			if err != nil {
				panic(err)
			}
			text := "vault:v1:" + base64.StdEncoding.EncodeToString(signature)
			reply(http.StatusOK, map[string]any{"data": map[string]any{"signature": text}})
		default:
			reply(http.StatusNotFound, map[string]any{"errors": []string{}})
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// A key in a service signs in both forms; its login is shown to no one.
func TestSignsWithAKeyInAService(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.must(t, "pull", "@up", "-q", "--release", "cpi@1.34.0", "-o", "a.tar")
	key := pki.Root(t, "service")
	w.write(t, "service.pub", key.PublicPEM())
	server := vault(t, key)
	for _, c := range []struct {
		token, uri string
		code       int
		says       string
	}{
		{"hvs.another", "hashivault://release", 6, "open key hashivault://release: "},
		{"hvs.reader", "hashivault://release", 6, "hint: check the service's address and login"},
		{"hvs.sealed", "hashivault://release", 5, "sign with hashivault://release: "},
		{vaultToken, "hashivault://none", 5, "open key hashivault://none: "},
		{vaultToken, "hashivault://", 2, "hint: write hashivault://KEY"},
		{vaultToken, "nosuch://release", 2, "for NAME:// install sigstore-kms-NAME"},
		{vaultToken, "hashivault://release", 0, ""},
	} {
		w.vars = []string{"VAULT_ADDR=" + server.URL, "VAULT_TOKEN=" + c.token, "VAULT_MAX_RETRIES=0"}
		said := w.ends(t, c.code, "sign", "a.tar", "--key", c.uri, "--signature-format", "both")
		require.NotContains(t, said, c.token)
		require.Contains(t, said, c.says)
	}
	w.must(t, "verify", "a.tar", "--key", "service.pub", "-q")
}
