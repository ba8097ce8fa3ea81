package sipcluster

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// oldCache has the hosts as they were at one time.
type oldCache struct {
	client.Reader
	hosts choose.BareMetalHostList
}

func (c *oldCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	*list.(*choose.BareMetalHostList) = *c.hosts.DeepCopyObject().(*choose.BareMetalHostList) //nolint:forcetypeassert,errcheck // of hosts
	return nil
}

// A host that was given back, and that another tenant has by now, gets no service of the one
// before, however old the cache is that says that it is held.
func TestAnOldCacheLeadsNowhere(t *testing.T) {
	w := start(t)
	_, r := w.served()
	old, cache := w.operator(w.own), &oldCache{}
	require.NoError(t, w.List(t.Context(), &cache.hosts, client.InNamespace(w.metal)))
	old.Hosts = cache

	w.change("t", active(1))
	w.stands(r, "t", airship.ReasonSucceeded, "a")
	w.sip("other", alone)
	w.stands(r, "other", airship.ReasonSucceeded, "b")

	w.change("t", balanced) // which the old cache says it has
	for range 3 {
		require.NoError(t, w.pass(old, "t"))
	}
	require.Equal(t, []string{"a=10.1.1.97"}, w.backends("t", services.LoadBalancerWorker))
	w.stands(r, "t", airship.ReasonUnschedulable, "a")
	require.Equal(t, []string{"b"}, names(w.claimed("other")))
}

// What is gone, is being deleted or is another one of the name by now gets no host, since nobody would give it
// back, and takes nothing from the next one.
func TestNothingIsDoneForWhatIsGone(t *testing.T) {
	w := start(t)
	w.hosts("a", "b")
	s := w.sip("t", balanced)
	r := w.operator(w.own)
	require.NoError(t, w.pass(r, "t")) // the finalizer
	seen, deleted := w.get("t"), &airship.SIPCluster{}
	require.NoError(t, w.Delete(t.Context(), s))
	for _, then := range []func(){
		func() { deleted = w.get("t") },
		func() { w.settle(r, "t") },
		func() { w.sip("t", balanced) },
	} {
		then()
		_, err := r.Pass(t.Context(), seen.DeepCopy())
		require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
		require.Empty(t, w.bare("a").Annotations[airship.AnnotationClaim])
	}
	w.settle(r, "t")
	claim := w.bare("a").Annotations[airship.AnnotationClaim]
	require.Equal(t, clusterOf(w.get("t")).Claim(airship.RoleWorker), claim)
	state := w.state()
	_, err := r.Remove(t.Context(), deleted)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
	require.Equal(t, state, w.state())
}
