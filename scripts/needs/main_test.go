package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

func TestTheDefaultListIsMadeFromUpstreamsManifests(t *testing.T) {
	made := filepath.Join(t.TempDir(), "needs.yaml")
	require.NoError(t, run(upstream.Dir(t), made))
	got, err := os.ReadFile(made)
	require.NoError(t, err)
	kept, err := os.ReadFile(filepath.Join(toolchain.Root(), "matrix", "default-needs.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(kept), string(got), "run make needs")
}
