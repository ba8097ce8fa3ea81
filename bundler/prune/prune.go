// Package prune deletes old bundles from a repository. What is deleted is planned first,
// as a value that can be shown; a plan is carried out only where the repository is still
// as it was planned for, and afterwards the plan says what is true.
//
//	plan, err := prune.NewPlan(ctx, repository, prune.Keep{Newest: 3}, o)
//	err = prune.Run(ctx, repository, plan, o)
//
// Nothing that a bundle needs which stays, or another tag, is deleted, and nothing where
// not everything could be read.
package prune

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
)

// Run carries a plan out, if the repository is still as it was planned for; then it
// asks for all that was deleted once more, since registries answer with success and
// delete nothing, and makes sure that all that should stay is there. The plan says
// afterwards what is true.
func Run(ctx context.Context, repository Repository, p *Plan, o run.Options) error {
	if err := p.unchanged(ctx, repository, o); err != nil {
		return err
	}
	o.Reporter().Phase("delete", len(p.targets), 0)
	for i, v := range p.targets {
		err := ctx.Err()
		if err == nil {
			err = repository.Delete(ctx, v.d, v.tags)
		}
		o.Reporter().Done(v.d.Digest.String(), err)
		if err != nil {
			if ctx.Err() == nil { // else there is nobody to ask
				err = errors.Join(err, p.look(ctx, repository, p.targets[:i], o))
			}
			return fmt.Errorf("%d of %d manifests were deleted, and what is left of the others is for the registry's garbage collection: %w", p.Deleted, len(p.targets), err)
		}
	}
	if err := p.look(ctx, repository, p.targets, o); err != nil {
		return err
	}
	p.Done = len(p.Remaining) == 0
	return errors.Join(p.remaining(), p.stillThere(ctx, repository))
}

// look asks for what was deleted, by digest and by tag.
func (p *Plan) look(ctx context.Context, repository Repository, deleted []target, o run.Options) error {
	if len(deleted) == 0 {
		return nil
	}
	there := make([]bool, len(deleted))
	err := run.Each(ctx, o.Limit(), len(deleted), func(i int) (err error) {
		for _, id := range append([]string{deleted[i].d.Digest.String()}, deleted[i].tags...) {
			if !there[i] && err == nil {
				there[i], err = names(ctx, repository, id, deleted[i].d)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, v := range deleted {
		if there[i] {
			p.Remaining = append(p.Remaining, v.d.Digest.String())
		}
	}
	p.Deleted = len(deleted) - len(p.Remaining)
	return nil
}

// names tells whether a tag or digest names a manifest.
func names(ctx context.Context, repository Repository, identifier string, d ocispec.Descriptor) (bool, error) {
	s, err := repository.At(identifier)
	if err != nil {
		return false, err
	}
	defer s.Close() //nolint:errcheck // only read
	root, err := s.Root(ctx)
	if fault.ReasonOf(err) == fault.NotFound {
		return false, nil
	}
	return root.Digest == d.Digest, err
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

// unchanged refuses to delete when somebody pushed or tagged since the plan.
func (p *Plan) unchanged(ctx context.Context, repository Repository, o run.Options) error {
	tags, err := repository.Tags(ctx)
	if err != nil {
		return err
	}
	tags = slices.DeleteFunc(tags, list.IsAttachmentTag)
	same := len(tags) == len(p.tags)
	now := make([]ocispec.Descriptor, len(tags))
	err = run.Each(ctx, o.Limit(), len(tags), func(i int) error {
		s, err := repository.At(tags[i])
		if err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // only read
		now[i], err = s.Root(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for i, tag := range tags {
		same = same && p.tags[tag].Digest == now[i].Digest
	}
	if same {
		return nil
	}
	return &fault.Error{Reason: fault.Conflict, Op: "prune", Err: errors.New("somebody changed tags since the plan was made, so nothing was deleted"), Hint: "run it again"}
}

// stillThere asks for every manifest of what was kept.
func (p *Plan) stillThere(ctx context.Context, repository Repository) error {
	var want []ocispec.Descriptor
	for _, b := range p.Keep {
		for _, n := range b.Graph.Manifests {
			want = append(want, n.Descriptor)
		}
	}
	lacks, err := repository.Lacks(ctx, want)
	if err != nil || len(lacks) == 0 {
		return err
	}
	return &fault.Error{Reason: fault.Incomplete, Op: "prune", Hint: "push the kept bundles again, and look at the registry's logs",
		Err: fmt.Errorf("%d manifests of kept bundles are gone, which were not deleted by this: %s is the first", len(lacks), lacks[0].Digest)}
}
