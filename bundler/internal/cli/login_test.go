package cli_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
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
	info, err := os.Stat(filepath.Join(w.dir, "auth.json"))
	require.NoError(t, err)
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
}

// A registry with a token service, which leads on to storage by a signed address, and which
// repeats what it was sent where it can: nothing of all this is told by --debug.
func TestDebugTellsNoSecret(t *testing.T) {
	const password, token, query, signed, path = "pass-CANARY-1", "token-CANARY-2", "realm-CANARY-3", "signature-CANARY-4", "path-CANARY-5"
	storage := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(storage.Close)
	var host string
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			asked++
			_, _ = fmt.Fprintf(rw, `{"token": %q}`, token)
		case r.Header.Get("Authorization") != "Bearer "+token:
			rw.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token?key=%s",service="x"`, host, query))
			rw.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v2/":
		default:
			rw.Header().Set("X-Echo", r.Header.Get("Authorization"))
			http.Redirect(rw, r, storage.URL+"/"+path+"?sig="+signed, http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	w := newWorld(t, t.TempDir())

	out, err := w.typed(t, password, "login", host, "-u", "anna", "--password-stdin", "--plain-http", host, "--debug")
	require.NoError(t, err, out)
	inspected, err := w.typed(t, "", "inspect", host+"/a/b:1", "--plain-http", host, "--debug", "--retries", "0")
	require.Error(t, err)
	out += inspected
	require.Positive(t, asked)
	require.Contains(t, out, "debug: GET http://"+host+"/…: 200 (")
	require.Contains(t, out, "/v2/a/b/manifests/1: 307 (")
	for _, secret := range []string{password, token, query, signed, path, base64.StdEncoding.EncodeToString([]byte("anna:" + password))} {
		require.NotContains(t, debugLines(out), secret)
	}
	for _, secret := range []string{password, token, query, signed} {
		require.NotContains(t, out, secret, "neither in the lines of --debug nor in the error")
	}
}

func debugLines(out string) string {
	var lines []string
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "debug: ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
