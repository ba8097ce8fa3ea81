package signatures

import (
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Whoever can add attachments to a bundle can add many, which are small and share what is
// large. They are counted before they are read: the reader has nothing to read from here.
func TestManyAttachmentsAreRefusedUnread(t *testing.T) {
	for name, attached := range map[string][]ocispec.Descriptor{
		"many":  make([]ocispec.Descriptor, bundle.MaxNodes+1),
		"large": {{Size: bundle.MaxManifestBytes}, {Size: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&Reader{}).Read(t.Context(), nil, image.DigestOf(nil), attached)
			require.ErrorContains(t, err, "there are more than 4096, or their manifests have more than 67108864 bytes")
			require.Equal(t, fault.Refused, fault.ReasonOf(err))
		})
	}
}
