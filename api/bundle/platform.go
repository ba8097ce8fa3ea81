package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

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
