package vdoconfig_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// ours lists what is on the cluster under our label, of the kinds that matter.
func (w *world) ours() []inventory.Key {
	w.t.Helper()
	var all []inventory.Key
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Service"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		require.NoError(w.t, w.List(context.Background(), list, client.MatchingLabels{"app.kubernetes.io/managed-by": "vdo-operator"}))
		for _, o := range list.Items {
			all = append(all, inventory.Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()})
		}
	}
	return all
}

// Every n-th write fails, then the next pass goes on: nothing that is on the
// cluster is ever missing in the inventory, and the end is the same.
func TestAnInterruptedApplyLosesNothingAndGoesOn(t *testing.T) {
	w := start(t, pair)
	v := w.config("site")
	stop := 1
	broken := errors.New("connection reset by peer")
	w.fail = func(n int) error {
		if n < stop {
			return nil
		}
		stop = n + tier.Pick(20, 6)
		return broken
	}
	failures := 0
	for !isTrue(v, "Ready") {
		w.play()
		w.look(v)
		if c := meta.FindStatusCondition(v.Status.Conditions, "Ready"); c != nil && strings.Contains(c.Message, broken.Error()) {
			failures++
		}
		require.Less(t, failures, 100)
		mine := w.ours()
		if len(mine) == 0 {
			continue
		}
		inv := w.inventory(v)
		for _, k := range mine {
			_, there := inv.Get(k)
			require.True(t, there, "%s is on the cluster and not in the inventory", k)
		}
	}
	require.Greater(t, failures, tier.Pick(2, 5))
}

func TestAMissingRightIsNamedWithItsRemedyAndTheRestGoesOn(t *testing.T) {
	w := start(t, pair)
	w.deny = func(verb, name string) error {
		if verb == "apply" && name == "vsphere-cloud-controller-manager" {
			return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "daemonsets"}, name, errors.New("no"))
		}
		return nil
	}
	v := w.config("site")
	w.look(v) // the finalizer
	w.look(v)
	applied := cond(t, v, "Applied")
	require.Equal(t, "Forbidden", applied.Reason)
	require.Contains(t, applied.Message, "DaemonSet kube-system/vsphere-cloud-controller-manager")
	require.Contains(t, applied.Message, "apply the RBAC manifests")
	w.deny = nil
	w.ready(v)
}

