package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// manySmallParts is a plain registry with one image of 140 small layers and a large
// one.
func manySmallParts(t *testing.T) *real.Registry {
	t.Helper()
	reg := real.Start(t, real.Options{})
	images.Push(t, reg, "csi/driver:v1", images.Spec{Seed: 7, Layers: append(make([]int64, 140), 300_000)})
	return reg
}

func TestPushToAnEmptyRegistryAsksForASampleOnly(t *testing.T) {
	source, mirror := manySmallParts(t), real.Start(t, real.Options{})
	c, _ := client(t, remote.Options{}, source, mirror)
	from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
	g := graph(t, from)
	missing, err := to.Begin(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, g.Order(), missing)
	require.Less(t, mirror.Count("HEAD", ""), 50)
	mirror.ForgetRequests()
	missing, err = to.Plan(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, g.Order(), missing)
	require.GreaterOrEqual(t, mirror.Count("HEAD", ""), len(g.Blobs), "what is to be told is asked for")
	mirror.ForgetRequests()
	require.NoError(t, copyGraph(t.Context(), g, from, to))
	require.Less(t, mirror.Count("HEAD", ""), len(g.Blobs)+60, "before the upload a sample, after it each")
	require.LessOrEqual(t, mirror.Count("POST", ""), len(g.Blobs)+1)
	for _, d := range g.Blobs {
		wantBlob(t, to, d)
	}
}
