package sipcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
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
	r := w.operator(w.own)
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

// bundleOf is a bundle that cannot be used, or one with a login.
type bundleOf struct {
	bundles
	login []byte
}

func (b bundleOf) Open(context.Context) (services.Images, []byte, error) {
	if b.err != nil {
		return nil, nil, b.err
	}
	return b, b.login, nil
}

// While the bundle is not trusted each service keeps its own image, and nothing is installed
// or changed from it; while the mirror has not let a new login in, pods keep theirs.
func TestServicesKeepImageAndLogin(t *testing.T) {
	w := start(t)
	w.sip("t", `services: {jumpHost: [{nodePort: PORT1}, {nodePort: PORT2, image: "mirror.site/services:other"}]}`)
	r := w.operator(w.own)
	r.Render, r.Rand = services.Render, rand.Reader
	login := []byte(`{"auths":{"m":{"auth":"eA=="}}}`)
	r.Bundles = bundleOf{login: login}
	w.settle(r, "t")
	deployment := func(i int) appsv1.Deployment {
		var d appsv1.Deployment
		require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.JumpHost, i)}, &d))
		return d
	}
	first, second := deployment(0), deployment(1)
	require.Equal(t, "mirror.site/services:other", second.Spec.Template.Spec.Containers[0].Image)
	require.NotEmpty(t, first.Spec.Template.Spec.ImagePullSecrets)

	r.Bundles = bundleOf{}
	w.settle(r, "t")
	require.Equal(t, first.Spec, deployment(0).Spec, "the login is being tried at the mirror")
	var pull corev1.Secret
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: first.Spec.Template.Spec.ImagePullSecrets[0].Name}, &pull))
	require.Equal(t, login, pull.Data[corev1.DockerConfigJsonKey])

	r.Bundles = bundleOf{bundles: bundles{err: &fault.Error{Reason: fault.Untrusted, Op: "use", Subject: "DriverBundle b", Err: errors.New("no key signed it")}}}
	w.settle(r, "t")
	require.Equal(t, first.Spec, deployment(0).Spec)
	require.Equal(t, second.Spec, deployment(1).Spec)
	require.Contains(t, w.ready("t").Message, "the bundle cannot be used: use DriverBundle b: no key signed it")

	w.change("t", `services: {jumpHost: [{nodePort: PORT1}, {nodePort: PORT2}, {nodePort: PORT3}]}`)
	w.settle(r, "t")
	w.says("t", airship.ReasonInfraServiceFailure, "no key signed it", true)
	third := w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: services.Name("t", services.JumpHost, 2)}, &appsv1.Deployment{})
	require.True(t, apierrors.IsNotFound(third), "%v", third)
}

// Services lead where they led while network data cannot be read, whoever restarts meanwhile,
// and never from some hosts to none.
func TestBackendsOutliveNetworkData(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c")
	w.sip("t", workers)
	operator := func() *Reconciler {
		r := w.operator(w.own)
		r.Render, r.Rand = services.Render, rand.Reader
		return r
	}
	w.settle(operator(), "t")
	name := services.Name("t", services.LoadBalancerWorker, 0)
	config := func() (string, int64) {
		var cm corev1.ConfigMap
		require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: name + "-config"}, &cm))
		var d appsv1.Deployment
		require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, &d))
		return cm.Data["haproxy.cfg"], d.Generation
	}
	text, generation := config()
	require.Contains(t, text, "10.1.1.97")
	same := func() {
		t.Helper()
		nowText, nowGeneration := config()
		require.Equal(t, text, nowText)
		require.Equal(t, generation, nowGeneration)
	}
	for _, h := range []string{"a", "b", "c"} {
		require.NoError(t, w.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: h + "-network"}}))
	}
	w.settle(operator(), "t")
	same()
	w.says("t", airship.ReasonInfraServiceFailure, "read the data of 3 hosts", true)
	require.Equal(t, []string{"a", "b", "c"}, names(w.labelled("t")))

	w.change("t", replace(workers, "nodeInterfaceId: oam", "nodeInterfaceId: other"))
	w.settle(operator(), "t")
	same()
	w.says("t", airship.ReasonInfraServiceFailure, "of 3 hosts none has a known address there", true)
}
