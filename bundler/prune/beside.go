package prune

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
)

type images map[digest.Digest]*bundle.Graph

// beside holds the images of bundles for one repository below their own, where push --layout paths puts them.
type beside struct {
	reference  image.Reference // upstream reference of one of them
	kept, gone images
	tags       map[digest.Digest][]string // that push gives them
}

// besides groups the images of bundles by repository.
func besides(keep, leave []list.Bundle) []*beside {
	of := map[string]*beside{}
	add := func(b list.Bundle, to func(*beside) images) {
		for _, d := range b.Graph.Images() {
			ref, err := image.ParseReference(d.Annotations[bundle.AnnotationReference])
			if err != nil {
				continue // push cannot have stored it
			}
			x := of[ref.Repository()]
			if x == nil {
				x = &beside{reference: ref, kept: images{}, gone: images{}, tags: map[digest.Digest][]string{}}
				of[ref.Repository()] = x
			}
			to(x)[d.Digest] = b.Graph.Below(bundle.Plain(d))
			x.tags[d.Digest] = append(x.tags[d.Digest], ref.Tag(), bundle.DigestTag(d.Digest.Encoded()))
		}
	}
	for _, b := range leave {
		add(b, func(x *beside) images { return x.gone })
	}
	for _, b := range keep {
		add(b, func(x *beside) images { return x.kept })
	}
	var out []*beside
	for _, name := range slices.Sorted(maps.Keys(of)) {
		x := of[name]
		maps.DeleteFunc(x.gone, func(d digest.Digest, _ *bundle.Graph) bool { return x.kept[d] != nil })
		if len(x.gone) > 0 {
			out = append(out, x)
		}
	}
	return out
}

// plan adds the images to delete from the repository: those of no kept bundle and without another's tag. An image
// with such a tag stays, with all its bytes.
func (x *beside) plan(ctx context.Context, p *Plan, o run.Options) error {
	reference, err := x.reference.Below(p.reference)
	if err != nil {
		return nil //nolint:nilerr // push cannot have stored it either
	}
	repository := p.open(reference)
	tags, err := namedBy(ctx, repository, isNoReferrer, o)
	switch fault.ReasonOf(err) {
	case fault.NotFound:
		return nil
	case fault.Forbidden, fault.Unauthorized:
		o.Progress.Warn("did not look for %s below the repository: %v", x.reference.Repository(), err)
		return nil
	}
	if err != nil {
		return err
	}
	var others []string
	for tag, d := range tags {
		if !slices.Contains(x.tags[d.Digest], tag) {
			delete(x.gone, d.Digest)
			others = append(others, tag)
		}
	}
	gone, err := x.gone.presentIn(ctx, repository)
	kept, keptErr := x.kept.presentIn(ctx, repository)
	if err := errors.Join(err, keptErr); err != nil {
		return err
	}
	at := location{repository, tags}
	p.places = append(p.places, at)
	return p.add(ctx, at, gone, kept, others, o)
}

// presentIn returns the images that a repository has.
func (of images) presentIn(ctx context.Context, repository Repository) (out []*bundle.Graph, err error) {
	var roots []ocispec.Descriptor
	for _, d := range slices.Sorted(maps.Keys(of)) {
		roots = append(roots, of[d].Root)
	}
	lacks, err := repository.Lacks(ctx, roots)
	for _, d := range roots {
		if !slices.ContainsFunc(lacks, func(l ocispec.Descriptor) bool { return l.Digest == d.Digest }) {
			out = append(out, of[d.Digest])
		}
	}
	return out, err
}
