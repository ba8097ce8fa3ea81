// Package lock chooses releases for what is asked for, reads their manifests, and fixes
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
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
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
	if s.Defaulted {
		of := "Kubernetes version"
		if n := len(s.Picks); n != 1 {
			of = fmt.Sprintf("%d Kubernetes versions", n)
		}
		p.Say(fmt.Sprintf("nothing was asked for: taking the newest supported drivers of the last %s that the matrix covers", of))
	}
	for _, pick := range s.Picks {
		p.Say(pick.String())
	}
	if len(s.Services) > 0 {
		names := make([]string, len(s.Services))
		for i, service := range s.Services {
			names[i] = service.ReleaseID.String()
		}
		p.Say("services: " + strings.Join(names, ", "))
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
		return unresolved(*i, err)
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

// unresolved adds what the user can do about an image that is not where its manifest says.
func unresolved(i bundle.Image, err error) error {
	wrapped := fmt.Errorf("image %s of %s: %w", i.Reference, strings.Join(i.UsedBy, ", "), err)
	if i.Source.IsZero() || fault.ReasonOf(err) != fault.NotFound {
		return wrapped
	}
	return fault.Errorf(fault.NotFound, "resolve", i.Reference.String(),
		fmt.Sprintf("if a mirror of yours still has it, name it with --source-map %s=MIRROR/PATH", i.Source.Repository()),
		"%w", errors.Join(fmt.Errorf("%s", i.Reason), err))
}
