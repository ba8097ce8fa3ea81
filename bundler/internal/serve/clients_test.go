package serve_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/serve"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

func (w *world) host() string { return strings.TrimPrefix(w.url, "http://") }

// oras is the bundle's repository, for ORAS.
func (w *world) oras(t *testing.T) *remote.Repository {
	from := must.Have(remote.NewRepository(w.host() + "/" + repo))(t)
	from.PlainHTTP = true
	return from
}

func TestORASCopiesTheBundleWithItsReferrers(t *testing.T) {
	w := start(t)
	to := memory.New()
	root := must.Have(oras.ExtendedCopy(t.Context(), w.oras(t), "1", to, "", oras.DefaultExtendedCopyOptions))(t)
	require.Equal(t, w.Graph.Root.Digest, root.Digest)
	for _, d := range w.refs {
		exists := must.Have(to.Exists(t.Context(), bundle.Plain(d)))(t)
		require.True(t, exists, d.Digest)
	}
}

// The time that the answer before had is over, where a client asks again on the same connection.
func TestAnAnswerWithoutABodyHasItsOwnTime(t *testing.T) {
	h := serve.Handler(serve.Registry{}, nil, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Second))
		h.ServeHTTP(w, req)
	}))
	defer server.Close()
	resp := must.Have(http.Head(server.URL + serve.HealthPath))(t)
	require.NoError(t, resp.Body.Close())
}

func TestSkopeoAndRegctlPull(t *testing.T) {
	w := start(t)
	dir := t.TempDir()
	run := func(path string, args ...string) {
		out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
		require.NoError(t, err, "%s: %s", path, out)
	}
	run(toolchain.Path(t, "regctl"), "--host", "reg="+w.host()+",tls=disabled", "image", "copy", "--referrers", w.host()+"/"+repo+":1", "ocidir://"+dir+"/regctl:1")
	run(toolchain.Path(t, "crane"), "pull", "--insecure", "--format", "oci", w.host()+"/"+repo+":1", dir+"/crane")
	run(toolchain.Installed(t, "skopeo"), "--insecure-policy", "copy", "--all", "--src-tls-verify=false", "docker://"+w.host()+"/"+beside+":v1", "oci:"+dir+"/skopeo:1")
}

func accounts(t *testing.T, lines ...string) (*serve.Accounts, error) {
	t.Helper()
	return serve.ParseAccounts("users", []byte(strings.Join(lines, "\n")))
}

func hash(t *testing.T, password string) string {
	h := must.Have(bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost))(t)
	return string(h)
}

func TestLogin(t *testing.T) {
	w := start(t)
	users := must.Have(accounts(t, "# who may pull", "anna:"+hash(t, "s3cret"), "", "bob:"+hash(t, "other")))(t)
	var log bytes.Buffer
	server := httptest.NewServer(serve.Handler(w.handler(t), users, &log))
	defer server.Close()
	w.url = server.URL
	status := func(user, password string) int {
		login := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		return w.ask(t, "GET", "/v2/"+repo+"/manifests/1", "Authorization", "Basic "+login).StatusCode
	}
	for range 2 { // the second time from memory
		require.Equal(t, 200, status("anna", "s3cret"))
		require.Equal(t, 200, status("bob", "other"))
		require.Equal(t, 401, status("anna", "other"))
		require.Equal(t, 401, status("annas", "3cret"))
		require.Equal(t, 401, status("carl", "s3cret"))
	}
	a := w.ask(t, "GET", "/v2/")
	a.fails(t, 401, "UNAUTHORIZED")
	require.Contains(t, a.Header.Get("WWW-Authenticate"), `Basic realm="vdo-bundle"`)

	require.Equal(t, "ok\n", string(w.ask(t, "GET", serve.HealthPath).body), "without a login")

	from := w.oras(t)
	from.Client = &auth.Client{Credential: auth.StaticCredential(w.host(), auth.Credential{Username: "anna", Password: "s3cret"})}
	must.Have(oras.Copy(t.Context(), from, "1", memory.New(), "", oras.DefaultCopyOptions))(t)
	server.Close()
	for _, line := range []string{
		`127\.0\.0\.1 - "anna" \[[^ ]+ [+-]\d{4}\] "GET /v2/` + repo + `/manifests/1 HTTP/1.1" 200 [1-9]\d*`,
		`127\.0\.0\.1 - - \[.+\] "GET /v2/ HTTP/1.1" 401 [1-9]\d*`, `127\.0\.0\.1 - - \[.+\] "GET /healthz HTTP/1.1" 200 3`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", log.String())
	}
}

func TestBadAccounts(t *testing.T) {
	good := "anna:" + hash(t, "x")
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"nobody":        {[]string{"# none"}, "read users: it has 0 users"},
		"no colon":      {[]string{"anna"}, "read users: line 1 is not USER:HASH"},
		"no user":       {[]string{":" + hash(t, "x")}, "line 1 is not USER:HASH"},
		"md5":           {[]string{good, "bob:$apr1$abc$def"}, `line 2: the hash of "bob" is not one of bcrypt`},
		"plain":         {[]string{"bob:secret-in-the-clear"}, `line 1: the hash of "bob" is not one of bcrypt`},
		"twice":         {[]string{good, good}, `line 2: "anna" is there twice`},
		"too long line": {[]string{strings.Repeat("x", 1<<17)}, "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := accounts(t, c.lines...)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			require.Contains(t, fault.HintOf(err), "htpasswd -B")
			require.NotContains(t, err.Error(), "secret-in-the-clear")
		})
	}
}

// slow is a registry whose answers wait until they may go on.
type slow struct {
	http.Handler
	began, goOn chan struct{}
}

func (s slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.began <- struct{}{}
	<-s.goOn
	s.Handler.ServeHTTP(w, r)
}

// The server ends with the last answer, and cuts off who is not done after the grace.
func TestAnAnswerComesToItsEndBeforeTheServerDoes(t *testing.T) {
	for _, grace := range []time.Duration{time.Minute, 0} {
		w := start(t)
		h := slow{w.handler(t), make(chan struct{}), make(chan struct{})}
		l := must.Have(serve.Listen(t.Context(), "127.0.0.1:0"))(t)
		require.True(t, serve.IsLoopback(l))
		ctx, stop := context.WithCancel(t.Context())
		ended, answered := make(chan error, 1), make(chan error, 1)
		go func() { ended <- serve.Run(ctx, l, h, nil, grace) }()
		go func() {
			resp, err := http.Get("http://" + l.Addr().String() + "/v2/")
			if err == nil {
				err = resp.Body.Close()
			}
			answered <- err
		}()
		<-h.began
		stop()
		if grace == 0 {
			require.NoError(t, <-ended)
			require.Error(t, <-answered)
			close(h.goOn)
			continue
		}
		require.Empty(t, ended)
		close(h.goOn)
		require.NoError(t, <-answered)
		require.NoError(t, <-ended)
	}
}
