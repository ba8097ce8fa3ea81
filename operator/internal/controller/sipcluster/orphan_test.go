package sipcluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
)

// lose removes a SIPCluster as who takes its finalizer off does, or a restore that brought the
// hosts and not yet the SIPClusters: nobody gave its hosts back.
func (w *world) lose(name string) *airship.SIPCluster {
	w.Helper()
	was := w.get(name)
	bare := was.DeepCopy()
	bare.Finalizers = nil
	require.NoError(w, w.Patch(w.Context(), bare, client.MergeFrom(was)))
	require.NoError(w, w.Delete(w.Context(), bare))
	require.Nil(w, w.find(name))
	return was
}

// Hosts of a SIPCluster that is not there stay its own, though they look free and another one
// lacks some, and its services lead there: it may be about to be restored, as it then is, with
// the hosts and services that it had.
func TestHostsOfALostSIPClusterAreKeptForIt(t *testing.T) {
	w := start(t)
	_, r := w.served()
	w.sip("other", `nodes: {Worker: {FLAVOR, count: {active: 1}}}`)
	was, before := w.lose("t"), w.objects()
	for range 3 {
		require.NoError(t, w.pass(r, "t"))
		w.settle(r, "other")
	}
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
	require.Equal(t, []string{"a", "b"}, names(w.claimed("t")))
	require.Equal(t, airship.ReasonUnschedulable, w.ready("other").Reason)
	require.Equal(t, before, w.objects())

	again := &airship.SIPCluster{Spec: was.Spec} // a backup has no status, and the API server gives another UID
	again.Namespace, again.Name = was.Namespace, was.Name
	require.NoError(t, w.Create(t.Context(), again))
	w.settle(r, "t")
	require.Equal(t, airship.ReasonUnschedulable, w.ready("t").Reason, "one of the same name inherits nothing")
	require.Equal(t, int32(0), w.get("t").Status.Held)
	w.adopt("a", "b")
	w.settle(r, "t")
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
	require.Equal(t, before, w.objects())
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
	require.Equal(t, airship.ReasonUnschedulable, w.ready("other").Reason)
}

// A person who knows that it does not come back makes it again, empty, and deletes it: what was
// made for it goes first, by the record, and then its hosts are given back.
func TestHostsOfALostSIPClusterAreFreedByOneThatIsEmpty(t *testing.T) {
	w := start(t)
	_, r := w.served()
	w.lose("t")
	w.use("a")
	w.adopt("a", "b")
	s := w.sip("t", `{}`)
	var services appsv1.DeploymentList
	for n := 0; len(w.claimed("t")) == 2; n++ {
		require.Less(t, n, 40, "no host is given back")
		require.NoError(t, w.List(t.Context(), &services, client.InNamespace(w.ns)))
		require.NoError(t, w.pass(r, "t"))
		w.play()
	}
	require.Empty(t, services.Items, "services went before the pass that gave the host back")
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("t")), "one that is in use stays")
	require.NoError(t, w.Delete(t.Context(), s))
	w.settle(r, "t")
	w.force("t")
	w.settle(r, "t")
	w.gone("t")
}
