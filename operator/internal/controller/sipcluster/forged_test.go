package sipcluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// Who may write ConfigMaps in the operator's namespace has nothing deleted by naming it in a
// record: neither what is not labelled as the SIPCluster's, nor what is in another namespace.
func TestAForgedRecordHasNothingOfOthersDeleted(t *testing.T) {
	w := start(t)
	other := cluster.Namespace(t, cluster.Config(t)) // where the operator may delete as well
	require.NoError(t, cluster.SIPOperator.Bind(t.Context(), w, "vdo-sip-services", other))
	w.hosts("a")
	sip := w.sip("t", `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: 1}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`)
	r := w.operator(w.own)
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
	labels := map[string]string{"app.kubernetes.io/managed-by": "vdo-operator", airship.LabelClusterNamespace: w.ns, airship.LabelClusterName: "t"}
	victims := []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "victim"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "elsewhere", Labels: labels}},
	}
	for _, o := range victims {
		require.NoError(t, w.Create(t.Context(), o))
		w.forge("t", inventory.Entry{ID: inventory.ID{Key: inventory.Key{Kind: "Secret", Namespace: o.Namespace, Name: o.Name}, Version: "v1"}, UID: string(o.UID), Driver: "loadBalancerWorker"})
	}
	w.settle(r, "t")
	require.NoError(t, w.Delete(t.Context(), sip))
	for range 40 {
		require.NoError(t, w.pass(r, "t"))
		if w.play(); apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(sip), &airship.SIPCluster{})) {
			break
		}
	}
	require.True(t, apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(sip), &airship.SIPCluster{})))
	for _, o := range victims {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(o), &corev1.Secret{}), o.Name)
	}
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

// forge adds an entry to both copies of a record.
func (w *world) forge(sip string, e inventory.Entry) {
	w.Helper()
	line, err := json.Marshal(e)
	require.NoError(w, err)
	owner := w.ns + "." + sip
	for _, name := range []string{inventory.SIPClusters.ConfigMap(owner), inventory.SIPClusters.Copy(owner)} {
		var cm corev1.ConfigMap
		require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.system, Name: name}, &cm))
		cm.Data[inventory.DataKey] = strings.Replace(cm.Data[inventory.DataKey], `"objects":[`, `"objects":[`+string(line)+",", 1)
		require.NoError(w, w.Update(w.Context(), &cm))
	}
}
