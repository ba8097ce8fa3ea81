// Package list lists the bundles of a repository, by what each says about itself.
//
//	l, err := list.Read(ctx, repository, o)
//	newest := l.Bundles[0]
//
// Registries do not list untagged manifests. The package finds untagged bundles through their
// signatures and the notes of pushes.
package list

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// Repository is a repository of several bundles.
type Repository interface {
	// Tags returns all tags, sorted.
	Tags(ctx context.Context) ([]string, error)
	// Open opens a tag or digest.
	Open(identifier string) (medium.Source, error)
	// Pushed returns when a push last tagged a bundle, or began to and perhaps did not; zero if unknown. The bundle
	// has these tags now.
	Pushed(ctx context.Context, root image.Digest, tags []string) (pushed, begun time.Time, err error)
}

// Bundle is one bundle of a repository, by what it says about itself.
type Bundle struct {
	Root       image.Digest           `json:"root"`
	Tags       []string               `json:"tags"`
	Serial     int64                  `json:"serial"`          // of the matrix
	Issued     time.Time              `json:"issued"`          // the matrix
	Expires    time.Time              `json:"expires"`         // the matrix
	Pushed     time.Time              `json:"pushed,omitzero"` // when a push of vdo-bundle last tagged it
	Why        string                 `json:"why,omitempty"`   // in a prune plan: why it stays
	Releases   []string               `json:"releases"`
	Images     int                    `json:"images"`
	Bytes      int64                  `json:"bytes"`
	Signatures []signatures.Signature `json:"signatures"` // nil: they could not be read

	Graph *bundle.Graph `json:"-"`
	Begun time.Time     `json:"-"` // when an interrupted push was about to tag it; Pushed is zero then
}

// Listing is the content of a repository.
type Listing struct {
	Bundles []Bundle `json:"bundles"` // newest first
	Others  []string `json:"others"`  // tags of other content
	// Unread are tags that could not be read. They may be those of bundles without a tag here.
	Unread []string `json:"unread,omitempty"`
	// Broken are untagged roots that are incomplete, by digest: the rest of a bundle after prune or an aborted push.
	Broken []string `json:"broken,omitempty"`

	Tags map[string]ocispec.Descriptor `json:"-"` // all tags but those of attachments
}

// Read reads all bundles of a repository, newest first. It returns the readable ones beside a fault for the rest. The
// order is the matrix's serial and date, the time of the last tagging push, the tags, then the digest.
func Read(ctx context.Context, repository Repository, o run.Options) (*Listing, error) {
	tags, err := repository.Tags(ctx)
	if err != nil {
		return nil, err
	}
	subjects := taggedSubjects(tags)
	tags = slices.DeleteFunc(tags, IsReferrerTag)
	found, roots := make([]tagged, len(tags)), &sync.Map{}
	err = run.Each(ctx, o.Limit(), len(tags), func(i int) error {
		var err error
		found[i], err = readTag(ctx, repository, tags[i], roots)
		return err
	})
	subjects = slices.DeleteFunc(subjects, func(d image.Digest) bool { // an unread one has a tag all the same
		return slices.ContainsFunc(found, func(t tagged) bool { return t.root.Digest.String() == d.String() })
	})
	l := newListing(tags, found)
	err = errors.Join(err, l.untagged(ctx, repository, subjects, o))
	if err == nil {
		err = run.Each(ctx, o.Limit(), len(l.Bundles), func(i int) (err error) {
			b := &l.Bundles[i]
			b.Pushed, b.Begun, err = repository.Pushed(ctx, b.Root, b.Tags)
			return err
		})
	}
	slices.SortFunc(l.Bundles, NewestFirst)
	return l, err
}

// newListing sorts the tags: each bundle once, with all its tags.
func newListing(tags []string, found []tagged) *Listing {
	l := &Listing{Bundles: []Bundle{}, Others: []string{}, Tags: map[string]ocispec.Descriptor{}}
	at := map[image.Digest]int{}
	for i, f := range found {
		switch {
		case !f.read:
			l.Unread = append(l.Unread, tags[i])
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
			if tags[i] != bundle.DigestTag(f.bundle.Root.Hex()) { // it repeats the digest
				l.Bundles[n].Tags = append(l.Bundles[n].Tags, tags[i])
			}
		}
		l.Tags[tags[i]] = f.root
	}
	return l
}

