package sipcluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
)

// Who may write ConfigMaps in the operator's namespace can make a record one that nobody can write,
// and that is not made anew before a finalizer is taken off. Who has the SIPCluster hears of it.
func TestARecordThatCannotBeWrittenIsTold(t *testing.T) {
	w := start(t)
	_, r := w.served()
	for _, cm := range w.records("t") {
		cm.Immutable, cm.Finalizers = new(true), []string{"site.example/keep"}
		require.NoError(t, w.Update(t.Context(), cm))
	}
	w.change("t", `{}`)
	for range 3 {
		require.NoError(t, w.pass(r, "t"))
	}
	w.says("t", airship.ReasonInfraServiceFailure, "is kept by its finalizers site.example/keep", true)
	require.Contains(t, w.ready("t").Message, "kubectl patch configmap")
	require.Equal(t, w.get("t").Generation, w.get("t").Status.ObservedGeneration)

	require.NoError(t, w.Delete(t.Context(), w.get("t")))
	for range 10 {
		require.NoError(t, w.pass(r, "t"))
		w.play()
	}
	w.says("t", airship.ReasonUnableToDecommission, "is kept by its finalizers site.example/keep", true)
	for _, cm := range w.records("t") {
		cm.Finalizers = nil
		require.NoError(t, w.Update(t.Context(), cm))
	}
	w.settle(r, "t")
	w.gone("t")
}

// otherKey puts an older key back into one of the Secrets that seals' key is in, as from a backup.
func (w *world) otherKey() {
	w.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.system, Name: sealSecrets[1]}, Data: map[string][]byte{"key": make([]byte, sealKeySize)}}
	require.NoError(w, w.Update(w.Context(), s))
}

// Of two keys the one counts that a SIPCluster's status knows, for one that is new too; where none
// knows either, that is told.
func TestANewSIPClusterOfTwoKeysTakesTheOneThatOthersKnow(t *testing.T) {
	w := start(t)
	_, r := w.served()
	w.otherKey()
	w.sip("n", `{}`)
	w.settle(r, "n")
	require.Equal(t, metav1.ConditionTrue, w.ready("n").Status, w.ready("n").Message)
	known := w.get("t").Status.Inventory
	w.change("n", replace(replace(balanced, "active: 2", "active: 0"), "PORT1", "PORT3"))
	w.settle(r, "n")
	require.Equal(t, known.KeyID, w.get("n").Status.Inventory.KeyID)

	for _, name := range []string{"t", "n"} {
		s := w.get(name)
		s.Status.Inventory = nil
		require.NoError(t, w.Status().Update(t.Context(), s))
	}
	for range 3 {
		require.NoError(t, w.pass(r, "t"))
	}
	w.says("t", airship.ReasonInfraServiceFailure, "each has another key, and no status knows either", true)
}
