package bundler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// LockInput is what a lock is made of.
type LockInput struct {
	Matrix    Matrix
	Request   catalog.Request
	Platform  image.Platform // zero: all
	Operator  *Operator      // nil: the bundle does not hold it
	Manifests Manifests
	Registry  Registry
}

// Locked is a lock and what was fetched to make it.
type Locked struct {
	Lock      *bundle.Lock
	Selection catalog.Selection
	Files     catalog.Files
}

// Lock chooses releases, reads their manifests, and fixes every image by digest.
func Lock(ctx context.Context, in LockInput, o Options) (*Locked, error) {
	selection, err := catalog.Select(in.Matrix.Document, in.Request)
	if err != nil {
		return nil, err
	}
	announce(selection, o.progress())
	releases := selection.Releases
	if in.Operator != nil {
		releases = append(slices.Clip(releases), in.Operator.release())
	}
	files, err := fetchFiles(ctx, wantedFiles(releases), in.Manifests, o)
	if err != nil {
		return nil, err
	}
	plan, err := catalog.Read(releases, files)
	if err != nil {
		return nil, err
	}
	resolved, err := resolveImages(ctx, plan.Images, in.Platform, in.Registry, o)
	if err != nil {
		return nil, err
	}
	lock, err := plan.Lock(in.Matrix.Ref(), []image.Platform{in.Platform}, resolved)
	if err != nil {
		return nil, err
	}
	lock.Sort()
	return &Locked{Lock: lock, Selection: selection, Files: files}, lock.Validate()
}

// announce tells what was chosen, and what to know about it.
func announce(s catalog.Selection, p Progress) {
	if s.Defaulted {
		p.Say(fmt.Sprintf("nothing was asked for: taking the newest supported drivers of the last %d Kubernetes versions that the matrix covers", len(s.Picks)))
	}
	for _, pick := range s.Picks {
		p.Say(pick.String())
	}
	for _, w := range s.Warnings {
		p.Say("warning: " + w)
	}
}

// wanted is one manifest file to fetch.
type wanted struct {
	key  string
	file matrix.Manifest
}

func wantedFiles(releases []matrix.Release) []wanted {
	var out []wanted
	for _, r := range releases {
		for _, m := range r.Manifests {
			out = append(out, wanted{catalog.Key(r.ReleaseID, m.Name), m})
		}
	}
	return out
}

// fetchFiles gets all manifest files, and reports all that could not be had.
func fetchFiles(ctx context.Context, want []wanted, from Manifests, o Options) (catalog.Files, error) {
	o.progress().Phase("manifests", len(want), 0)
	data := make([][]byte, len(want))
	err := forEach(ctx, o.limit(), len(want), func(i int) error {
		var err error
		data[i], err = from.Get(ctx, want[i].file)
		o.progress().Done(want[i].key, err)
		return err
	})
	if err != nil {
		return nil, err
	}
	files := catalog.Files{}
	for i, w := range want {
		files[w.key] = data[i]
	}
	return files, nil
}

// forEach runs work for 0..n-1, at most limit at a time, all of it whatever fails,
// and returns all errors; but once ctx is done it starts no more.
func forEach(ctx context.Context, limit, n int, work func(i int) error) error {
	errs := make([]error, n)
	var group errgroup.Group
	group.SetLimit(limit)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			errs[i] = work(i)
			return nil
		})
	}
	_ = group.Wait() // every error is in errs
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	return fault.Join(errs...)
}

func interrupted(ctx context.Context) error {
	return &fault.Error{Reason: fault.Interrupted, Op: "interrupted", Err: context.Cause(ctx)}
}

// resolveImages finds the digest of every image, and reports all that have none.
func resolveImages(ctx context.Context, images []catalog.Image, p image.Platform, registry Registry, o Options) (map[image.Reference]ocispec.Descriptor, error) {
	o.progress().Phase("images", len(images), 0)
	var mu sync.Mutex
	resolved := map[image.Reference]ocispec.Descriptor{}
	err := forEach(ctx, o.small(), len(images), func(i int) error {
		d, err := resolveImage(ctx, images[i], p, registry)
		o.progress().Done(images[i].Reference.String(), err)
		mu.Lock()
		defer mu.Unlock()
		resolved[images[i].Reference] = d
		return err
	})
	return resolved, err
}

