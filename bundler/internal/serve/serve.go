// Package serve is a read-only registry over bundles on disk: the pull half of the OCI distribution
// specification 1.1. It unpacks nothing; it reads blobs from the archive on request.
//
//	GET HEAD  /v2/                                200, or 401 if a login is needed
//	GET HEAD  /v2/NAME/manifests/TAG-or-DIGEST
//	GET HEAD  /v2/NAME/blobs/DIGEST               with Range
//	GET HEAD  /v2/NAME/tags/list                  n, last
//	GET HEAD  /v2/NAME/referrers/DIGEST           artifactType
//	GET HEAD  /v2/_catalog                        n, last
//
// Everything else gets 404, writes get 405 (UNSUPPORTED), and every error has the specification's
// JSON.
//
// Repositories have the layout of `push --layout paths`: the whole bundle in one, and each image
// with its attachments below that, under its upstream name:
//
//	vdo/drivers:1
//	vdo/drivers/registry.k8s.io/csi-vsphere/driver:v3.5.1
//
// The package does not verify bytes; clients check digests, as with any registry.
package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Registry is the served content by repository. It must not change while it is served.
type Registry map[string]*repository

// repository is the manifests and blobs of one name.
type repository struct {
	manifests map[string]bundle.Node // by digest
	blobs     map[string]blob
	tags      map[string]string // tag → digest
	referrers map[string][]ocispec.Descriptor
}

// blob is read from the bundle that holds it.
type blob struct {
	ocispec.Descriptor
	source bundle.Fetcher
}

// Add adds a bundle below the repository of at, under at's tag. It does not verify the source's bytes. If two bundles
// share an image name or signature tag in one repository, the last one gets the tag; both exist by digest.
func (r Registry) Add(g *bundle.Graph, s bundle.Fetcher, at image.Reference) error {
	r.add(at, g, s)
	var errs []error
	for _, d := range g.Images() {
		beside, err := below(at, d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.add(beside, g.Below(d), s)
	}
	return fault.Join(errs...)
}

func below(at image.Reference, d ocispec.Descriptor) (image.Reference, error) {
	ref, err := image.ParseReference(d.Annotations[bundle.AnnotationReference])
	if err != nil {
		return ref, err
	}
	return ref.Below(at)
}

// add adds a graph to the repository of a reference, under its tag.
func (r Registry) add(at image.Reference, g *bundle.Graph, s bundle.Fetcher) {
	repo := r[at.Path()]
	if repo == nil {
		repo = &repository{
			manifests: map[string]bundle.Node{}, blobs: map[string]blob{},
			tags: map[string]string{}, referrers: map[string][]ocispec.Descriptor{},
		}
		r[at.Path()] = repo
	}
	for _, n := range g.Manifests {
		repo.manifests[n.Descriptor.Digest.String()] = n
	}
	for _, b := range g.Blobs {
		repo.blobs[b.Digest.String()] = blob{b, s}
	}
	for _, a := range g.Attachments {
		repo.attach(a, s)
	}
	if at.Tag() != "" {
		repo.tags[at.Tag()] = g.Root.Digest.String()
	}
}

func (r *repository) attach(a bundle.Referrer, s bundle.Fetcher) {
	d := a.Node.Descriptor
	r.manifests[d.Digest.String()] = a.Node
	for _, b := range a.Blobs {
		r.blobs[b.Digest.String()] = blob{b, s}
	}
	if a.Tag != "" {
		r.tags[a.Tag] = d.Digest.String()
	}
	var m ocispec.Manifest
	if json.Unmarshal(a.Node.Data, &m) == nil && m.Subject != nil && m.Subject.Digest.String() == a.Subject.String() {
		list := slices.Concat(r.referrers[a.Subject.String()], []ocispec.Descriptor{a.Node.Referrer()})
		slices.SortFunc(list, func(x, y ocispec.Descriptor) int { return cmp.Compare(x.Digest, y.Digest) })
		r.referrers[a.Subject.String()] = slices.CompactFunc(list, func(x, y ocispec.Descriptor) bool { return x.Digest == y.Digest })
	}
}

// Names returns the repositories, sorted.
func (r Registry) Names() []string { return slices.Sorted(maps.Keys(r)) }

func (r *repository) manifest(reference string) (bundle.Node, bool) {
	if digest, ok := r.tags[reference]; ok {
		reference = digest
	}
	n, ok := r.manifests[reference]
	return n, ok
}

// content reads a blob from any position, for http.ServeContent.
type content struct {
	blob
	ctx  context.Context //nolint:containedctx // of the one request that it answers
	at   int64
	open io.ReadCloser
}

func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.Size
	}
	if offset < 0 {
		return c.at, fmt.Errorf("offset %d is before the beginning", offset)
	}
	if offset != c.at {
		c.end()
	}
	c.at = offset
	return offset, nil
}

func (c *content) Read(p []byte) (int, error) {
	if c.at >= c.Size {
		return 0, io.EOF
	}
	if c.open == nil {
		var err error
		if c.open, err = c.source.Fetch(c.ctx, c.Descriptor, c.at); err != nil {
			return 0, err
		}
	}
	n, err := c.open.Read(p)
	c.at += int64(n)
	return n, err
}

func (c *content) end() {
	if c.open != nil {
		_ = c.open.Close() // only read
		c.open = nil
	}
}
