package sipcluster

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// An upgrade moves the services of an earlier version to their own namespace: hosts stay allocated, keys
// stay what they are, what ran goes when its replacement is ready, and so do BMC credentials that it
// copied. Images are those of a bundle that is verified: the tenant could change what ran. Events report the
// fields that have no effect any more, once.
func TestAnUpgradeMovesServices(t *testing.T) {
	w := start(t)
	w.system = cluster.SIPOperator.Namespace() // where the shipped policy lets the operator write
	require.NoError(t, cluster.SIPOperator.Bind(t.Context(), w, servicesRole, w.ns))
	w.hosts("a", "b")
	w.sip("t", `
nodes: {Worker: {FLAVOR, count: {active: 2}}}
services:
  loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]
  jumpHost: [{nodePort: PORT2, nodeInterfaceId: oam, bmc: {}, nodeSSHPrivateKeys: missing}]
`)
	r := w.operator(w.own)
	w.settle(r, "t")
	hosts, key := w.claimed("t"), read[corev1.Secret](w, services.Name("t", services.JumpHost, 0)+"-host-keys").Data
	record := w.makeFormer(r)
	note := client.RawPatch(types.MergePatchType, []byte(`{"status":{"namespace":""}}`))
	require.NoError(t, w.Status().Patch(t.Context(), w.get("t"), note))
	r = w.operator(w.own)
	r.Bundles = bundleOf{bundles: bundles{err: untrusted}}

	balancer := types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0)}
	for pass := range 7 {
		if pass == 3 {
			require.Contains(t, w.ready("t").Message, "no key signed it")
			r.Bundles = bundles{}
		}
		require.NoError(t, w.pass(r, "t"))
		require.NoError(t, w.Get(t.Context(), balancer, &corev1.Service{}), "it runs until its replacement is ready")
		require.Equal(t, hosts, w.labelled("t"))
	}
	require.Contains(t, w.ready("t").Message, errUnfinished.Error())
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	require.Equal(t, hosts, w.claimed("t"))
	require.Equal(t, key, read[corev1.Secret](w, services.Name("t", services.JumpHost, 0)+"-host-keys").Data)
	events := told(r, "FieldIgnored")
	require.Contains(t, events, "spec.services.jumpHost[0].bmc has no effect; create a HostAction")
	require.Contains(t, events, "spec.services.jumpHost[0].nodeSSHPrivateKeys has no effect; reach hosts with `ssh -J`")
	require.NoError(t, w.pass(r, "t"))
	require.Empty(t, told(r, "FieldIgnored"), "nothing changed")
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.SecretList{}} {
		w.each(list, func(o metav1.Object) { require.NotEqual(t, w.ns, o.GetNamespace(), o.GetName()) })
	}
	require.True(t, w.Get(t.Context(), client.ObjectKeyFromObject(record), record) != nil, "the record is of nothing")
	require.NoError(t, w.Delete(t.Context(), w.get("t")))
	w.settle(r, "t")
	w.gone("t")
}

// makeFormer moves the services of t to where an earlier version had them, with the record that it kept
// and BMC credentials that it copied.
func (w *world) makeFormer(r *Reconciler) *corev1.ConfigMap {
	w.Helper()
	p := r.begin(w.get("t"))
	require.NoError(w, p.read(w.Context()))
	all := slices.Collect(maps.Values(p.objects))
	bmc := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
	bmc.SetLabels(all[0].GetLabels())
	bmc.SetName(services.Name("t", services.JumpHost, 0) + "-bmc")
	inv := inventory.Inventory{}
	require.NoError(w, w.Delete(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.home}}))
	w.play("t")
	for _, o := range append(all, bmc) {
		made := &unstructured.Unstructured{Object: o.Object}
		made.SetNamespace(w.ns)
		made.SetUID("")
		made.SetResourceVersion("")
		made.SetManagedFields(nil)
		unstructured.RemoveNestedField(made.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(made.Object, "spec", "clusterIPs")
		require.NoError(w, w.Create(w.Context(), made))
		kind := made.GroupVersionKind()
		inv = inv.With(inventory.Entry{UID: string(made.GetUID()), Driver: "x", ID: inventory.ID{
			Version: kind.Version, Key: inventory.Key{Group: kind.Group, Kind: kind.Kind, Namespace: w.ns, Name: made.GetName()},
		}})
	}
	record := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.system, Name: "sip-inventory-of-" + w.ns + ".t"},
		Data:       map[string]string{inventory.DataKey: string(inv.Marshal())},
	}
	require.NoError(w, w.Create(w.Context(), record))
	w.former = true
	w.play("t")
	return record
}
