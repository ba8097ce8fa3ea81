package cluster_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// After a restore of etcd no observation shows what the backup lacks.
func TestARestoredBackupIsObserved(t *testing.T) {
	tier.Later(t, tier.All)
	cl := cluster.New(t, cluster.Options{})
	k, err := client.NewWithWatch(cl.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	versions, err := discovery.NewDiscoveryClientForConfig(cl.Config())
	require.NoError(t, err)
	c := &edge.Cluster{Client: k, Reader: k, Versions: versions}
	populate(t, k)
	require.NoError(t, cl.Keep(ctx))

	with, asked := viewed(t, c, k)
	until(t, "it is watched", func() bool { return listless(t, with, asked) })
	for i := range 300 {
		require.NoError(t, k.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("a-%d", i)}}))
	}
	require.NoError(t, k.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "since-backup"}}))
	until(t, "it is seen", func() bool { return len(nodesOf(t, with)) == 4 })
	require.NoError(t, cl.Restore(ctx))
	require.NoError(t, k.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-1"}}))

	until(t, "it is watched", func() bool {
		require.Len(t, nodesOf(t, with), 2)
		return listless(t, with, asked)
	})
	require.Len(t, nodesOf(t, with), 2)
}
