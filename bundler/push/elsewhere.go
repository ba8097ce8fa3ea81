package push

import (
	"context"
	"errors"
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
	at    mover.Origins
	lacks []ocispec.Descriptor // what a delta left out and the target itself does not have
}

// elsewhere finds, before anything is sent, what a target lacks in other repositories
// of its registry: all blobs in those that the user names; the layers that a delta
// left out also below the target, where `push --layout paths` puts images under their
// upstream names. It refuses a delta of which layers are absent. Missing is what the
// target lacks of what the bundle holds.
func (in Input) elsewhere(ctx context.Context, g *bundle.Graph, lock *bundle.Lock, missing []ocispec.Descriptor, p run.Progress) (found elsewhere, err error) {
	h := &holders{in: in, of: mover.Origins{}}
	lacks, err := in.lacks(ctx, g.Left(), p)
	if err != nil {
		return found, err
	}
	blobs := slices.DeleteFunc(slices.Concat(lacks, missing), func(d ocispec.Descriptor) bool { return bundle.IsManifest(d.MediaType) })
	for _, ref := range in.MountFrom {
		if err := h.ask(ctx, ref, blobs); err != nil {
			return found, err
		}
	}
	names := g.Owners()
	for _, i := range lock.Images {
		ref, err := beside(in.Reference, i)
		if err != nil {
			continue // it cannot have been put there either
		}
		err = h.ask(ctx, ref, slices.DeleteFunc(slices.Clone(lacks), func(d ocispec.Descriptor) bool {
			return !slices.Contains(names[d.Digest], i.Reference.String())
		}))
		if ctx.Err() != nil {
			return found, err // else there is nothing that may be read
		}
	}
	for _, line := range h.found {
		p.Say(line)
	}
	absent := slices.DeleteFunc(slices.Clone(lacks), func(d ocispec.Descriptor) bool { return h.of[d.Digest] != nil })
	return elsewhere{h.of, lacks}, lacking(g, absent, in.Reference)
}

// lacks asks the target for the layers that a delta left out.
func (in Input) lacks(ctx context.Context, left []ocispec.Descriptor, p run.Progress) ([]ocispec.Descriptor, error) {
	if len(left) == 0 {
		return nil, nil
	}
	ask := in.Target.Can().Lacks
	if ask == nil {
		return nil, &fault.Error{
			Reason: fault.Refused, Op: "push", Subject: in.Reference.String(), Hint: "push a delta into a registry that holds its base",
			Err: errors.New("it is a delta, and this target cannot say what it holds"),
		}
	}
	p.Phase("base", len(left), 0)
	lacks, err := ask(ctx, left)
	if err != nil {
		return nil, err
	}
	for _, d := range left {
		p.Done(d.Digest.String(), nil)
	}
	return lacks, nil
}

// holders are the repositories that have what a target lacks.
type holders struct {
	in    Input
	of    mover.Origins
	found []string // what was found, for the user
}

// ask asks one repository for what has not been found yet.
func (h *holders) ask(ctx context.Context, ref image.Reference, want []ocispec.Descriptor) error {
	want = slices.DeleteFunc(slices.Clone(want), func(d ocispec.Descriptor) bool { return h.of[d.Digest] != nil })
	source := h.in.Registry(ref)
	can := source.Can()
	if can.Holds == nil || len(want) == 0 || ref.Repository() == h.in.Reference.Repository() {
		return nil
	}
	held, err := can.Holds(ctx, want)
	if err != nil || len(held) == 0 {
		return err
	}
	from := mover.From(source)
	for _, d := range held {
		h.of.Add(d.Digest, from)
	}
	h.found = append(h.found, takenOver(len(held), bundle.SizeOf(held), ref.Repository()))
	return nil
}

const maxNamed = 20 // of missing layers; the rest is counted

// lacking names the layers that are not there.
func lacking(g *bundle.Graph, lacks []ocispec.Descriptor, at image.Reference) error {
	if len(lacks) == 0 {
		return nil
	}
	names := g.Owners()
	var errs []error
	for i, d := range lacks {
		if i == maxNamed {
			errs = append(errs, fmt.Errorf("and %d more", len(lacks)-i))
			break
		}
		errs = append(errs, fmt.Errorf("%s (%s, %d bytes)", names.Name(d), d.Digest, d.Size))
	}
	return &fault.Error{
		Reason: fault.Incomplete, Op: "check base in", Subject: at.Repository(), Err: fmt.Errorf("of the base %s, %d layers with %d bytes are missing, and nothing was sent:\n%w",
			g.Base.Root, len(lacks), bundle.SizeOf(lacks), errors.Join(errs...)),
		Hint: fmt.Sprintf("push the bundle %s there first, name the repository of this registry that has it with --mount-from, or pull without --base", g.Base.Root),
	}
}

func takenOver(blobs int, bytes int64, from string) string {
	if blobs == 1 {
		return fmt.Sprintf("1 blob, %s, is taken over from %s", size.Format(bytes), from)
	}
	return fmt.Sprintf("%d blobs, %s, are taken over from %s", blobs, size.Format(bytes), from)
}
