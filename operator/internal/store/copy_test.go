package store

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

func TestPartsAreReadByTheirNames(t *testing.T) {
	s := New(Options{Client: fake.NewClientBuilder().Build()})
	b := &v1alpha1.DriverBundle{}
	b.Namespace, b.Name, b.UID = "ns", "site", "uid"
	d := image.DigestOf([]byte("root"))
	packed := bytes.Repeat([]byte("0123456789abcde\n"), 3*partSize/16-7)
	require.NoError(t, s.writeCopy(t.Context(), b, d, packed))
	got, err := s.readParts(t.Context(), b, d)
	require.NoError(t, err)
	require.True(t, bytes.Equal(packed, got))

	var second corev1.ConfigMap
	second.Namespace, second.Name = "ns", partName(b, d, 1)
	require.NoError(t, s.opts.Client.Delete(t.Context(), &second))
	_, err = s.readParts(t.Context(), b, d)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err), "%v", err)
	_, err = s.readParts(t.Context(), b, image.DigestOf([]byte("another")))
	require.Equal(t, fault.NotFound, fault.ReasonOf(err), "%v", err)
}

func TestTheStreamIsTheSameForTheSameBlobsAndReadsBack(t *testing.T) {
	blobs := map[digest.Digest][]byte{}
	for _, s := range []string{"a", "", "ccc", "\n\n"} {
		blobs[digest.FromString(s)] = []byte(s)
	}
	root := ocispec.Descriptor{MediaType: "x", Digest: digest.FromString("a"), Size: 1}
	packed := pack(root, []ocispec.Descriptor{root}, blobs)
	for range 5 {
		require.Equal(t, packed, pack(root, []ocispec.Descriptor{root}, blobs))
	}
	h, err := unpack(packed)
	require.NoError(t, err)
	require.Equal(t, root, h.head.Root)
	require.Len(t, h.head.Signatures, 1)
	require.Len(t, h.InMemory, 4)
	for d, data := range blobs {
		require.Equal(t, string(data), string(h.InMemory[d]))
	}
}

func FuzzUnpack(f *testing.F) {
	root := ocispec.Descriptor{Digest: digest.FromString("a"), Size: 1}
	f.Add(pack(root, nil, map[digest.Digest][]byte{root.Digest: []byte("a")}))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := unpack(data)
		if err != nil {
			return
		}
		for _, b := range h.head.Blobs {
			require.Contains(t, h.InMemory, b.Digest)
		}
	})
}
