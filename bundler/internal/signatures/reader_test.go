package signatures

import (
	"context"
	"io"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// listing is a source of descriptors alone.
type listing struct {
	bundle.Fetcher
	list []ocispec.Descriptor
}

func (l listing) Attachments(context.Context, image.Digest) ([]ocispec.Descriptor, error) {
	return l.list, nil
}

// Whoever can add attachments to a bundle can add many, which are small and share what is
// large. They are counted before they are read: the reader has nothing to read from here.
func TestManyAttachmentsAreRefusedUnread(t *testing.T) {
	for name, attached := range map[string][]ocispec.Descriptor{
		"many":  make([]ocispec.Descriptor, bundle.MaxNodes+1),
		"large": {{Size: bundle.MaxManifestBytes}, {Size: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&Reader{}).Read(t.Context(), listing{list: attached}, image.DigestOf(nil))
			require.ErrorContains(t, err, "there are more than 4096, or their manifests have more than 67108864 bytes")
			require.Equal(t, fault.Refused, fault.ReasonOf(err))
		})
	}
}

// oneReferrer is a source with one referrer, which it cannot read.
type oneReferrer struct{ reason fault.Reason }

func (oneReferrer) Attachments(context.Context, image.Digest) ([]ocispec.Descriptor, error) {
	return []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: trust.BundleMediaType,
		Digest: ocispec.DescriptorEmptyJSON.Digest, Size: 2}}, nil
}

func (r oneReferrer) Fetch(context.Context, ocispec.Descriptor, int64) (io.ReadCloser, error) {
	return nil, &fault.Error{Reason: r.reason}
}

// A signature that is missed at a network fault would be made twice.
func TestAReferrerIsMissingOnlyIfItIsGone(t *testing.T) {
	for reason, want := range map[fault.Reason]fault.Reason{
		fault.NotFound: "", fault.Corrupt: "", fault.Unreachable: fault.Unreachable, fault.Throttled: fault.Throttled,
	} {
		exists, err := ReadExisting(t.Context(), oneReferrer{reason}, image.DigestOf(nil), image.Signatures, false)
		require.Equal(t, want, fault.ReasonOf(err), reason)
		require.Empty(t, exists.Referring)
	}
}
