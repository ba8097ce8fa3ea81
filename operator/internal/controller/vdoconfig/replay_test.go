package vdoconfig_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// putBack writes an inventory as who may write ConfigMaps can.
func (w *world) putBack(v *v1alpha1.VDOConfig, inv inventory.Inventory) {
	w.t.Helper()
	require.NoError(w.t, w.r.Cluster.SaveInventory(context.Background(), client.ObjectKeyFromObject(v), inv))
	w.writes = 0
}

// An inventory of before an upgrade, which is as good under the operator's key as it was then,
// brings nothing back and has nothing removed. Where it was deleted, what is installed is taken
// over, and numbers go on.
func TestAnInventoryThatIsOlderThanTheStatusIsNotBelieved(t *testing.T) {
	w, v := installed(t)
	older := w.inventory(v)
	w.offer(nextDigest, newerPair()...)
	w.until("it is upgraded", func() bool { w.ready(v); return driver(v, "csi").Version == "3.7.3" })
	newer, runs := v.Status.Revision, w.image(&appsv1.DaemonSet{})
	_, first, _ := strings.Cut(older.Memory().Bundle, "@")
	w.trust[first] = errors.New("key a is revoked")

	w.putBack(v, older)
	refused := func() {
		t.Helper()
		for range 3 {
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

	for _, name := range []string{inventory.VDOConfigs.ConfigMap(v.Name), inventory.VDOConfigs.Copy(v.Name)} {
		require.NoError(t, w.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}))
	}
	w.until("what is installed is taken over", func() bool { w.look(v); return w.inventory(v).Len() > 0 })
	require.Equal(t, runs, w.image(&appsv1.DaemonSet{}))
	w.putBack(v, older)
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
	require.Len(t, memory.Revisions.Records, 2)
	memory.Revisions.Current = memory.Revisions.Records[0].Number
	memory.Bundle = memory.Revisions.Records[0].Bundle
	w.putBack(v, w.inventory(v).WithMemory(memory))
	for range 3 {
		w.look(v)
		require.Equal(t, runs, w.image(&appsv1.DaemonSet{}), describe(v))
		require.Equal(t, newer, v.Status.Revision)
	}
	require.Contains(t, describe(v), "key a is revoked")
	require.False(t, isTrue(v, "Ready"), describe(v))
}
