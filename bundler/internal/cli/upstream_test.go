package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
	upstreamworld "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

// All releases with their real manifests go the whole line in one
// bundle: locked, pulled, signed, verified, pushed, and verified in the mirror.
func TestEveryUpstreamReleaseIsCarried(t *testing.T) {
	dir := upstream.Dir(t)
	releases := upstream.Releases()
	w := &world{dir: t.TempDir(), mirror: registry.Start(t, registry.Options{TLS: true, Auth: registry.Token})}
	w.upstream = w.mirror // has the host that env names
	up, err := upstreamworld.NewUpstream(t.Context(), upstreamworld.UpstreamOptions{Dir: w.dir, Manifests: dir, Releases: releases})
	require.NoError(t, err)
	t.Cleanup(up.Close)
	w.write(t, "site-ca.crt", w.mirror.CA())
	w.write(t, "login/config.json", w.mirror.DockerConfig())

	args := append([]string{"lock", "-o", "lock.yaml", "--drivers", "cpi,csi,cni,snapshot-controller"}, up.Flags()...)
	for _, r := range releases {
		args = append(args, "--release", r)
	}
	show := func(args ...string) string { return w.must(t, args...) }
	show("keygen", "-o", "release")
	show(args...)
	show(append([]string{"pull", "--lock", "lock.yaml", "-o", "drivers.tar"}, up.Flags()...)...)
	show("sign", "drivers.tar", "--key", "release.key")
	show("verify", "drivers.tar", "--key", "release.pub")
	inspected := show("inspect", "drivers.tar")
	for _, r := range releases {
		require.Contains(t, inspected, r+" ")
	}
	pinned := strings.TrimSpace(show("push", "drivers.tar", w.mirror.Host+"/vdo/drivers:1", "--ca-file", "site-ca.crt"))
	show("verify", pinned, "--ca-file", "site-ca.crt", "--key", "release.pub")

	lock := must(os.ReadFile(filepath.Join(w.dir, "lock.yaml")))(t)
	for _, gone := range []string{"source: gcr.io/cloud-provider-vsphere", "source: k8s.gcr.io"} {
		require.NotContains(t, string(lock), gone)
	}
}

// byHand is a manifest that go-containerregistry would not make.
type byHand struct {
	mediaType types.MediaType
	data      []byte
}

func (m byHand) RawManifest() ([]byte, error)        { return m.data, nil }
func (m byHand) MediaType() (types.MediaType, error) { return m.mediaType, nil }

// Images that keep to the letter of the specification, and are unlike most.
func TestOddImagesOfUpstream(t *testing.T) {
	w := newWorld(t, t.TempDir())
	repository := must(name.NewRepository(w.upstream.Host + "/x/cloud/ccm"))(t)
	index := func(children ...ocispec.Descriptor) {
		data := bundle.NewIndex(ocispec.Index{Manifests: children}).Data
		require.NoError(t, remote.Put(repository.Tag("v1.34.0"), byHand{ocispec.MediaTypeImageIndex, data}))
	}
	got := must(remote.Get(repository.Tag("v1.33.1")))(t)
	plain := bundle.Plain(bundle.Blob(string(got.MediaType), got.Manifest))
	run := func(code int, args ...string) string {
		t.Helper()
		return w.ends(t, code, append(args, "@up")...)
	}

	index(plain) // the configuration says what the index does not
	require.Contains(t, run(4, "lock", "-q", "--k8s", "1.34", "--platform", "linux/amd64"), "the image has no platforms")
	run(0, "pull", "-q", "--k8s", "1.34", "-o", "a.tar")
	require.Regexp(t, `cloud/ccm:v1.34.0 .* linux/amd64`, w.must(t, "inspect", "a.tar"))

	index()
	output := run(9, "pull", "-q", "--k8s", "1.34", "-o", "b.tar")
	require.Contains(t, output, "image registry.test/cloud/ccm:v1.34.0: its index names no image manifest: nothing of it could run")
	require.NotContains(t, output, "run the same command again")
}
