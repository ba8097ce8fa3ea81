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
	"maps"
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

// Carry selects the signatures, attestations and SBOMs that travel in a bundle, besides the root's own.
type Carry string

// CarryNone is the default: upstream may add signatures at any time, so that pulls with them differ.
const (
	CarryNone   Carry = "none"
	CarryImages Carry = "images" // of each image of the lock
	CarryAll    Carry = "all"    // of each image, each platform's manifest, and their attachments
)

// Input is the images to read, and how.
type Input struct {
	Lock     *bundle.Lock
	Registry medium.Registry
	Policy   *Policy // whose signatures the images need; nil: not verified
	Carry    Carry   // what travels; "": nothing
}

func (in Input) carries() bool { return in.Carry != "" && in.Carry != CarryNone }

// Images are a lock's images without their layers.
type Images struct {
	Trees       []bundle.Tree   // in the order of the lock
	Verified    []VerifiedImage // likewise; none without a policy
	Attachments []bundle.Referrer
	From        map[digest.Digest][]bundle.Image // by blob: images that it is of or attached to, maxOrigins at most
}

// maxOrigins limits the images to try for a shared blob: one that works is enough.
const maxOrigins = 3

// Carried returns how many signatures, attestations and SBOMs travel with their images.
func (u Images) Carried() (n int) {
	for _, a := range u.Attachments {
		if a.Node.Descriptor.ArtifactType != bundle.EvidenceType {
			n++
		}
	}
	return n
}

// Read reads the indexes and manifests of all images, verifies the images if there is a policy, and reads the
// attachments that travel. It reports all failures.
func Read(ctx context.Context, in Input, o run.Options) (Images, error) {
	images := in.Lock.Images
	o.Progress.Phase("image manifests", len(images), 0)
	r := reader{in: in, options: o}
	all := make([]*parts, len(images))
	limit := o.Small()
	if in.Policy != nil || in.carries() {
		limit = o.Limit() // each may hold 16 MiB of evidence
	}
	err := run.Each(ctx, limit, len(images), func(n int) (err error) {
		all[n], err = r.read(ctx, images[n])
		o.Progress.Done(images[n].Reference.String(), err)
		return err
	})
	if err != nil {
		return Images{}, err
	}
	u := Images{From: map[digest.Digest][]bundle.Image{}}
	seen := map[string]bool{} // one image may have two references
	for n, p := range all {
		u.Trees = append(u.Trees, p.tree)
		blobs := p.tree.Blobs
		if in.Policy != nil {
			u.Verified = append(u.Verified, p.verified)
		}
		for _, a := range p.travel {
			key := a.Subject.String() + " " + cmp.Or(a.Tag, a.Node.Descriptor.Digest.String())
			if seen[key] {
				continue
			}
			seen[key] = true
			u.Attachments = append(u.Attachments, a)
			blobs = slices.Concat(blobs, a.Blobs)
		}
		for _, b := range blobs {
			if from := u.From[b.Digest]; len(from) < maxOrigins {
				u.From[b.Digest] = append(from, images[n])
			}
		}
	}
	return u, nil
}

// reader reads the images of one lock, with their attachments within one limit.
type reader struct {
	in          Input
	options     run.Options
	attachments signatures.Reader
}

// parts are what is read of an image. A signature of the index covers the manifests that it names.
type parts struct {
	image    bundle.Image
	from     *signatures.Kept
	index    []byte // the upstream index that the image is a part of; nil: none
	tree     bundle.Tree
	verified VerifiedImage
	travel   []bundle.Referrer
}

// isDerived reports whether the image is an index of selected platforms, which upstream does not publish.
func (p *parts) isDerived() bool {
	_, isPart := p.image.Index()
	return isPart && bundle.IsIndex(p.image.MediaType)
}

// read reads an image. It reads what is attached to it after the signatures are found to be good.
func (r *reader) read(ctx context.Context, i bundle.Image) (*parts, error) {
	at := i.FetchedFrom()
	if whole, isPart := i.Index(); isPart {
		at = i.Source.Pin(whole)
	}
	p := &parts{image: i, from: &signatures.Kept{Source: r.in.Registry(at)}}
	err := r.manifests(ctx, p)
	if err == nil && r.in.Policy != nil {
		if p.verified, err = r.in.Policy.verify(ctx, p, time.Now()); err != nil {
			return p, err
		}
	}
	if err == nil {
		p.travel, err = r.travel(ctx, p)
	}
	if err != nil {
		return p, fmt.Errorf("image %s: %w", i.Reference, err)
	}
	return p, nil
}

// manifests reads the index that an image is a part of, if the lock has one, and the image's own manifests.
func (r *reader) manifests(ctx context.Context, p *parts) (err error) {
	root := p.image.Descriptor()
	if whole, isPart := p.image.Index(); isPart {
		root.Data, err = r.index(ctx, p, whole)
	}
	if err == nil {
		p.tree, err = bundle.ReadTree(ctx, p.from, root)
	}
	if err != nil {
		return err
	}
	if p.tree.IsEmpty() {
		return fault.Errorf(fault.Incomplete, "", "",
			"ask who publishes it, or name a mirror that has it whole with --source-map",
			"its index names no image manifest: nothing of it could run")
	}
	p.tree.Reference = p.image.Reference
	for _, d := range p.tree.Ignored {
		r.options.Progress.Warn("left out: %s of %s, of the unknown media type %.100q", d.Digest, p.image.Reference, d.MediaType)
	}
	return nil
}

