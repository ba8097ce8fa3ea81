package cli_test

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
)

// typed runs the program with something on standard input.
func (w *world) typed(t *testing.T, input string, args ...string) (output string, err error) {
	t.Helper()
	cmd, stdout, stderr := w.command(t.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	err = cmd.Run()
	return stdout.String() + stderr.String(), err
}

func TestLoginIsCheckedKeptAndForgotten(t *testing.T) {
	w := newWorldOf(t, t.TempDir(), registry.Options{Dir: t.TempDir()}, registry.Options{Dir: t.TempDir(), TLS: true, Auth: registry.Basic})
	host, user, password := w.mirror.Host, w.mirror.Username, w.mirror.Password
	login := []string{"login", host, "-u", user, "--password-stdin", "--ca-file", "ca.crt", "--authfile", "auth.json", "--debug"}
	w.must(t, "pull", "@up", "-q", "-o", "a.tar")
	push := []string{"push", "a.tar", host + "/vdo/drivers:1", "--ca-file", "ca.crt", "-q", "--authfile", "auth.json", "--debug"}

	out, err := w.typed(t, "wrong"+password, login...)
	require.ErrorContains(t, err, "exit status 6", out)
	require.NoFileExists(t, filepath.Join(w.dir, "auth.json"))
	out, err = w.typed(t, "", login...)
	require.ErrorContains(t, err, "exit status 2", out)
	out, err = w.typed(t, "", "login", host, "-u", user)
	require.ErrorContains(t, err, "exit status 2", out)
	require.Contains(t, out, "--password-stdin")
	out, err = w.typed(t, "", "login", host, "-u", user, "--password", password)
	require.ErrorContains(t, err, "exit status 2", "a password is not an argument: %s", out)

	out, err = w.typed(t, password+"\n", login...)
	require.NoError(t, err, out)
	require.Contains(t, out, "logged in to "+host)
	info := must(os.Stat(filepath.Join(w.dir, "auth.json")))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	// It is the login of --authfile that is used, and --debug shows the requests without it.
	require.NoError(t, os.Remove(filepath.Join(w.dir, "login/config.json")))
	out, err = w.typed(t, "", push...)
	require.NoError(t, err, out)
	require.Regexp(t, `(?m)^debug: PUT https://`+host+`/v2/vdo/drivers/manifests/1: 201 \(`, out)
	for _, secret := range []string{password, base64.StdEncoding.EncodeToString([]byte(user + ":" + password))} {
		require.NotContains(t, out, secret)
	}

	w.must(t, "logout", host, "--authfile", "auth.json")
	require.NotContains(t, string(w.read(t, "auth.json")), host)
	out, err = w.typed(t, "", push...)
	require.ErrorContains(t, err, "exit status 6", out)
	out, err = w.typed(t, "", "logout", host, "--authfile", "auth.json")
	require.ErrorContains(t, err, "exit status 4", out)

	annas := base64.StdEncoding.EncodeToString([]byte("anna:x"))
	w.write(t, "auth.json", []byte(`{"auths":{"`+host+`":{"auth":"`+annas+`"}}}`))
	out, err = w.typed(t, "", push...)
	require.ErrorContains(t, err, "exit status 6", out)
	require.Contains(t, out, host+" refuses a request with the login of anna from auth.json: ")
	out, err = w.typed(t, password, login...)
	require.NoError(t, err, out)
	require.Contains(t, out, "auth.json, in place of the login of anna")
}

// Behind the gap there is nothing to read but the help: the trust policy that it shows is
// one, with everything that it names.
func TestTheHelpShowsAWholeTrustPolicy(t *testing.T) {
	help := must(exec.CommandContext(t.Context(), binary, "verify", "--help").Output())(t)
	var policy []string
	for _, text := range strings.Split(string(help), "\n") {
		if strings.HasPrefix(text, "  apiVersion:") || policy != nil && strings.HasPrefix(text, "  ") {
			policy = append(policy, strings.TrimPrefix(text, "  "))
		} else if policy != nil {
			break
		}
	}
	dir := t.TempDir()
	root, signer := pki.Root(t, "corp"), pki.Root(t, "release")
	for name, data := range map[string][]byte{
		"release.pub": signer.PublicPEM(), "corp-root.crt": root.PEM(), "tsa-root.crt": root.PEM(),
		"trusted_root.json": sigstore.New(t).Root,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	p, err := trust.ParsePolicy("the policy of the help", []byte(strings.Join(policy, "\n")), func(path string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, path))
	})
	require.NoError(t, err)
	require.NotNil(t, p)
}
