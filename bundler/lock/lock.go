// Package lock chooses releases for what is requested, reads their manifests, and fixes
// every image by digest: the first step towards a bundle.
//
//	in := lock.Input{Matrix: m, Request: request, Manifests: from, Registry: upstream}
//	made, files, err := lock.Make(ctx, in, o)
//	data, err := made.YAML()
//
// Nothing but manifests and what is needed to find a platform is fetched. The choice
// itself is internal/catalog's, which is pure.
package lock

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Input is what a lock is made of.
type Input struct {
	Matrix    matrixfile.File
	Request   catalog.Request
	Platforms []image.Platform       // the zero value alone: all
	Operator  *Operator              // nil: the bundle does not hold it
	JumpHost  *matrix.ServiceRelease // nil: the bundle does not hold it
	Manifests upstream.Manifests
	Registry  medium.Registry
}

// Make chooses releases, reads their manifests, which it returns too, and fixes every image by digest.
func Make(ctx context.Context, in Input, o run.Options) (*bundle.Lock, catalog.Files, error) {
	selection, err := catalog.Select(in.Matrix.Document, in.Request)
	if err != nil {
		return nil, nil, err
	}
	announce(selection, o.Reporter())
	releases := selection.Releases
	if in.Operator != nil {
		releases = append(slices.Clip(releases), in.Operator.release(in.JumpHost != nil || len(selection.Services) > 0))
	}
	files, err := upstream.Fetch(ctx, wantedFiles(releases), in.Manifests, o)
	if err != nil {
		return nil, nil, err
	}
	services := selection.Services
	if in.JumpHost != nil {
		services = append(slices.Clip(services), *in.JumpHost)
	}
	plan, err := catalog.Read(releases, files, services...)
	if err != nil {
		return nil, nil, err
	}
	if err := in.resolveImages(ctx, plan.Images, o); err != nil {
		return nil, nil, err
	}
	lock := &bundle.Lock{
		APIVersion: bundle.LockAPIVersion, Kind: bundle.LockKind, Matrix: in.Matrix.Ref(), Platforms: in.Platforms,
		Releases: plan.Releases, Images: plan.Images,
	}
	lock.Sort()
	return lock, files, lock.Validate()
}

// announce tells what was chosen, and what to know about it.
func announce(s catalog.Selection, p run.Progress) {
	for _, pick := range s.Picks {
		p.Say(pick.String())
	}
	for _, service := range s.Services {
		p.Say("service: " + service.ReleaseID.String())
	}
	for _, w := range s.Warnings {
		p.Say("warning: " + w)
	}
}

func wantedFiles(releases []matrix.Release) []upstream.File {
	var out []upstream.File
	for _, r := range releases {
		for _, m := range r.Manifests {
			out = append(out, upstream.File{Key: catalog.Key(r.ReleaseID, m.Name), Manifest: m})
		}
	}
	return out
}

// resolveImages finds the digest of every image, and reports all that have none.
func (in Input) resolveImages(ctx context.Context, images []bundle.Image, o run.Options) error {
	o.Reporter().Phase("images", len(images), 0)
	return run.Each(ctx, o.Small(), len(images), func(n int) error {
		err := in.resolveImage(ctx, &images[n], o.Reporter())
		o.Reporter().Done(images[n].Reference.String(), err)
		return err
	})
}

func (in Input) resolveImage(ctx context.Context, i *bundle.Image, p run.Progress) error {
	where := cmp.Or(i.Source, i.Reference)
	source := in.Registry(where)
	d, err := source.Root(ctx)
	if err != nil {
		return fmt.Errorf("image %s of %s: %w", i.Reference, strings.Join(i.UsedBy, ", "), err)
	}
	var index image.Digest // where some platforms of it are kept
	if in.Platforms[0] != (image.Platform{}) {
		if d, index, err = in.pick(ctx, source, d, i.Reference, p); err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
	}
	i.MediaType, i.Size = d.MediaType, d.Size
	if i.Digest, err = image.ParseDigest(d.Digest.String()); err != nil {
		return err
	}
	if !index.IsZero() {
		*i = i.OfIndex(index)
	}
	if mirror := source.Can().Repository.Repository(); mirror != where.Repository() {
		*i = i.ResolvedAt(mirror)
	}
	return nil
}

// Operator is this project's own operator as a part of a bundle: an image whose tag
// is a version. Its install manifests are those of package deploy; with the services of
// tenant clusters, those of the operator for SIPClusters too, which is the same program.
type Operator struct {
	Image   image.Reference
	Version matrix.Version
}

// NewOperator reads the reference of the operator's image.
func NewOperator(reference string) (*Operator, error) {
	ref, v, err := versioned(reference, string(bundle.Operator))
	if err != nil {
		return nil, err
	}
	return &Operator{Image: ref, Version: v}, nil
}

