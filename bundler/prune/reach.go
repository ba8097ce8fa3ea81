package prune

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// reach is everything that some bundles and tags need in a repository.
type reach struct {
	repository Repository
	roots      map[digest.Digest]bool
	manifests  map[string]bool
	order      []ocispec.Descriptor // of manifests, children before parents
	referrers  []target             // their attachments, with tags
	blobs      map[string]int64     // sizes of blobs and manifests
}

func newReach(repository Repository) *reach {
	return &reach{
		repository: repository, roots: map[digest.Digest]bool{},
		manifests: map[string]bool{}, blobs: map[string]int64{},
	}
}

func (r *reach) graph(g *bundle.Graph) {
	r.roots[g.Root.Digest] = true
	r.tree(g.Manifests, g.Blobs)
}

// read adds all that a tag needs.
func (r *reach) read(ctx context.Context, tag string, d ocispec.Descriptor) error {
	s, err := r.repository.Open(tag)
	if err != nil {
		return err
	}
	tree, err := bundle.ReadTree(ctx, s, d)
	if err := errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("tag %s: %w", tag, err)
	}
	r.tree(tree.Nodes, tree.Blobs)
	return nil
}

func (r *reach) tree(nodes []bundle.Node, blobs []ocispec.Descriptor) {
	for _, n := range nodes {
		if digest := n.Descriptor.Digest.String(); !r.manifests[digest] {
			r.manifests[digest] = true
			r.order = append(r.order, n.Descriptor)
			r.blobs[digest] = n.Descriptor.Size
		}
	}
	for _, b := range blobs {
		r.blobs[b.Digest.String()] = b.Size
	}
}

const maxReferrerDepth = 3 // a signature of an attestation of an image

// attached adds the attachments of the manifests, and their attachments.
func (r *reach) attached(ctx context.Context, o run.Options) error {
	tags, err := r.repository.Tags(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, tag := range tags {
		known[tag] = true
	}
	subjects := r.order
	for range maxReferrerDepth {
		found := make([][]target, len(subjects))
		err := run.Each(ctx, o.Limit(), len(subjects), func(i int) error {
			var err error
			found[i], err = r.attachmentsOf(ctx, subjects[i], known)
			return err
		})
		if err != nil {
			return err
		}
		if subjects = r.take(slices.Concat(found...)); len(subjects) == 0 {
			return nil
		}
	}
	return nil
}

// take adds new attachments and returns them.
func (r *reach) take(found []target) (fresh []ocispec.Descriptor) {
	for _, v := range found {
		digest := v.d.Digest.String()
		if !r.manifests[digest] {
			r.manifests[digest] = true
			r.referrers = append(r.referrers, v)
			r.blobs[digest] = v.d.Size
			fresh = append(fresh, v.d)
		} else if i := slices.IndexFunc(r.referrers, func(a target) bool { return a.d.Digest == v.d.Digest }); i >= 0 {
			r.referrers[i].tags = append(r.referrers[i].tags, v.tags...)
		}
	}
	return fresh
}

// attachmentsOf returns the attachments of one manifest, and the list of its referrers if it is under a tag.
func (r *reach) attachmentsOf(ctx context.Context, d ocispec.Descriptor, known map[string]bool) ([]target, error) {
	subject, err := image.ParseDigest(d.Digest.String())
	if err != nil {
		return nil, err
	}
	s, err := r.repository.Open(subject.String())
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // only read
	attached, err := s.Attachments(ctx, subject)
	if err != nil {
		return nil, err
	}
	var out []target
	for _, a := range attached {
		v := target{in: r.repository, d: a}
		if tag := a.Annotations[ocispec.AnnotationRefName]; tag != "" {
			v.tags = []string{tag}
		}
		out = append(out, v)
	}
	list := image.ReferrersList.TagOf(subject)
	if !known[list] {
		return out, nil
	}
	root, err := namedAt(ctx, r.repository, list)
	if root.Digest != "" {
		out = append(out, target{r.repository, root, []string{list}})
	}
	return out, err
}
