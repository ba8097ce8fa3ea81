package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/metrics"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// served returns the metrics that are not 0, by name and the values of their labels.
func served(t *testing.T, m *metrics.Meter) map[string]float64 {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(m))
	all := must.Have(reg.Gather())(t)
	out := map[string]float64{}
	for _, f := range all {
		for _, s := range f.GetMetric() {
			key := f.GetName()
			for _, l := range s.GetLabel() {
				key += " " + l.GetValue()
			}
			if v := s.GetCounter().GetValue() + s.GetGauge().GetValue(); v != 0 {
				out[key] = v
			}
		}
	}
	return out
}

// step creates or changes a ConfigMap.
func step(ns string, action plan.Action, cause plan.Cause) plan.Step {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": ns, "name": "x"}, "data": map[string]any{"a": string(cause)}}}
	return plan.Step{Action: action, ID: plan.IDOf(o), Driver: matrix.CSI, Cause: cause, Object: o}
}

// cached is a cache without objects.
type cached struct{ client.Reader }

func (cached) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestWrittenObjectsAreCounted(t *testing.T) {
	scheme := must.Have(newScheme())(t)
	k := must.Have(client.New(cluster.Config(t), client.Options{Scheme: scheme}))(t)
	meter := metrics.New(metrics.Options{Reader: cached{}, Namespace: "ns"})
	c := &meteredCluster{Cluster: &edge.Cluster{Client: k, Reader: k}, meter: meter}
	ns := cluster.Namespace(t, cluster.Config(t))
	live, err := c.Apply(t.Context(), step(ns, plan.Create, plan.Release), nil)
	require.NoError(t, err)
	live, err = c.Apply(t.Context(), step(ns, plan.Change, plan.Drift), live)
	require.NoError(t, err)
	refused := step("a-namespace-that-is-not-there", plan.Create, plan.Drift)
	_, err = c.Apply(t.Context(), refused, nil)
	require.Error(t, err)
	remove := step(ns, plan.Prune, "")
	remove.UID, remove.ResourceVersion = string(live.GetUID()), "1"
	require.Error(t, c.Delete(t.Context(), remove), "the precondition does not hold")
	remove.ResourceVersion = live.GetResourceVersion()
	require.NoError(t, c.Delete(t.Context(), remove))
	counted := served(t, c.meter)
	maps.DeleteFunc(counted, func(name string, _ float64) bool { return !strings.Contains(name, "_total ") })
	require.Equal(t, map[string]float64{
		"vdo_object_changes_total release csi": 1, "vdo_object_changes_total drift csi": 1, "vdo_object_changes_total removal csi": 1,
	}, counted)
}

// A manager whose Lease someone else has taken ends, and the error is not that of an address in use.
func TestALostLeaseIsToldAsOne(t *testing.T) {
	const namespace, name = "default", "taken"
	mgr, err := manager.New(cluster.Config(t), manager.Options{
		LeaderElection: true, LeaderElectionNamespace: namespace, LeaderElectionID: name, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaseDuration: ptr.To(3 * time.Second), RenewDeadline: ptr.To(2 * time.Second), RetryPeriod: ptr.To(100 * time.Millisecond)})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	<-mgr.Elected()
	require.Eventually(t, func() bool {
		var lease coordinationv1.Lease
		if mgr.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &lease) != nil {
			return false
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To("another"), ptr.To(int32(3600)), ptr.To(metav1.NowMicro())
		return mgr.GetClient().Update(t.Context(), &lease) == nil
	}, time.Minute, 50*time.Millisecond)
	var f *fault.Error
	require.ErrorAs(t, startFault(<-ended), &f)
	require.Equal(t, fault.Unreachable, f.Reason)
	require.Contains(t, f.Hint, "its Lease could not be renewed")
}

// Whether the cluster assigns users to pods is asked of the API server, and never guessed.
func TestOpenShiftIsKnownByItsKinds(t *testing.T) {
	for status, want := range map[int]struct{ yes, fails bool }{
		http.StatusOK: {yes: true}, http.StatusNotFound: {}, http.StatusForbidden: {fails: true}, http.StatusServiceUnavailable: {fails: true},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, "/apis/security.openshift.io/v1") {
				t.Errorf("asked for %s", r.URL.Path)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, status)
		}))
		yes, err := serves(t.Context(), &rest.Config{Host: s.URL}, "security.openshift.io/v1")
		s.Close()
		require.Equal(t, want.yes, yes, status)
		require.Equal(t, want.fails, err != nil, "%d: %v", status, err)
	}
}

// Before Kubernetes 1.30 no admission policy reserves hosts.
func TestSIPNeedsAdmissionPolicies(t *testing.T) {
	const group = `{"name":"%s","versions":[{"groupVersion":"%[1]s/%s","version":"%[2]s"}]}`
	hosts := fmt.Sprintf(group, "metal3.io", "v1alpha1")
	policies := fmt.Sprintf(group, "admissionregistration.k8s.io", "v1")
	answers := map[string]string{
		"/apis":                              `{"groups":[` + hosts + "," + policies + `]}`,
		"/apis/metal3.io":                    hosts,
		"/apis/admissionregistration.k8s.io": policies,
		"/apis/metal3.io/v1alpha1":           `{"resources":[{"name":"baremetalhosts","kind":"BareMetalHost"}]}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, cmp.Or(answers[r.URL.Path], "{}"))
	}))
	defer s.Close()
	_, err := hostVersion(&rest.Config{Host: s.URL})
	require.ErrorContains(t, err, `no matches for kind "ValidatingAdmissionPolicy"`)
	require.Contains(t, fault.HintOf(err), "upgrade Kubernetes to 1.30")
}

// A proxy may keep a request for ever: all end, but for watches.
func TestEveryRequestButAWatchEnds(t *testing.T) {
	cfg := ways(&rest.Config{Host: "https://api.site"})
	for of, c := range map[time.Duration]*rest.Config{answerTimeout: cfg, 0: reconciler.ForWatches(cfg)} {
		client := must.Have(rest.HTTPClientFor(c))(t)
		require.Equal(t, of, client.Timeout)
	}
}
