package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
