// Package list reads which bundles a repository holds, as each says of itself.
//
//	l, err := list.Read(ctx, repository, o)
//	newest := l.Bundles[0]
//
// Registries do not list what has no tag. Bundles without one are found by what names
// them: signatures, and the notes of pushes.
package list

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
)

// Repository is a repository with several bundles.
type Repository interface {
	// Tags lists all tags, sorted.
	Tags(ctx context.Context) ([]string, error)
	// At opens what a tag or a digest names.
	At(identifier string) (medium.Source, error)
	// Pushed tells when a push last put a tag on a bundle; zero where nothing says so.
	Pushed(ctx context.Context, root image.Digest) (time.Time, error)
}

// Bundle is one bundle of a repository, as it says of itself.
type Bundle struct {
	Root       image.Digest           `json:"root"`
	Tags       []string               `json:"tags"`
	Serial     int64                  `json:"serial"`          // of the matrix
	Issued     time.Time              `json:"issued"`          // the matrix
	Expires    time.Time              `json:"expires"`         // the matrix
	Pushed     time.Time              `json:"pushed,omitzero"` // when a push of vdo-bundle last put a tag on it
	Why        string                 `json:"why,omitempty"`   // in a plan to prune: why it stays
	Releases   []string               `json:"releases"`
	Images     int                    `json:"images"`
	Bytes      int64                  `json:"bytes"`
	Signatures []signatures.Signature `json:"signatures"`

	Graph *bundle.Graph `json:"-"`
}

// Listing is what a repository holds.
type Listing struct {
	Bundles []Bundle `json:"bundles"` // newest first
	Others  []string `json:"others"`  // tags of other things
	// Broken are roots without a tag that cannot be read whole, by digest: what is left
	// of a bundle that was pruned or not pushed to its end.
	Broken []string `json:"broken,omitempty"`

	Tags map[string]ocispec.Descriptor `json:"-"` // all tags but those of attachments
}

// Read reads all bundles of a repository. What cannot be read is a fault, beside
// the listing of the rest.
//
// Registries do not list what has no tag. Bundles without one are found by what names
// them: signatures and the notes of pushes.
//
// Newest first means: by the serial of the matrix, then by the day it was issued,
// then by when a push put a tag on it, then by tag; then by digest, so that the order is
// always the same.
func Read(ctx context.Context, repository Repository, o run.Options) (*Listing, error) {
	tags, err := repository.Tags(ctx)
	if err != nil {
		return nil, err
	}
	subjects := taggedSubjects(tags)
	tags = slices.DeleteFunc(tags, IsReferrerTag)
	found := make([]tagged, len(tags))
	err = run.Each(ctx, o.Limit(), len(tags), func(i int) error {
		var err error
		found[i], err = readTag(ctx, repository, tags[i])
		return err
	})
	l := newListing(tags, found)
	err = errors.Join(err, l.untagged(ctx, repository, subjects, o))
	if err == nil {
		err = run.Each(ctx, o.Limit(), len(l.Bundles), func(i int) (err error) {
			l.Bundles[i].Pushed, err = repository.Pushed(ctx, l.Bundles[i].Root)
			return err
		})
	}
	slices.SortFunc(l.Bundles, NewestFirst)
	return l, err
}

// newListing sorts out what tags name: each bundle once, with all its tags.
func newListing(tags []string, found []tagged) *Listing {
	l := &Listing{Bundles: []Bundle{}, Others: []string{}, Tags: map[string]ocispec.Descriptor{}}
	at := map[image.Digest]int{}
	for i, f := range found {
		switch {
		case f.root.Digest == "":
			continue
		case f.bundle == nil:
			l.Others = append(l.Others, tags[i])
		default:
			n, seen := at[f.bundle.Root]
			if !seen {
				n = len(l.Bundles)
				at[f.bundle.Root] = n
				l.Bundles = append(l.Bundles, *f.bundle)
			}
			if tags[i] != bundle.DigestTag(f.bundle.Root.Hex()) { // it says no more than the digest
				l.Bundles[n].Tags = append(l.Bundles[n].Tags, tags[i])
			}
		}
		l.Tags[tags[i]] = f.root
	}
	return l
}

