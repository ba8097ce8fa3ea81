package vdoconfig_test

import (
	"context"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// The operator of these tests is its service account, with the rights of the manifests that are
// shipped and no more. The test itself is an administrator.

// granted is set once those manifests are applied: tests that take some of it away put it back.
var granted bool

func (w *world) grant() {
	w.t.Helper()
	require.NoError(w.t, cluster.Operator.Grant(context.Background(), w.Client))
	granted = true
}

// here makes the test's namespace what the operator's own is.
func (w *world) here() {
	w.t.Helper()
	if !granted {
		w.grant()
	}
	require.NoError(w.t, cluster.Operator.GrantIn(context.Background(), w.Client, w.ns))
}

// allow gives the operator the rights of a manifest that is applied where it is needed only,
// until the test ends.
func (w *world) allow(manifest string) {
	w.t.Helper()
	require.NoError(w.t, cluster.Operator.Grant(context.Background(), w.Client, manifest))
	w.t.Cleanup(func() {
		w.clean()
		require.NoError(w.t, cluster.Operator.Revoke(context.Background(), w.Client, manifest))
	})
}

// end ends a namespace that is being deleted, with the rights in it.
func (w *world) end(name string) {
	w.t.Helper()
	for _, o := range []client.Object{&rbacv1.Role{}, &rbacv1.RoleBinding{}, &appsv1.Deployment{}, &appsv1.DaemonSet{}, &corev1.Service{}} {
		require.NoError(w.t, client.IgnoreNotFound(w.DeleteAllOf(context.Background(), o, client.InNamespace(name))))
	}
	w.until("namespace "+name+" is gone", func() bool { w.endNamespace(name); return gone(w, &corev1.Namespace{}, "", name) })
}
