// Package push copies a bundle with all its attachments into a registry's repository, a file or a
// directory. If requested, it also puts every image below the repository under its upstream name.
//
//	pushed, err := push.Bundle(ctx, push.Input{Bundle: b, Target: repository, Reference: at, Registry: open}, o)
//
// It does not send what the registry has. Before sending, it refuses a delta if no reachable
// repository has one of the omitted layers.
package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/mover"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

// Input is a bundle and its target.
type Input struct {
	Bundle *pinned.Bundle
	Target medium.Target
	// Reference is a registry target's own; Registry opens other repositories there. Zero for files and directories.
	Reference image.Reference
	Registry  medium.Registry
	// Open opens one of them for writing, see [Images].
	Open func(image.Reference) medium.Target
	// MountFrom are repositories of the same registry to mount parts of the bundle from.
	MountFrom []image.Reference
}

// Pushed is the result of a push.
type Pushed struct {
	mover.Delivered
	Receipt *bundle.Receipt // nil for a dry run, and for files and directories
}

// Bundle copies a bundle with its attachments. Every byte is verified as it streams, or was verified with the bundle
// and its files have not changed since.
func Bundle(ctx context.Context, in Input, o run.Options) (*Pushed, error) {
	g, lock, err := in.Bundle.Whole(ctx, o)
	if err != nil {
		return nil, err
	}
	done, err := in.deliver(ctx, g, lock, o)
	if err != nil {
		return nil, in.Bundle.Diagnosed(ctx, err)
	}
	pushed := &Pushed{Delivered: *done}
	if !o.DryRun && in.Registry != nil {
		pushed.Receipt = bundle.NewReceipt(in.Reference.Repository(), g)
	}
	return pushed, nil
}

// deliver sends what is missing, once it has found all of it.
func (in Input) deliver(ctx context.Context, g *bundle.Graph, lock *bundle.Lock, o run.Options) (*mover.Delivered, error) {
	what := "push"
	if in.Registry == nil {
		what = "copy"
	}
	d, err := mover.Begin(ctx, what, g, in.Target, o)
	if err != nil {
		return nil, err
	}
	source := mover.From(in.Bundle)
	if in.Registry == nil { // a file holds a delta unchanged
		return d.Deliver(ctx, mover.All(source))
	}
	found, err := in.elsewhere(ctx, g, lock, d.Missing(), o.Progress)
	if err != nil {
		return nil, err
	}
	for _, m := range d.Missing() { // the others last: it is mounted from there or not at all
		found.at[m.Digest] = slices.Insert(found.at[m.Digest], 0, source)
	}
	d.Also(found.lacks)
	return d.Deliver(ctx, func(m ocispec.Descriptor) []mover.Origin { return found.at[m.Digest] })
}

// elsewhere is what other repositories of the target's registry have.
type elsewhere struct {
	in    Input
	at    map[digest.Digest][]mover.Origin
	lacks []ocispec.Descriptor // omitted by a delta, and missing in the target
}

// elsewhere finds missing blobs in other repositories of the registry before anything is sent. It asks those that the
// user names; for layers that a delta omitted also those of `push --layout paths` below the target. It refuses a
// delta whose layers are missing.
func (in Input) elsewhere(
	ctx context.Context, g *bundle.Graph, lock *bundle.Lock, missing []ocispec.Descriptor, p *run.Progress,
) (found elsewhere, err error) {
	found = elsewhere{in: in, at: map[digest.Digest][]mover.Origin{}}
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
		e.at[d.Digest] = append(e.at[d.Digest], mover.From(source))
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
		fmt.Sprintf("push the bundle %s there first, or pull without --base; `vdo-bundle push --mount-from` names another repository of this registry that has it", g.Base.Root),
		"of the base %s, %d layers with %d bytes are missing, and nothing was sent:\n%w", g.Base.Root, len(lacks),
		bundle.SizeOf(lacks), missing.Join("", ""))
}

// Images puts every image of a bundle, with its attachments, below the bundle's repository under its upstream name,
// for nodes that pull by that name. Push the bundle first: a registry that can mount then receives no blob twice. The
// notices name what the registry was allowed to leave out.
func Images(ctx context.Context, in Input, o run.Options) (notices []string, err error) {
	g, lock, err := in.Bundle.Whole(ctx, run.Options{})
	if err != nil {
		return nil, err
	}
	of := make([][]string, len(lock.Images))
	o.Progress.Phase("images under their upstream names", len(lock.Images), 0)
	err = run.Each(ctx, o.Limit(), len(lock.Images), func(n int) error {
		i := lock.Images[n]
		at, err := beside(in.Reference, i)
		if err == nil {
			of[n], err = pushBeside(ctx, in, g.Below(i.Descriptor()), at, o)
		}
		o.Progress.Done(i.Reference.String(), err)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
		return nil
	})
	if err == nil || ctx.Err() != nil {
		return slices.Concat(of...), err
	}
	return nil, fault.Errorf(fault.Incomplete, "put images beside", in.Reference.String(),
		"run the same command again: the bundle itself has arrived, and existing blobs are not sent again", "%w", err)
}