// index reads an index, which has to name the image or yield it, and returns an image that it yields. A mirror may
// have only the platform's manifest.
func (r *reader) index(ctx context.Context, p *parts, whole image.Digest) (derived []byte, err error) {
	root, err := p.from.Root(ctx)
	if err == nil {
		root.Digest = digest.Digest(whole.String())
		p.index, err = bundle.Read(ctx, p.from, bundle.Plain(root), bundle.MaxManifestSize)
	}
	i := p.image
	switch {
	case fault.ReasonOf(err) == fault.NotFound && !p.isDerived():
		r.options.Progress.Warn("left out: the index %s of %s, which is not there", whole, i.Reference)
		return nil, nil
	case err != nil:
		return nil, err
	}
	var named bool
	if p.isDerived() {
		if derived, _, err = bundle.KeepPlatforms(p.index, r.in.Lock.Platforms); err != nil {
			return nil, err
		}
		named = image.DigestOf(derived) == i.Digest
		p.from.None(i.Digest) // upstream has no referrers to it
	} else {
		named = slices.ContainsFunc(bundle.Node{Data: p.index}.Children(), func(n ocispec.Descriptor) bool {
			return n.Digest == i.Descriptor().Digest && n.Size == i.Size && n.MediaType == i.MediaType
		})
	}
	if !named {
		return nil, fault.Errorf(fault.Corrupt, "", "",
			"make a new lock with `vdo-bundle lock`, with --platform all where the index says no platforms",
			"the index %s does not name the manifest %s of the lock", whole, i.Digest)
	}
	return derived, nil
}

// travel returns the attachments that travel: the index, and those that the user asks for.
func (r *reader) travel(ctx context.Context, p *parts) (out []bundle.Referrer, err error) {
	if p.index != nil {
		out, err = r.evidence(ctx, p)
	}
	if err != nil || !r.in.carries() {
		return out, err
	}
	var more []bundle.Referrer
	if r.in.Carry != CarryAll {
		more, err = r.attachments.Read(ctx, p.from, p.image.Digest)
		return append(out, more...), err
	}
	var subjects []image.Digest
	for _, n := range p.tree.Nodes { // the image, and the platforms'
		subjects = append(subjects, bundle.DigestOf(n.Descriptor))
	}
	more, err = r.attachments.Below(ctx, p.from, subjects, r.options)
	return append(out, more...), err
}

// evidence returns the index as an attachment, with its own attachments if they travel.
func (r *reader) evidence(ctx context.Context, p *parts) ([]bundle.Referrer, error) {
	layers := []ocispec.Descriptor{bundle.Blob(bundle.EvidenceLayer, p.index)}
	if err := r.attachments.Room(layers); err != nil {
		return nil, err
	}
	if r.in.carries() {
		whole, _ := p.image.Index()
		attached, err := r.attachments.Read(ctx, p.from, whole)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(attached, func(a, b bundle.Referrer) int { // registries promise no order
			return cmp.Compare(a.Node.Descriptor.Digest, b.Node.Descriptor.Digest)
		})
		for _, s := range attached {
			layers = append(append(layers, bundle.Blob(bundle.EvidenceLayer, s.Node.Data)), s.Blobs...)
		}
	}
	config := ocispec.DescriptorEmptyJSON
	subject := p.image.Descriptor()
	m := ocispec.Manifest{ArtifactType: bundle.EvidenceType, Config: bundle.Plain(config), Subject: &subject}
	for _, l := range layers {
		if !slices.ContainsFunc(m.Layers, func(o ocispec.Descriptor) bool { return o.Digest == l.Digest }) {
			m.Layers = append(m.Layers, bundle.Plain(l))
		}
	}
	a, err := bundle.NewReferrer(p.image.Digest, "", bundle.NewManifest(m), append(layers, config)...)
	return []bundle.Referrer{a}, err
}

// Manifests fetches upstream manifest files.
type Manifests interface {
	// Get returns the file of m, with m's size and sha256.
	Get(ctx context.Context, m matrix.Manifest) ([]byte, error)
}

// Fetch returns all manifest files, by their keys in want, or all errors.
func Fetch(ctx context.Context, want map[string]matrix.Manifest, from Manifests, o run.Options) (catalog.Files, error) {
	o.Progress.Phase("manifests", len(want), 0)
	keys := slices.Sorted(maps.Keys(want))
	data := make([][]byte, len(keys))
	err := run.Each(ctx, o.Limit(), len(keys), func(i int) (err error) {
		data[i], err = from.Get(ctx, want[keys[i]])
		o.Progress.Done(keys[i], err)
		return err
	})
	if err != nil {
		return nil, err
	}
	files := catalog.Files{}
	for i, key := range keys {
		files[key] = data[i]
	}
	return files, nil
}
