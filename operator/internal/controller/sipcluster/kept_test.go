package sipcluster

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// A service that is taken out, and one whose Deployment still has to follow, lead to hosts
// until they are gone and rolled out: one edit that also asks for fewer hosts frees none before.
func TestHostsAreGivenBackAfterTheServicesThatLeadThere(t *testing.T) {
	w := start(t)
	_, r := w.served()
	name := services.Name("t", services.LoadBalancerWorker, 0)
	free := nextIP(read[corev1.Service](w, name).Spec.ClusterIP)
	w.change("t", replace(active(1), "oam}", "oam, clusterIP: \""+free+"\"}"))
	for range 2 { // the Service is made anew, since its address cannot be changed; then the Deployment is changed
		require.NoError(t, w.pass(r, "t"))
		require.Equal(t, []string{"a", "b"}, names(w.claimed("t")))
		require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
		require.NotEqual(t, airship.ReasonSucceeded, w.ready("t").Reason)
	}
	w.stands(r, "t", airship.ReasonSucceeded, "a")
	require.Equal(t, free, read[corev1.Service](w, name).Spec.ClusterIP)

	w.change("t", replace(alone, "active: 1", "active: 0"))
	for len(w.homes()) > 0 {
		require.NoError(t, w.pass(r, "t"))
		require.Equal(t, []string{"a"}, names(w.claimed("t")), "pods of the service that was taken out run")
		require.Contains(t, w.ready("t").Message, "waiting for the deletion of namespace "+w.home("t"))
		w.play("t")
	}
	w.settle(r, "t")
	require.Empty(t, w.claimed("t"))
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
}

// A host is released when the pods that lead there have ended: not when the API server has the
// configuration.
func TestAHostIsReleasedWhenNoPodLeadsThere(t *testing.T) {
	w := start(t)
	_, r := w.served()
	template := read[appsv1.Deployment](w, services.Name("t", services.LoadBalancerWorker, 0)).Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.home("t"), Name: "old", Labels: template.Labels, Finalizers: []string{"test.site/runs"},
	}, Spec: template.Spec}
	require.NoError(t, errors.Join(w.Create(t.Context(), pod), w.Delete(t.Context(), pod)))
	w.change("t", active(1))
	w.settle(r, "t")
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
	require.Equal(t, w.labelled("t"), w.claimed("t"))
	require.Contains(t, w.ready("t").Message, "hosts leave: "+w.metal+"/b; pod old is ending")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(t, w.Patch(t.Context(), pod, patch))
	w.stands(r, "t", airship.ReasonSucceeded, "a")
}

// The deletion of a tenant's namespace takes none of the services. A host in use stays the SIPCluster's,
// which keeps the namespace, until it is free.
func TestANamespaceThatIsDeletedKeepsHostsInUse(t *testing.T) {
	w := start(t)
	s, r := w.served()
	w.use("a", true)
	before := w.objects()
	require.NoError(t, w.Delete(t.Context(), s))
	require.NoError(t, w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}))
	w.settle(r, "t")
	w.says("t", airship.ReasonUnableToDecommission, "release hosts in use: "+w.metal+"/a: Metal3Machine t/m uses it", true)
	require.Equal(t, before, w.objects())
	w.use("a", false)
	w.settle(r, "t")
	w.gone("t")
}

// Hosts and services of a SIPCluster that is not there stay: it may be about to be restored. One of its
// name gets the services, and the hosts if somebody has them adopted.
func TestALostSIPClusterIsRestored(t *testing.T) {
	w := start(t)
	was, r := w.served()
	w.sip("other", alone)
	// lose takes the finalizer off, or a restore brought the hosts and not yet the SIPCluster.
	lose := func() {
		bare := w.get("t")
		bare.Finalizers = nil
		require.NoError(t, errors.Join(w.Update(t.Context(), bare), w.Delete(t.Context(), bare)))
		require.Nil(t, w.find("t"))
	}
	before := w.objects()
	lose()
	w.settle(r, "other")
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
	require.Equal(t, airship.ReasonUnschedulable, w.ready("other").Reason)
	require.Equal(t, before, w.objects())

	again := &airship.SIPCluster{Spec: was.Spec} // a backup has no status, and the API server gives another UID
	again.Namespace, again.Name = was.Namespace, was.Name
	require.NoError(t, w.Create(t.Context(), again))
	w.settle(r, "t")
	require.Equal(t, airship.ReasonUnschedulable, w.ready("t").Reason, "one of the same name inherits no host")
	w.adopt("a", "b")
	w.stands(r, "t", airship.ReasonSucceeded, "a", "b")
	require.Equal(t, before, w.objects())

	// Who knows that it does not come back creates an empty one, and deletes it.
	lose()
	w.use("a", true)
	w.adopt("a", "b")
	s := w.sip("t", `{}`)
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("t")), "one that is in use stays")
	require.NoError(t, w.Delete(t.Context(), s))
	w.settle(r, "t")
	w.force("t")
	w.settle(r, "t")
	w.gone("t")
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

