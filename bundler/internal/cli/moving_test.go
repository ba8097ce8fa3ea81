package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// mover is in front of a real registry with bundles in vdo/drivers. It answers honestly to so many requests that
// name a tag, and then as if someone had moved the tags: others are answered with
// what is under another tag. Requests by digest are passed on, so that these are all
// the moments at which a tag can move.
type mover struct {
	mu     sync.Mutex
	honest int               // requests for moved tags that are still answered honestly; -1: all
	tags   map[string]string // a tag → the one that is answered with
	asked  int               // requests for such tags
}

func (m *mover) set(honest int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.honest, m.asked = honest, 0
}

func (m *mover) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// path returns what is asked of the registry in place of a path.
func (m *mover) path(path string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	repository, tag, ok := strings.Cut(path, "/manifests/")
	other, moved := m.tags[tag]
	if !ok || !moved || repository != "/v2/vdo/drivers" {
		return path
	}
	m.asked++
	if m.honest < 0 || m.asked <= m.honest {
		return path
	}
	return repository + "/manifests/" + other
}

// start returns the host of a mover before a registry without TLS.
func (m *mover) start(t *testing.T, registry string) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: registry})
		r.Out.Host = r.In.Host // uploads go on through here
		r.Out.URL.Path = m.path(r.In.URL.Path)
	}}
	server := httptest.NewServer(http.HandlerFunc(proxy.ServeHTTP))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// A tag moves to another bundle after every one of the requests that name it. With a
// key a command then says what it says of the signed bundle, or refuses; without one it
// is of one of the two bundles, never of both.
func TestAMovedTagNeverMixesTwoBundles(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "release")
	images := []string{"--operator", "registry.test/cloud/ccm:v1.34.0"} // any image does
	w.must(t, append([]string{"pull", "@up", "-q", "--k8s", "1.34", "--sign-key", "release.key", "--signature-format", "simple", "--provenance", "-o", "oci:signed"}, images...)...)
	w.must(t, append([]string{"pull", "@up", "-q", "--k8s", "1.33", "-o", "oci:unsigned"}, images...)...)
	w.must(t, "push", "oci:signed", w.upstream.Host+"/vdo/drivers:1", "--plain-http", w.upstream.Host, "-q")
	w.must(t, "push", "oci:unsigned", w.upstream.Host+"/vdo/drivers:2", "--plain-http", w.upstream.Host, "-q")
	var of struct {
		Root string `json:"root"`
	}
	require.NoError(t, json.Unmarshal([]byte(w.must(t, "inspect", "oci:signed", "--format", "json")), &of))
	signature := "sha256-" + strings.TrimPrefix(of.Root, "sha256:") + ".sig"
	tags := &mover{}
	host := tags.start(t, w.upstream.Host)
	src := host + "/vdo/drivers:1"
	plain := []string{"--plain-http", host}

	for _, c := range []struct {
		name string
		args []string
		key  bool
	}{
		{"verify", []string{"verify", src, "-q", "--format", "json"}, true},
		{"inspect", []string{"inspect", src, "--format", "json"}, true},
		{"push with paths", []string{"push", src, w.mirror.Host + "/DEST:1", "--ca-file", "ca.crt", "-q", "--format", "json", "--layout", "paths"}, true},
		{"inspect without a key", []string{"inspect", src, "--format", "json"}, false},
		{"list", []string{"list", host + "/vdo/drivers", "--format", "json"}, false},
		{"pull --base", []string{"pull", "@up", "-q", "--lock", "lock.yaml", "--base", src, "-o", "DEST.tar", "--format", "json"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "pull --base" {
				w.must(t, "lock", "@up", "-q", "--k8s", "1.34", "-o", "lock.yaml")
			}
			args := append(append([]string{}, c.args...), plain...)
			tags.tags = map[string]string{"1": "2"}
			if c.key {
				tags.tags[signature] = "gone" // what was verified is not looked for again
				args = append(args, "--key", "release.pub", "--allow-expired")
			}
			run := func(honest int) (code int, told string) {
				tags.set(honest)
				dest := fmt.Sprintf("%s-%d", strings.ReplaceAll(strings.ToLower(c.name), " ", "-"), honest+1)
				these := slices.Clone(args)
				for i := range these {
					these[i] = strings.ReplaceAll(these[i], "DEST", dest)
				}
				cmd, stdout, stderr := w.command(t.Context(), these...)
				_ = cmd.Run() // the code says it
				t.Logf("%d honest answers: exit code %d: %s", honest, cmd.ProcessState.ExitCode(), stderr)
				return cmd.ProcessState.ExitCode(), strings.ReplaceAll(stdout.String(), dest, "DEST")
			}
			code, of1 := run(-1)
			require.Zero(t, code)
			requests := tags.count()
			require.NotZero(t, requests)
			code, of2 := run(0)
			if c.key {
				require.Equal(t, 3, code)
			} else {
				require.Zero(t, code)
			}
			for honest := 1; honest < requests; honest++ {
				code, got := run(honest)
				switch {
				case c.key && code == 0:
					require.Equal(t, of1, got, "after %d honest answers", honest)
				case c.key:
					require.Equal(t, 3, code, "after %d honest answers", honest)
					require.Empty(t, got)
				default:
					require.Zero(t, code)
					require.Contains(t, []string{of1, of2}, got, "after %d honest answers", honest)
				}
			}
		})
	}
	require.NotZero(t, w.mirror.Count(http.MethodPut, "/push-with-paths-0/registry.test/cloud/ccm/manifests/v1.34.0"))
	for _, r := range w.mirror.Requests() { // nothing of the other bundle was sent with a key, under any name
		if strings.Contains(r.Path, "/push-") && !strings.Contains(r.Path, "/push-without-") {
			require.NotContains(t, r.Path, "v1.33.1")
		}
	}
}
