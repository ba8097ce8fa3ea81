package sipcluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// losses are what somebody who may write ConfigMaps, and nothing else, makes of a record, with
// the reason of the event that tells of it.
var losses = map[string]struct {
	lose   func(w *world)
	reason fault.Reason
}{
	"both are cut": {func(w *world) { w.overwrite("t", map[string]string{inventory.DataKey: "{"}) }, fault.Corrupt},
	"both are cut, and the status knows no record": {func(w *world) {
		w.overwrite("t", map[string]string{inventory.DataKey: "{"})
		s := w.get("t")
		s.Status.Inventory = nil
		require.NoError(w, w.Status().Update(w.Context(), s))
	}, fault.Corrupt},
	"both are emptied": {func(w *world) { w.overwrite("t", nil) }, fault.Corrupt},
	"both have no objects": {func(w *world) {
		w.overwrite("t", inventory.Sealer{}.Data(inventory.Of()))
	}, fault.NotFound},
	"both are deleted": {func(w *world) {
		for _, cm := range w.records("t") {
			require.NoError(w, w.Delete(w.Context(), cm))
		}
	}, fault.NotFound},
}

// overwrite replaces both copies of a record.
func (w *world) overwrite(sip string, data map[string]string) {
	w.Helper()
	for _, cm := range w.records(sip) {
		cm.Data = data
		require.NoError(w, w.Update(w.Context(), cm))
	}
}

// Whatever becomes of the record, what is missing is made again, an event tells of it, and the
// SIPCluster can be deleted.
func TestALostRecordStopsNothing(t *testing.T) {
	for name, c := range losses {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.hosts("a", "b")
			s := w.sip("t", balanced)
			r := w.whole()
			w.settle(r, "t")
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0)}}
			require.NoError(t, w.Delete(t.Context(), d))
			require.Empty(t, told(r, string(c.reason)))
			c.lose(w)
			w.settle(r, "t")
			w.balancer()
			require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
			require.NotEmpty(t, told(r, string(c.reason)))
			w.settle(r, "t")
			require.Empty(t, told(r, string(c.reason)), "it is told once")

			c.lose(w)
			require.NoError(t, w.Delete(t.Context(), s))
			w.settle(r, "t")
			w.gone("t")
			require.NotEmpty(t, told(r, string(c.reason)))
			require.Empty(t, told(r, "LeftBehind"))
		})
	}
}

// What no label shows to be the SIPCluster's stays when the record is lost, and an event names it.
func TestWhatALostRecordLeavesBehindIsNamed(t *testing.T) {
	for name, c := range losses {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.hosts("a", "b")
			s := w.sip("t", balanced)
			r := w.whole()
			w.settle(r, "t")
			require.Equal(t, 3, w.strip())
			c.lose(w)
			require.NoError(t, w.Delete(t.Context(), s))
			w.settle(r, "t")
			require.Nil(t, w.find("t"))
			key := types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0) + "-config"}
			require.NoError(t, w.Get(t.Context(), key, &corev1.ConfigMap{}))
			require.Contains(t, told(r, "LeftBehind"), "ConfigMap "+key.String()+" stays: ")
		})
	}
}

// A record that a later operator has sealed, and this one cannot read, is not lost: it is not
// written over.
func TestTheRecordOfALaterOperatorStays(t *testing.T) {
	w := start(t)
	w.hosts("a", "b")
	w.sip("t", balanced)
	r := w.whole()
	w.settle(r, "t")
	var key corev1.Secret
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.system, Name: sealSecrets[0]}, &key))
	by := inventory.Sealer{Key: key.Data[sealKey], Owner: w.system + "/" + w.records("t")[0].Name, Serial: 1000}
	later := by.Data(inventory.Of(inventory.Entry{}))
	w.overwrite("t", later)
	w.settle(r, "t")
	w.says("t", airship.ReasonInfraServiceFailure, "lacks kind", true)
	require.Equal(t, later, w.records("t")[0].Data)
}