// taggedSubjects returns the subjects of tags of attachments, lists and notes.
func taggedSubjects(tags []string) (out []image.Digest) {
	for _, tag := range tags {
		if d, _, ok := attached(tag); ok && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// untagged adds the bundles among the subjects that have no tag.
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
		t, err := readAt(ctx, repository, subjects[i].String(), &sync.Map{})
		found[i] = t.bundle
		if r := fault.Gravest(err); r == fault.NotFound || r == fault.Incomplete {
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

// IsReferrerTag reports whether a tag is cosign's, a list of referrers, or the note of a push.
func IsReferrerTag(tag string) bool {
	_, _, ok := attached(tag)
	return ok
}

// attached parses such a tag.
func attached(tag string) (subject image.Digest, s image.Suffix, ok bool) {
	subject, s, ok = image.ParseAttachedTag(tag)
	known := append(image.CosignSuffixes(), image.ReferrersList, bundle.NoteSuffix)
	return subject, s, ok && slices.Contains(known, s)
}

type tagged struct {
	root   ocispec.Descriptor
	bundle *Bundle // nil: other content, or unread
	read   bool
}

func readTag(ctx context.Context, repository Repository, tag string, roots *sync.Map) (tagged, error) {
	t, err := readAt(ctx, repository, tag, roots)
	if t.read = err == nil || t.bundle != nil; err != nil {
		err = fmt.Errorf("tag %s: %w", tag, err)
	}
	return t, err
}

// readAt reads a tag or digest, and what roots lacks. It returns the root even if there is a fault below it.
func readAt(ctx context.Context, repository Repository, identifier string, roots *sync.Map) (t tagged, err error) {
	s, err := repository.Open(identifier)
	if err != nil {
		return t, err
	}
	b, err := pinned.Open(ctx, s)
	if err != nil {
		return t, err
	}
	defer b.Close() //nolint:errcheck // only read
	t.root = b.Descriptor()
	once, _ := roots.LoadOrStore(t.root.Digest, sync.OnceValues(func() (*Bundle, error) { return readListed(ctx, b) }))
	t.bundle, err = once.(func() (*Bundle, error))() //nolint:forcetypeassert // nothing else is stored
	return t, err
}

// readListed returns nil for other content.
func readListed(ctx context.Context, b *pinned.Bundle) (*Bundle, error) {
	if is, err := bundle.IsRoot(ctx, b, b.Descriptor()); err != nil || !is {
		return nil, err
	}
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
	if l.Signatures, err = signatures.List(ctx, b, d.Root); err != nil {
		l.Signatures = nil
	}
	return l, err
}

// NewestFirst compares bundles in the order of [Listing].
func NewestFirst(a, b Bundle) int {
	return cmp.Or(
		compareMatrix(b, a), b.Pushed.Compare(a.Pushed), slices.Compare(b.Tags, a.Tags), cmp.Compare(a.Root.String(), b.Root.String()),
	)
}

// compareMatrix compares by the matrix's serial and date.
func compareMatrix(a, b Bundle) int {
	return cmp.Or(cmp.Compare(a.Serial, b.Serial), a.Issued.Compare(b.Issued))
}

// ShownNewer reports whether the registry's data show that a is newer than b, without contradiction. Tag names prove
// nothing: a tag may have moved today, and to an older matrix.
func ShownNewer(a, b Bundle) bool {
	m := compareMatrix(a, b)
	if b.Pushed.IsZero() {
		b.Pushed = b.Begun // perhaps it has its tag since then; as a, it may not have it
	}
	switch {
	case b.Pushed.IsZero():
		return m > 0
	case a.Pushed.IsZero():
		return m > 0 && a.Issued.After(b.Pushed)
	}
	p := a.Pushed.Compare(b.Pushed)
	return m >= 0 && p >= 0 && (m > 0 || p > 0)
}
