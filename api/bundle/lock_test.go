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

func lockYAML(t testing.TB) string {
	t.Helper()
	b := bundles.New(t, bundles.Options{Seed: 1})
	data := must(b.Contents.Lock.YAML())(t)
	return string(data)
}

func TestLockRoundTrips(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	one, someIndex := &b.Contents.Lock.Images[0], image.DigestOf([]byte("index"))
	_, ok := one.Index()
	require.False(t, ok)
	*one = one.OfIndex(someIndex)
	index, ok := one.Index()
	require.True(t, ok)
	require.Equal(t, someIndex, index)
	require.Equal(t, one.Reference.Pin(one.Digest), one.FetchedFrom())
	require.Empty(t, one.Why())
	require.Empty(t, one.Resolver())
	two := &b.Contents.Lock.Images[1]
	two.Source, two.Reason = one.Reference, "the registry is gone; its owner moved it"
	*two = two.OfIndex(someIndex).ResolvedAt("mirror.corp:5000/k8s/driver")
	require.Equal(t, "the registry is gone; its owner moved it", two.Why())
	require.Equal(t, "mirror.corp:5000/k8s/driver", two.Resolver())
	for name, marshal := range map[string]func(*bundle.Lock) ([]byte, error){"YAML": (*bundle.Lock).YAML, "JSON": (*bundle.Lock).JSON} {
		data := must(marshal(b.Contents.Lock))(t)
		got, err := bundle.ParseLock(name, data)
		require.NoError(t, err, string(data))
		require.Equal(t, b.Contents.Lock, got)
		again := must(marshal(got))(t)
		require.Equal(t, string(data), string(again))
	}
}

func TestBadLocksNameFileLineAndKey(t *testing.T) {
	good := lockYAML(t)
	for _, c := range []struct{ name, old, with, want string }{
		{"unknown key", "kind: BundleLock", "kind: BundleLock\nextra: 1", "lock.yaml:3: extra: there is no such key here; known are apiVersion"},
		{"missing key", "kind: BundleLock\n", "", "lock.yaml:1: kind: is missing"},
		{"other version", "lock/v1", "lock/v2\nextra: 1", "lock.yaml:1: apiVersion: \"vdo.vmware.com/lock/v2\" is not"},
		{"no version", "vdo.vmware.com/lock/v1", `""`, "lock.yaml:1: apiVersion: \"\" is not"},
		{"a number as version", "vdo.vmware.com/lock/v1", "5", "lock.yaml:1: apiVersion: \"5\" is not"},
		{"no number", "serial: 1", "serial: one", "lock.yaml:4: matrix.serial: \"one\" is not a whole number"},
		{"negative", "serial: 1", "serial: -1", "matrix.serial: -1 is not a positive number"},
		{"digest", "digest: sha256:", "digest: sha255:", "matrix.digest"},
		{"platform", "- all", "- linux", "platforms[0]"},
		{"all beside a platform", "- all", "- all\n  - linux/arm64", "platforms: all stands alone"},
		{"driver", "driver: csi", "driver: nfs", "releases[0].driver: \"nfs\" is none of"},
		{"version", "version: 3.5.1", "version: 3.5", "releases[0].version"},
		{"traversal", "name: driver.yaml", "name: ../driver.yaml", "releases[0].manifests[0].name: \"../driver.yaml\" is not a base name"},
		{"file URL", "https://manifests.test", "file://manifests.test", "releases[0].manifests[0].url: it is not an http"},
		{"URL with a password", "https://manifests.test", "https://me:word@manifests.test", "carries credentials"},
		{"unknown image", ": registry.test/oci/index:v1", ": registry.test/oci/index:v9", "which is not among the images"},
		{"media type", "mediaType: application/vnd.oci.image.manifest.v1+json", "mediaType: text/plain", "is neither an image index nor"},
		{"user", "- csi@3.5.1", "- csi@3.5.2", "but the releases that name"},
		{"no list", "platforms:\n  - all", "platforms: all", "platforms: is not a list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := strings.Replace(good, c.old, c.with, 1)
			require.NotEqual(t, good, bad)
			_, err := bundle.ParseLock("lock.yaml", []byte(bad))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "lock.yaml")
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			require.NotEmpty(t, fault.HintOf(err))
		})
	}
	_, err := bundle.ParseLock("large", []byte(strings.Repeat(" ", bundle.MaxLockSize+1)))
	require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
}

func TestUnsortedAndRepeatedEntriesAreRefused(t *testing.T) {
	l := *bundles.New(t, bundles.Options{Seed: 1}).Contents.Lock
	l.Images = append(l.Images[:0:0], l.Images...)
	l.Images[0], l.Images[1] = l.Images[1], l.Images[0]
	require.ErrorContains(t, l.Validate(), "not in sorted order")
	l.Images[0] = l.Images[1]
	require.ErrorContains(t, l.Validate(), "is there twice")
	l.Releases = append(l.Releases, l.Releases[0])
	require.ErrorContains(t, l.Validate(), "csi@3.5.1 is there twice")
}

func FuzzParseLock(f *testing.F) {
	l := bundles.New(f, bundles.Options{Seed: 1}).Contents.Lock
	for _, marshal := range []func(*bundle.Lock) ([]byte, error){(*bundle.Lock).YAML, (*bundle.Lock).JSON} {
		data := must(marshal(l))(f)
		f.Add(data)
	}
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lock, err := bundle.ParseLock("fuzz", data)
		if err != nil {
			require.NotEqual(t, fault.Internal, fault.ReasonOf(err))
			return
		}
		for _, marshal := range []func(*bundle.Lock) ([]byte, error){(*bundle.Lock).YAML, (*bundle.Lock).JSON} {
			out := must(marshal(lock))(t)
			again, err := bundle.ParseLock("again", out)
			require.NoError(t, err, string(out))
			twice := must(marshal(again))(t)
			require.Equal(t, string(out), string(twice))
		}
	})
}

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
