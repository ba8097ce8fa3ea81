package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// A tenant with the usual right to edit a namespace makes there what looks like the
// drivers in every way: nothing of it counts, and no pass fails over it.
func TestWhatATenantMakesNeitherStopsAPassNorTouchesTheDrivers(t *testing.T) {
	w := start(t, pair)
	v := w.ready(w.config("site"))
	tenant := cluster.Namespace(t, config(t))
	w.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "edit"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mallory"}}})
	mallory, err := client.New(w.as("mallory"), client.Options{Scheme: w.Scheme()})
	require.NoError(t, err)

	ours := map[string]string{"app.kubernetes.io/managed-by": "vdo-operator", "vdo.vmware.com/driver": "csi", "vdo.vmware.com/version": "9.9.9"}
	helm := map[string]string{"meta.helm.sh/release-name": "snapshots", "meta.helm.sh/release-namespace": tenant}
	names := tier.Pick([]string{"vsphere-csi-controller", "anything"},
		[]string{"vsphere-csi-controller", "snapshot-controller", "csi-snapshot-controller", "vsphere-cpi", "vmware-vsphere-csi-driver-controller", "anything"})
	for _, name := range names {
		for i, image := range []string{"x.example/sig-storage/snapshot-controller:v8.2.0", "x.example/cpi/release/manager:v1.0.0", "x.example/csi/release/driver:v9.9.9"} {
			for j, labels := range []map[string]string{ours, nil} {
				pods := map[string]string{"app": "vsphere-csi-controller", "n": strings.Repeat("x", i+j+1)}
				unique := strings.Repeat("-", min(i+j, 1)) + strings.Repeat("a", i) + strings.Repeat("b", j)
				meta := metav1.ObjectMeta{Namespace: tenant, Name: name + unique, Labels: labels, Annotations: helm}
				template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pods}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
				selector := &metav1.LabelSelector{MatchLabels: pods}
				none := int32(0)
				require.NoError(t, mallory.Create(context.Background(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &none, Selector: selector, Template: template}}))
				template.Spec.NodeSelector = map[string]string{"no": "node"}
				require.NoError(t, mallory.Create(context.Background(), &appsv1.DaemonSet{ObjectMeta: *meta.DeepCopy(), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}))
			}
		}
	}
	for _, o := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}, &corev1.ServiceAccount{}} {
		o.SetNamespace(tenant)
		o.SetName("vsphere-config-secret")
		o.SetLabels(ours)
		require.NoError(t, mallory.Create(context.Background(), o))
	}

	before, told := w.writes, w.events.all()
	w.look(v)
	require.True(t, isTrue(v, "Ready"), describe(v))
	require.Equal(t, before, w.writes)
	require.Equal(t, told, w.events.all())
	require.Equal(t, "3.5.1", driver(v, "csi").Version)
	get(w, &appsv1.Deployment{}, "kube-system", "snapshot-controller")

	require.NoError(t, w.Delete(context.Background(), get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager"), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.until("the DaemonSet is gone", func() bool {
		return gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	})
	w.look(v)
	get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	w.ready(v)

	require.NoError(t, w.Delete(context.Background(), v))
	w.until("removed", func() bool { w.pass(client.ObjectKeyFromObject(v)); return gone(w, v, w.ns, v.Name) })
	var left appsv1.DeploymentList
	require.NoError(t, w.List(context.Background(), &left, client.InNamespace(tenant)))
	require.Len(t, left.Items, 6*len(names), "what is a tenant's is left to the tenant")
}

// With the storage driver's namespace go the operator's rights in it.
func TestADeletedNamespaceIsNamedAndConcernsItsDriverAlone(t *testing.T) {
	w := start(t, pair)
	t.Cleanup(w.grant)
	w.lacks = true
	v := w.ready(w.config("site"))
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.Namespace{}, "", "vmware-system-csi")))
	w.end("vmware-system-csi")
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
	w.look(v)
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
	w.look(v)
	require.True(t, isTrue(v, "CPIReady"), describe(v))
	applied := cond(t, v, "Applied")
	require.Equal(t, metav1.ConditionFalse, applied.Status)
	require.Contains(t, applied.Message, "namespace vmware-system-csi is not there")
	require.Contains(t, applied.Message, "apply the RBAC manifests")
	require.NotEqual(t, metav1.ConditionTrue, cond(t, v, "CSIReady").Status)
	w.grant()
	w.ready(v)
	require.Equal(t, "3.5.1", driver(v, "csi").Version)
}

// Rights that are missing in one driver's place are a fault of that driver's.
func TestMissingRightsInOnePlaceConcernItsDriverAlone(t *testing.T) {
	w := start(t, pair)
	t.Cleanup(w.grant)
	w.lacks = true
	v := w.ready(w.config("site"))
	require.NoError(t, w.Delete(context.Background(), get(w, &rbacv1.RoleBinding{}, "vmware-system-csi", "vdo-operator")))
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
	uid := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID
	count := w.inventory(v).Len()
	w.look(v)
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
	w.look(v)
	require.True(t, isTrue(v, "CPIReady"), describe(v))
	require.Equal(t, "Forbidden", cond(t, v, "Applied").Reason)
	require.Contains(t, cond(t, v, "Applied").Message, "vmware-system-csi")
	require.Equal(t, count, w.inventory(v).Len(), "what cannot be seen is not forgotten")
	require.Equal(t, uid, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID)
	w.grant()
	w.ready(v)
}

// Manifests of an earlier release do not let the operator know which API servers there
// are: the version that drivers are chosen for stays, which a person has to see.
func TestAMissingRightToKnowTheAPIServersIsTold(t *testing.T) {
	w := start(t, "cpi@1.33.1")
	t.Cleanup(w.grant)
	w.lacks = true
	v := w.config("site")
	w.change(v, func() { v.Spec.StorageProvider = nil })
	w.ready(v)
	require.NoError(t, w.Delete(context.Background(), get(w, &rbacv1.RoleBinding{}, "default", "vdo-operator")))
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
	w.look(v)
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
	for _, typ := range []string{"Resolved", "Ready"} {
		c := cond(t, v, typ)
		require.Equal(t, metav1.ConditionFalse, c.Status, typ)
		require.Equal(t, "Forbidden", c.Reason, typ)
		require.Contains(t, c.Message, "| kubectl apply -f -`: the operator has to get EndpointSlice kubernetes", typ)
	}
	require.True(t, isTrue(v, "CPIReady"), describe(v))
	w.grant()
	w.ready(v)
	require.True(t, isTrue(v, "Resolved"), describe(v))
}
