// Package upstream reads the sources of bundles: manifest files, and images with the signatures,
// attestations and SBOMs that their publishers attached. It reports all problems together.
//
// A [Policy] says whose signatures an image needs; [Carry] selects those that travel. Upstream may
// add signatures at any time, so a bundle that carries them differs between pulls. None is the
// default.
package upstream

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// ReadTrees returns the indexes and manifests of all images of a lock, in its order.
func ReadTrees(ctx context.Context, lock *bundle.Lock, registry medium.Registry, o run.Options) ([]bundle.Tree, error) {
	o.Progress.Phase("image manifests", len(lock.Images), 0)
	trees := make([]bundle.Tree, len(lock.Images))
	err := run.Each(ctx, o.Small(), len(trees), func(n int) error {
		i := lock.Images[n]
		var tree bundle.Tree
		source, err := treeSource(ctx, registry, i, lock.Platforms)
		if err == nil {
			tree, err = bundle.ReadTree(ctx, source, i.Descriptor())
		}
		o.Progress.Done(i.Reference.String(), err)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
		if tree.IsEmpty() {
			return fault.Errorf(fault.Incomplete, "image", i.Reference.String(),
				"ask who publishes it, or name a mirror that has it whole with --source-map",
				"its index names no image manifest: nothing of it could run")
		}
		for _, d := range tree.Ignored {
			o.Progress.Warn("left out: %s of %s, of the unknown media type %.100q", d.Digest, i.Reference, d.MediaType)
		}
		tree.Reference = i.Reference
		trees[n] = tree
		return nil
	})
	return trees, err
}

// treeSource returns the source of an image's manifests. If the lock keeps some platforms, it derives their index,
// which upstream does not publish.
func treeSource(
	ctx context.Context, registry medium.Registry, i bundle.Image, platforms []image.Platform,
) (bundle.Fetcher, error) {
	if x, ok := i.Index(); ok && bundle.IsIndex(i.MediaType) {
		return derived(ctx, registry(i.Source.Pin(x)), i, platforms)
	}
	return registry(i.FetchedFrom()), nil
}

// Carry selects the signatures, attestations and SBOMs that travel in a bundle, besides the root's own.
type Carry string

// CarryNone is the default: upstream may add signatures at any time, so that pulls with them differ.
const (
	CarryNone   Carry = "none"
	CarryImages Carry = "images" // of each image of the lock
	CarryAll    Carry = "all"    // of each image, each platform's manifest, and their attachments
)

// Signed holds the attachments of a lock's images.
type Signed struct {
	Verified    []VerifiedImage // in the order of the lock; none without a policy
	Attachments []bundle.Referrer
	From        map[digest.Digest]bundle.Image // by blob: an image that it is attached to
}

// Carried returns how many signatures, attestations and SBOMs travel with their images.
func (u Signed) Carried() (n int) {
	for _, a := range u.Attachments {
		if a.Node.Descriptor.ArtifactType != bundle.EvidenceType {
			n++
		}
	}
	return n
}

// Input is the images to read, and how.
type Input struct {
	Lock     *bundle.Lock
	Trees    []bundle.Tree // of the images, in the lock's order
	Registry medium.Registry
	Policy   *Policy // whose signatures the images need; nil: not verified
	Carry    Carry   // what travels; "": nothing
}

func (in Input) carries() bool { return in.Carry != "" && in.Carry != CarryNone }

// ReadSigned verifies images if there is a policy, and reads the attachments that travel. It reports all failures.
func ReadSigned(ctx context.Context, in Input, o run.Options) (Signed, error) {
	u := Signed{From: map[digest.Digest]bundle.Image{}}
	indexed := func(i bundle.Image) bool { _, ok := i.Index(); return ok }
	if in.Policy == nil && !in.carries() && !slices.ContainsFunc(in.Lock.Images, indexed) {
		return u, nil
	}
	o.Progress.Phase("upstream signatures and indexes", len(in.Lock.Images), 0)
	found := make([][]bundle.Referrer, len(in.Lock.Images))
	verified := make([]VerifiedImage, len(in.Lock.Images))
	a := attachedReader{in: in, options: o}
	err := run.Each(ctx, o.Limit(), len(in.Lock.Images), func(n int) error {
		i := in.Lock.Images[n]
		var err error
		verified[n], found[n], err = a.read(ctx, i, in.Trees[n])
		o.Progress.Done(i.Reference.String(), err)
		return err
	})
	if err != nil {
		return u, err
	}
	if in.Policy != nil {
		u.Verified = verified
	}
	u.take(in.Lock.Images, found)
	return u, nil
}