func TestProblemsWithVCentersKeepTheFirstInstallationBackAllAtOnce(t *testing.T) {
	w := start(t, pair)
	vcc := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one")
	w.checked(vcc, metav1.ConditionFalse, "Unauthorized", "log in to vc1.site.example: wrong user or password")
	v := w.config("site")
	w.change(v, func() { v.Spec.CloudProvider.VsphereCloudConfigs = []string{"vc-one", "vc-missing"} })
	w.look(v) // the finalizer
	w.look(v)
	resolved := cond(t, v, "Resolved")
	require.Contains(t, resolved.Message, "wrong user or password")
	require.Contains(t, resolved.Message, "VsphereCloudConfig vc-missing")
	require.True(t, isTrue(v, "Stalled"))
	require.Empty(t, w.ours(), "nothing is installed")
	w.change(v, func() { v.Spec.CloudProvider.VsphereCloudConfigs = []string{"vc-one"} })
	w.checked(get(w, vcc, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.ready(v)
}

func TestUnverifiedCredentialsDoNotReplaceThoseThatWork(t *testing.T) {
	w, v := installed(t)
	conf := func() string {
		return string(get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret").Data["csi-vsphere.conf"])
	}
	hash := func() string {
		return get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller").Spec.Template.Annotations["vdo.vmware.com/config-hash"]
	}
	was, first := conf(), hash()
	require.Contains(t, was, "secret-1")
	require.NotEmpty(t, first)

	creds := get(w, &corev1.Secret{}, w.ns, "vc-one-creds")
	w.change(creds, func() { creds.Data["password"] = []byte("secret-2") })
	vcc := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one")
	w.checked(vcc, metav1.ConditionFalse, "Unauthorized", "wrong password")
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
	w.look(v)
	require.Equal(t, was, conf())
	require.Equal(t, first, hash())
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repairs go on
	require.Equal(t, "Unauthorized", cond(t, v, "Ready").Reason)

	w.checked(get(w, vcc, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.ready(v)
	require.Contains(t, conf(), "secret-2", "verified, they roll through")
	require.NotEqual(t, first, hash())
	require.NotContains(t, describe(v)+w.events.all(), "secret-", "no secret in status or events")
}

// A bundle that the trust policy of now does not accept, or that was not held against
// it, repairs what runs, and installs and upgrades nothing.
func TestWhatIsNotVerifiedInstallsAndUpgradesNothing(t *testing.T) {
	w := start(t, pair)
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	w.verified(b, metav1.ConditionFalse, "Untrusted", "key a is revoked")
	v := w.config("site")
	w.look(v) // the finalizer
	w.look(v)
	require.Empty(t, w.ours(), "nothing is installed")
	require.Equal(t, "Untrusted", cond(t, v, "Ready").Reason)
	require.Contains(t, cond(t, v, "Resolved").Message, "key a is revoked")
	w.verified(b, metav1.ConditionTrue, "Succeeded", "")
	w.ready(v)

	w.store.contents = bundleOf(t, strings.Fields(newer)...)
	for name, undo := range map[string]func(){
		"revoked":         func() { w.verified(b, metav1.ConditionFalse, "Untrusted", "key a is revoked") },
		"policy is gone":  func() { w.verified(b, metav1.ConditionUnknown, "NotFound", "the trust policy cannot be read") },
		"policy is newer": func() { w.change(b, func() { b.Spec.Suspend = !b.Spec.Suspend }) },
		"policy was edited, and nobody has looked yet": func() {
			b = get(w, b, w.ns, "site")
			w.verified(b, metav1.ConditionTrue, "Succeeded", "")
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "vdo-trust"}, Data: map[string]string{"another.pub": "x"}}
			w.create(cm)
		},
	} {
		undo()
		require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
		w.look(v)
		require.Equal(t, "3.5.1", driver(v, "csi").Wanted, name)
		require.False(t, isTrue(v, "Ready"), name)
		require.True(t, isTrue(v, "CSIReady"), name)
		get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repairs go on
	}
	w.verified(get(w, b, w.ns, "site"), metav1.ConditionTrue, "Succeeded", "")
	w.look(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Wanted)
}

// Between the change of a Secret and the vCenter's word on it there are passes: they
// see a VsphereCloudConfig that is Ready, of the Secret before. The new password
// reaches no driver, not even one whose configuration was deleted meanwhile.
func TestAPasswordThatWasNotCheckedYetReachesNoDriver(t *testing.T) {
	w, v := installed(t)
	all := func() string {
		var secrets corev1.SecretList
		require.NoError(t, w.List(context.Background(), &secrets))
		var text strings.Builder
		for _, s := range secrets.Items {
			if s.Namespace == "kube-system" || s.Namespace == "vmware-system-csi" {
				for _, value := range s.Data {
					text.Write(value)
				}
			}
		}
		return text.String()
	}
	creds := get(w, &corev1.Secret{}, w.ns, "vc-one-creds")
	w.change(creds, func() { creds.Data["password"] = []byte("unchecked-2") })
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret")))
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
	w.look(v)
	require.NotContains(t, all(), "unchecked-2")
	require.Contains(t, all(), "secret-1", "the cloud provider keeps what works")
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repairs go on
	require.Contains(t, cond(t, v, "Resolved").Message, "VsphereCloudConfig vc-one is being checked")
	require.False(t, isTrue(v, "Ready"))

	vcc := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one")
	w.change(vcc, func() { vcc.Spec.Suspend = true })
	w.look(v)
	require.NotContains(t, all(), "unchecked-2")
	require.Contains(t, cond(t, v, "Resolved").Message, "set its spec.suspend to false")

	w.checked(get(w, vcc, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.ready(v)
	require.Contains(t, all(), "unchecked-2")
	require.NotContains(t, all(), "secret-1")
}

// What a vCenter let in goes on being written while it is away: its silence is no refusal.
func TestVerifiedConfigurationIsRepairedWhileTheVCenterIsAway(t *testing.T) {
	w, v := installed(t)
	vcc := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one")
	verified := vcc.Status.VerifiedCredentials
	w.checked(vcc, metav1.ConditionFalse, "Unreachable", "no answer")
	vcc.Status.VerifiedCredentials = verified
	require.NoError(t, w.Status().Update(context.Background(), vcc))
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret")))
	w.look(v)
	require.Contains(t, string(get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret").Data["csi-vsphere.conf"]), "secret-1")
	require.True(t, isTrue(v, "Ready"), "for two minutes")
	require.Equal(t, "Unreachable", cond(t, v, "Reconciling").Reason)
	w.later(v)
	require.Equal(t, "Unreachable", cond(t, v, "Ready").Reason)
}

// Whatever is missing of what is known of a vCenter, the rest is repaired, and nothing
// made up in its place reaches the cluster.
func TestRepairsGoOnWhileCredentialsOrTheirVCenterAreMissing(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		missing      func(w *world) client.Object
	}{
		{"the Secret", "there is no Secret vc-one-creds", func(w *world) client.Object { return get(w, &corev1.Secret{}, w.ns, "vc-one-creds") }},
		{"the VsphereCloudConfig", "VsphereCloudConfig vc-one", func(w *world) client.Object { return get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, v := installed(t)
			conf := get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret").Data
			deployment := get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller").Spec
			require.NoError(t, w.Delete(context.Background(), c.missing(w)))
			require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
			require.NoError(t, w.Delete(context.Background(), get(w, &corev1.Secret{}, "kube-system", "vsphere-cloud-secret")))
			w.look(v)
			require.Contains(t, cond(t, v, "Resolved").Message, c.reason)
			get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
			require.Equal(t, conf, get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret").Data)
			require.Equal(t, deployment, get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller").Spec)
			err := w.Get(context.Background(), client.ObjectKey{Namespace: "kube-system", Name: "vsphere-cloud-secret"}, &corev1.Secret{})
			require.True(t, apierrors.IsNotFound(err), "no made-up account is given to a driver: %v", err)
		})
	}
}

// What makes no sense is held, and everything else goes on.
func TestMalformedInputHoldsWhatItIsInAndNothingElse(t *testing.T) {
	w, v := installed(t)
	conf := func() []any {
		return []any{get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret").Data, get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller").Spec}
	}
	creds := func() *corev1.Secret { return get(w, &corev1.Secret{}, w.ns, "vc-one-creds") }
	vcc := func() *v1alpha1.VsphereCloudConfig { return get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one") }
	pass := func() { w.checked(vcc(), metav1.ConditionTrue, "Succeeded", "") }
	user := []byte("vdo@vsphere.local")
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "ca"}, Data: map[string]string{"ca.crt": "no certificate"}})
	for _, c := range []struct {
		name, says  string
		spoil, mend func()
	}{
		{"a Secret without username", "VsphereCloudConfig vc-one", func() { s := creds(); w.change(s, func() { delete(s.Data, "username") }) },
			func() { s := creds(); w.change(s, func() { s.Data["username"] = user }) }},
		{"a user name that the storage driver cannot use", "VsphereCloudConfig vc-one", func() {
			s := creds()
			w.change(s, func() { s.Data["username"] = []byte("root") })
			pass()
		},
			func() { s := creds(); w.change(s, func() { s.Data["username"] = user }) }},
		{"a CA that is no PEM", "PEM", func() {
			o := vcc()
			w.change(o, func() { o.Spec.CA = &v1alpha1.KeyReference{ConfigMap: "ca"} })
			pass()
		}, func() { o := vcc(); w.change(o, func() { o.Spec.CA = nil }) }},
		{"one vCenter twice", "the same vCenter", func() {
			w.vcenter("vc-again", "vc1.site.example", "secret-1")
			w.change(v, func() { v.Spec.CloudProvider.VsphereCloudConfigs = []string{"vc-one", "vc-again"} })
		}, func() { w.change(v, func() { v.Spec.CloudProvider.VsphereCloudConfigs = []string{"vc-one"} }) }},
	} {
		was := conf()
		c.spoil()
		require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
		require.NoError(t, w.Delete(context.Background(), get(w, &corev1.ServiceAccount{}, "vmware-system-csi", "vsphere-csi-node")))
		w.look(v)
		require.False(t, isTrue(v, "Ready"), c.name)
		require.Contains(t, describe(v), c.says, c.name)
		get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
		get(w, &corev1.ServiceAccount{}, "vmware-system-csi", "vsphere-csi-node")
		require.Equal(t, was, conf(), c.name)
		c.mend()
		pass()
		w.ready(v)
	}
}

func TestSuspendedNothingIsWrittenAndHealthIsStillAssessed(t *testing.T) {
	w := start(t, pair)
	v := w.config("site")
	w.change(v, func() { v.Spec.Suspend = true })
	w.look(v)
	require.Zero(t, w.writes)
	require.Empty(t, v.Finalizers)
	require.NotEmpty(t, v.Status.Plan.Steps, "what would be done is listed")
	w.change(v, func() { v.Spec.Suspend = false })
	w.ready(v)
	w.change(v, func() { v.Spec.Suspend = true })
	require.NoError(t, w.Delete(context.Background(), get(w, &storagev1.CSIDriver{}, "", "csi.vsphere.vmware.com")))
	before := w.writes
	w.look(v)
	require.Equal(t, before, w.writes)
	require.Contains(t, cond(t, v, "CSIReady").Message, "CSIDriver csi.vsphere.vmware.com: is not there")
}

func TestDeletionIsRefusedWhileVolumesUseTheDriver(t *testing.T) {
	w, v := installed(t)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + w.ns}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.vsphere.vmware.com", VolumeHandle: "h"}}}}
	w.create(pv)
	t.Cleanup(func() { _ = w.Delete(context.Background(), pv) })
	require.NoError(t, w.Delete(context.Background(), v))
	w.look(v)
	ready := cond(t, v, "Ready")
	require.Equal(t, "Refused", ready.Reason)
	require.Contains(t, ready.Message, "1 PersistentVolumes and 0 VolumeAttachments")
	require.True(t, isTrue(v, "Reconciling"), "it goes on by itself once the volumes are gone")
	require.False(t, isTrue(v, "Stalled"))
	require.Contains(t, ready.Message, "spec.onDelete")
	get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller")

	w.change(v, func() { v.Spec.OnDelete = v1alpha1.DeleteRemove })
	w.until("removed", func() bool { w.pass(client.ObjectKeyFromObject(v)); return gone(w, v, w.ns, v.Name) })
	require.Empty(t, w.ours(), "everything goes, pull secrets and configuration too")
	require.True(t, gone(w, &corev1.ConfigMap{}, w.ns, inventory.VDOConfigs.ConfigMap(v.Name)))
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	get(w, crd, "", "volumesnapshots.snapshot.storage.k8s.io") // kinds stay: resources hang on them
	get(w, crd, "", "csinodetopologies.cns.vmware.com")
}

func TestOrphanedDriversStayAndAreTakenOverAgain(t *testing.T) {
	w, v := installed(t)
	uid := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID
	w.change(v, func() { v.Spec.OnDelete, v.Spec.StorageProvider.Webhook = v1alpha1.DeleteOrphan, true })
	w.ready(v)
	made := &corev1.ConfigMap{Data: map[string]string{"clusterID": "made-by-the-driver"}}
	made.Namespace, made.Name = "vmware-system-csi", "vsphere-csi-cluster-id"
	w.create(made)
	t.Cleanup(func() { require.NoError(t, w.Delete(context.Background(), made)) })
	require.NoError(t, w.Delete(context.Background(), v))
	secret, hook := get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-webhook-certs").UID, &admissionv1.ValidatingWebhookConfiguration{}
	get(w, hook, "", "validation.csi.vsphere.vmware.com")
	w.until("let go", func() bool { w.pass(client.ObjectKeyFromObject(v)); return gone(w, v, w.ns, v.Name) })
	require.Equal(t, uid, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID)
	require.Equal(t, secret, get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-webhook-certs").UID)
	require.True(t, gone(w, hook, "", hook.Name), "nobody renews its certificate, and it fails closed")
	require.Contains(t, w.events.all(), "ValidatingWebhookConfiguration validation.csi.vsphere.vmware.com was removed: without the operator its certificate expires")
	require.Contains(t, w.events.all(), `the storage driver's cluster id is "made-by-the-driver": if namespace`)
	again := w.config("again")
	w.change(again, func() { again.Spec.StorageProvider.Webhook = true })
	w.ready(again)
	require.Equal(t, "made-by-the-driver", w.inventory(again).Memory().ClusterID, "the reinstallation finds it")
	require.Equal(t, uid, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID)
	require.NotZero(t, w.inventory(again).Len())
	get(w, hook, "", hook.Name)

	w.change(again, func() { again.Spec.OnDelete = v1alpha1.DeleteOrphan })
	w.dropRecord(again)
	require.NoError(t, w.Delete(context.Background(), again))
	w.until("let go", func() bool { w.pass(client.ObjectKeyFromObject(again)); return gone(w, again, w.ns, again.Name) })
	require.True(t, gone(w, hook, "", hook.Name), "its labels say whose it is where no record does")

	again = w.config("again")
	w.change(again, func() { again.Spec.StorageProvider.Webhook = true })
	w.ready(again)

	w.change(again, func() {
		again.Spec.OnDelete, again.Spec.StorageProvider = v1alpha1.DeleteOrphan, nil
	})
	w.ready(again)
	w.advance(again, "its webhook is not registered any more", func() bool { return gone(w, hook, "", hook.Name) })
	require.Equal(t, uid, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").UID)
}

func TestResolvedIsUnknownWhereNothingWasChosen(t *testing.T) {
	w := start(t, pair)
	v := w.config("site")
	w.look(v) // the finalizer
	versions := w.r.Cluster.(*edge.Cluster).Versions
	w.r.Cluster.(*edge.Cluster).Versions = unreachable{}
	w.look(v)
	resolved := cond(t, v, "Resolved")
	require.Equal(t, metav1.ConditionUnknown, resolved.Status)
	require.Equal(t, "Unreachable", resolved.Reason)
	require.Contains(t, resolved.Message, "the version of the API server")
	w.r.Cluster.(*edge.Cluster).Versions = versions

	w.change(v, func() {
		v.Spec.StorageProvider, v.Spec.Drivers = nil, []v1alpha1.DriverPolicy{{Driver: "cpi", Policy: "disabled"}}
	})
	w.ready(v)
	require.Equal(t, "no driver is asked for", cond(t, v, "Resolved").Message)
}

// What a pass could not look at is not reported to run: the cloud provider was changed by
// hand, and nobody has seen what became of it.
func TestWhatCouldNotBeLookedAtIsUnknown(t *testing.T) {
	w, v := installed(t)
	c := w.r.Cluster.(*edge.Cluster)
	versions, reader := c.Versions, c.Reader

	c.Versions = unreachable{} // the drivers can be looked at all the same
	w.later(v)
	require.Equal(t, metav1.ConditionFalse, cond(t, v, "Ready").Status)
	require.Equal(t, metav1.ConditionTrue, cond(t, v, "CPIReady").Status)
	require.True(t, driver(v, "cpi").Ready)

	c.Versions, c.Reader = versions, reader
	w.ready(v)
	c.Reader = blind{reader}
	w.look(v)
	require.True(t, isTrue(v, "Ready"), "an API that does not answer has two minutes")
	require.Contains(t, cond(t, v, "Reconciling").Message, "connection reset by peer")
	for _, typ := range []string{"CPIReady", "CSIReady"} {
		require.Equal(t, metav1.ConditionUnknown, cond(t, v, typ).Status)
		require.Contains(t, cond(t, v, typ).Message, "it could not be looked at")
	}
	require.False(t, driver(v, "cpi").Ready)
	w.later(v)
	require.Equal(t, metav1.ConditionFalse, cond(t, v, "Ready").Status)
	c.Reader = reader
	w.ready(v)
}

// blind cannot list.
type blind struct{ client.Reader }

func (blind) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("connection reset by peer")
}

type unreachable struct{}

func (unreachable) ServerVersion() (*version.Info, error) {
	return nil, errors.New("connection refused")
}

func TestASecondVDOConfigIsStalled(t *testing.T) {
	w, first := installed(t)
	second := w.config("b-second")
	w.look(second)
	require.True(t, isTrue(second, "Stalled"))
	require.Contains(t, cond(t, second, "Ready").Message, "VDOConfig "+w.ns+"/site is active")
	require.Empty(t, second.Finalizers)
	require.NoError(t, w.Delete(context.Background(), second))
	w.look(first)
	require.True(t, isTrue(first, "Ready"))
}

func TestDriversOfOpenShiftAreAConflictAndTheCloudProviderGoesOn(t *testing.T) {
	w := start(t, pair)
	attach := true
	w.create(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.vsphere.vmware.com", Annotations: map[string]string{"csi.openshift.io/managed": ""}},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}})
	v := w.config("site")
	w.until("cloud provider healthy", func() bool { w.play(); w.look(v); return isTrue(v, "CPIReady") })
	applied := cond(t, v, "Applied")
	require.Equal(t, "Conflict", applied.Reason)
	require.Contains(t, applied.Message, "OpenShift manages it")
	require.Contains(t, applied.Message, "managementState: Removed")
	require.True(t, gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller"))
}

func TestDriversOfTheEarlierOperatorAreTakenOver(t *testing.T) {
	w := start(t, pair)
	old := w.daemonSet("vsphere-cloud-controller-manager", "1.34.0", map[string]string{"name": "vsphere-cloud-controller-manager"})
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cpi-global-secret"},
		StringData: map[string]string{"vc1.site.example.username": "vdo@vsphere.local", "vc1.site.example.password": "secret-1"}})
	t.Cleanup(func() {
		_ = w.Delete(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cpi-global-secret"}})
	})
	v := w.config("site")
	w.change(v, func() { v.Spec.StorageProvider = nil })
	w.until("it waits", func() bool { w.look(v); return v.Status.Candidate != nil })
	require.Empty(t, v.Status.Revision)
	require.True(t, gone(w, &corev1.ConfigMap{}, w.ns, "vdo-inventory-site"), "nothing is taken over")
	waits := func() {
		t.Helper()
		require.NotNil(t, v.Status.Candidate, describe(v))
		require.Equal(t, "DowngradeRefused", v.Status.Candidate.Reason, describe(v))
		require.Equal(t, "DowngradeRefused", cond(t, v, "Upgraded").Reason, describe(v))
		require.Contains(t, cond(t, v, "Ready").Message, "cpi@1.34.0 runs: add cpi@1.33.1 to spec.upgradePolicy.allowDowngrade to approve the downgrade")
	}
	waits()
	w.change(v, func() { v.Spec.StorageProvider = pairSpec().StorageProvider })
	w.until("the storage driver is installed", func() bool { w.play(); w.look(v); return isTrue(v, "CSIReady") && v.Status.Revision != "" })
	ds := get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	require.Equal(t, old.Generation, ds.Generation, "what is newer than the bundle's stays as it is")
	get(w, &corev1.Secret{}, "kube-system", "cpi-global-secret")
	require.Equal(t, "1.34.0", driver(v, "cpi").Version, "vdoctl upgrade approve tells by it what is a downgrade")
	waits()
	w.change(v, func() { v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{AllowDowngrade: []string{"cpi@1.33.1"}} })
	w.ready(v)
	ds = get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	require.Equal(t, old.UID, ds.UID, "taken over in place")
	require.Empty(t, ds.Spec.Template.Spec.NodeSelector, "what the new release does not have is gone")
	require.Contains(t, w.events.all(), "was taken over by cpi@1.33.1")
	w.until("the superfluous copy of the credentials is removed", func() bool {
		w.look(v)
		return gone(w, &corev1.Secret{}, "kube-system", "cpi-global-secret")
	})
}

func TestTheDriverThatIsNotAskedForAnyMoreIsRemoved(t *testing.T) {
	w, v := installed(t)
	w.change(v, func() { v.Spec.StorageProvider = nil })
	w.until("the storage driver is gone", func() bool {
		w.look(v)
		return gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller") && gone(w, &storagev1.CSIDriver{}, "", "csi.vsphere.vmware.com")
	})
	w.ready(v)
	require.Empty(t, driver(v, "csi").Driver)
	get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
}

// daemonSet makes one as the cloud provider's, the way a client-side tool does.
func (w *world) daemonSet(name, version string, labels map[string]string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"node-role.kubernetes.io/control-plane": ""},
			Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:   []corev1.Container{{Name: name, Image: "gcr.io/cloud-provider-vsphere/cpi/release/manager:v" + version}},
		}},
	}}
	require.NoError(w.t, w.Create(context.Background(), ds, client.FieldOwner("manager")))
	return ds
}
