package sipcluster

import (
	"crypto/rand"
	"errors"
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

// record is the ConfigMap with a record.
func (w *world) record(sip string) *corev1.ConfigMap {
	w.Helper()
	cm := &corev1.ConfigMap{}
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.system, Name: inventory.SIPClusters.ConfigMap(w.ns + "." + sip)}, cm))
	return cm
}

// dropRecord deletes a record.
func (w *world) dropRecord(sip string) {
	w.Helper()
	require.NoError(w, w.Delete(w.Context(), w.record(sip)))
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

// Where the record is lost, what is missing is made again, and the SIPCluster can be deleted.
func TestALostRecordStopsNothing(t *testing.T) {
	w := start(t)
	s, r := w.served()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0)}}
	require.NoError(t, w.Delete(t.Context(), d))
	w.dropRecord("t")
	w.settle(r, "t")
	w.balancer()
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	w.dropRecord("t")
	require.NoError(t, w.Delete(t.Context(), s))
	w.settle(r, "t")
	w.gone("t")
	require.Empty(t, told(r, "LeftBehind"))
}

// A record that cannot be read is not written over: it may be that of a later operator.
func TestARecordThatCannotBeReadStays(t *testing.T) {
	w := start(t)
	_, r := w.served()
	cm := w.record("t")
	cm.Data[inventory.DataKey] = "{"
	require.NoError(t, w.Update(t.Context(), cm))
	w.settle(r, "t")
	w.says("t", airship.ReasonInfraServiceFailure, "no inventory", true)
	require.Equal(t, "{", w.record("t").Data[inventory.DataKey])
}

// Images that run go on while the bundle cannot be used, though the record is lost.
func TestServicesKeepTheirImagesWithoutTheRecord(t *testing.T) {
	w := start(t)
	w.served()
	_, image := w.balancer()
	w.dropRecord("t")
	w.settle(w.withoutBundle(), "t")
	_, now := w.balancer()
	require.Equal(t, image, now)
}

// What was made goes with the SIPCluster, by the UID that the record has of it: though
// somebody has taken its labels off just before, and, by its labels, though the record is lost.
func TestDeletionFindsWhatWasMade(t *testing.T) {
	for name, before := range map[string]func(*world){
		"the labels are gone": func(w *world) { require.Equal(w, 3, w.strip()) },
		"the record is gone":  func(w *world) { w.dropRecord("t") },
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

// What somebody has made anew without the labels stays, and an event names it.
func TestWhatIsLeftBehindIsNamed(t *testing.T) {
	w := start(t)
	s, r := w.served()
	cm := &corev1.ConfigMap{}
	key := types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0) + "-config"}
	require.NoError(t, w.Get(t.Context(), key, cm))
	require.NoError(t, w.Delete(t.Context(), cm))
	cm.ResourceVersion, cm.UID, cm.Labels = "", "", nil
	require.NoError(t, w.Create(t.Context(), cm))
	require.NoError(t, w.Delete(t.Context(), s))
	w.settle(r, "t")
	require.Nil(t, w.find("t"))
	require.NoError(t, w.Get(t.Context(), key, cm))
	require.Contains(t, told(r, "LeftBehind"), "ConfigMap "+key.String()+" stays: ")
}

// What is asked for stays the SIPCluster's, whoever takes its labels off.
func TestALabelThatSomebodyChangesIsPutBack(t *testing.T) {
	w := start(t)
	w.hosts("a")
	w.sip("t", `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: 1}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`)
	r := w.operator(w.own)
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
	var all appsv1.DeploymentList
	require.NoError(t, w.List(t.Context(), &all, client.InNamespace(w.ns)))
	require.NotEmpty(t, all.Items)
	for i := range all.Items {
		o := &all.Items[i]
		uid := o.UID
		o.Labels["app.kubernetes.io/managed-by"] = "Helm"
		require.NoError(t, w.Update(t.Context(), o))
		w.settle(r, "t")
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		require.Equal(t, "vdo-operator", o.Labels["app.kubernetes.io/managed-by"])
		require.Equal(t, uid, o.UID)
	}
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
}
