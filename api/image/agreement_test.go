package image_test

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// What is a reference here is one for go-containerregistry and for oras, and names the
// same image: both are handed what was parsed here.
func agrees(t *testing.T, ref image.Reference) {
	t.Helper()
	if len(ref.Path()) > 255 {
		return // go-containerregistry takes no longer ones
	}
	theirs, err := name.ParseReference(ref.String())
	require.NoError(t, err, ref)
	require.Equal(t, strings.Replace(theirs.Context().RegistryStr(), "index.docker.io", "docker.io", 1), ref.Host())
	require.Equal(t, theirs.Context().RepositoryStr(), ref.Path())
	require.Equal(t, theirs.Identifier(), ref.Identifier())
	oras, err := registry.ParseReference(ref.String())
	require.NoError(t, err, ref)
	require.Equal(t, oras.Registry, ref.Host())
	require.Equal(t, oras.Repository, ref.Path())
	require.Equal(t, oras.Reference, ref.Identifier())
}

// A reference is read as it is written, and means what the libraries make of it.
func FuzzReferencesMeanWhatTheLibrariesMakeOfThem(f *testing.F) {
	for _, in := range []string{
		"registry.k8s.io/csi-vsphere/driver:v3.5.1", "antrea/antrea-agent-ubuntu", "busybox", "index.docker.io/busybox:1",
		"localhost:5000/a/b", "[::1]:5000/a:1", "mirror.corp/vdo/drivers:1@" + someDigest, "mirror.corp/vdo/drivers@" + someDigest,
		"localhost/a", "a.b/c__d/e-f.g:T_1.2-x", "10.0.0.1:443/x", "Host:1/a--b",
	} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := image.ParseReference(s)
		if err != nil {
			return
		}
		again, err := image.ParseReference(ref.String())
		require.NoError(t, err)
		require.Equal(t, ref, again)
		agrees(t, ref)
	})
}
