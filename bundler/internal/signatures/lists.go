package signatures

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Lists are the lists of attachments as they were when each was asked for
// first: what was verified of a subject and what is then taken along are one list.
type Lists struct{ lists sync.Map } // by subject

// Of returns the list of a subject as it was when it was asked for first.
func (a *Lists) Of(ctx context.Context, s Source, subject image.Digest) ([]ocispec.Descriptor, error) {
	list, ok := a.lists.Load(subject)
	if !ok {
		asked, err := s.Attachments(ctx, subject)
		if err != nil {
			return nil, err
		}
		list, _ = a.lists.LoadOrStore(subject, asked)
	}
	return slices.Clone(list.([]ocispec.Descriptor)), nil //nolint:forcetypeassert // of the map's only kind
}

// Signature is something attached to a digest.
type Signature struct {
	Digest image.Digest `json:"digest"`
	Tag    string       `json:"tag,omitempty"`  // cosign's tag, where it is under one
	Type   string       `json:"type,omitempty"` // artifact type of a referrer
}

// compare orders what is attached in the same way wherever it is: tags first.
func (s Signature) compare(t Signature) int {
	if (s.Tag == "") != (t.Tag == "") {
		return strings.Compare(t.Tag, s.Tag)
	}
	return cmp.Or(strings.Compare(s.Tag, t.Tag), strings.Compare(s.Type, t.Type), strings.Compare(s.Digest.String(), t.Digest.String()))
}

// List returns what is attached to a subject, in the same order from every medium.
func List(ctx context.Context, s Source, subject image.Digest) ([]Signature, error) {
	attached, err := s.Attachments(ctx, subject)
	out := []Signature{}
	for _, d := range attached {
		digest, err := image.ParseDigest(d.Digest.String())
		if err != nil {
			return nil, err
		}
		out = append(out, Signature{Digest: digest, Tag: d.Annotations[ocispec.AnnotationRefName], Type: d.ArtifactType})
	}
	slices.SortFunc(out, Signature.compare)
	return out, err
}
