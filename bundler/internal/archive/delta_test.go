package archive

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	orasremote "oras.land/oras-go/v2/registry/remote"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// asDelta leaves every second layer of a bundle to a base.
func asDelta(t testing.TB, b *bundles.Bundle) {
	t.Helper()
	n := 0
	base := b.Graph.Without(image.DigestOf([]byte("base")), func(image.Digest) bool { n++; return n%2 == 0 })
	require.NoError(t, b.Graph.LeaveTo(base))
}

func TestADeltaIsWrittenAndReadAsSuch(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 80})
	full := streamed(t, b)
	asDelta(t, b)
	b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 1)}
	path := written(t, b)
	require.True(t, bytes.Equal(streamed(t, b), read(t, path)))
	require.Less(t, len(read(t, path)), len(full))
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // only read
	require.Equal(t, b.Graph.Base, f.Base())
	require.NoError(t, f.CheckLayout(t.Context()))
	_, err = f.Fetch(t.Context(), b.Graph.Left()[0])
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
	require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 2)))
	require.Equal(t, b.Graph.Base, f.Base(), "a signature changes nothing of it")
	require.NoError(t, f.CheckLayout(t.Context()))

	dir := filepath.Join(t.TempDir(), "d")
	w, err := CreateDir(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	d, err := OpenDir(dir)
	require.NoError(t, err)
	defer d.Close() //nolint:errcheck // only read
	require.Equal(t, b.Graph.Base, d.Base())
	require.NoError(t, d.CheckLayout(t.Context()))
	require.NoError(t, d.Attach(t.Context(), bundles.Signature(t, rootOf(b), 2)))
	require.Equal(t, b.Graph.Base, d.Base())
	require.NoError(t, d.CheckLayout(t.Context()))
}

// A list that names what the images do not have, or an archive that lacks what the
// list does not name, is not a delta.
func TestAFalseListIsFound(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 81})
	asDelta(t, b)
	b.Graph.Base.Layers = append([]image.Digest(nil), b.Graph.Base.Layers...)
	first := digest.Digest(b.Graph.Base.Layers[0].String())
	path := written(t, b)
	data := read(t, path)
	at := bytes.Index(data, []byte(first))
	require.Positive(t, at)
	for i := at + len("sha256:"); i < at+len(first); i++ {
		data[i] = '0'
	}
	f, err := OpenFile(rewritten(t, data))
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // only read
	err = f.CheckLayout(t.Context())
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.Contains(t, err.Error(), "not a layer of its images")
}

func rewritten(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.tar")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// crane's and oras's libraries write a delta into a repository that has the base,
// without asking for what it left out.
func TestOtherToolsPushADeltaIntoAFilledRepository(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 82})
	reg := registry.Start(t, registry.Options{})
	write := func(t *testing.T, dir, repository string) error {
		index, err := layout.ImageIndexFromPath(dir)
		require.NoError(t, err)
		images, err := index.IndexManifest()
		require.NoError(t, err)
		for _, d := range images.Manifests {
			ref, err := name.ParseReference(reg.Host+"/"+repository+"@"+d.Digest.String(), name.Insecure)
			require.NoError(t, err)
			if d.MediaType.IsIndex() {
				child, err := index.ImageIndex(d.Digest)
				require.NoError(t, err)
				if err := remote.WriteIndex(ref, child); err != nil {
					return err
				}
				continue
			}
			child, err := index.Image(d.Digest)
			require.NoError(t, err)
			if err := remote.Write(ref, child); err != nil {
				return err
			}
		}
		return nil
	}
	dir := func(name string) string {
		path := filepath.Join(t.TempDir(), name)
		w, err := CreateDir(path, Options{})
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, b, 1))
		return path
	}
	whole := dir("whole")
	asDelta(t, b)
	delta := dir("delta")
	// The base is another bundle that has the layers; here, the images without the root.
	require.NoError(t, write(t, whole, "filled"))
	require.Error(t, write(t, delta, "empty"), "what is left out has to be somewhere")
	require.NoError(t, write(t, delta, "filled"))

	store, err := oci.New(delta)
	require.NoError(t, err)
	repository, err := orasremote.NewRepository(reg.Host + "/filled")
	require.NoError(t, err)
	repository.PlainHTTP = true
	d, err := oras.Copy(t.Context(), store, bundle.RootName, repository, "copied", oras.DefaultCopyOptions)
	require.NoError(t, err)
	require.Equal(t, b.Graph.Root.Digest, d.Digest)
}
