package sipcluster

import (
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	clusteredge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// whole is an operator with the real renderer.
func (w *world) whole() *Reconciler { return w.wholeBy(w.own) }

// wholeBy is one that works through a client.
func (w *world) wholeBy(c client.WithWatch) *Reconciler {
	r := w.operator(c)
	r.Render, r.Rand = services.Render, rand.Reader
	return r
}

// served is a SIPCluster t with the hosts a and b and a load balancer that leads to them, as the
// operator that is returned has made it.
func (w *world) served() (*airship.SIPCluster, *Reconciler) {
	w.Helper()
	w.hosts("a", "b")
	s := w.sip("t", balanced)
	r := w.whole()
	w.settle(r, "t")
	return s, r
}

// withoutBundle is one whose bundle cannot be used.
func (w *world) withoutBundle() *Reconciler {
	r := w.whole()
	r.Bundles = bundleOf{bundles: bundles{err: &fault.Error{Reason: fault.Untrusted, Op: "use", Subject: "DriverBundle b", Err: errors.New("no key signed it")}}}
	return r
}

// records are the ConfigMaps with both copies of a record.
func (w *world) records(sip string) []*corev1.ConfigMap {
	w.Helper()
	var all []*corev1.ConfigMap
	for _, name := range []string{inventory.SIPClusters.ConfigMap(w.ns + "." + sip), inventory.SIPClusters.Copy(w.ns + "." + sip)} {
		cm := &corev1.ConfigMap{}
		require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.system, Name: name}, cm))
		all = append(all, cm)
	}
	return all
}

// rewrite changes copies of a record as somebody does who may write ConfigMaps.
func (w *world) rewrite(sip, old, by string, copies ...int) {
	w.Helper()
	for i, cm := range w.records(sip) {
		if slices.Contains(copies, i) {
			require.Contains(w, cm.Data[inventory.DataKey], old)
			cm.Data[inventory.DataKey] = replace(cm.Data[inventory.DataKey], old, by)
			require.NoError(w, w.Update(w.Context(), cm))
		}
	}
}

// unseal makes of a record one of the version before there were seals.
func (w *world) unseal(sip string) {
	w.Helper()
	for _, cm := range w.records(sip) {
		delete(cm.Data, inventory.SealKey)
		require.NoError(w, w.Update(w.Context(), cm))
	}
	s := w.get(sip)
	s.Status.Inventory = nil
	require.NoError(w, w.Status().Update(w.Context(), s))
}

// told are the notes of events of a reason.
func told(r *Reconciler, reason string) string {
	var all []string
	for {
		select {
		case e := <-r.Writer.Recorder.(*events.FakeRecorder).Events: //nolint:forcetypeassert,errcheck // of a test
			if strings.HasPrefix(e, "Warning "+reason+" ") {
				all = append(all, e)
			}
		default:
			return strings.Join(all, "\n")
		}
	}
}

// moves changes the address in a host's network data.
func (w *world) moves(host, from, to string) {
	w.Helper()
	var s corev1.Secret
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.metal, Name: host + "-network"}, &s))
	for key, data := range s.Data {
		s.Data[key] = []byte(replace(string(data), from, to))
	}
	require.NoError(w, w.Update(w.Context(), &s))
}

const balanced = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: 2}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`

// balancedTwice has two load balancers, the second one of network SECOND.
const balancedTwice = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: 2}}}
services:
  loadBalancerWorker:
    - {nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}
    - {nodePortRange: {start: PORT2, end: PORT2}, nodeInterfaceId: SECOND}
`

func (w *world) balancer() (text string, image string) {
	w.Helper()
	name := services.Name("t", services.LoadBalancerWorker, 0)
	var cm corev1.ConfigMap
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name + "-config"}, &cm))
	var d appsv1.Deployment
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, &d))
	return cm.Data["haproxy.cfg"], d.Spec.Template.Spec.Containers[0].Image
}

// Who may write ConfigMaps in the operator's namespace leads no tenant's connections elsewhere
// while hosts' own data cannot be read, and has no image of his run while the bundle cannot be
// used: neither by a record that he changed, in one copy or in both, nor by one that was there
// before, nor where the operator of before wrote none with a seal.
func TestAForgedRecordChangesNoService(t *testing.T) {
	const first, address, elsewhere = "10.1.1.97", "10.1.1.7", "10.66.6.6"
	for name, attack := range map[string]func(w *world, before []*corev1.ConfigMap, old, by string){
		"both copies": func(w *world, _ []*corev1.ConfigMap, old, by string) { w.rewrite("t", old, by, 0, 1) },
		"the record":  func(w *world, _ []*corev1.ConfigMap, old, by string) { w.rewrite("t", old, by, 0) },
		"the copy":    func(w *world, _ []*corev1.ConfigMap, old, by string) { w.rewrite("t", old, by, 1) },
		"without a seal, where none was": func(w *world, _ []*corev1.ConfigMap, old, by string) {
			w.unseal("t")
			w.rewrite("t", old, by, 0, 1)
		},
		"an older one": func(w *world, before []*corev1.ConfigMap, _, _ string) {
			for i, cm := range w.records("t") {
				cm.Data = before[i].Data
				require.NoError(w, w.Update(w.Context(), cm))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.hosts("a", "b")
			w.sip("t", balanced)
			w.settle(w.whole(), "t")
			before := w.records("t")
			w.moves("a", first, address)
			w.settle(w.whole(), "t")
			text, image := w.balancer()
			require.Contains(t, text, address+"\n")
			require.NotContains(t, text, first)
			same := func(r *Reconciler) {
				t.Helper()
				w.settle(r, "t")
				nowText, nowImage := w.balancer()
				require.Equal(t, text, nowText)
				require.Equal(t, image, nowImage)
				for _, cm := range w.records("t") {
					require.NotContains(t, cm.Data[inventory.DataKey], elsewhere)
					require.NotContains(t, cm.Data[inventory.DataKey], "evil")
					require.NotEmpty(t, cm.Data[inventory.SealKey])
				}
				require.NotNil(t, w.get("t").Status.Inventory)
			}
			for _, h := range []string{"a", "b"} {
				require.NoError(t, w.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: h + "-network"}}))
			}
			same(w.whole())
			attack(w, before, address, elsewhere)
			same(w.whole())
			attack(w, before, image, "evil.site/x@"+strings.Split(image, "@")[1])
			same(w.withoutBundle())
		})
	}
}

