package sipcluster

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// failing is an operator whose nth request is answered by a code, and whether it came to that.
func (w *world) failing(n int64, code int) (r *Reconciler, failed func() bool) {
	w.Helper()
	var asked atomic.Int64
	c := w.through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if asked.Add(1) != n {
			return w.counting(r, next)
		}
		answer := httptest.NewRecorder()
		http.Error(answer, "not now", code)
		return answer.Result(), nil
	})
	return w.operator(c), func() bool { return asked.Load() >= n }
}

// has is what the status says that a SIPCluster has, not how that fares.
func (w *world) has(name string) airship.SIPClusterStatus {
	w.Helper()
	st := w.get(name).Status
	st.Conditions, st.ObservedGeneration = nil, 0
	for i := range st.Hosts {
		st.Hosts[i].Problem = ""
	}
	for i := range st.Services {
		st.Services[i].Ready, st.Services[i].Message = false, ""
	}
	return st
}

// Whichever request of a pass fails, the status goes on saying what the SIPCluster has and lacks,
// and services lead on to a host whose data cannot be read.
func TestARequestThatFailsTakesNothingFromTheStatus(t *testing.T) {
	w := start(t)
	w.hosts("a", "b")
	w.sip("t", active(3))
	w.settle(w.operator(w.own), "t")
	text := w.backends("t", services.LoadBalancerWorker)
	require.NoError(t, w.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: "a-network"}}))
	w.settle(w.operator(w.own), "t")
	has := w.has("t")
	require.Equal(t, []string{"10.1.1.97"}, has.Hosts[0].Addresses)
	require.Equal(t, []int32{3, 2, 1}, []int32{has.Wanted, has.Held, has.Missing[0].Count})
	told, whole := 0, false
	for n := 2; !whole; n += tier.Pick(3, 1) { // each request, in two ways; the first tier leaves some out
		before := w.ready("t").Message
		r, failed := w.failing(int64(n/2), []int{http.StatusInternalServerError, http.StatusForbidden}[n%2])
		_ = w.pass(r, "t") // where the resource is not read, or its status not written
		require.Equal(t, has, w.has("t"), "request %d: %s", n/2, w.ready("t").Message)
		if whole = !failed(); w.ready("t").Message != before {
			told++
		}
	}
	require.Greater(t, told, 8)
	w.settle(w.operator(w.own), "t")
	require.Equal(t, text, w.backends("t", services.LoadBalancerWorker))
}

// Of a service that cannot be rendered the status says what it has, and of a spec that cannot be
// understood what it asks for.
func TestTheStatusSaysWhatRuns(t *testing.T) {
	w := start(t)
	_, r := w.served()
	has := w.has("t")
	r.Bundles = bundleOf{bundles: bundles{err: untrusted}}
	require.NotEmpty(t, has.Services[0].Image)
	require.NotEmpty(t, has.Services[0].Endpoints)
	w.change("t", replace(balanced, "nodeInterfaceId: oam", `nodeInterfaceId: oam, image: "mirror.site/services:other"`))
	w.settle(r, "t")
	w.says("t", airship.ReasonInfraServiceFailure, "no key signed it", true)
	require.False(t, w.get("t").Status.Services[0].Ready)
	require.Equal(t, has, w.has("t"))

	w.change("t", `nodes: {Worker: {labelSelector: {matchExpressions: [{key: a, operator: Like}]}, count: {active: 7}}}`)
	w.settle(r, "t")
	w.says("t", airship.ReasonUnschedulable, "spec.nodes.Worker.labelSelector", true)
	has.Wanted = 7
	require.Equal(t, has, w.has("t"))
}
