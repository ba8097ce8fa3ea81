package registry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func get(t *testing.T, reg *registry.Registry, path string) (*http.Response, []byte, error) {
	t.Helper()
	transport := reg.Transport()
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, reg.URL()+path, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, resp.Body.Close())
	return resp, body, err
}

func TestFaultsHappenAsOftenAsAsked(t *testing.T) {
	reg := registry.Start(t, registry.Options{TLS: true})
	reg.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/v2/"}, Times: 2, Status: 429, Header: map[string]string{"Retry-After": "3"}})
	for range 2 {
		resp, body, err := get(t, reg, "/v2/")
		require.NoError(t, err)
		require.Equal(t, 429, resp.StatusCode)
		require.Equal(t, "3", resp.Header.Get("Retry-After"))
		require.Contains(t, string(body), "TOO_MANY_REQUESTS")
	}
	resp, _, err := get(t, reg, "/v2/")
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, 3, reg.Count("GET", "/v2/"))
}

func TestResetCutAndTamper(t *testing.T) {
	reg := registry.Start(t, registry.Options{})
	ref, d := images.Push(t, reg, "a/b:1", images.Spec{})
	path := "/v2/a/b/manifests/" + ref.Tag()
	_, whole, err := get(t, reg, path)
	require.NoError(t, err)
	require.Len(t, whole, int(d.Size))

	reg.Fail(registry.Fault{Match: registry.Match{Path: path}, Times: 1, Reset: true})
	_, _, err = get(t, reg, path)
	require.Error(t, err)

	reg.Fail(registry.Fault{Match: registry.Match{Path: path}, Times: 1, Cut: 5})
	_, part, err := get(t, reg, path)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, whole[:5], part)

	reg.Fail(registry.Fault{Match: registry.Match{Path: path}, Times: 1, Tamper: true, TamperAt: 3})
	_, bad, err := get(t, reg, path)
	require.NoError(t, err)
	require.NotEqual(t, whole[3], bad[3])
	bad[3] ^= 0xff
	require.Equal(t, whole, bad)
}

func TestWaitHoldsARequestBack(t *testing.T) {
	reg := registry.Start(t, registry.Options{})
	seen, gate := make(chan string, 1), make(chan struct{})
	reg.Fail(registry.Fault{Match: registry.Match{Path: "/v2/"}, Times: 1, Wait: gate, Seen: seen})
	done := make(chan int, 1)
	go func() {
		resp, err := http.Get(reg.URL() + "/v2/")
		if err == nil {
			done <- resp.StatusCode
			_ = resp.Body.Close()
		}
	}()
	require.Equal(t, "GET /v2/", <-seen)
	require.Empty(t, done)
	close(gate)
	require.Equal(t, 200, <-done)
}

func TestStorageServesWithoutLogin(t *testing.T) {
	for _, auth := range []registry.Auth{registry.None, registry.Basic, registry.Token} {
		reg := registry.Start(t, registry.Options{TLS: true, Auth: auth})
		images.Push(t, reg, "a/b:1", images.Spec{})
		store := reg.Storage(t)
		resp, _, err := get(t, store, "/v2/a/b/manifests/1")
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.False(t, store.Requests()[0].Authorization)
		if auth != registry.None {
			resp, _, err = get(t, reg, "/v2/a/b/manifests/1")
			require.NoError(t, err)
			require.Equal(t, 401, resp.StatusCode)
			require.Contains(t, strings.ToLower(resp.Header.Get("WWW-Authenticate")), "realm=")
		}
	}
}

func TestReadOnlyRegistryRefusesUploads(t *testing.T) {
	reg := registry.Start(t, registry.Options{ReadOnly: true})
	resp, err := http.Post(reg.URL()+"/v2/a/b/blobs/uploads/", "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 405, resp.StatusCode)
}

// Small blobs are answered with as the reference registry answers with large ones, whole and
// in part.
func TestSmallAndLargeBlobsAreServedAlike(t *testing.T) {
	dir := t.TempDir()
	for _, options := range []registry.Options{{}, {Dir: dir}} {
		reg := registry.Start(t, options)
		transport := reg.Transport()
		defer transport.CloseIdleConnections()
		ask := func(method, path string, header ...string) (int, http.Header, []byte) {
			req, err := http.NewRequestWithContext(t.Context(), method, reg.URL()+path, nil)
			require.NoError(t, err)
			for i := 0; i < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			resp, err := transport.RoundTrip(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, errors.Join(err, resp.Body.Close()))
			return resp.StatusCode, resp.Header, body
		}
		blobs := map[int64]string{}
		for _, size := range []int64{1 << 10, 1 << 20} {
			name := fmt.Sprint("a/b", size)
			ref, _ := images.Push(t, reg, name+":1", images.Spec{Layers: []int64{size}})
			_, _, data := ask(http.MethodGet, "/v2/"+name+"/manifests/"+ref.Tag(), "Accept", "application/vnd.oci.image.manifest.v1+json")
			var m struct{ Layers []struct{ Digest string } }
			require.NoError(t, json.Unmarshal(data, &m))
			blobs[size] = "/v2/" + name + "/blobs/" + m.Layers[0].Digest
		}
		for _, request := range [][]string{
			{http.MethodGet}, {http.MethodHead}, {http.MethodGet, "Range", "bytes=10-19"}, {http.MethodGet, "Range", "bytes=10-"},
			{http.MethodGet, "Range", "bytes=99999999-"}, {http.MethodGet, "If-None-Match", "E"},
		} {
			var answers []string
			for size, path := range blobs {
				header := slices.Clone(request[1:])
				if len(header) > 0 && header[1] == "E" {
					_, h, _ := ask(http.MethodHead, path)
					header[1] = h.Get("ETag")
				}
				code, h, body := ask(request[0], path, header...)
				if request[0] == http.MethodGet && len(header) == 0 {
					require.Equal(t, path[strings.LastIndex(path, "/")+1:], digest.FromBytes(body).String())
				}
				total := h.Get("Content-Length")
				if code == http.StatusOK || header[1] == "bytes=10-" {
					require.NotEmpty(t, total)
					h.Set("Content-Length", "N")
				}
				h.Del("Date")
				text := strings.NewReplacer(path[strings.LastIndex(path, "/")+1:], "DIGEST", fmt.Sprint(size), "SIZE", fmt.Sprint(size-1), "LAST").Replace(fmt.Sprint(code, h))
				text = regexp.MustCompile(`/\d+\]`).ReplaceAllString(regexp.MustCompile(`10-\d{3,}`).ReplaceAllString(text, "10-LAST"), "/N]")
				answers = append(answers, text)
			}
			require.Equal(t, answers[0], answers[1], "%v", request)
		}
	}
}