func resolveImage(ctx context.Context, i catalog.Image, p image.Platform, registry Registry) (ocispec.Descriptor, error) {
	upstream := registry(i.Where())
	d, err := upstream.Resolve(ctx)
	if err != nil {
		return d, unresolved(i, err)
	}
	if (p == image.Platform{}) {
		return bundle.Plain(d), nil
	}
	d, err = pick(ctx, upstream, d, p)
	if err != nil {
		return d, fmt.Errorf("image %s: %w", i.Reference, err)
	}
	return bundle.Plain(d), nil
}

// unresolved adds what the user can do about an image that is nowhere any more.
func unresolved(i catalog.Image, err error) error {
	wrapped := fmt.Errorf("image %s of %v: %w", i.Reference, i.UsedBy, err)
	if i.Source.IsZero() || fault.ReasonOf(err) != fault.NotFound {
		return wrapped
	}
	return &fault.Error{
		Reason: fault.NotFound, Op: "resolve", Subject: i.Reference.String(), Err: errors.Join(fmt.Errorf("%s", i.Reason), err),
		Hint: fmt.Sprintf("if a mirror of yours still has it, name it with --source-map %s=MIRROR/PATH", i.Source.Repository()),
	}
}

// pick returns the descriptor of one platform's own manifest.
func pick(ctx context.Context, upstream Upstream, d ocispec.Descriptor, p image.Platform) (ocispec.Descriptor, error) {
	data, err := bundle.Read(ctx, upstream, d, bundle.MaxManifestSize)
	if err != nil {
		return d, err
	}
	if bundle.IsIndex(d.MediaType) {
		if data, err = withPlatforms(ctx, upstream, data); err != nil {
			return d, err
		}
		return bundle.PickPlatform(data, p)
	}
	return d, onlyFor(ctx, upstream, data, p)
}

// maxUnsaid bounds of how many children of an index the configuration is read.
const maxUnsaid = 64

// withPlatforms adds the platforms that an index does not say of its manifests and
// their configurations do: the field is optional.
func withPlatforms(ctx context.Context, f bundle.Fetcher, data []byte) ([]byte, error) {
	var index ocispec.Index
	if json.Unmarshal(data, &index) != nil {
		return data, nil //nolint:nilerr // PickPlatform says so
	}
	unsaid := 0
	for n, d := range index.Manifests {
		if d.Platform != nil || bundle.IsIndex(d.MediaType) || !bundle.IsManifest(d.MediaType) {
			continue
		}
		if unsaid++; unsaid > maxUnsaid {
			break
		}
		manifest, err := bundle.Read(ctx, f, bundle.Plain(d), bundle.MaxManifestSize)
		if err != nil {
			return nil, err
		}
		if p, ok := configured(ctx, f, manifest); ok {
			index.Manifests[n].Platform = &p
		}
	}
	if unsaid == 0 {
		return data, nil
	}
	return json.Marshal(index)
}

// maxImageConfig bounds the configuration of an image, in bytes.
const maxImageConfig = 4 << 20

// onlyFor checks that an image without an index is for the platform.
func onlyFor(ctx context.Context, upstream Upstream, manifest []byte, p image.Platform) error {
	var m ocispec.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return &fault.Error{Reason: fault.Corrupt, Op: "read image manifest", Err: err}
	}
	data, err := bundle.Read(ctx, upstream, m.Config, maxImageConfig)
	if err != nil {
		return err
	}
	var config ocispec.Platform
	if err := json.Unmarshal(data, &config); err != nil {
		return &fault.Error{Reason: fault.Corrupt, Op: "read image configuration", Err: err}
	}
	is := image.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
	if is.OS == p.OS && is.Architecture == p.Architecture && (p.Variant == "" || p.Variant == is.Variant) {
		return nil
	}
	return &fault.Error{
		Reason: fault.NotFound, Op: "pick platform", Subject: p.String(), Err: fmt.Errorf("the image is for %s only", is),
		Hint: "ask for a platform that all images have, or for --platform all",
	}
}
