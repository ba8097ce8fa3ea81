// Package lock chooses releases for what is asked for, reads their manifests, and fixes
// every image by digest: the first step towards a bundle.
//
//	locked, err := lock.Make(ctx, lock.Input{Matrix: m, Request: request, Manifests: files, Registry: upstream}, o)
//	data, err := locked.Lock.YAML()
//
// Nothing but manifests and what is needed to find a platform is fetched. The choice
// itself is internal/catalog's, which is pure.
package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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
	Platform  image.Platform   // zero: all
	Operator  *Operator        // nil: the bundle does not hold it
	JumpHost  *catalog.Service // nil: the bundle does not hold it
	Manifests upstream.Manifests
	Registry  medium.Registry
}

// Locked is a lock and what was fetched to make it.
type Locked struct {
	Lock      *bundle.Lock
	Selection catalog.Selection
	Files     catalog.Files
}

// Make chooses releases, reads their manifests, and fixes every image by digest.
func Make(ctx context.Context, in Input, o run.Options) (*Locked, error) {
	selection, err := catalog.Select(in.Matrix.Document, in.Request)
	if err != nil {
		return nil, err
	}
	announce(selection, o.Reporter())
	releases := selection.Releases
	if in.Operator != nil {
		releases = append(slices.Clip(releases), in.Operator.release(in.JumpHost != nil || len(selection.Services) > 0))
	}
	files, err := upstream.Fetch(ctx, wantedFiles(releases), in.Manifests, o)
	if err != nil {
		return nil, err
	}
	services := selection.Services
	if in.JumpHost != nil {
		services = append(slices.Clip(services), *in.JumpHost)
	}
	plan, err := catalog.Read(releases, files, services...)
	if err != nil {
		return nil, err
	}
	resolved, err := in.resolveImages(ctx, plan.Images, o)
	if err != nil {
		return nil, err
	}
	lock, err := plan.Lock(in.Matrix.Ref(), []image.Platform{in.Platform}, resolved.at)
	if err != nil {
		return nil, err
	}
	for n, i := range lock.Images {
		if index, ok := resolved.of[i.Reference]; ok {
			i = i.OfIndex(index)
		}
		if mirror := resolved.by[i.Reference]; mirror != "" {
			i = i.ResolvedAt(mirror)
		}
		lock.Images[n] = i
	}
	lock.Sort()
	return &Locked{Lock: lock, Selection: selection, Files: files}, lock.Validate()
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

// resolved is what references stand for upstream.
type resolved struct {
	at map[image.Reference]ocispec.Descriptor
	of map[image.Reference]image.Digest // the index, where one platform of it is kept
	by map[image.Reference]string       // the mirror that was asked in the place of the source
}

// resolveImages finds the digest of every image, and reports all that have none.
func (in Input) resolveImages(ctx context.Context, images []catalog.Image, o run.Options) (resolved, error) {
	o.Reporter().Phase("images", len(images), 0)
	var mu sync.Mutex
	found := resolved{
		at: map[image.Reference]ocispec.Descriptor{}, of: map[image.Reference]image.Digest{},
		by: map[image.Reference]string{},
	}
	err := run.Each(ctx, o.Small(), len(images), func(i int) error {
		source := in.Registry(images[i].Where())
		d, index, err := resolveImage(ctx, source, images[i], in.Platform)
		o.Reporter().Done(images[i].Reference.String(), err)
		mu.Lock()
		defer mu.Unlock()
		found.at[images[i].Reference] = bundle.Plain(d)
		if !index.IsZero() {
			found.of[images[i].Reference] = index
		}
		if at := source.Can().Repository.Repository(); at != images[i].Where().Repository() {
			found.by[images[i].Reference] = at
		}
		return err
	})
	return found, err
}

func resolveImage(
	ctx context.Context, source medium.Source, i catalog.Image, p image.Platform,
) (d ocispec.Descriptor, index image.Digest, err error) {
	if d, err = source.Root(ctx); err != nil {
		return d, index, unresolved(i, err)
	}
	if (p == image.Platform{}) {
		return d, index, nil
	}
	if d, index, err = pick(ctx, source, d, p); err != nil {
		err = fmt.Errorf("image %s: %w", i.Reference, err)
	}
	return d, index, err
}

// unresolved adds what the user can do about an image that is not where its manifest says.
func unresolved(i catalog.Image, err error) error {
	wrapped := fmt.Errorf("image %s of %s: %w", i.Reference, strings.Join(i.UsedBy, ", "), err)
	if i.Source.IsZero() || fault.ReasonOf(err) != fault.NotFound {
		return wrapped
	}
	return &fault.Error{
		Reason: fault.NotFound, Op: "resolve", Subject: i.Reference.String(), Err: errors.Join(fmt.Errorf("%s", i.Reason), err),
		Hint: fmt.Sprintf("if a mirror of yours still has it, name it with --source-map %s=MIRROR/PATH", i.Source.Repository()),
	}
}
