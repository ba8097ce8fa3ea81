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
