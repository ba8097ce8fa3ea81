package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/inspection"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// checking has the site's vCenter be a simulated one, for what is checked.
func checking(t *testing.T, w *world, vc *vcsim.VCenter) *inspection.Inspector {
	t.Helper()
	i, kill := inspecting(t, inspection.Options{Client: w, Reader: w, Logins: &logins.Logins{},
		Inspect: func(ctx context.Context, target vcenter.Target, ask vcenter.Ask) preflight.VCenter {
			return vcenter.Inspect(ctx, vcenter.Target{Host: vc.Host, Port: vc.Port, Username: target.Username, Password: vcenter.Password(vcsim.Admin.Password),
				Trust: vcenter.Trust{CA: vc.CA}}, ask)
		}})
	t.Cleanup(kill)
	return i
}

// inspecting starts an inspector, which kill ends as the operator's end does.
func inspecting(t *testing.T, o inspection.Options) (i *inspection.Inspector, kill func()) {
	t.Helper()
	i = inspection.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- i.Start(ctx) }()
	return i, func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

func storageConfiguration(w *world) (conf string, controller int64) {
	w.t.Helper()
	secret := get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret")
	return string(secret.Data["csi-vsphere.conf"]), get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller").Generation
}

// The real storage driver ends at its start where a vCenter lacks a tag category (failed to
// fetch tags for category): one that runs without topology goes on without it until all
// categories are there.
func TestTopologyWaitsUntilEachVCenterHasItsCategories(t *testing.T) {
	w, v := installed(t)
	vc := vcsim.Start(t, vcsim.Options{})
	w.r.Checks = checking(t, w, vc)
	w.change(v, func() {
		v.Spec.Preflight = &v1alpha1.PreflightPolicy{Checks: []v1alpha1.PreflightCheck{{ID: "node-vm", Action: v1alpha1.PreflightDisabled, Reason: "the nodes of this test have no VMs"}}}
	})
	w.until("checked", func() bool { w.look(v); return isTrue(v, v1alpha1.ConditionPreflight) })
	require.True(t, isTrue(v, "Ready"), describe(v))
	require.Contains(t, cond(t, v, v1alpha1.ConditionPreflight).Message, "node-vm (Disabled): disabled: the nodes of this test have no VMs")
	before, generation := storageConfiguration(w)

	w.change(v, func() { v.Spec.StorageProvider.TopologyCategories = []string{"k8s-region", "k8s-zone"} })
	require.False(t, isTrue(w.look(v), "Ready"), "what is asked for waits for the checks")
	w.until("held back", func() bool { return cond(t, w.look(v), v1alpha1.ConditionPreflight).Status == metav1.ConditionFalse })
	require.False(t, isTrue(v, "Ready"))
	for _, want := range []string{"topology-category in vCenter vc-one", "no tag category of this name: k8s-region, k8s-zone", "govc tags.category.create -m=false 'k8s-region'"} {
		require.Contains(t, cond(t, v, "Ready").Message, want)
	}
	require.Equal(t, "BlockInstall", cond(t, v, v1alpha1.ConditionPreflight).Reason)
	require.Equal(t, "topology-category", v.Status.Preflight.Results[0].ID)
	require.True(t, v.Status.Preflight.Results[0].StopsDriver)
	require.True(t, isTrue(v, v1alpha1.ConditionCSI) && isTrue(v, v1alpha1.ConditionCPI), describe(v))
	unchanged := func() {
		t.Helper()
		conf, now := storageConfiguration(w)
		require.Equal(t, before, conf)
		require.Equal(t, generation, now)
	}
	unchanged()
	require.Equal(t, 1, strings.Count(w.events.all(), "topology-category in vc-one (BlockInstall): the vCenter has no"), w.events.all())

	// Repairs go on, and so does a password.
	states := get(w, &corev1.ConfigMap{}, "vmware-system-csi", "internal-feature-states.csi.vsphere.vmware.com")
	require.NoError(t, w.Delete(t.Context(), states))
	w.look(v)
	get(w, &corev1.ConfigMap{}, "vmware-system-csi", states.Name)
	creds := get(w, &corev1.Secret{}, w.ns, "vc-one-creds")
	w.change(creds, func() { creds.Data["password"] = []byte("secret-2") })
	w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.until("the controller has the new password", func() bool {
		w.look(v)
		_, now := storageConfiguration(w)
		return now > generation
	})
	conf, now := storageConfiguration(w)
	require.Equal(t, strings.ReplaceAll(before, "secret-1", "secret-2"), conf)
	before, generation = conf, now

	// An operator that was restarted knows it from the status, before it has asked anybody.
	w.r.Checks = inspection.New(inspection.Options{Client: w, Reader: w, Logins: &logins.Logins{}})
	require.False(t, isTrue(w.look(v), "Ready"))
	require.Contains(t, cond(t, v, "Ready").Message, "govc tags.category.create")
	unchanged()

	for _, category := range []string{"k8s-region", "k8s-zone"} {
		require.NoError(t, vc.Tag(t.Context(), category, "a", "/site/prod/east"))
	}
	w.r.Checks = checking(t, w, vc)
	w.change(v, func() { metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRequestedAt, "now") })
	w.until("it goes on", func() bool {
		w.play()
		w.look(v)
		conf, _ := storageConfiguration(w)
		return isTrue(v, v1alpha1.ConditionPreflight) && strings.Contains(conf, `topology-categories = "k8s-region,k8s-zone"`)
	})
	w.until("the controller is told", func() bool {
		w.look(v)
		_, now := storageConfiguration(w)
		return now > generation
	})
	require.Contains(t, w.events.all(), "topology-category in vc-one (BlockInstall): not any more")
}
