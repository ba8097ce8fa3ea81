package world_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

var releases = []string{"cpi@1.33.1", "csi@3.5.1", "snapshot-controller@8.2.0"}

func TestStandInWorldHasAMatrixOfItsOwn(t *testing.T) {
	u, err := world.NewUpstream(context.Background(), world.UpstreamOptions{Dir: t.TempDir(), Releases: releases})
	require.NoError(t, err)
	t.Cleanup(u.Close)
	require.False(t, u.Real)
	require.FileExists(t, u.MatrixFile)
	require.Len(t, u.Images, 10, "CPI 1, CSI 8 names, snapshot-controller 1")
}

func TestRealWorldHasTheRealImages(t *testing.T) {
	u, err := world.NewUpstream(context.Background(), world.UpstreamOptions{Dir: t.TempDir(), Manifests: upstream.Dir(t), Releases: releases})
	require.NoError(t, err)
	t.Cleanup(u.Close)
	require.True(t, u.Real)
	require.FileExists(t, u.MatrixFile)
	var names []string
	for _, ref := range u.Images {
		names = append(names, ref.String())
	}
	require.Contains(t, names, "registry.k8s.io/csi-vsphere/driver:v3.5.1")
	require.Contains(t, names, "registry.k8s.io/sig-storage/snapshot-controller:v8.2.0", "the matrix overrides the lagging tag")
}

func TestAnUnknownReleaseIsNamed(t *testing.T) {
	_, err := world.NewUpstream(context.Background(), world.UpstreamOptions{Dir: t.TempDir(), Releases: []string{"csi@9.9.9"}})
	require.ErrorContains(t, err, "csi@9.9.9")
}
