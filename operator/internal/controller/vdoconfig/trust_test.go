package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// meanwhile is a cluster where something happens while all objects are tried.
type meanwhile struct {
	vdoconfig.Cluster
	happens func()
}

func (m *meanwhile) DryRun(ctx context.Context, objects []render.Object, live plan.Live) (map[inventory.Key]plan.Outcome, error) {
	if f := m.happens; f != nil {
		m.happens = nil
		f()
	}
	return m.Cluster.DryRun(ctx, objects, live)
}

// A key that is revoked while a pass is under way: what the bundle was accepted by is not
// what counts now, so nothing is installed of it, and what runs is repaired.
func TestATrustPolicyThatChangesInTheMiddleOfAPassIsHeeded(t *testing.T) {
	for name, edit := range map[string]func(w *world){
		"the ConfigMap": func(w *world) {
			w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: v1alpha1.DefaultTrustName}, Data: map[string]string{"a.pub": "x"}})
		},
		"the DriverBundle": func(w *world) {
			b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
			w.change(b, func() {
				b.Spec.Trust = &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "a", From: &v1alpha1.KeyReference{ConfigMap: "keys", Key: "a"}}}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, "cpi@1.33.1")
			v := w.config("site")
			w.change(v, func() { v.Spec.StorageProvider = nil })
			w.look(v) // the finalizer
			m := &meanwhile{Cluster: w.r.Cluster, happens: func() { edit(w) }}
			w.r.Cluster = m
			w.look(v)
			require.Nil(t, m.happens, "it was tried")
			require.True(t, gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager"), describe(v))
			require.True(t, gone(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager"))
			require.Contains(t, cond(t, v, "Ready").Message, "to be verified under the trust policy")

			w.verified(get(w, &v1alpha1.DriverBundle{}, w.ns, "site"), metav1.ConditionTrue, "Succeeded", "signed by a")
			w.ready(v)
			require.NoError(t, w.Delete(t.Context(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
			m.happens = func() {
				b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
				w.change(b, func() { b.Spec.AcceptOlder = "sha256:" + sixtyFour })
			}
			w.look(v)
			get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
		})
	}
}

const sixtyFour = "abababababababababababababababababababababababababababababababab"