var untrusted = &fault.Error{
	Reason: fault.Untrusted, Op: "use", Subject: "DriverBundle b", Err: errors.New("no key signed it"),
}

// While the bundle is not trusted each service keeps its own image, and nothing is installed
// or changed from it; while the mirror has not let a new login in, pods keep theirs.
func TestServicesKeepImageAndLogin(t *testing.T) {
	w := start(t)
	w.sip("t", `services: {jumpHost: [{nodePort: PORT1}, {nodePort: PORT2, image: "mirror.site/services:other"}]}`)
	r := w.operator(w.own)
	login := []byte(`{"auths":{"m":{"auth":"eA=="}}}`)
	r.Bundles = bundleOf{login: login}
	w.settle(r, "t")
	deployment := func(i int) *appsv1.Deployment {
		return read[appsv1.Deployment](w, services.Name("t", services.JumpHost, i))
	}
	first, second := deployment(0), deployment(1)
	require.Equal(t, "mirror.site/services:other", second.Spec.Template.Spec.Containers[0].Image)
	require.NotEmpty(t, first.Spec.Template.Spec.ImagePullSecrets)

	r.Bundles = bundleOf{}
	w.settle(r, "t")
	require.Equal(t, first.Spec, deployment(0).Spec, "the login is being tried at the mirror")
	pull := read[corev1.Secret](w, first.Spec.Template.Spec.ImagePullSecrets[0].Name)
	require.Equal(t, login, pull.Data[corev1.DockerConfigJsonKey])

	r.Bundles = bundleOf{bundles: bundles{err: untrusted}}
	w.settle(r, "t")
	require.Equal(t, first.Spec, deployment(0).Spec)
	require.Equal(t, second.Spec, deployment(1).Spec)
	require.Contains(t, w.ready("t").Message, "the bundle cannot be used: use DriverBundle b: no key signed it")

	w.change("t", `services: {jumpHost: [{nodePort: PORT1}, {nodePort: PORT2}, {nodePort: PORT3}]}`)
	w.settle(r, "t")
	w.says("t", airship.ReasonInfraServiceFailure, "no key signed it", true)
	require.NotContains(t, w.objects(), services.Name("t", services.JumpHost, 2))
}

// Services lead where they led while network data cannot be read, whoever restarts meanwhile,
// and never from some hosts to none.
func TestBackendsOutliveNetworkData(t *testing.T) {
	w := start(t)
	w.served()
	name := services.Name("t", services.LoadBalancerWorker, 0)
	text, generation := w.backends("t", services.LoadBalancerWorker), read[appsv1.Deployment](w, name).Generation
	require.Equal(t, []string{"a=10.1.1.97", "b=10.1.1.98"}, text)
	stays := func(spec, message string) {
		t.Helper()
		w.change("t", spec)
		w.stands(w.operator(w.own), "t", airship.ReasonInfraServiceFailure, "a", "b")
		w.says("t", airship.ReasonInfraServiceFailure, message, true)
		require.Equal(t, text, w.backends("t", services.LoadBalancerWorker))
		require.Equal(t, generation, read[appsv1.Deployment](w, name).Generation)
	}
	for _, h := range []string{"a", "b"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.metal, Name: h + "-network"}}
		require.NoError(t, w.Delete(t.Context(), secret))
	}
	stays(balanced, "read the data of 2 hosts")
	stays(replace(balanced, "oam", "other"), "of 2 hosts none has a known address there")
}
