package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// generations of everything that runs: they move where something rolls.
func (w *world) generations() map[string]int64 {
	w.t.Helper()
	all := map[string]int64{}
	for _, ns := range []string{"kube-system", "vmware-system-csi"} {
		var sets appsv1.DaemonSetList
		require.NoError(w.t, w.List(context.Background(), &sets, client.InNamespace(ns)))
		for _, o := range sets.Items {
			all[o.Name] = o.Generation
		}
		var deployments appsv1.DeploymentList
		require.NoError(w.t, w.List(context.Background(), &deployments, client.InNamespace(ns)))
		for _, o := range deployments.Items {
			all[o.Name] = o.Generation
		}
	}
	return all
}

func (w *world) copiesOfLogin() []string {
	w.t.Helper()
	var all []string
	for _, ns := range []string{"kube-system", "vmware-system-csi"} {
		all = append(all, string(get(w, &corev1.Secret{}, ns, "vdo-registry-pull").Data[corev1.DockerConfigJsonKey]))
	}
	return all
}

// login makes, changes or removes (with "") the Secret with the mirror's login.
func (w *world) login(config string) {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "vdo-registry"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)}}
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), s.DeepCopy())))
	if config != "" {
		w.create(s)
	}
}

// mirror is what the DriverBundle says of the login.
func (w *world) mirror(verified string, ready metav1.ConditionStatus, reason string) {
	w.t.Helper()
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	b.Status.VerifiedLogin = verified
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: "Ready", Status: ready, Reason: reason, Message: "the registry answered 401"})
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
}

const (
	oldLogin = `{"auths":{"mirror.site:5000":{"auth":"dTpw"}}}`
	newLogin = `{"auths":{"mirror.site:5000":{"auth":"dTpuZXc="}}}`
)

func TestTheLoginThatWorksStaysUntilTheMirrorLetsAnotherOneIn(t *testing.T) {
	w, v := installed(t)
	was, before := w.generations(), w.loginVersion()
	require.Len(t, was, 4)
	kept := func(why string) {
		t.Helper()
		require.NoError(t, client.IgnoreNotFound(w.Delete(context.Background(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cloud-controller-manager"}})))
		w.look(v)
		require.Equal(t, was, w.generations(), "nothing rolls: %s", why)
		require.Equal(t, []string{oldLogin, oldLogin}, w.copiesOfLogin(), why)
		require.Contains(t, cond(t, v, "Resolved").Message, why)
		require.NotContains(t, describe(v), "dTpuZXc=")
		get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repairs go on
	}

	w.login("")
	kept("it is not there, and the mirror was not read without it; pods keep the login that they have")
	w.mirror(before, metav1.ConditionFalse, "Unauthorized")
	kept("pods keep the login that they have")
	w.mirror(v1alpha1.NoLogin, metav1.ConditionTrue, "Succeeded")
	kept("the mirror needs none: pods keep the login that they have")
	w.ready(v)

	w.login(newLogin)
	w.mirror(before, metav1.ConditionTrue, "Succeeded")
	kept("the login in Secret " + w.ns + "/vdo-registry is being tried at the mirror")
	w.mirror(before, metav1.ConditionFalse, "Unauthorized")
	kept("the mirror has not let it in; pods keep the login that they have: the registry answered 401")
	require.Equal(t, "Unauthorized", cond(t, v, "Ready").Reason)

	// A copy that is lost meanwhile is made from the other one.
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.Secret{}, "kube-system", "vdo-registry-pull")))
	kept("pods keep the login that they have")

	w.mirror(w.loginVersion(), metav1.ConditionTrue, "Succeeded")
	w.ready(v)
	require.Equal(t, []string{newLogin, newLogin}, w.copiesOfLogin())
	require.Equal(t, was, w.generations())
}

func TestWithoutAnyLoginLeftPodsAreLeftAsTheyAre(t *testing.T) {
	w, v := installed(t)
	was := w.generations()
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	w.change(b, func() { b.Spec.PullSecret = &v1alpha1.LocalReference{Name: "vdo-registry"} })
	w.login("")
	for _, ns := range []string{"kube-system", "vmware-system-csi"} {
		require.NoError(t, w.Delete(context.Background(), get(w, &corev1.Secret{}, ns, "vdo-registry-pull")))
	}
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
	w.look(v)
	require.Equal(t, was, w.generations())
	require.True(t, gone(w, &corev1.Secret{}, "kube-system", "vdo-registry-pull"), "no made-up login is given to pods")
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repairs go on
	require.Contains(t, cond(t, v, "Ready").Message, "or has no key .dockerconfigjson")
	for range 3 {
		w.look(v) // also once the copies that are gone were noticed
	}
	require.Equal(t, was, w.generations())

	w.login(newLogin)
	w.mirror(w.loginVersion(), metav1.ConditionTrue, "Succeeded")
	w.ready(v)
	require.Equal(t, []string{newLogin, newLogin}, w.copiesOfLogin())
}