// Repositories returns the repositories that a push writes to: the bundle's and, with paths, those of images.
func Repositories(lock *bundle.Lock, mirror image.Reference, paths bool) ([]string, error) {
	out := []string{mirror.Repository()}
	for _, i := range lock.Images {
		at, err := beside(mirror, i)
		switch {
		case !paths:
		case err != nil:
			return nil, fmt.Errorf("image %s: %w", i.Reference, err)
		default:
			out = append(out, at.Repository())
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// beside returns the target of an image. One without a tag gets one, as registries delete untagged manifests.
func beside(mirror image.Reference, i bundle.Image) (image.Reference, error) {
	ref, err := i.Reference.Below(mirror)
	if err != nil {
		return ref, err
	}
	tag := ref.Tag()
	if tag == "" {
		tag = bundle.DigestTag(i.Digest.Hex())
	}
	return ref.WithTag(tag)
}

func pushBeside(
	ctx context.Context, in Input, g *bundle.Graph, at image.Reference, o run.Options,
) (notices []string, err error) {
	if lost := in.lost(ctx, at, g); len(lost) > 0 {
		o.Progress.Warn("warning: %s no longer has %s: push a bundle with all platforms that the nodes need", at, strings.Join(lost, ", "))
	}
	o.Progress = o.Progress.Warnings() // each image counts as one item
	target := in.Open(at)
	defer target.Close() //nolint:errcheck // a registry keeps nothing open
	d, err := mover.Begin(ctx, "push", g, target, o)
	if err != nil {
		return nil, err
	}
	mounted := mover.From(in.Registry(in.Reference))
	done, err := d.Deliver(ctx, mover.All(mover.From(in.Bundle), mounted))
	if err != nil {
		return nil, err
	}
	return done.Notices, nil
}

// lost returns the platforms that the old image of a tag has and the new one lacks. It returns none if an image is
// unreadable or does not name its platforms.
func (in Input) lost(ctx context.Context, at image.Reference, g *bundle.Graph) (lost []string) {
	exists := in.Registry(at)
	defer exists.Close() //nolint:errcheck // only read
	d, err := exists.Root(ctx)
	if err != nil || d.Digest == g.Root.Digest {
		return nil
	}
	old, err := bundle.ReadTree(ctx, exists, d)
	if err != nil {
		return nil
	}
	had, hadAll, hadErr := (&bundle.Graph{Manifests: old.Nodes}).PlatformsOf(ctx, exists, d)
	has, hasAll, hasErr := g.PlatformsOf(ctx, in.Bundle, g.Root)
	if hadErr != nil || hasErr != nil || !hadAll || !hasAll || len(has) == 0 {
		return nil
	}
	for _, p := range had {
		if !slices.Contains(has, p) {
			lost = append(lost, p.String())
		}
	}
	return lost
}

// Counts are how many parts of a bundle two locations have.
type Counts struct {
	Manifests int `json:"manifests"` // indexes and image manifests
	Blobs     int `json:"blobs"`     // without those that a delta omits
	Attached  int `json:"attached"`  // signatures and other attachments of the source
	Copied    int `json:"copied"`    // and of its copy
}

// Compare reads a bundle at its source and its copy. It reads the last byte of each blob, since some registries
// report lost blobs as existing. It refuses a copy that lacks a part; unless all is set, attachments may be missing.
func Compare(ctx context.Context, from, to *pinned.Bundle, all bool, o run.Options) (both Counts, err error) {
	source, _, err := from.Whole(ctx, o)
	if err != nil {
		return both, err
	}
	copied, _, err := to.Whole(ctx, o)
	if err != nil {
		return both, fmt.Errorf("read the copy: %w", err)
	}
	exists := map[string]bool{}
	for _, d := range copied.Order() {
		exists[d.Digest.String()] = true
	}
	both.Attached, both.Copied = len(source.Attachments), len(copied.Attachments)
	if !all {
		source.Attachments = nil
	}
	names := source.Owners()
	joined := map[digest.Digest]bool{} // manifests under tags, and their configs: the copy's may have further signatures
	for _, a := range source.Attachments {
		var m ocispec.Manifest
		if a.Tag != "" && json.Unmarshal(a.Node.Data, &m) == nil {
			joined[a.Node.Descriptor.Digest], joined[m.Config.Digest] = true, true
		}
	}
	order := slices.DeleteFunc(source.Order(), func(d ocispec.Descriptor) bool { return joined[d.Digest] })
	both.Manifests, both.Blobs = len(source.Manifests), len(source.Held())
	err = run.Each(ctx, o.Limit(), len(order), func(n int) error {
		d := order[n]
		err := errors.New("it is not there")
		if exists[d.Digest.String()] {
			err = readEnd(ctx, to, d)
		}
		if err != nil {
			err = fmt.Errorf("%s (%s): %w", names.Name(d), d.Digest, err)
		}
		return err
	})
	if err == nil || ctx.Err() != nil {
		return both, err
	}
	return both, fault.Errorf(fault.Incomplete, "compare the copy of", from.Digest().String(),
		"run the same command again; where a registry does not take signatures, give --omit-refused", "%w", err)
}

func readEnd(ctx context.Context, from bundle.Fetcher, d ocispec.Descriptor) error {
	r, err := from.Fetch(ctx, d, max(0, d.Size-1))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}
