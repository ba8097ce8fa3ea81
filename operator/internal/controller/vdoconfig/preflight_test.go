package vdoconfig_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/inspection"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
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

// A person who asks for the checks anew gets them, whenever the operator ends: the pass that
// was asked for is over before they are.
func TestChecksThatWereAskedForAreMadeAfterARestart(t *testing.T) {
	w, v := installed(t)
	asked := make(chan context.Context, 100)
	begin := time.Now()
	answering := func(hang bool) inspection.Options {
		return inspection.Options{Client: w, Reader: w, Logins: &logins.Logins{}, Now: func() time.Time { return begin },
			Inspect: func(ctx context.Context, _ vcenter.Target, _ vcenter.Ask) preflight.VCenter {
				if asked <- ctx; hang {
					<-ctx.Done()
				}
				return preflight.VCenter{Version: "8.0.3", Objects: map[preflight.Ref]preflight.Object{}}
			}}
	}
	handled := func(value string) func() bool {
		return func() bool { st := w.look(v).Status.Preflight; return st != nil && st.HandledReconcileAt == value }
	}
	annotate := func(value string) {
		w.change(v, func() { metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRequestedAt, value) })
	}
	inspector, kill := inspecting(t, answering(false))
	w.r.Checks = inspector
	annotate("first")
	w.until("checked", handled("first"))
	require.Len(t, asked, 1)
	kill()

	inspector, kill = inspecting(t, answering(true))
	w.r.Checks = inspector
	annotate("again")
	require.Equal(t, "again", w.look(v).Status.HandledReconcileAt, "the pass waits for no checks")
	w.until("a check is on its way", func() bool { return len(asked) == 2 })
	require.Equal(t, "first", w.look(v).Status.Preflight.HandledReconcileAt)
	kill()

	inspector, kill = inspecting(t, answering(false))
	t.Cleanup(kill)
	w.r.Checks = inspector
	w.until("what was asked for is checked", handled("again"))
	require.Len(t, asked, 3)
	w.look(v)
	require.Len(t, asked, 3, "nothing else is asked for")
}

// What was found before a roll-out ended may be over: it is looked for once more, at once.
func TestChecksAreMadeAnewWhenARollOutHasEnded(t *testing.T) {
	w, v := installed(t)
	w.advance(v, "what the test before has left is healthy again", func() bool {
		return revisionNamed(v, v.Status.Revision).Outcome == string(revision.Healthy)
	})
	was := v.Status.Revision
	var asked atomic.Int64
	begin := time.Now() // a clock that stands still: no interval ends
	inspector, kill := inspecting(t, inspection.Options{Client: w, Reader: w, Logins: &logins.Logins{}, Now: func() time.Time { return begin },
		Inspect: func(context.Context, vcenter.Target, vcenter.Ask) preflight.VCenter {
			asked.Add(1)
			return preflight.VCenter{Version: "8.0.3", Objects: map[preflight.Ref]preflight.Object{}}
		}})
	t.Cleanup(kill)
	w.r.Checks = inspector
	w.change(v, func() {
		v.Spec.Preflight = &v1alpha1.PreflightPolicy{Checks: []v1alpha1.PreflightCheck{{ID: "node-vm", Action: v1alpha1.PreflightDisabled, Reason: "the nodes of this test have no VMs"}}}
	})
	w.until("checked", func() bool { w.look(v); return isTrue(v, v1alpha1.ConditionPreflight) })
	w.look(v)
	require.EqualValues(t, 1, asked.Load())

	w.offer("sha256:"+strings.Repeat("7", 64), newerPair()...)
	w.ready(v)
	require.NotEqual(t, was, v.Status.Revision, describe(v))
	w.advance(v, "the upgrade is healthy", func() bool {
		return revisionNamed(v, v.Status.Revision).Outcome == string(revision.Healthy)
	})
	require.EqualValues(t, 1, asked.Load())
	require.LessOrEqual(t, w.next.RequeueAfter, reconciler.Soon)
	w.until("it is looked again", func() bool { w.look(v); return asked.Load() == 2 })
	for range 3 {
		w.look(v)
	}
	require.EqualValues(t, 2, asked.Load(), "once for each roll-out")
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
