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

// Repository is a repository that bundles are deleted from.
type Repository interface {
	list.Repository
	// Delete deletes a manifest and the tags that name it.
	Delete(ctx context.Context, d ocispec.Descriptor, tags []string) error
	// Lacks returns those that are not there.
	Lacks(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error)
	// Beside opens the repository below this one that has an image under its upstream name.
	Beside(upstream image.Reference) (Repository, error)
}

// Plan says what is deleted from a repository, and what stays.
type Plan struct {
	Keep      []list.Bundle `json:"keep"`
	Delete    []list.Bundle `json:"delete"`
	Others    []string      `json:"others"`           // tags of other things, which stay with all that they need
	Manifests int           `json:"manifests"`        // that are deleted, with those of images
	Attached  int           `json:"attached"`         // signatures and other things about them
	Bytes     int64         `json:"bytes"`            // that nothing needs any more: the registry's garbage collection frees them
	Broken    []string      `json:"broken,omitempty"` // roots without a tag that cannot be read whole, by digest: they are left alone
	Done      bool          `json:"done"`             // all of it was deleted, and the registry says so; else only planned, or in part
	// Deleted is how many manifests, with attachments, the registry had and has no more,
	// and Remaining those that were deleted and are there.
	Deleted   int      `json:"deleted"`
	Remaining []string `json:"remaining,omitempty"`

	places  []location // the repository first
	targets []target
	roots   int              // the first target that is one of the repository's manifests
	gone    map[string]int64 // sizes of what the deleted bundles have in all places
	needed  map[string]int64 // and of what stays
}

// location is a repository, and what its tags name, but those of attachments.
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

// NewPlan decides what to delete: each bundle than which at least as many as
// keep.Newest are shown to be newer, but what keep names. So where the registry does not
// show which of several is older, all of them stay. Everything that a kept bundle,
// another tag, or what is attached to any of their manifests needs stays, too. What
// cannot be read completely is not pruned at all.
func NewPlan(ctx context.Context, repository Repository, keep Keep, o run.Options) (*Plan, error) {
	l, err := list.Read(ctx, repository, o)
	if err != nil {
		return nil, fault.Errorf(fault.ReasonOf(err), "plan to prune", "", fault.HintOf(err),
			"not everything could be read, so nothing is deleted: %w", err)
	}
	p := &Plan{
		Others: l.Others, Broken: l.Broken, places: []location{{repository, l.Tags}},
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

// choose lists what only the bundles to delete need: the notes, then the images in other
// repositories, which no one finds without the bundle, then the roots, so that no bundle
// is there in part, parents before children, then what is about them.
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

// isNote tells the tags of what pushes noted of anything but the kept bundles. They go first:
// no later push may believe that what is deleted now is still there.
func (p *Plan) isNote(tag string) bool {
	return list.IsReferrerTag(tag) && strings.HasSuffix(tag, string(bundle.NoteSuffix)) &&
		!slices.ContainsFunc(p.Keep, func(b list.Bundle) bool { return tag == bundle.NoteTag(b.Root.Hex()) })
}

// add adds what goes in a place: all of some graphs, with what is attached to it, but what
// others need, or other tags.
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
	manifests, attached := gone.manifestsBut(needed, at.tags), gone.attachmentsBut(needed)
	p.Manifests += len(manifests)
	p.Attached += len(attached)
	p.targets = slices.Concat(p.targets, manifests, attached)
	maps.Copy(p.gone, gone.blobs)
	maps.Copy(p.needed, needed.blobs)
	return nil
}

// manifestsBut are those that nothing needed needs, with their tags: roots first, then
// parents before children.
func (r *reach) manifestsBut(needed *reach, tags map[string]ocispec.Descriptor) []target {
	named := map[digest.Digest][]string{}
	for tag, d := range tags {
		named[d.Digest] = append(named[d.Digest], tag)
	}
	var first, rest []target
	for _, d := range slices.Backward(r.order) { // children came before parents
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
