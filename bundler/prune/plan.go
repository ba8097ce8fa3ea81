package prune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
)

// Repository is a repository to delete bundles from.
type Repository interface {
	list.Repository
	// Delete deletes a manifest and its tags.
	Delete(ctx context.Context, d ocispec.Descriptor, tags []string) error
	// Lacks returns the missing ones of ds.
	Lacks(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error)
}

// Plan is what prune deletes and what stays.
type Plan struct {
	Keep      []list.Bundle `json:"keep"`
	Delete    []list.Bundle `json:"delete"`
	Others    []string      `json:"others"`           // tags of other content, which stays with all that it needs
	Manifests int           `json:"manifests"`        // to delete, with those of images
	Attached  int           `json:"attached"`         // their signatures and other attachments
	Bytes     int64         `json:"bytes"`            // no longer needed: the registry's garbage collection frees them
	Broken    []string      `json:"broken,omitempty"` // untagged incomplete roots, by digest, which stay
	Done      bool          `json:"done"`             // all deletions are confirmed; else only planned, or partly done
	// Deleted is the number of deleted manifests and attachments. Remaining are those that the registry still has.
	Deleted   int      `json:"deleted"`
	Remaining []string `json:"remaining,omitempty"`

	reference image.Reference
	open      func(image.Reference) Repository

	places  []location // the repository first
	targets []target
	roots   int              // index of the first target in the repository itself
	gone    map[string]int64 // sizes of what the deleted bundles have in all locations
	needed  map[string]int64 // sizes of what stays
}

// location is a repository, with the content of its tags except those of attachments.
type location struct {
	Repository
	tags map[string]ocispec.Descriptor
}

// target is one manifest to delete.
type target struct {
	in   Repository
	d    ocispec.Descriptor
	tags []string
}

// NewPlan decides what to delete: each bundle that keep does not name and that keep.Newest others are shown to be
// newer than. If the registry does not show which is older, all stay. All that kept bundles, other tags and their
// attachments need stays too. If anything is unreadable, NewPlan deletes nothing.
func NewPlan(
	ctx context.Context, reference image.Reference, open func(image.Reference) Repository, keep Keep, o run.Options,
) (*Plan, error) {
	repository := open(reference)
	l, err := list.Read(ctx, repository, o)
	if err != nil {
		return nil, fault.Errorf(fault.ReasonOf(err), "plan to prune", "", fault.HintOf(err),
			"not everything could be read, so nothing is deleted: %w", err)
	}
	p := &Plan{
		Others: l.Others, Broken: l.Broken,
		reference: reference, open: open, places: []location{{repository, l.Tags}},
		gone: map[string]int64{}, needed: map[string]int64{},
	}
	if p.Keep, p.Delete, err = keep.part(l.Bundles); err != nil {
		return nil, err
	}
	if len(p.Delete) == 0 {
		return p, nil
	}
	return p, p.choose(ctx, o)
}

// choose lists what only deleted bundles need: notes, images in other repositories (unreachable without the bundle),
// then the bundles' own manifests. Their roots come first, so that no bundle is incomplete, then other manifests with
// parents before children, then attachments.
func (p *Plan) choose(ctx context.Context, o run.Options) error {
	repository := p.places[0]
	notes, err := namedBy(ctx, repository, p.isNote, o)
	if err != nil {
		return err
	}
	for _, tag := range slices.Sorted(maps.Keys(notes)) {
		if d := notes[tag]; d.Digest != "" {
			p.targets = append(p.targets, target{repository, d, []string{tag}})
		}
	}
	p.Attached = len(p.targets)
	for _, x := range besides(p.Keep, p.Delete) {
		if err := x.plan(ctx, p, o); err != nil {
			return fmt.Errorf("images of %s: %w", x.reference.Repository(), err)
		}
	}
	p.roots = len(p.targets)
	if err := p.add(ctx, repository, graphsOf(p.Delete), graphsOf(p.Keep), p.Others, o); err != nil {
		return err
	}
	for digest, size := range p.gone {
		if _, stays := p.needed[digest]; !stays {
			p.Bytes += size
		}
	}
	return nil
}

func graphsOf(bundles []list.Bundle) (out []*bundle.Graph) {
	for _, b := range bundles {
		out = append(out, b.Graph)
	}
	return out
}

// isNote reports whether a tag is a note of a push of anything but the kept bundles. Notes go first: no later push
// may rely on what is being deleted.
func (p *Plan) isNote(tag string) bool {
	return list.IsReferrerTag(tag) && strings.HasSuffix(tag, string(bundle.NoteSuffix)) &&
		!slices.ContainsFunc(p.Keep, func(b list.Bundle) bool { return tag == bundle.NoteTag(b.Root.Hex()) })
}

// add adds a location's targets: the graphs in goes and their attachments, except what stays or other tags need.
func (p *Plan) add(ctx context.Context, at location, goes, stays []*bundle.Graph, others []string, o run.Options) error {
	gone, needed := newReach(at), newReach(at)
	for _, g := range goes {
		gone.graph(g)
	}
	for _, g := range stays {
		needed.graph(g)
	}
	for _, tag := range others {
		if err := needed.read(ctx, tag, at.tags[tag]); err != nil {
			return err
		}
	}
	if err := errors.Join(gone.attached(ctx, o), needed.attached(ctx, o)); err != nil {
		return err
	}
	manifests := gone.manifestsBut(needed, at.tags)
	attached := slices.DeleteFunc(gone.referrers, func(t target) bool { return needed.manifests[t.d.Digest.String()] })
	p.Manifests += len(manifests)
	p.Attached += len(attached)
	p.targets = slices.Concat(p.targets, manifests, attached)
	maps.Copy(p.gone, gone.blobs)
	maps.Copy(p.needed, needed.blobs)
	return nil
}

// manifestsBut returns the manifests that needed lacks, with their tags: roots first, then parents before children.
func (r *reach) manifestsBut(needed *reach, tags map[string]ocispec.Descriptor) []target {
	named := map[digest.Digest][]string{}
	for tag, d := range tags {
		named[d.Digest] = append(named[d.Digest], tag)
	}
	var first, rest []target
	for _, d := range slices.Backward(r.order) { // order has children before parents
		switch {
		case needed.manifests[d.Digest.String()]:
		case r.roots[d.Digest]:
			first = append(first, target{r.repository, d, named[d.Digest]})
		default:
			rest = append(rest, target{r.repository, d, named[d.Digest]})
		}
	}
	return append(first, rest...)
}
