package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// PickPlatform finds the one manifest of a platform in the bytes of an image
// index. Attestations are passed over. A platform without a variant takes any
// variant where there is only one. Where the index has no such platform the fault
// is NotFound and names those it has; where it has several (Windows builds of one
// processor), it is Conflict.
func PickPlatform(index []byte, p image.Platform) (ocispec.Descriptor, error) {
	bad := func(reason fault.Reason, format string, args ...any) (ocispec.Descriptor, error) {
		return ocispec.Descriptor{}, &fault.Error{
			Reason: reason, Op: "pick platform", Subject: p.String(),
			Hint: "keep all platforms with --platform all", Err: fmt.Errorf(format, args...),
		}
	}
	var doc ocispec.Index
	if len(index) > MaxManifestSize {
		return bad(fault.Corrupt, "the image index is larger than %d bytes", MaxManifestSize)
	}
	if err := json.Unmarshal(index, &doc); err != nil {
		return bad(fault.Corrupt, "it is not an image index: %w", err)
	}
	var found []ocispec.Descriptor
	var has []string
	for _, d := range doc.Manifests {
		if d.Platform == nil || d.Platform.OS == "unknown" || !isManifest(d.MediaType) {
			continue
		}
		got := image.Platform{OS: d.Platform.OS, Architecture: d.Platform.Architecture, Variant: d.Platform.Variant}
		has = append(has, got.String())
		if got == p || (p.Variant == "" && got.OS == p.OS && got.Architecture == p.Architecture) {
			found = append(found, Plain(d))
		}
	}
	slices.Sort(has)
	found = slices.CompactFunc(found, func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest })
	switch len(found) {
	case 0:
		return bad(fault.NotFound, "the image has %s", orNone(slices.Compact(has)))
	case 1:
		return found[0], CheckDescriptor(found[0])
	}
	return bad(fault.Conflict, "the image has %d manifests for it", len(found))
}

func orNone(s []string) string {
	if len(s) == 0 {
		return "no platforms"
	}
	return strings.Join(s, ", ")
}

// ConfiguredPlatform reads the platform of an image's configuration, as its manifest
// names it, and tells whether it says one.
func ConfiguredPlatform(ctx context.Context, f Fetcher, manifest []byte) (ocispec.Platform, bool) {
	var m ocispec.Manifest
	var p ocispec.Platform
	if json.Unmarshal(manifest, &m) != nil {
		return p, false
	}
	data, err := Read(ctx, f, m.Config, MaxManifestSize)
	if err != nil || json.Unmarshal(data, &p) != nil {
		return p, false
	}
	return p, p.OS != "" && p.Architecture != ""
}

// Platforms are those that each image of the bundle is for, by the digest that pods are
// pinned to: sorted, each once. They are what was verified says: the lock, where it keeps one
// platform; of an index its manifests, and where an index does not say it of one, or the image
// is a manifest by itself, the image's configuration, which is read. An image of which it is
// not known is not in the map: its configuration is not to be had (a copy without blobs) or
// says nothing. Attestations count for nothing. An error is one of reading.
func (g *Graph) Platforms(ctx context.Context, f Fetcher, lock *Lock) (map[image.Digest][]image.Platform, error) {
	nodes, out := g.byDigest(), map[image.Digest][]image.Platform{}
	for _, d := range g.Images() {
		id := digestOf(d)
		if _, known := out[id]; known {
			continue
		}
		if !IsIndex(d.MediaType) && len(lock.Platforms) == 1 && lock.Platforms[0] != (image.Platform{}) {
			out[id] = slices.Clone(lock.Platforms)
			continue
		}
		r := platformReader{f: f, nodes: nodes}
		if err := r.add(ctx, Plain(d), 0); err != nil {
			return nil, err
		}
		if !r.unknown && len(r.found) > 0 {
			slices.SortFunc(r.found, func(a, b image.Platform) int { return strings.Compare(a.String(), b.String()) })
			out[id] = slices.Compact(r.found)
		}
	}
	return out, nil
}

// platformReader collects the platforms of one image.
type platformReader struct {
	f       Fetcher
	nodes   map[digest.Digest]Node
	found   []image.Platform
	unknown bool // of a part it is not known
}

func (r *platformReader) add(ctx context.Context, d ocispec.Descriptor, depth int) error {
	switch n, there := r.nodes[d.Digest]; {
	case d.Platform != nil && d.Platform.OS != "":
		r.note(*d.Platform)
	case !there || depth > MaxDepth:
		r.unknown = true
	case !IsIndex(n.Descriptor.MediaType):
		return r.configured(ctx, n)
	default:
		for _, child := range n.Children() {
			if !IsManifest(child.MediaType) {
				continue // passed over by whoever reads an index
			}
			if err := r.add(ctx, child, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// configured reads the platform of a manifest's configuration.
func (r *platformReader) configured(ctx context.Context, n Node) error {
	var m ocispec.Manifest
	var p ocispec.Platform
	if bad := json.Unmarshal(n.Data, &m); bad != nil || m.Config.Size > MaxManifestSize {
		r.unknown = true
		return nil //nolint:nilerr // what cannot be read says nothing
	}
	data, err := Read(ctx, r.f, Plain(m.Config), MaxManifestSize)
	switch {
	case fault.ReasonOf(err) == fault.NotFound:
		r.unknown = true
	case err != nil:
		return fmt.Errorf("platform of %s: %w", n.Descriptor.Digest, err)
	case json.Unmarshal(data, &p) != nil || p.OS == "" || p.Architecture == "":
		r.unknown = true
	default:
		r.note(p)
	}
	return nil
}

func (r *platformReader) note(p ocispec.Platform) {
	if p.OS != "unknown" {
		r.found = append(r.found, image.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant})
	}
}