// taggedSubjects are the digests that tags of attachments, lists and notes are about.
func taggedSubjects(tags []string) (out []image.Digest) {
	for _, tag := range tags {
		if d, _, ok := attached(tag); ok && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// untagged adds the bundles among the subjects that no tag names.
func (l *Listing) untagged(ctx context.Context, repository Repository, subjects []image.Digest, o run.Options) error {
	known := map[string]bool{}
	for _, b := range l.Bundles {
		for _, n := range b.Graph.Manifests {
			known[n.Descriptor.Digest.String()] = true
		}
	}
	subjects = slices.DeleteFunc(subjects, func(d image.Digest) bool { return known[d.String()] })
	found, broken := make([]*Bundle, len(subjects)), make([]bool, len(subjects))
	err := run.Each(ctx, o.Limit(), len(subjects), func(i int) error {
		t, err := readAt(ctx, repository, subjects[i].String())
		found[i] = t.bundle
		if fault.ReasonOf(err) == fault.NotFound { // gone, or in part
			broken[i], err = t.root.Digest != "", nil
		}
		return err
	})
	for i, b := range found {
		switch {
		case broken[i]:
			l.Broken = append(l.Broken, subjects[i].String())
		case b != nil:
			l.Bundles = append(l.Bundles, *b)
		}
	}
	return err
}

// IsReferrerTag knows the tags of cosign, of lists of referrers, and of the notes
// that a push leaves.
func IsReferrerTag(tag string) bool {
	_, _, ok := attached(tag)
	return ok
}

// attached reads such a tag.
func attached(tag string) (subject image.Digest, s image.Suffix, ok bool) {
	subject, s, ok = image.ParseAttachedTag(tag)
	known := append(image.CosignSuffixes(), image.ReferrersList, bundle.NoteSuffix)
	return subject, s, ok && slices.Contains(known, s)
}

// tagged is what a tag names.
type tagged struct {
	root   ocispec.Descriptor
	bundle *Bundle // nil: something else
}

func readTag(ctx context.Context, repository Repository, tag string) (tagged, error) {
	t, err := readAt(ctx, repository, tag)
	if err != nil {
		return tagged{}, fmt.Errorf("tag %s: %w", tag, err)
	}
	return t, nil
}

// readAt reads what a tag or digest names. The root is returned with a fault of what is
// below it.
func readAt(ctx context.Context, repository Repository, identifier string) (t tagged, err error) {
	s, err := repository.At(identifier)
	if err != nil {
		return t, err
	}
	defer s.Close() //nolint:errcheck // only read
	b, err := pinned.Open(ctx, s)
	if err != nil {
		return t, err
	}
	t.root = b.Descriptor()
	is, err := bundle.IsRoot(ctx, b, t.root)
	if err != nil || !is {
		return t, err
	}
	t.bundle, err = readListed(ctx, b)
	return t, err
}

func readListed(ctx context.Context, b *pinned.Bundle) (*Bundle, error) {
	d, err := b.Describe(ctx)
	if err != nil {
		return nil, err
	}
	l := &Bundle{
		Root: d.Root, Tags: []string{}, Serial: d.Matrix.Serial, Issued: d.Matrix.Issued, Expires: d.Matrix.Expires,
		Releases: []string{}, Images: len(d.Contents.Lock.Images), Bytes: d.Graph.Size(), Graph: d.Graph,
	}
	for _, r := range d.Contents.Lock.Releases {
		l.Releases = append(l.Releases, r.ID())
	}
	l.Signatures, err = signatures.List(ctx, b, d.Root)
	return l, err
}

// NewestFirst orders bundles as [Listing] has them.
func NewestFirst(a, b Bundle) int {
	return cmp.Or(
		compareMatrix(b, a), b.Pushed.Compare(a.Pushed), slices.Compare(b.Tags, a.Tags), cmp.Compare(a.Root.String(), b.Root.String()),
	)
}

// compareMatrix compares by what the matrix says.
func compareMatrix(a, b Bundle) int {
	return cmp.Or(cmp.Compare(a.Serial, b.Serial), a.Issued.Compare(b.Issued))
}

// ShownNewer tells whether what the registry shows says that a is newer than b, and
// nothing says otherwise. A tag's name shows nothing: it may have been moved today, and
// to an older matrix.
func ShownNewer(a, b Bundle) bool {
	m := compareMatrix(a, b)
	switch {
	case b.Pushed.IsZero():
		return m > 0
	case a.Pushed.IsZero():
		return m > 0 && a.Issued.After(b.Pushed)
	}
	p := a.Pushed.Compare(b.Pushed)
	return m >= 0 && p >= 0 && (m > 0 || p > 0)
}
