// Package prune deletes old bundles from a repository. It first returns a plan to show. It runs a
// plan only if the repository is unchanged, and then updates the plan with the result.
//
//	plan, err := prune.NewPlan(ctx, reference, open, prune.Keep{Newest: 3}, o)
//	err = prune.Run(ctx, plan, o)
//
// It deletes nothing that a kept bundle or another tag needs, and nothing at all if it cannot read
// everything.
package prune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
)

// Run executes a plan if the repositories are unchanged. It then checks every deletion, since some registries report
// success and delete nothing. It also checks that kept and newly pushed content exists. The plan then holds the
// result.
func Run(ctx context.Context, p *Plan, o run.Options) error {
	if err := p.unchanged(ctx, o); err != nil {
		return err
	}
	o.Progress.Phase("delete", len(p.targets), 0)
	for i, v := range p.targets {
		err := ctx.Err()
		if err == nil {
			err = v.in.Delete(ctx, v.d, v.tags)
		}
		o.Progress.Done(v.d.Digest.String(), err)
		if err != nil {
			if ctx.Err() == nil { // after a cancel, requests would fail
				err = errors.Join(err, p.look(ctx, p.targets[:i], o))
			}
			return fmt.Errorf("%d of %d manifests were deleted, and garbage collection takes what has no tag of the "+
				"others; images of --layout paths keep theirs: %w", p.Deleted, len(p.targets), err)
		}
	}
	if err := p.look(ctx, p.targets, o); err != nil {
		return err
	}
	p.Done = len(p.Remaining) == 0
	return errors.Join(p.remaining(), p.stillThere(ctx), p.pushed(ctx, o))
}

// look checks whether deleted targets still exist, by digest and by tag.
func (p *Plan) look(ctx context.Context, deleted []target, o run.Options) error {
	if len(deleted) == 0 {
		return nil
	}
	exists := make([]bool, len(deleted))
	err := run.Each(ctx, o.Limit(), len(deleted), func(i int) (err error) {
		for _, id := range append([]string{deleted[i].d.Digest.String()}, deleted[i].tags...) {
			if !exists[i] && err == nil {
				var d ocispec.Descriptor
				d, err = namedAt(ctx, deleted[i].in, id)
				exists[i] = d.Digest == deleted[i].d.Digest
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, v := range deleted {
		if exists[i] {
			p.Remaining = append(p.Remaining, v.d.Digest.String())
		}
	}
	p.Deleted = len(deleted) - len(p.Remaining)
	return nil
}

// namedAt returns the content of a tag or digest; zero if it does not exist.
func namedAt(ctx context.Context, repository Repository, identifier string) (ocispec.Descriptor, error) {
	s, err := repository.Open(identifier)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer s.Close() //nolint:errcheck // only read
	d, err := s.Root(ctx)
	if fault.ReasonOf(err) == fault.NotFound {
		return ocispec.Descriptor{}, nil
	}
	return d, err
}

func (p *Plan) remaining() error {
	if len(p.Remaining) == 0 {
		return nil
	}
	return &fault.Error{
		Reason: fault.Incomplete, Op: "prune", Err: fmt.Errorf("the registry answered that it deleted %d manifests and still has %d of them: %s is the first", len(p.targets), len(p.Remaining), p.Remaining[0]),
		Hint: "run it again later, should the registry take its time; else prune by the registry's own means",
	}
}

func isNoReferrer(tag string) bool { return !list.IsReferrerTag(tag) }

// namedBy returns the content of a repository's wanted tags.
func namedBy(
	ctx context.Context, repository Repository, wanted func(tag string) bool, o run.Options,
) (map[string]ocispec.Descriptor, error) {
	tags, err := repository.Tags(ctx)
	if err != nil {
		return nil, err
	}
	tags = slices.DeleteFunc(tags, func(tag string) bool { return !wanted(tag) })
	found := make([]ocispec.Descriptor, len(tags))
	err = run.Each(ctx, o.Limit(), len(tags), func(i int) (err error) {
		found[i], err = namedAt(ctx, repository, tags[i])
		return err
	})
	out := make(map[string]ocispec.Descriptor, len(tags))
	for i, tag := range tags {
		out[tag] = found[i]
	}
	return out, err
}

// unchanged refuses to delete if tags changed since the plan.
func (p *Plan) unchanged(ctx context.Context, o run.Options) error {
	for _, location := range p.places {
		now, err := namedBy(ctx, location, isNoReferrer, o)
		if err != nil {
			return err
		}
		sameDigest := func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest }
		if !maps.EqualFunc(now, location.tags, sameDigest) {
			return fault.Errorf(fault.Conflict, "prune", "", "run it again",
				"tags changed since the plan was made")
		}
	}
	return nil
}

// pushed reads tags that appeared during the deletion: a concurrent push may rely on a deleted manifest.
func (p *Plan) pushed(ctx context.Context, o run.Options) error {
	var errs []error
	for _, location := range p.places {
		now, err := namedBy(ctx, location, isNoReferrer, o)
		if fault.ReasonOf(err) == fault.NotFound {
			continue // it had no other content
		}
		errs = append(errs, err)
		for tag, d := range now {
			if was, known := location.tags[tag]; was.Digest == d.Digest || known && d.Digest == "" {
				continue // the same, or deleted by this and still listed
			}
			if err := newReach(location).read(ctx, tag, d); err != nil {
				errs = append(errs, fault.Errorf(fault.Incomplete, "prune", "", "repeat that push",
					"a push at the same time has lost a part to it: %w", err))
			}
		}
	}
	return fault.Join(errs...)
}

// stillThere checks every manifest of the kept bundles.
func (p *Plan) stillThere(ctx context.Context) error {
	var want []ocispec.Descriptor
	for _, b := range p.Keep {
		for _, n := range b.Graph.Manifests {
			want = append(want, n.Descriptor)
		}
	}
	lacks, err := p.places[0].Lacks(ctx, want)
	if err != nil || len(lacks) == 0 {
		return err
	}
	return &fault.Error{Reason: fault.Incomplete, Op: "prune", Hint: "push the kept bundles again, and look at the registry's logs",
		Err: fmt.Errorf("%d manifests of kept bundles are gone, which were not deleted by this: %s is the first", len(lacks), lacks[0].Digest)}
}
