package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/serve"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

const (
	repo    = "vdo/drivers"
	beside  = "vdo/drivers/registry.test/oci/index"
	absent  = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	sbom    = "application/spdx+json"
	docker2 = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// world is a bundle with a signature and a referrer, served.
type world struct {
	*bundles.Bundle
	url  string
	refs []ocispec.Descriptor // referrers of the root
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{Bundle: bundles.New(t, bundles.Options{Seed: 3, LayerSize: 70_000})}
	root := image.MustDigest(w.Graph.Root.Digest.String())
	w.attach(bundles.Signature(t, root, 1))
	for n, kind := range []string{sbom, "application/vnd.in-toto+json"} {
		w.attach(w.referrer(t, root, kind, n))
	}
	server := httptest.NewServer(w.handler(t))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func (w *world) handler(t *testing.T) serve.Registry {
	t.Helper()
	return handler(t, w.Graph, w.Store)
}

func handler(t testing.TB, g *bundle.Graph, s bundle.Fetcher) serve.Registry {
	h := serve.Registry{}
	require.NoError(t, h.Add(g, s, image.MustReference("localhost/"+repo+":1")))
	return h
}

func (w *world) attach(a bundle.Referrer) {
	w.Graph.Attachments = append(w.Graph.Attachments, a)
	for _, b := range a.Blobs {
		w.Store[b.Digest.String()] = b.Data
	}
}

func (w *world) referrer(t *testing.T, subject image.Digest, kind string, n int) bundle.Referrer {
	empty, root := ocispec.DescriptorEmptyJSON, bundle.Plain(w.Graph.Root)
	layer := bundle.Blob(kind, fmt.Appendf(nil, "document %d", n))
	node := bundle.NewManifest(ocispec.Manifest{
		ArtifactType: kind, Config: bundle.Plain(empty), Layers: []ocispec.Descriptor{bundle.Plain(layer)}, Subject: &root,
		Annotations: map[string]string{"n": strconv.Itoa(n)},
	})
	a := must.Have(bundle.NewReferrer(subject, "", node, empty, layer))(t)
	w.refs = append(w.refs, node.Descriptor)
	return a
}

type answer struct {
	*http.Response
	body []byte
}

func (w *world) ask(t *testing.T, method, path string, header ...string) answer {
	req := must.Have(http.NewRequestWithContext(t.Context(), method, w.url+path, nil))(t)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp := must.Have(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close() //nolint:errcheck // only read
	body := must.Have(io.ReadAll(resp.Body))(t)
	return answer{resp, body}
}

// fails demands a status and a code in the form of "Error Codes".
func (a answer) fails(t *testing.T, status int, code string) {
	require.Equal(t, status, a.StatusCode, "%s %s: %s", a.Request.Method, a.Request.URL, a.body)
	if a.Request.Method == http.MethodHead {
		require.Empty(t, a.body)
		return
	}
	var doc struct {
		Errors []struct{ Code, Message string } `json:"errors"`
	}
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.NoError(t, json.Unmarshal(a.body, &doc), "%s", a.body)
	require.Len(t, doc.Errors, 1)
	require.Equal(t, code, doc.Errors[0].Code)
	require.NotEmpty(t, doc.Errors[0].Message)
}

// Each case is a requirement of "Pull" or "Content Discovery" in the OCI
// distribution specification 1.1, in the words of its conformance tests.
func TestConformance(t *testing.T) {
	w := start(t)
	root := w.Graph.Root
	layer := slices.MaxFunc(w.Graph.Blobs, func(a, b ocispec.Descriptor) int { return int(a.Size - b.Size) })
	both := func(t *testing.T, path string, check func(t *testing.T, a answer)) {
		for _, method := range []string{http.MethodHead, http.MethodGet} {
			t.Run(method, func(t *testing.T) { check(t, w.ask(t, method, path)) })
		}
	}

	t.Run("the API is there", func(t *testing.T) {
		for _, path := range []string{"/v2", "/v2/"} {
			a := w.ask(t, "GET", path)
			require.Equal(t, 200, a.StatusCode)
			require.Equal(t, "registry/2.0", a.Header.Get("Docker-Distribution-Api-Version"))
		}
	})

	t.Run("request to nonexistent blob should result in 404", func(t *testing.T) {
		both(t, "/v2/"+repo+"/blobs/"+absent, func(t *testing.T, a answer) { a.fails(t, 404, "BLOB_UNKNOWN") })
		both(t, "/v2/"+repo+"/blobs/sha512:"+strings.Repeat("0", 128), func(t *testing.T, a answer) { a.fails(t, 404, "BLOB_UNKNOWN") })
	})
	t.Run("what is not a digest should result in 400", func(t *testing.T) {
		both(t, "/v2/"+repo+"/blobs/latest", func(t *testing.T, a answer) { a.fails(t, 400, "DIGEST_INVALID") })
		both(t, "/v2/"+repo+"/referrers/latest", func(t *testing.T, a answer) { a.fails(t, 400, "DIGEST_INVALID") })
	})
	t.Run("request to existing blob should yield 200", func(t *testing.T) {
		for _, d := range w.Graph.Blobs {
			both(t, "/v2/"+repo+"/blobs/"+d.Digest.String(), func(t *testing.T, a answer) {
				require.Equal(t, 200, a.StatusCode)
				require.Equal(t, d.Size, a.ContentLength)
				require.Equal(t, d.Digest.String(), a.Header.Get("Docker-Content-Digest"))
				require.Equal(t, "bytes", a.Header.Get("Accept-Ranges"))
				if a.Request.Method == http.MethodGet {
					require.Equal(t, d.Digest, godigest.FromBytes(a.body))
				}
			})
		}
	})
	t.Run("range of a blob", func(t *testing.T) {
		path, whole := "/v2/"+repo+"/blobs/"+layer.Digest.String(), w.Store[layer.Digest.String()]
		for spec, want := range map[string][]byte{
			"bytes=0-9": whole[:10], "bytes=10-": whole[10:], "bytes=-7": whole[len(whole)-7:], fmt.Sprintf("bytes=%d-", len(whole)-1): whole[len(whole)-1:],
			"bytes=5-99999999": whole[5:],
		} {
			a := w.ask(t, "GET", path, "Range", spec)
			require.Equal(t, 206, a.StatusCode, spec)
			require.True(t, bytes.Equal(want, a.body), spec)
			require.Contains(t, a.Header.Get("Content-Range"), fmt.Sprintf("/%d", len(whole)))
		}
		a := w.ask(t, "GET", path, "Range", fmt.Sprintf("bytes=%d-", len(whole)))
		require.Equal(t, 416, a.StatusCode)
		a = w.ask(t, "GET", path, "Range", "bytes=10-", "If-Range", `"sha256:other"`)
		require.Equal(t, 200, a.StatusCode)
		require.True(t, bytes.Equal(whole, a.body))
		a = w.ask(t, "GET", path, "If-None-Match", `"`+layer.Digest.String()+`"`)
		require.Equal(t, 304, a.StatusCode)
	})

	t.Run("nonexistent manifest should return 404", func(t *testing.T) {
		for _, reference := range []string{absent, ".INVALID_MANIFEST_NAME", "none", "sha256:x"} {
			both(t, "/v2/"+repo+"/manifests/"+reference, func(t *testing.T, a answer) { a.fails(t, 404, "MANIFEST_UNKNOWN") })
		}
	})
	t.Run("manifest by digest and by tag should yield 200", func(t *testing.T) {
		want := map[string]bundle.Node{
			"1": w.Graph.Manifests[len(w.Graph.Manifests)-1],
			"sha256-" + root.Digest.Encoded() + ".sig": w.Graph.Attachments[0].Node, // for cosign
		}
		for _, n := range w.Graph.Manifests {
			want[n.Descriptor.Digest.String()] = n
		}
		for reference, n := range want {
			both(t, "/v2/"+repo+"/manifests/"+reference, func(t *testing.T, a answer) {
				require.Equal(t, 200, a.StatusCode)
				require.Equal(t, n.Descriptor.MediaType, a.Header.Get("Content-Type"))
				require.Equal(t, n.Descriptor.Digest.String(), a.Header.Get("Docker-Content-Digest"))
				require.Equal(t, n.Descriptor.Size, a.ContentLength)
				if a.Request.Method == http.MethodGet {
					require.Equal(t, n.Data, a.body)
				}
			})
		}
		a := w.ask(t, "GET", "/v2/vdo/drivers/registry.test/docker/list/manifests/v2")
		require.Equal(t, docker2, a.Header.Get("Content-Type"), "media types are upstream's")
	})
	t.Run("an image has a repository with what is its own and nothing else", func(t *testing.T) {
		a := w.ask(t, "GET", "/v2/"+beside+"/manifests/v1")
		require.Equal(t, 200, a.StatusCode)
		w.ask(t, "HEAD", "/v2/"+beside+"/manifests/"+root.Digest.String()).fails(t, 404, "MANIFEST_UNKNOWN")
		own := 0
		for _, d := range w.Graph.Blobs {
			if w.ask(t, "HEAD", "/v2/"+beside+"/blobs/"+d.Digest.String()).StatusCode == http.StatusOK {
				own++
			}
		}
		require.Greater(t, own, 4)
		require.Less(t, own, len(w.Graph.Blobs))
	})

	t.Run("tags list", func(t *testing.T) {
		type list struct {
			Name string
			Tags []string
		}
		var l list
		a := w.ask(t, "GET", "/v2/"+repo+"/tags/list?n=1")
		require.Equal(t, 200, a.StatusCode, "%s", a.body)
		require.NoError(t, json.Unmarshal(a.body, &l))
		require.Equal(t, list{repo, []string{"1"}}, l)
		require.Equal(t, "</v2/"+repo+`/tags/list?last=1&n=1>; rel="next"`, a.Header.Get("Link"))
		a = w.ask(t, "GET", "/v2/"+repo+"/tags/list?last=1&n=1")
		require.NoError(t, json.Unmarshal(a.body, &l))
		require.Equal(t, list{repo, []string{"sha256-" + root.Digest.Encoded() + ".sig"}}, l)
		require.Empty(t, a.Header.Get("Link"), "that was all")
		require.Equal(t, `{"repositories":[]}`, string(w.ask(t, "GET", "/v2/_catalog?n=0").body))
		w.ask(t, "GET", "/v2/none/tags/list").fails(t, 404, "NAME_UNKNOWN")
	})
	t.Run("catalog", func(t *testing.T) {
		var l struct{ Repositories []string }
		require.NoError(t, json.Unmarshal(w.ask(t, "GET", "/v2/_catalog").body, &l))
		require.Equal(t, []string{repo, "vdo/drivers/registry.test/docker/list", beside, "vdo/drivers/registry.test/plain/image"}, l.Repositories)
	})

	t.Run("referrers", func(t *testing.T) {
		get := func(subject, filter string) (ocispec.Index, answer) {
			a := w.ask(t, "GET", "/v2/"+repo+"/referrers/"+subject+filter)
			require.Equal(t, 200, a.StatusCode, "%s", a.body)
			require.Equal(t, ocispec.MediaTypeImageIndex, a.Header.Get("Content-Type"))
			var index ocispec.Index
			require.NoError(t, json.Unmarshal(a.body, &index))
			require.Equal(t, 2, index.SchemaVersion)
			require.Equal(t, ocispec.MediaTypeImageIndex, index.MediaType)
			return index, a
		}
		index, a := get(absent, "")
		require.Empty(t, index.Manifests)
		require.Contains(t, string(a.body), `"manifests":[]`)
		index, a = get(root.Digest.String(), "")
		require.Len(t, index.Manifests, 2, "a signature under a tag refers to nothing")
		require.Empty(t, a.Header.Get("Oci-Filters-Applied"))
		index, a = get(root.Digest.String(), "?artifactType="+url.QueryEscape(sbom))
		require.Equal(t, "artifactType", a.Header.Get("Oci-Filters-Applied"))
		require.Equal(t, []ocispec.Descriptor{{
			MediaType: ocispec.MediaTypeImageManifest, Digest: w.refs[0].Digest, Size: w.refs[0].Size,
			ArtifactType: sbom, Annotations: map[string]string{"n": "0"},
		}}, index.Manifests)
		require.Equal(t, 200, w.ask(t, "GET", "/v2/"+repo+"/manifests/"+w.refs[0].Digest.String()).StatusCode)
		index, _ = get(root.Digest.String(), "?artifactType=none")
		require.Empty(t, index.Manifests)
	})

	t.Run("nothing can be written", func(t *testing.T) {
		for method, path := range map[string]string{
			"POST": "/v2/" + repo + "/blobs/uploads/", "PUT": "/v2/" + repo + "/manifests/2", "PATCH": "/v2/" + repo + "/blobs/uploads/x",
			"DELETE": "/v2/" + repo + "/manifests/" + root.Digest.String(),
		} {
			a := w.ask(t, method, path)
			a.fails(t, 405, "UNSUPPORTED")
			require.Equal(t, "GET, HEAD", a.Header.Get("Allow"))
		}
	})
	t.Run("what is not an endpoint", func(t *testing.T) {
		for _, path := range []string{"/", "/v1/", "/v2x", "/v2/x", "/v2/x/y", "/v2/" + repo + "/tags/none", "/v2/" + repo + "/things/1", "/v2/" + repo + "/blobs/uploads/x"} {
			a := w.ask(t, "GET", path)
			require.Contains(t, []int{400, 404}, a.StatusCode, path)
			require.Contains(t, string(a.body), `"errors":[{"code":`, path)
		}
		w.ask(t, "GET", "/v2/other/drivers/manifests/1").fails(t, 404, "NAME_UNKNOWN")
	})
}

// broken gives half of every blob and then an error.
type broken struct{ bundles.Store }

func (b broken) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	rc, err := b.Store.Fetch(ctx, d, offset)
	return io.NopCloser(io.LimitReader(rc, d.Size/2)), err
}

func TestAMediumThatEndsEarlyIsNoWholeAnswer(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	server := httptest.NewServer(handler(t, b.Graph, broken{b.Store}))
	defer server.Close()
	layer := slices.MaxFunc(b.Graph.Blobs, func(a, b ocispec.Descriptor) int { return int(a.Size - b.Size) })
	resp := must.Have(http.Get(server.URL + "/v2/" + repo + "/blobs/" + layer.Digest.String()))(t)
	_, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NoError(t, resp.Body.Close())
}

func FuzzNoRequestDisturbsTheServer(f *testing.F) {
	b := bundles.New(f, bundles.Options{Seed: 2, LayerSize: 100})
	h := handler(f, b.Graph, b.Store)
	f.Add("/v2/vdo/drivers/manifests/1", "n=1&last=x", "bytes=0-1")
	f.Add("/v2/vdo/drivers/referrers/sha256:00", "artifactType=x", "bytes=9-1,-0")
	f.Add("/v2/vdo/drivers/tags/list", "n=-1", "")
	f.Fuzz(func(t *testing.T, path, query, ranges string) {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.URL = &url.URL{Path: path, RawQuery: query}
		req.Header.Set("Range", ranges)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		require.Less(t, rec.Code, 500)
	})
}
