package cluster_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

func TestStopLeavesNothing(t *testing.T) {
	c, err := cluster.Start(context.Background(), cluster.Options{})
	require.NoError(t, err)
	_, err = clientcmd.LoadFromFile(c.Kubeconfig())
	require.NoError(t, err)
	c.Stop()
	_, err = os.Stat(c.Kubeconfig())
	require.ErrorIs(t, err, os.ErrNotExist)
}
