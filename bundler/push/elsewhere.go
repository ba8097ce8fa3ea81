package push

import (
	"context"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/mover"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

// elsewhere is what other repositories of the target's registry have.
type elsewhere struct {
	in    Input
	at    mover.Origins
	lacks []ocispec.Descriptor // omitted by a delta, and missing in the target
}

// elsewhere finds missing blobs in other repositories of the registry before anything is sent. It asks those that the
// user names; for layers that a delta omitted also those of `push --layout paths` below the target. It refuses a
// delta whose layers are missing.
func (in Input) elsewhere(
	ctx context.Context, g *bundle.Graph, lock *bundle.Lock, missing []ocispec.Descriptor, p *run.Progress,
) (found elsewhere, err error) {
	found = elsewhere{in: in, at: mover.Origins{}}
	if left := g.Omitted(); len(left) > 0 {
		p.Phase("base", len(left), 0)
		if found.lacks, err = in.Target.Can().Lacks(ctx, left); err != nil {
			return found, err
		}
		for _, d := range left {
			p.Done(d.Digest.String(), nil)
		}
	}
	isManifest := func(d ocispec.Descriptor) bool { return bundle.IsManifest(d.MediaType) }
	blobs := slices.DeleteFunc(slices.Concat(found.lacks, missing), isManifest)
	for _, ref := range in.MountFrom {
		if err := found.ask(ctx, ref, blobs, p); err != nil {
			return found, err
		}
	}
	if len(found.lacks) == 0 {
		return found, nil
	}
	names := g.Owners()
	for _, i := range lock.Images {
		ref, err := beside(in.Reference, i)
		if err != nil {
			continue // push cannot have stored it either
		}
		isOther := func(d ocispec.Descriptor) bool { return !slices.Contains(names[d.Digest], i.Reference.String()) }
		err = found.ask(ctx, ref, slices.DeleteFunc(slices.Clone(found.lacks), isOther), p)
		if ctx.Err() != nil {
			return found, err // other errors only mean that the repository is unreadable
		}
	}
	return found, lacking(g, found.absent(found.lacks), in.Reference)
}

// absent returns those of ds that were not found.
func (e elsewhere) absent(ds []ocispec.Descriptor) []ocispec.Descriptor {
	return slices.DeleteFunc(slices.Clone(ds), func(d ocispec.Descriptor) bool { return e.at[d.Digest] != nil })
}

// ask looks in one repository for what was not found yet.
func (e elsewhere) ask(ctx context.Context, ref image.Reference, want []ocispec.Descriptor, p *run.Progress) error {
	source := e.in.Registry(ref)
	can, want := source.Can(), e.absent(want)
	if can.Lacks == nil || len(want) == 0 || ref.Repository() == e.in.Reference.Repository() {
		return nil
	}
	lacks, err := can.Lacks(ctx, want)
	held := slices.DeleteFunc(want, func(d ocispec.Descriptor) bool {
		return slices.ContainsFunc(lacks, func(l ocispec.Descriptor) bool { return l.Digest == d.Digest })
	})
	if err != nil || len(held) == 0 {
		return err
	}
	for _, d := range held {
		e.at.Add(d.Digest, mover.From(source))
	}
	p.Say("blobs reused from %s: %d (%s)", ref.Repository(), len(held), size.Format(bundle.SizeOf(held)))
	return nil
}

// lacking returns a fault that names the missing layers.
func lacking(g *bundle.Graph, lacks []ocispec.Descriptor, at image.Reference) error {
	if len(lacks) == 0 {
		return nil
	}
	names := g.Owners()
	var missing fault.List
	for _, d := range lacks {
		missing.Add(fmt.Errorf("%s (%s, %d bytes)", names.Name(d), d.Digest, d.Size))
	}
	return fault.Errorf(fault.Incomplete, "check base in", at.Repository(),
		fmt.Sprintf("push the bundle %s there first, name the repository of this registry that has it with --mount-from, or pull without --base", g.Base.Root),
		"of the base %s, %d layers with %d bytes are missing, and nothing was sent:\n%w", g.Base.Root, len(lacks),
		bundle.SizeOf(lacks), missing.Join("", ""))
}
