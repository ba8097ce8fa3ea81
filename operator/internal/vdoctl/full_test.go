package vdoctl_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

var whole struct {
	once    sync.Once
	cluster *cluster.Cluster
	err     error
}

// wholeCluster has controllers and nodes that answer, for what is waited for. Its CRDs come
// with what is installed. The tests that use it are not parallel: the operator's rights have
// one name in a cluster.
func wholeCluster(t *testing.T) *shop {
	t.Helper()
	whole.once.Do(func() {
		whole.cluster, whole.err = cluster.Start(context.Background(), cluster.Options{
			Progress: os.Stderr, Nodes: []cluster.Node{{Name: "worker-1", Initialized: true}}})
	})
	require.NoError(t, whole.err)
	return &shop{t: t, k: clientOf(t, whole.cluster), ns: "vmware-system-vdo", conf: whole.cluster.Kubeconfig()}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

func digestOf(data []byte) digest.Digest { return digest.FromBytes(data) }
