package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// hand makes images by hand in a registry without TLS.
type hand struct {
	t          *testing.T
	registry   *registry.Registry
	repository string
}

func (h hand) send(method, url, mediaType string, body []byte) (*http.Response, []byte) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, url, bytes.NewReader(body))
	require.NoError(h.t, err)
	req.Header.Set("Content-Type", mediaType)
	req.Header.Set("Accept", mediaType)
	resp, err := h.registry.Transport().RoundTrip(req)
	require.NoError(h.t, err)
	defer resp.Body.Close() //nolint:errcheck // of a test
	data, err := io.ReadAll(resp.Body)
	require.NoError(h.t, err)
	return resp, data
}

func (h hand) url(kind, name string) string {
	return h.registry.URL() + "/v2/" + h.repository + "/" + kind + "/" + name
}

// get reads a manifest by tag.
func (h hand) get(tag string) ocispec.Descriptor {
	h.t.Helper()
	resp, data := h.send(http.MethodGet, h.url("manifests", tag), ocispec.MediaTypeImageManifest, nil)
	require.Equal(h.t, http.StatusOK, resp.StatusCode)
	return ocispec.Descriptor{MediaType: resp.Header.Get("Content-Type"), Digest: digest.FromBytes(data), Size: int64(len(data))}
}

func (h hand) put(tag string, v any, mediaType string) ocispec.Descriptor {
	h.t.Helper()
	data, err := json.Marshal(v)
	require.NoError(h.t, err)
	resp, output := h.send(http.MethodPut, h.url("manifests", tag), mediaType, data)
	require.Equal(h.t, http.StatusCreated, resp.StatusCode, "%s", output)
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

func (h hand) blob(mediaType string, data []byte) ocispec.Descriptor {
	h.t.Helper()
	resp, _ := h.send(http.MethodPost, h.url("blobs", "uploads/"), "", nil)
	at, err := resp.Location()
	require.NoError(h.t, err)
	q := at.Query()
	q.Set("digest", digest.FromBytes(data).String())
	at.RawQuery = q.Encode()
	resp, output := h.send(http.MethodPut, at.String(), "application/octet-stream", data)
	require.Equal(h.t, http.StatusCreated, resp.StatusCode, "%s", output)
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// Images that keep to the letter of the specification, and are unlike most.
func TestOddImagesOfUpstream(t *testing.T) {
	w := newWorld(t, t.TempDir())
	h := hand{t, w.upstream, "x/cloud/ccm"}
	plain := h.get("v1.33.1")
	index := func(children ...ocispec.Descriptor) {
		i := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: children}
		i.SchemaVersion = 2
		h.put("v1.34.0", i, i.MediaType)
	}
	run := func(code int, args ...string) string {
		t.Helper()
		cmd, _, stderr := w.command(t.Context(), append(args, "@up")...)
		_ = cmd.Run() // the code says it
		require.Equal(t, code, cmd.ProcessState.ExitCode(), stderr.String())
		return stderr.String()
	}

	index(plain) // the configuration says what the index does not
	run(0, "lock", "-q", "--k8s", "1.34", "--platform", "linux/amd64", "-o", "lock.yaml")
	require.Contains(t, string(w.read(t, "lock.yaml")), plain.Digest.String())
	require.Contains(t, run(4, "lock", "-q", "--k8s", "1.34", "--platform", "linux/s390x"), "the image has linux/amd64")
	run(0, "pull", "-q", "--k8s", "1.34", "-o", "a.tar")
	require.Regexp(t, `cloud/ccm:v1.34.0 .* linux/amd64`, w.must(t, "inspect", "a.tar"))

	index()
	output := run(9, "pull", "-q", "--k8s", "1.34", "-o", "b.tar")
	require.Contains(t, output, "image registry.test/cloud/ccm:v1.34.0: its index names no image manifest: nothing of it could run")
	require.NotContains(t, output, "run the same command again")

	// A layer that its maker calls not distributable, of which the registry has no bytes.
	layer := h.blob("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", []byte("not to be given away"))
	config := h.blob(ocispec.MediaTypeImageConfig, []byte(`{"os":"windows","architecture":"amd64"}`))
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: []ocispec.Descriptor{layer}}
	m.SchemaVersion = 2
	h.put("v1.34.0", m, m.MediaType)
	w.upstream.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/blobs/" + layer.Digest.String()}, Status: 404})
	for range 2 {
		output = run(8, "pull", "-q", "--k8s", "1.34", "-o", "c.tar")
		require.Contains(t, output, "layer of registry.test/cloud/ccm:v1.34.0 ("+layer.Digest.String())
		require.Contains(t, output, "it is called not distributable")
		require.Contains(t, output, "hint: do without the platforms that need it (--platform linux/amd64), or take the image from a registry that has the layer")
	}
	w.upstream.Heal()
	run(0, "pull", "-q", "--k8s", "1.34", "-o", "c.tar")
}

// A file name that others have chosen is no command in a hint.
func TestNamesInHintsAreQuoted(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.must(t, "pull", "@up", "-q", "-o", "x$(id).tar", "--volume-size", "300kB", "--parity", "1")
	w.write(t, "x$(id).tar.002", []byte("damaged"))
	cmd, _, stderr := w.command(t.Context(), "inspect", "x$(id).tar.parts")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), fmt.Sprintf("hint: rebuild it with `vdo-bundle repair %s`", "'x$(id).tar.parts'"))
}