// take adds each attachment once: one image may have two references.
func (u *Signed) take(images []bundle.Image, found [][]bundle.Referrer) {
	seen := map[string]bool{}
	for n, attachments := range found {
		for _, a := range attachments {
			key := a.Subject.String() + " " + cmp.Or(a.Tag, a.Node.Descriptor.Digest.String())
			if seen[key] {
				continue
			}
			seen[key] = true
			u.Attachments = append(u.Attachments, a)
			for _, b := range a.Blobs {
				u.From[b.Digest] = images[n]
			}
		}
	}
}

// attachedReader reads the attachments of all images within one limit.
type attachedReader struct {
	in      Input
	options run.Options
	reader  signatures.Reader
}

// read verifies one image and reads its attachments that travel.
func (a *attachedReader) read(ctx context.Context, i bundle.Image, tree bundle.Tree) (v VerifiedImage, out []bundle.Referrer, err error) {
	x, err := a.readIndex(ctx, i)
	if err != nil {
		return v, nil, err
	}
	if x != nil {
		e, err := a.evidence(ctx, x)
		if err != nil {
			return v, nil, fmt.Errorf("image %s: %w", i.Reference, err)
		}
		out = append(out, e)
	}
	if a.in.Policy == nil && !a.in.carries() {
		return v, out, nil
	}
	from, about := &signatures.Kept{Source: a.in.Registry(i.FetchedFrom())}, subjects(i, tree)
	var attached []ocispec.Descriptor
	if x != nil && bundle.IsIndex(i.MediaType) {
		about = about[1:] // upstream has no such index, and no referrers to it
	} else if attached, err = from.Attachments(ctx, i.Digest); err != nil {
		return v, nil, fmt.Errorf("image %s: %w", i.Reference, err)
	}
	if a.in.Policy != nil {
		if v, err = a.in.Policy.verify(ctx, from, i, attached, x, time.Now()); err != nil {
			return v, nil, err
		}
	}
	var more []bundle.Referrer
	switch {
	case !a.in.carries():
	case a.in.Carry != CarryAll:
		more, err = a.reader.Read(ctx, from, i.Digest, attached)
	default:
		if more, err = a.reader.Below(ctx, from, about, a.options); err != nil {
			err = fmt.Errorf("image %s: %w", i.Reference, err)
		}
	}
	return v, append(out, more...), err
}

// subjects returns the digests of the image and its platforms' manifests.
func subjects(i bundle.Image, tree bundle.Tree) []image.Digest {
	out := []image.Digest{i.Digest}
	for _, n := range tree.Nodes {
		if d := bundle.DigestOf(n.Descriptor); d != i.Digest {
			out = append(out, d)
		}
	}
	return out
}

// index is the upstream index of an image whose platforms were selected. A signature of the index covers their
// manifests, which the index names.
type index struct {
	*signatures.Kept
	of       bundle.Image
	digest   image.Digest
	data     []byte
	attached []ocispec.Descriptor
}

// readIndex reads the index in the lock, and demands that it names the image. It returns nil if the lock has none, or
// if a mirror has only the platform's manifest.
func (a *attachedReader) readIndex(ctx context.Context, i bundle.Image) (*index, error) {
	d, ok := i.Index()
	if !ok {
		return nil, nil
	}
	x := &index{Kept: &signatures.Kept{Source: a.in.Registry(i.Source.Pin(d))}, of: i, digest: d}
	var err error
	if x.data, err = readIndexOf(ctx, x, d); err == nil {
		err = a.reader.Room([]ocispec.Descriptor{{Digest: digest.Digest(d.String()), Size: int64(len(x.data))}})
	}
	names := false
	if err == nil {
		names, err = a.names(x, i)
	}
	switch {
	case fault.ReasonOf(err) == fault.NotFound:
		a.options.Progress.Warn("left out: the index %s of %s, which is not there", d, i.Reference)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("image %s: %w", i.Reference, err)
	case !names:
		return nil, notOf(d, i)
	}
	if a.in.Policy != nil || a.in.carries() {
		x.attached, err = x.Attachments(ctx, d)
	}
	return x, err
}

// readIndexOf returns the index of a source.
func readIndexOf(ctx context.Context, s medium.Source, d image.Digest) ([]byte, error) {
	root, err := s.Root(ctx)
	if err != nil {
		return nil, err
	}
	root.Digest = digest.Digest(d.String())
	return bundle.Read(ctx, s, bundle.Plain(root), bundle.MaxManifestSize)
}

