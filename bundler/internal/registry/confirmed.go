package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	godigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const (
	confirmedType = "application/vnd.vdo.confirmed.v1"
	// sampleSize is how much of a confirmed bundle is asked for: blobs and
	// manifests, and as many tags of attachments at most.
	sampleSize = 8
	sampleTags = 2
)

// Annotations of the note.
const (
	confirmedRepository = "com.vmware.vdo.confirmed.repository"
	confirmedRoot       = "com.vmware.vdo.confirmed.root"
	confirmedSet        = "com.vmware.vdo.confirmed.set"
)

// confirmation makes the note of the package comment, and the tag it goes by. The
// same graph in the same repository gives the same bytes, so that its digest is
// all that has to be asked for.
func (r *Repository) confirmation(g *bundle.Graph) (tag string, note bundle.Node, err error) {
	nothing := plainEmpty()
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: confirmedType, Config: nothing, Layers: []ocispec.Descriptor{nothing},
		Annotations: map[string]string{
			confirmedRepository: r.ref.Repository(), confirmedRoot: g.Root.Digest.String(), confirmedSet: setOf(g),
		},
	})
	if err != nil {
		return "", note, fmt.Errorf("write the note of what arrived: %w", err)
	}
	d := blob(ocispec.MediaTypeImageManifest, data)
	d.Data = nil
	return bundle.NoteTag(g.Root.Digest.Encoded()), bundle.Node{Descriptor: d, Data: data}, nil
}

func plainEmpty() ocispec.Descriptor {
	d := ocispec.DescriptorEmptyJSON
	d.Data = nil
	return d
}

// setOf is a digest of everything that a graph has, and of the attachments' tags.
func setOf(g *bundle.Graph) string {
	var lines []string
	for _, d := range g.Order() {
		lines = append(lines, fmt.Sprintf("%s %d\n", d.Digest, d.Size))
	}
	for _, a := range g.Attachments {
		lines = append(lines, fmt.Sprintf("%s of %s at %q\n", a.Node.Descriptor.Digest, a.Subject, a.Tag))
	}
	slices.Sort(lines)
	return godigest.FromString(strings.Join(slices.Compact(lines), "")).String()
}

// confirmed tells whether an earlier push has noted that all of the graph is here,
// and neither the root nor any of a random sample is missing.
func (r *Repository) confirmed(ctx context.Context, g *bundle.Graph) (bool, error) {
	if r.client.opts.CheckAll {
		return false, nil
	}
	tag, note, err := r.confirmation(g)
	if err != nil {
		return false, err
	}
	d, found, err := r.stat(ctx, "push to", r.ref.String(), tag, r.pushes()) // the first that is asked of the registry
	if fault.ReasonOf(err) == fault.Forbidden {
		return false, nil // as some registries say that a tag is not there
	}
	if err != nil || !found || d.Digest != note.Descriptor.Digest {
		return false, err
	}
	return r.sampled(ctx, g)
}

// sampled looks for the root, and a few other things that chance picks.
func (r *Repository) sampled(ctx context.Context, g *bundle.Graph) (bool, error) {
	attached := map[godigest.Digest]bool{} // what is attached may have been joined with what others attached
	var tags []string
	for _, a := range g.Attachments {
		attached[a.Node.Descriptor.Digest] = true
		for _, b := range a.Blobs {
			attached[b.Digest] = true
		}
		if a.Tag != "" && a.Subject.String() != g.Root.Digest.String() { // Commit looks at the root's own
			tags = append(tags, a.Tag)
		}
	}
	rest := slices.DeleteFunc(g.Order(), func(d ocispec.Descriptor) bool { return attached[d.Digest] || d.Digest == g.Root.Digest })
	group, ctx := r.group(ctx)
	var misses atomic.Int64
	note := func(found bool, err error) error {
		if err == nil && !found {
			misses.Add(1)
		}
		return err
	}
	for _, d := range append(pick(rest, sampleSize), g.Root) {
		group.Go(func() error { return note(r.has(ctx, d, r.pushes())) })
	}
	for _, tag := range pick(tags, sampleTags) {
		group.Go(func() error {
			_, found, err := r.stat(ctx, "look for", r.at(tag), tag, r.pushes())
			return note(found, err)
		})
	}
	err := group.Wait()
	return err == nil && misses.Load() == 0, err
}

// pick takes n of a list by chance.
func pick[T any](list []T, n int) []T {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) //nolint:gosec // no secret
	return list[:min(n, len(list))]
}

// Confirmed tells, after Begin, whether an earlier push has noted that all of the
// bundle was here and could be read, and a sample has found nothing missing since.
func (r *Repository) Confirmed() bool {
	p := r.begun()
	return p != nil && p.confirmed
}

// Remember notes, after Commit, that all of the bundle is here: for the next push.
// Who calls it has read back what a cluster will read.
func (r *Repository) Remember(ctx context.Context) error {
	p := r.begun()
	if p == nil || p.confirmed || len(r.Omitted()) > 0 {
		return nil
	}
	tag, note, err := r.confirmation(p.graph)
	if err != nil {
		return err
	}
	d, found, err := r.stat(ctx, opPush, r.at(tag), tag, r.pushes())
	if err == nil && found && d.Digest == note.Descriptor.Digest {
		return nil
	}
	if err := r.attachBlob(ctx, ocispec.DescriptorEmptyJSON); err != nil {
		return err
	}
	return r.putManifest(ctx, tag, note)
}
