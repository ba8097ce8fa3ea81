package sipcluster

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	clusteredge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
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
			s, r := w.served()
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

// Services of several networks lead where they led, though the record is lost and the data of one
// host cannot be read: they would do without it, since the other one is known.
func TestALostRecordKeepsBackendsOfSeveralNetworks(t *testing.T) {
	for name, c := range losses {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.hosts("a", "b")
			w.sip("t", replace(balancedTwice, "SECOND", "pxe"))
			r := w.whole()
			w.settle(r, "t")
			config := func(i int) string {
				t.Helper()
				var cm corev1.ConfigMap
				require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, i) + "-config"}, &cm))
				return cm.Data["haproxy.cfg"]
			}
			oam, pxe := config(0), config(1)
			require.Contains(t, oam, "10.1.1.97")
			require.Contains(t, pxe, "172.30.0.1")
			require.NoError(t, w.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: "a-network"}}))
			w.settle(r, "t")
			for range 2 {
				c.lose(w)
				w.settle(r, "t")
				require.Equal(t, oam, config(0))
				require.Equal(t, pxe, config(1))
				w.says("t", airship.ReasonInfraServiceFailure, "read the data of 1 hosts", true)
			}
		})
	}
}

// What no label shows to be the SIPCluster's stays when the record is lost, and an event names it.
func TestWhatALostRecordLeavesBehindIsNamed(t *testing.T) {
	for name, c := range losses {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			s, r := w.served()
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
	_, r := w.served()
	by := w.sealer("t")
	by.Epoch.After = w.get("t").Status.Inventory.Epoch
	later := by.Data(inventory.Of(inventory.Entry{}))
	w.overwrite("t", later)
	w.settle(r, "t")
	w.says("t", airship.ReasonInfraServiceFailure, "lacks kind", true)
	require.Equal(t, later, w.records("t")[0].Data)
}

// sealer seals as the operator does, under a high number of an epoch of its own.
func (w *world) sealer(sip string) inventory.Sealer {
	w.Helper()
	var key corev1.Secret
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.system, Name: sealSecrets[0]}, &key))
	return inventory.Sealer{
		Key: key.Data[clusteredge.KeptKey], Owner: w.system + "/" + inventory.SIPClusters.ConfigMap(w.ns+"."+sip), UID: string(w.get(sip).UID),
		Epoch: inventory.Epoch{ID: "another"}, Serial: 1000,
	}
}

// A record is of one SIPCluster: what one of the same name had before, sealed by the same key, is
// not believed where somebody has kept it and puts it back, so that nothing is installed by it
// while the bundle is not trusted. The operator's own record is not, once it was made anew.
func TestARecordThatWasKeptIsNotBelieved(t *testing.T) {
	for name, first := range map[string]bool{"before the first pass": true, "after it": false} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.hosts("a", "b")
			s := w.sip("t", balanced)
			w.settle(w.whole(), "t")
			kept := w.records("t")
			require.NoError(t, w.Delete(t.Context(), s))
			w.settle(w.whole(), "t")
			w.gone("t")

			w.sip("t", balanced)
			r := w.withoutBundle()
			if !first {
				w.settle(r, "t")
				require.NotNil(t, w.get("t").Status.Inventory)
				w.overwrite("t", kept[0].Data)
			} else {
				for _, cm := range kept {
					require.NoError(t, w.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}, Data: cm.Data}))
				}
			}
			w.settle(r, "t")
			w.says("t", airship.ReasonInfraServiceFailure, "no key signed it", true)
			var all appsv1.DeploymentList
			require.NoError(t, w.List(t.Context(), &all, client.InNamespace(w.ns)))
			require.Empty(t, all.Items)
		})
	}
}

// Of records that were written before theirs were deleted none is believed, whatever its number.
func TestARecordOfBeforeItWasMadeAnewIsNotBelieved(t *testing.T) {
	w := start(t)
	_, r := w.served()
	by := w.sealer("t")
	by.Epoch.ID = w.get("t").Status.Inventory.Epoch
	require.NotEmpty(t, by.Epoch.ID)
	kept := by.Data(inventory.Of())
	for _, cm := range w.records("t") {
		require.NoError(t, w.Delete(t.Context(), cm))
	}
	w.settle(r, "t")
	w.overwrite("t", kept)
	w.settle(r, "t")
	require.Contains(t, told(r, string(fault.Untrusted)), "made anew since")
	require.NotEqual(t, kept, w.records("t")[0].Data)
}

// What an operator has sealed that knew neither UIDs nor epochs goes on, and is sealed again; then
// no such record is believed any more.
func TestASealOfTheVersionBeforeIsTakenOver(t *testing.T) {
	w := start(t)
	w.hosts("a", "b")
	w.sip("t", balanced)
	w.settle(w.whole(), "t")
	text, image := w.balancer()
	by, record := w.sealer("t"), w.records("t")[0]
	by.UID, by.Epoch = "", inventory.Epoch{}
	known, err := inventory.Parse("t", []byte(record.Data[inventory.DataKey]))
	require.NoError(t, err)
	before := by.Data(known)
	before[inventory.SealKey] = regexp.MustCompile(`,"bound":"[^"]*"`).ReplaceAllString(before[inventory.SealKey], "")
	w.overwrite("t", before)
	s := w.get("t")
	s.Status.Inventory.Epoch = ""
	require.NoError(t, w.Status().Update(t.Context(), s))
	for _, h := range []string{"a", "b"} {
		require.NoError(t, w.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: h + "-network"}}))
	}
	r := w.withoutBundle()
	w.settle(r, "t")
	nowText, nowImage := w.balancer()
	require.Equal(t, text, nowText)
	require.Equal(t, image, nowImage)
	require.Empty(t, told(r, string(fault.Untrusted)))
	require.NotEmpty(t, w.get("t").Status.Inventory.Epoch)
	require.Contains(t, w.records("t")[0].Data[inventory.SealKey], `"bound":`)

	w.overwrite("t", before)
	w.settle(r, "t")
	require.NotEmpty(t, told(r, string(fault.Untrusted)))
	require.NotEqual(t, before, w.records("t")[0].Data)
}
