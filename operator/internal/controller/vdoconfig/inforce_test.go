package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// Who has installed something stays in force, and to delete the other VDOConfig, as its status says, harms
// nothing: also where both have the finalizer, from a pass that did not see the other one, and an inventory.
func TestDeletingTheOtherVDOConfigHarmsNothing(t *testing.T) {
	w, v := installed(t)
	was := w.generations()
	later := w.config("a-later")
	w.look(later)
	require.True(t, isTrue(later, "Stalled"))
	require.Contains(t, cond(t, later, "Ready").Message, "VDOConfig "+w.ns+"/site is active")
	require.Contains(t, cond(t, later, "Ready").Message, "delete this one; what is installed stays")
	require.Empty(t, later.Finalizers)

	inv := get(w, &corev1.ConfigMap{}, w.ns, inventory.VDOConfigs.ConfigMap(v.Name))
	w.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: inventory.VDOConfigs.ConfigMap(later.Name)}, Data: inv.Data})
	w.change(later, func() {
		later.Finalizers, later.Spec.OnDelete = []string{v1alpha1.FinalizerDrivers}, v1alpha1.DeleteRemove
	})
	writes := w.writes
	require.NoError(t, w.Delete(context.Background(), later))
	w.until("let go", func() bool { w.pass(client.ObjectKeyFromObject(later)); return gone(w, later, w.ns, later.Name) })
	require.Equal(t, was, w.generations(), "nothing was torn down")
	get(w, &corev1.Secret{}, w.ns, "vdo-config-hash")
	w.ready(v)
	require.LessOrEqual(t, w.writes-writes, 2, "the other one's inventory is all that was removed")
}
