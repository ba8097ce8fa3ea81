package vdoconfig_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// putBack writes an inventory as who may write ConfigMaps can.
func (w *world) putBack(v *v1alpha1.VDOConfig, inv inventory.Inventory) {
	w.t.Helper()
	w.putBackData(v, inventory.Sealer{}.Data(inv))
}

// putBackData writes both copies as they were read before.
func (w *world) putBackData(v *v1alpha1.VDOConfig, data map[string]string) {
	w.t.Helper()
	for _, name := range recordsOf(v) {
		w.setRecord(name, data)
	}
	w.writes = 0
}

// setRecord makes one copy what is given.
func (w *world) setRecord(name string, data map[string]string) {
	w.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	err := w.Get(context.Background(), client.ObjectKeyFromObject(cm), cm)
	if cm.Data = data; apierrors.IsNotFound(err) {
		w.create(cm)
		return
	}
	require.NoError(w.t, err)
	require.NoError(w.t, w.Update(context.Background(), cm))
}

// recordsOf are the names of both copies.
func recordsOf(v *v1alpha1.VDOConfig) []string {
	return []string{inventory.VDOConfigs.ConfigMap(v.Name), inventory.VDOConfigs.Copy(v.Name)}
}

// recorded is what a copy of the inventory holds now.
func (w *world) recorded(v *v1alpha1.VDOConfig) map[string]string {
	w.t.Helper()
	return get(w, &corev1.ConfigMap{}, w.ns, inventory.VDOConfigs.ConfigMap(v.Name)).Data
}

// seal writes an inventory as if the operator itself had: behind the seal there are other
// proofs, which have to hold without it.
func (w *world) seal(v *v1alpha1.VDOConfig, inv inventory.Inventory) {
	w.t.Helper()
	by := inventory.Sealer{Key: get(w, &corev1.Secret{}, w.ns, "vdo-config-hash").Data["key"], Serial: v.Status.Inventory.Serial + 1,
		UID: string(v.UID), Epoch: inventory.Epoch{ID: v.Status.Inventory.Epoch}}
	require.NoError(w.t, w.r.Cluster.SaveInventory(context.Background(), client.ObjectKeyFromObject(v), inv, by))
	w.writes = 0
}

// An inventory of before an upgrade, which is as good under the operator's key as it was then,
// brings nothing back and has nothing removed. Where it was deleted, what is installed is taken
// over, and numbers go on.
func TestAnInventoryThatIsOlderThanTheStatusIsNotBelieved(t *testing.T) {
	w, v := installed(t)
	older, data := w.inventory(v), w.recorded(v)
	w.offer(nextDigest, newerPair()...)
	w.until("it is upgraded", func() bool { w.ready(v); return driver(v, "csi").Version == "3.7.3" })
	newer, runs := v.Status.Revision, w.image(&appsv1.DaemonSet{})
	_, first, _ := strings.Cut(older.Memory().Bundle, "@")
	w.trust[first] = errors.New("key a is revoked")

	w.putBackData(v, data)
	refused := func() {
		t.Helper()
		for range again() {
			w.look(v)
		}
		require.Zero(t, w.writes)
		require.Equal(t, runs, w.image(&appsv1.DaemonSet{}))
		ready := cond(t, v, "Ready")
		require.Equal(t, "False Untrusted", string(ready.Status)+" "+ready.Reason)
		require.Contains(t, ready.Message, "it is older than the status")
		require.Equal(t, newer, v.Status.Revision)
		require.NotEqual(t, metav1.ConditionTrue, cond(t, v, "CSIReady").Status)
	}
	refused()
	require.NoError(t, w.Delete(t.Context(), v))
	refused()

	for _, name := range recordsOf(v) {
		require.NoError(t, w.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}))
	}
	w.until("what is installed is taken over", func() bool { w.look(v); return w.inventory(v).Len() > 0 })
	require.Equal(t, runs, w.image(&appsv1.DaemonSet{}))
	w.putBackData(v, data)
	w.look(v)
	require.Zero(t, w.writes)
	require.Contains(t, cond(t, v, "Ready").Message, "it is older than the status")
	w.putBack(v, inventory.Inventory{})
}

// One in which a revision that was revoked since is said to be in force does not bring that
// back, though its seal is good.
func TestARevisionThatIsSaidToBeInForceHasToBeTrusted(t *testing.T) {
	w, v := installed(t)
	_, first, _ := strings.Cut(v.Status.Bundle, "@")
	w.offer(nextDigest, newerPair()...)
	w.until("it is upgraded", func() bool { w.ready(v); return driver(v, "csi").Version == "3.7.3" })
	newer, runs := v.Status.Revision, w.image(&appsv1.DaemonSet{})
	w.trust[first] = errors.New("key a is revoked")
	w.change(v, func() { v.Spec.Upgrade = v1alpha1.UpgradeManual })
	w.ready(v)

	memory := w.inventory(v).Memory()
	require.GreaterOrEqual(t, len(memory.Revisions.Records), 2)
	memory.Revisions.Current = memory.Revisions.Records[0].Number
	memory.Bundle = memory.Revisions.Records[0].Bundle
	w.seal(v, w.inventory(v).WithMemory(memory))
	for range again() {
		w.look(v)
		require.Equal(t, runs, w.image(&appsv1.DaemonSet{}), describe(v))
		require.Equal(t, newer, v.Status.Revision)
	}
	require.Contains(t, describe(v), "key a is revoked")
	require.False(t, isTrue(v, "Ready"), describe(v))
}
