package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
)

// Run by a manager, with the interval far away, what is waited for and drift start
// passes by being watched.
func TestWhatIsInstalledIsWatched(t *testing.T) {
	w := start(t, pair)
	several := true
	mgr, err := manager.New(config(t), manager.Options{
		Scheme: w.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: &several},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.ns: {}}},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
	})
	require.NoError(t, err)
	target := w.r.Cluster.(*edge.Cluster)
	watching, err := client.NewWithWatch(config(t), client.Options{Scheme: w.Scheme()})
	require.NoError(t, err)
	target.View = edge.NewView(watching)
	require.NoError(t, mgr.Add(target.View))
	require.NoError(t, vdoconfig.SetupWithManager(mgr, vdoconfig.Options{
		Cluster: target, Store: w.store, Recorder: w.events, Nodes: target.View.Nodes(), CSINodes: target.View.CSINodes()}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() { // before the cluster is swept
		cancel()
		require.NoError(t, <-done)
	})
	v := w.config("site")
	read := func() { require.NoError(t, w.Get(ctx, client.ObjectKeyFromObject(v), v)) }
	w.until("Ready", func() bool { w.play(); read(); return isTrue(v, "Ready") })
	sa := get(w, &corev1.ServiceAccount{}, "vmware-system-csi", "vsphere-csi-node")
	require.NoError(t, w.Delete(ctx, sa))
	w.until("repaired", func() bool {
		return w.Get(ctx, types.NamespacedName{Namespace: sa.Namespace, Name: sa.Name}, sa) == nil
	})
}
