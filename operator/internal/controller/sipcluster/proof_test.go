package sipcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// pod makes a pod of a service that runs.
func (w *world) pod(name, service string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: services.PodLabels(service), Finalizers: []string{"test.site/runs"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	require.NoError(w, w.Create(w.Context(), pod))
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "10.9.0.7", []corev1.PodIP{{IP: "10.9.0.7"}}
	require.NoError(w, w.Status().Update(w.Context(), pod))
	return pod
}

// A host is given back when the jump host's pods say that the new files are in force, and the
// pods of load balancers that lead there have ended: not when the API server has the
// configuration.
func TestAHostIsGivenBackWhenNoPodLeadsThere(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c")
	const spec = `
nodes: {Worker: {FLAVOR, count: {active: N}}}
services:
  loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]
  jumpHost: [{nodePort: PORT2, nodeInterfaceId: oam, bmc: {}}]
`
	w.sip("t", replace(spec, "N", "3"))
	r := w.operator(w.own)
	r.Render, r.Rand = services.Render, rand.Reader
	jump, balancer := services.Name("t", services.JumpHost, 0), services.Name("t", services.LoadBalancerWorker, 0)
	answer, asked := "", errors.New("no route to host")
	r.AskJumpHost = func(_ context.Context, address string) (string, error) {
		require.Equal(t, "10.9.0.7:8080", address)
		return answer, asked
	}
	w.settle(r, "t")
	w.pod("jump", jump)
	leads := w.pod("old", balancer)
	w.change("t", replace(spec, "N", "2"))
	stays := func(why string) {
		t.Helper()
		w.settle(r, "t")
		require.Equal(t, []string{"a", "b", "c"}, names(w.claimed("t")))
		require.Equal(t, []string{"a", "b", "c"}, names(w.labelled("t")))
		require.Contains(t, w.ready("t").Message, "hosts leave: "+w.metal+"/c; pod "+why)
	}
	stays("jump does not say which configuration is in force")
	answer, asked = strings.Repeat("0", 64), nil
	stays("jump does not have the new configuration yet")

	var config corev1.ConfigMap
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: jump + "-config"}, &config))
	require.NotContains(t, config.Data["config.json"], `"c"`)
	var logins corev1.Secret
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: jump + "-bmc"}, &logins))
	bmc, err := jumphost.ParseBMC("bmc.json", logins.Data["bmc.json"])
	require.NoError(t, err)
	answer = jumphost.InForce([]byte(config.Data["config.json"]), nil)
	stays("jump does not have the new configuration yet") // its power commands do not
	answer = jumphost.InForce([]byte(config.Data["config.json"]), bmc)

	require.NoError(t, w.Delete(t.Context(), leads))
	w.change("t", replace(spec, "N", "3"))
	w.settle(r, "t")
	w.change("t", replace(spec, "N", "2"))
	stays("old is ending")
	require.NoError(t, w.Patch(t.Context(), leads, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.settle(r, "t")
	require.Equal(t, []string{"a", "b"}, names(w.claimed("t")))
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
	require.Equal(t, metav1.ConditionTrue, w.ready("t").Status)
}

// What a pod answers is bounded, and leads nowhere else.
func TestAskingAJumpHost(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was followed") }))
	defer elsewhere.Close()
	answers := map[string]http.HandlerFunc{
		"good": func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "/in-force", r.URL.Path)
			_, _ = w.Write([]byte("abc\n"))
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"fault":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "abc", http.StatusInternalServerError) },
		"long":     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
	}
	for name, handler := range answers {
		s := httptest.NewServer(handler)
		got, err := askJumpHost(t.Context(), s.Listener.Addr().String())
		s.Close()
		require.LessOrEqual(t, len(got), maxAnswer, name)
		require.Equal(t, name == "good" || name == "long", err == nil, "%s: %v", name, err)
		require.Equal(t, name == "good", err == nil && got == "abc", name)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = askJumpHost(t.Context(), l.Addr().String())
	require.Error(t, err)
}
