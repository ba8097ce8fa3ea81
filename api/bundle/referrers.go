package bundle

import (
	"context"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// ReadReferrers reads those of the attachments of a subject that are referrers of an
// artifact type, or of none, with the bytes of their blobs: at most [MaxAttachmentData] of
// all together. What is not whole, or too large, is left out.
func ReadReferrers(ctx context.Context, f Fetcher, subject image.Digest, attached []ocispec.Descriptor,
	artifactType string) []Attachment {
	var out []Attachment
	left := int64(MaxAttachmentData)
	for _, d := range attached {
		if d.Annotations[ocispec.AnnotationRefName] != "" || (d.ArtifactType != "" && d.ArtifactType != artifactType) {
			continue
		}
		a, err := ReadAttachment(ctx, f, subject, d)
		if err != nil {
			continue
		}
		if left -= SizeOf(a.Blobs); left < 0 {
			break
		}
		if a.fill(ctx, f) == nil {
			out = append(out, a)
		}
	}
	return out
}

// fill gives the blobs of an attachment their bytes.
func (a Attachment) fill(ctx context.Context, f Fetcher) (err error) {
	for i, b := range a.Blobs {
		if a.Blobs[i].Data, err = Read(ctx, f, b, b.Size); err != nil {
			return err
		}
	}
	return nil
}
