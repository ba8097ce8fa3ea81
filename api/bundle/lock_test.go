package bundle_test

import (
	"strings"
	"testing"

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
