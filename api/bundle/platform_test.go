package bundle_test

import (
	"context"
	"io"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// described is a bundle of one image: what makes it is given the store that its parts go into.
func described(t *testing.T, platforms []image.Platform, of func(s bundles.Store) ocispec.Descriptor) (*bundle.Graph, *bundle.Lock, bundles.Store) {
	t.Helper()
	made := bundles.New(t, bundles.Options{Seed: 1, LayerSize: 10, Layers: 1})
	lock, d := made.Contents.Lock, of(made.Store)
	tree := must(bundle.ReadTree(t.Context(), made.Store, d))(t)
	tree.Reference = image.MustReference("registry.test/one:v1")
	lock.Platforms = platforms
	lock.Images = []bundle.Image{{Reference: tree.Reference, Digest: image.MustDigest(d.Digest.String()), MediaType: d.MediaType, Size: d.Size, UsedBy: []string{"csi@3.5.1"}}}
	lock.Releases[0].Images = map[string]string{tree.Reference.String(): tree.Reference.String()}
	g := must(bundle.Assemble(made.Contents, []bundle.Tree{tree}))(t)
	return g, lock, made.Store
}

func manifestOf(s bundles.Store, config string) ocispec.Descriptor {
	c := s.Add(ocispec.MediaTypeImageConfig, []byte(config))
	manifest := bundle.NewManifest(ocispec.Manifest{Config: c, Layers: []ocispec.Descriptor{}})
	return s.Add(ocispec.MediaTypeImageManifest, manifest.Data)
}

func indexOf(s bundles.Store, children ...ocispec.Descriptor) ocispec.Descriptor {
	return s.Add(ocispec.MediaTypeImageIndex, bundle.NewIndex(ocispec.Index{Manifests: children}).Data)
}

func TestThePlatformsOfImagesComeFromWhatWasVerified(t *testing.T) {
	all, amd := []image.Platform{{}}, image.Platform{OS: "linux", Architecture: "amd64"}
	arm, windows := image.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}, image.Platform{OS: "windows", Architecture: "amd64"}
	on := func(d ocispec.Descriptor, p image.Platform) ocispec.Descriptor {
		d.Platform = &ocispec.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}
		return d
	}
	of := func(p image.Platform) string {
		return `{"os":"` + p.OS + `","architecture":"` + p.Architecture + `","variant":"` + p.Variant + `"}`
	}
	for name, c := range map[string]struct {
		platforms []image.Platform // of the lock
		image     func(s bundles.Store) ocispec.Descriptor
		want      []image.Platform
	}{
		"an index that says it, with attestations": {all, func(s bundles.Store) ocispec.Descriptor {
			return indexOf(s, on(manifestOf(s, `{"n":1}`), arm), on(manifestOf(s, `{"n":2}`), amd), on(manifestOf(s, `{"n":3}`), windows), on(manifestOf(s, `{"n":4}`), windows),
				on(manifestOf(s, `{"n":5}`), image.Platform{OS: "unknown", Architecture: "unknown"}))
		}, []image.Platform{amd, arm, windows}},
		"an index that leaves one to its configuration": {all, func(s bundles.Store) ocispec.Descriptor {
			return indexOf(s, on(manifestOf(s, `{}`), arm), manifestOf(s, of(amd)))
		}, []image.Platform{amd, arm}},
		"an index in an index": {all, func(s bundles.Store) ocispec.Descriptor {
			return indexOf(s, indexOf(s, on(manifestOf(s, `{}`), arm)), on(manifestOf(s, `{"n":2}`), amd))
		}, []image.Platform{amd, arm}},
		"an index with one that nothing says it of": {all, func(s bundles.Store) ocispec.Descriptor {
			return indexOf(s, on(manifestOf(s, `{"n":1}`), arm), manifestOf(s, `{}`))
		}, nil},
		"a manifest":                      {all, func(s bundles.Store) ocispec.Descriptor { return manifestOf(s, of(windows)) }, []image.Platform{windows}},
		"a manifest that does not say it": {all, func(s bundles.Store) ocispec.Descriptor { return manifestOf(s, `{}`) }, nil},
		"one platform was kept":           {[]image.Platform{arm}, func(s bundles.Store) ocispec.Descriptor { return manifestOf(s, `{}`) }, []image.Platform{arm}},
	} {
		t.Run(name, func(t *testing.T) {
			g, lock, s := described(t, c.platforms, c.image)
			got := must(g.Platforms(t.Context(), s, lock))(t)
			require.Equal(t, c.want, got[lock.Images[0].Digest])
		})
	}

	// A copy that lacks the configuration is no fault; a registry that does not answer is one.
	g, lock, s := described(t, all, func(s bundles.Store) ocispec.Descriptor { return manifestOf(s, of(windows)) })
	_, err := g.Platforms(t.Context(), away{}, lock)
	require.ErrorContains(t, err, "no answer")
	for key := range s {
		delete(s, key)
	}
	got := must(g.Platforms(t.Context(), s, lock))(t)
	require.Empty(t, got)
}

// away is a registry that does not answer for what it does not have.
type away struct{ bundles.Store }

func (a away) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if _, ok := a.Store[d.Digest.String()]; !ok {
		return nil, fault.Errorf(fault.Unreachable, "read", "", "", "no answer")
	}
	return a.Store.Fetch(ctx, d, offset)
}

// What an index says no platform of is not kept, as if the image had no such platform.
func TestWhatAnIndexSaysNoPlatformOfIsNotKept(t *testing.T) {
	s := bundles.Store{}
	amd := manifestOf(s, `{"os":"linux","architecture":"amd64"}`)
	amd.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
	index := s[indexOf(s, amd, manifestOf(s, `{"os":"linux","architecture":"arm64"}`)).Digest.String()]
	both := must(image.ParsePlatforms([]string{"linux/arm64", "linux/amd64"}))(t)
	kept, lacks, err := bundle.KeepPlatforms(index, both)
	require.NoError(t, err)
	require.Equal(t, both[1:], lacks)
	again, _, err := bundle.KeepPlatforms(index, both)
	require.NoError(t, err)
	require.Equal(t, kept, again)
	many := []byte(`{"manifests":[` + strings.Repeat("{},", bundle.MaxEntries) + `{}]}`)
	_, _, err = bundle.KeepPlatforms(many, both)
	require.ErrorContains(t, err, "entries")
}
