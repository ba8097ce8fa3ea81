package cli_test

import (
	"bytes"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// partsGate stands before a registry, and hears of each part of a blob that has come,
// by where the part begins, before it is passed on.
func partsGate(t *testing.T, to *registry.Registry, came func(part string)) (host string) {
	t.Helper()
	proxy := &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: to.Host})
		r.Out.Host = r.In.Host // uploads go on through here
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPatch {
			data, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			req.Body = io.NopCloser(bytes.NewReader(data))
			first, _, _ := strings.Cut(req.Header.Get("Content-Range"), "-")
			came(first)
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// invert changes a byte of a file, as long after its last state as the clock of any file
// system needs to tell the two apart.
func invert(t *testing.T, name string, at int64) {
	t.Helper()
	time.Sleep(20 * time.Millisecond)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{^b[0]}, at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// A byte of a bundle that was verified is another when its push sends it, and is itself
// again before the end is sent: what went out is not taken for what was verified. It is
// sent again, and arrives as it was signed. A byte that stays another ends the push.
func TestABundleThatChangesBetweenVerifyAndPush(t *testing.T) {
	const size, byteOf = 3_200_000, 1_500_000
	w := newWorld(t, t.TempDir())
	w.key(t, "release")
	images.Push(t, w.upstream, "x/big/image:v1.0.0", images.Spec{Seed: 50, Layers: []int64{size}})
	pull := []string{"pull", "@up", "-q", "--k8s", "1.34", "--operator", "registry.test/big/image:v1.0.0", "--sign-key", "release.key", "-o"}
	w.must(t, append(pull, "oci:folder")...)
	w.must(t, append(pull, "archive.tar")...)
	blob := w.blobOver(t, "folder", size-100_000)
	layer, err := os.ReadFile(blob)
	require.NoError(t, err)
	inArchive := bytes.Index(w.read(t, "archive.tar"), layer)
	require.Positive(t, inArchive)

	for source, at := range map[string]struct {
		file   string
		offset int64
	}{
		"oci:folder":  {blob, byteOf},
		"archive.tar": {filepath.Join(w.dir, "archive.tar"), int64(inArchive) + byteOf},
	} {
		push := func(t *testing.T, came func(string)) (code int, told, host string) {
			host = partsGate(t, w.upstream, came)
			repo := strings.NewReplacer(":", "-", "/", "-").Replace(strings.ToLower(t.Name()))
			cmd, _, stderr := w.command(t.Context(), "push", source, host+"/"+repo+":1", "-q", "--key", "release.pub", "--chunk-size", "1MB", "--plain-http", host)
			_ = cmd.Run() // the code says it
			return cmd.ProcessState.ExitCode(), stderr.String(), host + "/" + repo + ":1"
		}
		t.Run(source+" and back", func(t *testing.T) {
			var parts []string
			code, told, ref := push(t, func(part string) {
				if parts = append(parts, part); len(parts) <= 2 { // after the first one, and after the one that has the byte
					invert(t, at.file, at.offset)
				}
			})
			require.Zero(t, code, told)
			require.Equal(t, []string{"0", "1000000", "2000000", "3000000"}, parts[len(parts)-4:], "all of it was sent again")
			require.Greater(t, len(parts), 4)
			w.must(t, "verify", ref, "-q", "--key", "release.pub", "--plain-http", strings.Split(ref, "/")[0])
		})
		t.Run(source+" for good", func(t *testing.T) {
			once := sync.OnceFunc(func() { invert(t, at.file, at.offset) })
			code, told, _ := push(t, func(string) { once() })
			require.Equal(t, 3, code, told)
			require.Contains(t, told, "the file was changed after it was verified")
			invert(t, at.file, at.offset)
		})
	}
}

// blobOver is the one blob of an OCI layout that has more than so many bytes.
func (w *world) blobOver(t *testing.T, layout string, size int64) (found string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(w.dir, layout, "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > size {
			require.Empty(t, found)
			found = path
		}
		return err
	}))
	require.NotEmpty(t, found)
	return found
}
