package sipcluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// A service that is taken out, and one whose Deployment still has to follow, lead to hosts
// until they are gone and rolled out: one edit that also asks for fewer hosts frees none before.
func TestHostsAreGivenBackAfterTheServicesThatLeadThere(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c", "d")
	const one = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: N}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam, clusterIP: "ADDRESS"}]}
`
	w.sip("t", replace(replace(one, "N", "3"), "ADDRESS", ""))
	r := w.operator(w)
	w.settle(r, "t")
	key := types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.LoadBalancerWorker, 0)}
	var s corev1.Service
	require.NoError(t, w.Get(t.Context(), key, &s))

	w.change("t", replace(replace(one, "N", "2"), "ADDRESS", nextIP(s.Spec.ClusterIP)))
	for range 2 { // the Service is made anew; then the Deployment is changed
		require.NoError(t, w.pass(r, "t"))
		require.Equal(t, []string{"a", "b", "c"}, names(w.claimed("t")))
		require.Equal(t, []string{"a", "b", "c"}, names(w.labelled("t")))
		require.NotEqual(t, airship.ReasonSucceeded, w.ready("t").Reason)
	}
	w.settle(r, "t")
	require.Equal(t, []string{"a", "b"}, names(w.claimed("t")))
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)

	w.change("t", `nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: 1}}}`)
	for {
		require.NoError(t, w.pass(r, "t"))
		err := w.Get(t.Context(), key, &appsv1.Deployment{})
		if apierrors.IsNotFound(err) {
			break
		}
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, names(w.claimed("t")), "pods of the service that was taken out run")
		require.Contains(t, w.ready("t").Message, "removing "+key.Name)
		w.play()
	}
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("t")))
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
}