// An operator of before wrote no seals. What its record says, and status or cluster confirm,
// is kept: services lead where they led, with the image that they have.
func TestARecordOfTheVersionBeforeIsTakenOver(t *testing.T) {
	w := start(t)
	w.hosts("a", "b")
	w.sip("t", balanced)
	w.settle(w.whole(), "t")
	text, image := w.balancer()
	w.unseal("t")
	r := w.withoutBundle()
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	for _, h := range []string{"a", "b"} {
		require.NoError(t, w.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: h + "-network"}}))
	}
	w.unseal("t")
	w.settle(r, "t")
	nowText, nowImage := w.balancer()
	require.Equal(t, text, nowText)
	require.Equal(t, image, nowImage)
	w.says("t", airship.ReasonInfraServiceFailure, "read the data of 2 hosts", true)
	require.Contains(t, w.records("t")[0].Data, inventory.SealKey)
}

// strip takes all labels off all that was made for SIPClusters.
func (w *world) strip() (stripped int) {
	w.Helper()
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}} {
		require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns), client.HasLabels{airship.LabelClusterName}))
		require.NoError(w, meta.EachListItem(list, func(o runtime.Object) error {
			stripped++
			return w.Patch(w.Context(), o.(client.Object), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))) //nolint:forcetypeassert,errcheck // all are
		}))
	}
	return stripped
}

// What was made goes with the SIPCluster, by the UID that the record has of it: though
// somebody has taken its labels off just before, and, by its labels, though the record is lost.
func TestDeletionFindsWhatWasMade(t *testing.T) {
	for name, before := range map[string]func(*world){
		"the labels are gone": func(w *world) { require.Equal(w, 3, w.strip()) },
		"the record is gone": func(w *world) {
			for _, cm := range w.records("t") {
				require.NoError(w, w.Delete(w.Context(), cm))
			}
		},
		"the record is forged": func(w *world) { w.rewrite("t", `"objects":[`, `"objects": [`, 0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			s, r := w.served()
			before(w)
			require.NoError(t, w.Delete(t.Context(), s))
			w.settle(r, "t")
			w.gone("t")
			require.Empty(t, told(r, "LeftBehind"))
		})
	}
}

// Where nothing proves that an object is the SIPCluster's it stays, and an event names it: where
// its labels are gone and the record has no seal, and where it was made anew by somebody.
func TestWhatIsLeftBehindIsNamed(t *testing.T) {
	for name, before := range map[string]func(*world, client.Object){
		"no seal and no labels": func(w *world, _ client.Object) {
			w.strip()
			w.unseal("t")
		},
		"made anew": func(w *world, o client.Object) {
			require.NoError(w, w.Delete(w.Context(), o))
			o.SetResourceVersion("")
			o.SetUID("")
			o.SetLabels(nil)
			require.NoError(w, w.Create(w.Context(), o))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			s, r := w.served()
			cm := &corev1.ConfigMap{}
			key := types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0) + "-config"}
			require.NoError(t, w.Get(t.Context(), key, cm))
			before(w, cm)
			require.NoError(t, w.Delete(t.Context(), s))
			w.settle(r, "t")
			require.Nil(t, w.find("t"))
			require.NoError(t, w.Get(t.Context(), key, cm))
			require.Contains(t, told(r, "LeftBehind"), "ConfigMap "+key.String()+" stays: ")
		})
	}
}

// The key of seals is the operator's own: a lost copy is written again, and with both lost
// records are believed as those of the version before, and sealed by another key.
func TestTheKeyOfSealsIsKeptTwice(t *testing.T) {
	w := start(t)
	_, r := w.served()
	text, _ := w.balancer()
	key := func(name string) []byte {
		t.Helper()
		var s corev1.Secret
		require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.system, Name: name}, &s))
		return s.Data[clusteredge.KeptKey]
	}
	first := key(sealSecrets[0])
	require.Len(t, first, sealKeySize)
	for _, lost := range [][]string{sealSecrets[:1], sealSecrets[1:], sealSecrets} {
		for _, name := range lost {
			require.NoError(t, w.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.system, Name: name}}))
		}
		w.settle(r, "t")
		require.Equal(t, key(sealSecrets[0]), key(sealSecrets[1]))
		require.Equal(t, len(lost) < 2, slices.Equal(first, key(sealSecrets[0])))
		require.Equal(t, inventory.KeyID(key(sealSecrets[0])), w.get("t").Status.Inventory.KeyID)
	}
	now, _ := w.balancer()
	require.Equal(t, text, now)
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
}