// names reports whether an index names the lock's manifest, or yields the lock's index of selected platforms.
func (a *attachedReader) names(x *index, i bundle.Image) (bool, error) {
	if bundle.IsIndex(i.MediaType) {
		kept, err := comesTo(x.data, i, a.in.Lock.Platforms)
		return kept != nil, err
	}
	return slices.ContainsFunc((bundle.Node{Data: x.data}).Children(), func(n ocispec.Descriptor) bool {
		return n.Digest.String() == i.Digest.String() && n.Size == i.Size && n.MediaType == i.MediaType
	}), nil
}

func notOf(index image.Digest, i bundle.Image) error {
	return fault.Errorf(fault.Corrupt, "read index of", i.Reference.String(),
		"make a new lock with `vdo-bundle lock`, with --platform all where the index says no platforms",
		"the index %s does not name the manifest %s of the lock", index, i.Digest)
}

// evidence returns the index as an attachment, with its own attachments if they travel.
func (a *attachedReader) evidence(ctx context.Context, x *index) (bundle.Referrer, error) {
	layers := []ocispec.Descriptor{bundle.Blob(bundle.EvidenceLayer, x.data)}
	if a.in.carries() {
		attached, err := a.reader.Read(ctx, x, x.digest, x.attached)
		if err != nil {
			return bundle.Referrer{}, err
		}
		slices.SortFunc(attached, func(a, b bundle.Referrer) int { // registries promise no order
			return cmp.Compare(a.Node.Descriptor.Digest, b.Node.Descriptor.Digest)
		})
		for _, s := range attached {
			layers = append(append(layers, bundle.Blob(bundle.EvidenceLayer, s.Node.Data)), s.Blobs...)
		}
	}
	config := ocispec.DescriptorEmptyJSON
	subject := x.of.Descriptor()
	m := ocispec.Manifest{ArtifactType: bundle.EvidenceType, Config: bundle.Plain(config), Subject: &subject}
	for _, l := range layers {
		if !slices.ContainsFunc(m.Layers, func(o ocispec.Descriptor) bool { return o.Digest == l.Digest }) {
			m.Layers = append(m.Layers, bundle.Plain(l))
		}
	}
	return bundle.NewReferrer(x.of.Digest, "", bundle.NewManifest(m), append(layers, config)...)
}

// derived reads the index of an image with selected platforms, and returns a source that also has the derived index.
func derived(
	ctx context.Context, of medium.Source, i bundle.Image, platforms []image.Platform,
) (bundle.Fetcher, error) {
	x, _ := i.Index()
	data, err := readIndexOf(ctx, of, x)
	if err != nil {
		return nil, err
	}
	kept, err := comesTo(data, i, platforms)
	if err == nil && kept == nil {
		err = notOf(x, i)
	}
	return overlay{of, bundle.InMemory{digest.Digest(i.Digest.String()): kept}}, err
}

// comesTo returns the derived index; nil if that is not the image.
func comesTo(data []byte, i bundle.Image, platforms []image.Platform) ([]byte, error) {
	kept, _, err := bundle.KeepPlatforms(data, platforms)
	if err != nil || image.DigestOf(kept) != i.Digest {
		return nil, err
	}
	return kept, nil
}

// overlay adds one manifest to its source.
type overlay struct {
	bundle.Fetcher
	kept bundle.InMemory
}

func (o overlay) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if o.kept[d.Digest] != nil {
		return o.kept.Fetch(ctx, d, offset)
	}
	return o.Fetcher.Fetch(ctx, d, offset)
}

// Manifests fetches upstream manifest files.
type Manifests interface {
	// Get returns the file of m, with m's size and sha256.
	Get(ctx context.Context, m matrix.Manifest) ([]byte, error)
}

// File is one manifest file to fetch.
type File struct {
	Key      string // as in [catalog.Files]
	Manifest matrix.Manifest
}

// Fetch returns all manifest files, or all errors.
func Fetch(ctx context.Context, want []File, from Manifests, o run.Options) (catalog.Files, error) {
	o.Progress.Phase("manifests", len(want), 0)
	data := make([][]byte, len(want))
	err := run.Each(ctx, o.Limit(), len(want), func(i int) error {
		var err error
		data[i], err = from.Get(ctx, want[i].Manifest)
		o.Progress.Done(want[i].Key, err)
		return err
	})
	if err != nil {
		return nil, err
	}
	files := catalog.Files{}
	for i, w := range want {
		files[w.Key] = data[i]
	}
	return files, nil
}
