package bundler

import (
	"context"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// PushInput is what is pushed, and where.
type PushInput struct {
	Bundle    *Bundle
	Target    Target
	Reference image.Reference // the target's
	Registry  Registry        // to look at what arrived, and into other repositories
	// MountFrom are repositories of the same registry that may have parts of the
	// bundle: those are taken over from there.
	MountFrom []image.Reference
}

// Push copies a bundle, with what is attached to it, into a registry, and then
// looks at it there as the operator will. Every byte is verified as it streams.
func Push(ctx context.Context, in PushInput, o Options) (*Pulled, error) {
	g, lock, err := in.Bundle.whole(ctx, o)
	if err != nil {
		return nil, err
	}
	others := map[string]Upstream{}
	look := func(missing []ocispec.Descriptor) (more []ocispec.Descriptor, err error) {
		others, more, err = in.elsewhere(ctx, g, lock, missing, o.progress())
		return more, err
	}
	known, left := atHandOf(g), byDigest(g.Left())
	pushed, err := deliver(ctx, "push", g, in.Target, look, func(d ocispec.Descriptor) (from []origin) {
		if data, ok := known[d.Digest.String()]; ok {
			from = append(from, origin{from: data})
		} else if !left[d.Digest.String()] {
			from = append(from, origin{from: in.Bundle.source})
		}
		if other := others[d.Digest.String()]; other != nil {
			from = append(from, origin{from: other}) // to be mounted from, else to be read
		}
		if len(from) == 0 { // look has refused such a delta
			from = append(from, origin{from: nowhere{}})
		}
		return from
	}, o)
	if err != nil {
		return nil, in.Bundle.diagnosed(ctx, err)
	}
	if o.DryRun {
		return pushed, nil
	}
	pushed.Receipt = bundle.NewReceipt(in.Reference.Repository(), g)
	return pushed, arrived(ctx, in.Target, in.Registry, in.Reference, g.Root, lock, o)
}

func byDigest(ds []ocispec.Descriptor) map[string]bool {
	out := make(map[string]bool, len(ds))
	for _, d := range ds {
		out[d.Digest.String()] = true
	}
	return out
}

// arrived looks at a bundle in a registry, and has the registry remember what was
// seen. Where it remembers so from an earlier push, the root is enough.
func arrived(ctx context.Context, target Target, registry Registry, at image.Reference, root ocispec.Descriptor, lock *bundle.Lock, o Options) error {
	want := []ocispec.Descriptor{root}
	r, ok := target.(Rememberer)
	if ok && r.Confirmed() {
		asked, of := r.Sampled()
		o.progress().Say(fmt.Sprintf("an earlier push noted that all of it arrived: asked for the root, its signatures, and %d of %d other parts by chance; --check-all asks for all of them", asked, of))
	} else {
		for _, i := range lock.Images {
			want = append(want, i.Descriptor())
		}
	}
	if err := confirmAll(ctx, registry, at, want, o); err != nil || !ok {
		return err
	}
	if err := r.Remember(ctx); err != nil && ctx.Err() == nil { // nothing is lost but time
		o.progress().Say(fmt.Sprintf("the next push will ask for every part again: the registry did not take the note that all arrived: %v", err))
	}
	return nil
}

// confirmAll reads manifests from a registry as the operator does, each as
// REPOSITORY@DIGEST. Commit has made sure that they are named so.
func confirmAll(ctx context.Context, registry Registry, at image.Reference, want []ocispec.Descriptor, o Options) error {
	o.progress().Phase("check", len(want), 0)
	err := forEach(ctx, o.small(), len(want), func(n int) error {
		pinned, err := pin(at, want[n])
		if err == nil {
			_, err = bundle.Read(ctx, registry(pinned), bundle.Plain(want[n]), bundle.MaxManifestSize)
		}
		o.progress().Done(pinned.String(), err)
		return err
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &fault.Error{
		Reason: fault.Incomplete, Op: "check", Subject: at.String(), Err: err,
		Hint: "push again; if it happens again, the registry does not keep what it accepts",
	}
}

func pin(at image.Reference, d ocispec.Descriptor) (image.Reference, error) {
	digest, err := image.ParseDigest(d.Digest.String())
	return at.Pin(digest), err
}
