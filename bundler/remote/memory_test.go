package remote_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// A blob passes through buffers of fixed size, whatever its own.
func TestMemoryDoesNotGrowWithTheBlob(t *testing.T) {
	reg := real.Start(t, real.Options{Dir: t.TempDir()})
	images.Push(t, reg, "big/image:1", images.Spec{Seed: 5, Layers: []int64{64 << 20}})
	c, _ := client(t, remote.Options{}, reg)
	from, to := repository(c, reg, "big/image:1"), repository(c, reg, "big/copy:1")
	g := graph(t, from)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, copyGraph(t.Context(), g, from, to))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(24<<20), "registries and client together allocate much less than the blob")
}