// NewJumpHost reads the reference of the jump host's image, which is of this project's
// release as the operator's is.
func NewJumpHost(reference string) (*matrix.ServiceRelease, error) {
	_, v, err := versioned(reference, string(bundle.JumpHost))
	if err != nil {
		return nil, err
	}
	id := matrix.ReleaseID{Driver: bundle.JumpHost, Version: v}
	return &matrix.ServiceRelease{ReleaseID: id, Image: reference}, nil
}

// JumpHostBeside returns the reference of the jump host's image that a release has beside
// the operator's: the same registry, folder and tag.
func JumpHostBeside(operator image.Reference) (reference string, ok bool) {
	folder, name := path.Split(operator.Repository())
	if name != string(bundle.Operator) || operator.Tag() == "" {
		return "", false
	}
	return folder + string(bundle.JumpHost) + ":" + operator.Tag(), true
}

// versioned reads a reference whose tag is the version of what is in the image.
func versioned(reference, program string) (image.Reference, matrix.Version, error) {
	ref, err := image.ParseReference(reference)
	if err != nil {
		return ref, matrix.Version{}, err
	}
	v, err := matrix.ParseVersion(ref.Tag())
	if err != nil {
		return ref, v, fault.Errorf(fault.InvalidInput, "read image", reference,
			fmt.Sprintf("write it with the version as tag: registry.example/%s:v1.2.3", program),
			"its tag %q is not a version", ref.Tag())
	}
	return ref, v, nil
}

// release is what a matrix would list of it.
func (o *Operator) release(services bool) matrix.Release {
	r := matrix.Release{
		ReleaseID: matrix.ReleaseID{Driver: bundle.Operator, Version: o.Version},
		Images:    []matrix.ImageOverride{{From: deploy.Image, To: o.Image.String(), Basis: "it was asked for by that name"}},
	}
	manifests := deploy.Manifests()
	if services {
		manifests = append(manifests, deploy.SIPManifests()...)
	}
	for _, m := range manifests {
		r.Manifests = append(r.Manifests, matrix.Manifest{Name: m.Name, Size: int64(len(m.Data)), SHA256: image.DigestOf(m.Data).Hex()})
	}
	return r
}

// pick returns the descriptor of one platform's own manifest, or of an index of several
// platforms' manifests, and the digest of the index that names them; zero where the image is
// a manifest, or is for these platforms alone. Of several platforms it says which the image
// lacks.
func (in Input) pick(
	ctx context.Context, source medium.Source, d ocispec.Descriptor, name image.Reference, p run.Progress,
) (ocispec.Descriptor, image.Digest, error) {
	data, err := bundle.Read(ctx, source, d, bundle.MaxManifestSize)
	if err != nil {
		return d, image.Digest{}, err
	}
	if !bundle.IsIndex(d.MediaType) {
		is, err := onlyFor(ctx, source, data, in.Platforms)
		if err == nil {
			warnLacks(p, name, slices.DeleteFunc(slices.Clone(in.Platforms), is.Is))
		}
		return d, image.Digest{}, err
	}
	if index := image.DigestOf(data); len(in.Platforms) == 1 {
		d, err = bundle.PickPlatform(data, in.Platforms[0])
		return d, index, err
	}
	kept, lacks, err := bundle.KeepPlatforms(data, in.Platforms)
	if err != nil {
		return d, image.Digest{}, err
	}
	warnLacks(p, name, lacks)
	index := image.DigestOf(data)
	if image.DigestOf(kept) == index {
		return d, image.Digest{}, nil
	}
	d.Digest, d.Size = digest.FromBytes(kept), int64(len(kept))
	return d, index, nil
}

func warnLacks(p run.Progress, name image.Reference, lacks []image.Platform) {
	if len(lacks) > 0 {
		p.Say(fmt.Sprintf("warning: %s is not for %s", name, image.JoinPlatforms(lacks)))
	}
}

// onlyFor returns the platform of an image without an index, which is one of those wanted.
func onlyFor(
	ctx context.Context, source medium.Source, manifest []byte, wanted []image.Platform,
) (image.Platform, error) {
	is, ok, err := bundle.ConfiguredPlatform(ctx, source, manifest)
	if err != nil {
		return image.Platform{}, err
	}
	if slices.ContainsFunc(wanted, is.Is) {
		return is, nil
	}
	why := fmt.Sprintf("the image is for %s only", is)
	if !ok {
		why = "the image does not say its platform"
	}
	return is, fault.Errorf(fault.NotFound, "pick platform", image.JoinPlatforms(wanted),
		"ask for a platform that all images have, or for --platform all", "%s", why)
}
