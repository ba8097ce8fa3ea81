package cli_test

import (
	"crypto"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

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
