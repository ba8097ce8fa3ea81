package vdoconfig_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// volume makes a volume of the storage driver.
func (w *world) volume() *corev1.PersistentVolume {
	w.t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + w.ns}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.vsphere.vmware.com", VolumeHandle: "h"}}}}
	w.create(pv)
	w.t.Cleanup(func() { w.dropVolume(pv) })
	return pv
}

// dropVolume removes it, and waits until it is gone.
func (w *world) dropVolume(pv *corev1.PersistentVolume) {
	w.t.Helper()
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), pv)))
	w.until("the volume is gone", func() bool { return gone(w, pv, "", pv.Name) })
}

// destroy removes objects of each driver, workloads among them.
func (w *world) destroy() {
	w.t.Helper()
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cloud-controller-manager"}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-csi-controller"}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-csi-node"}},
	} {
		require.NoError(w.t, w.Delete(context.Background(), o))
	}
}

// whole requires what destroy removed to be there again.
func (w *world) whole(why string) {
	w.t.Helper()
	require.False(w.t, gone(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager"), why)
	require.False(w.t, gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager"), why)
	require.False(w.t, gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller"), why)
	require.False(w.t, gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node"), why)
}

// Whatever holds an installation back, what is installed is repaired, whole
// drivers included, from the bundle that status.bundle names.
func TestRepairsGoOnWhateverBecomesOfTheBundle(t *testing.T) {
	second := "sha256:" + strings.Repeat("b", 64)
	for _, c := range []struct {
		name, says string
		do         func(w *world)
	}{
		{"a second DriverBundle", "name one in spec.bundle.name", func(w *world) {
			w.create(&v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "another"}, Spec: v1alpha1.DriverBundleSpec{Reference: repository + ":2"}})
		}},
		{"no DriverBundle", "create a DriverBundle", func(w *world) {
			require.NoError(w.t, w.Delete(context.Background(), get(w, &v1alpha1.DriverBundle{}, w.ns, "site")))
		}},
		{"no DriverBundle, and a status that was lost", "create a DriverBundle", func(w *world) {
			require.NoError(w.t, w.Delete(context.Background(), get(w, &v1alpha1.DriverBundle{}, w.ns, "site")))
			v := get(w, &v1alpha1.VDOConfig{}, w.ns, "site")
			v.Status = v1alpha1.VDOConfigStatus{}
			require.NoError(w.t, w.Status().Update(context.Background(), v))
		}},
		{"another digest that cannot be read", "no such manifest", func(w *world) {
			w.store.broken = second
			b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
			b.Status.Digest = second
			require.NoError(w.t, w.Status().Update(context.Background(), b))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, v := installed(t)
			was := v.Status.Bundle
			c.do(w)
			w.destroy()
			w.until("repaired", func() bool {
				w.look(v)
				return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller") && !gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
			})
			w.whole(c.name)
			require.Contains(t, cond(t, v, "Resolved").Message, c.says)
			require.False(t, isTrue(v, "Ready"))
			require.Equal(t, was, v.Status.Bundle)
			if !strings.HasSuffix(c.name, "lost") {
				require.Equal(t, "site", v.Status.DriverBundle)
			}
		})
	}
}

// A newer bundle need not hold what is installed. As long as that has to stay, it is
// repaired from the bundle that it came from, and that is the one in status.bundle.
func TestWhatANewerBundleDoesNotHoldIsRepairedFromTheOneBefore(t *testing.T) {
	w, v := installed(t)
	was := v.Status.Bundle
	next := "sha256:" + strings.Repeat("b", 64)
	w.store.of = map[string]*bundle.Contents{next: bundleOf(t, "cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.7.3")}
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	b.Status.Digest = next
	w.verified(b, metav1.ConditionFalse, "Untrusted", "key a is revoked")
	w.destroy()
	w.until("repaired", func() bool {
		w.look(v)
		return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller") && !gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	})
	w.whole("not in the newer bundle")
	require.Equal(t, "3.5.1", driver(v, "csi").Wanted)
	require.Equal(t, was, v.Status.Bundle)
	require.Contains(t, cond(t, v, "Resolved").Message, "key a is revoked")

	w.verified(get(w, b, w.ns, "site"), metav1.ConditionTrue, "Succeeded", "")
	w.ready(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Version)
	require.Equal(t, repository+"@"+next, v.Status.Bundle)
}

func TestAWorkloadThatIsMissingMakesItsConditionNotTrue(t *testing.T) {
	w, v := installed(t)
	w.store.broken = "sha256:" + strings.Repeat("a", 64)
	require.NoError(t, w.Delete(context.Background(), get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")))
	w.until("gone", func() bool { return gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager") })
	require.NoError(t, w.Delete(context.Background(), get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node")))
	w.until("gone", func() bool { return gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node") })
	w.look(v)
	for typ, name := range map[string]string{"CPIReady": "DaemonSet kube-system/vsphere-cloud-controller-manager", "CSIReady": "DaemonSet vmware-system-csi/vsphere-csi-node"} {
		require.Equal(t, metav1.ConditionFalse, cond(t, v, typ).Status, describe(v))
		require.Contains(t, cond(t, v, typ).Message, name+": was installed and is not there")
	}
}

func TestADeletionThatIsRefusedRepairsWhatStays(t *testing.T) {
	w, v := installed(t)
	pv := w.volume()
	require.NoError(t, w.Delete(context.Background(), v))
	w.look(v)
	w.destroy()
	w.until("repaired", func() bool {
		w.look(v)
		return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller") && !gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	})
	w.whole("refused")
	require.Equal(t, "Refused", cond(t, v, "Ready").Reason)
	require.True(t, isTrue(v, "Reconciling"))

	// The volumes go, the removal begins, and a volume appears in the middle of it.
	w.dropVolume(pv)
	w.until("the pods are gone", func() bool {
		w.look(v)
		return gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller") && gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node")
	})
	pv = w.volume()
	w.until("whole again", func() bool {
		w.look(v)
		return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller") && !gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node")
	})
	require.Equal(t, "csi", driver(v, "csi").Driver)
	require.Equal(t, "Refused", cond(t, v, "Ready").Reason)
	w.dropVolume(pv)
	w.until("removed", func() bool {
		w.pass(client.ObjectKeyFromObject(v))
		return gone(w, v, w.ns, v.Name)
	})
	require.Empty(t, w.ours())
}

// The storage driver that serves volumes is shown and cared for, as it was last asked
// for, though nobody asks for it any more.
func TestADriverThatServesVolumesIsShownAndRepaired(t *testing.T) {
	w := start(t, pair)
	v := w.config("site")
	w.change(v, func() { v.Spec.StorageProvider.CustomKubeletPath = "/var/lib/k0s/kubelet" })
	v = w.ready(v)
	w.volume()
	w.change(v, func() { v.Spec.StorageProvider = nil })
	w.look(v)
	was := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Spec.Template
	w.destroy()
	w.until("repaired", func() bool {
		w.play()
		w.look(v)
		return isTrue(v, "CSIReady") && isTrue(v, "CPIReady")
	})
	w.whole("serves volumes")
	require.Equal(t, was, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Spec.Template)
	require.Equal(t, "3.5.1", driver(v, "csi").Version)
	require.NotZero(t, w.inventory(v).Len())
	ready := cond(t, v, "Ready")
	require.Equal(t, "Refused", ready.Reason)
	require.Contains(t, ready.Message, "1 PersistentVolumes")
	require.True(t, isTrue(v, "Reconciling"))
}

func TestAnInvalidFieldKeepsWhatRunsAndRepairsIt(t *testing.T) {
	w, v := installed(t)
	conf := get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret").Data
	w.change(v, func() {
		v.Spec.StorageProvider.FileVolumes = &v1alpha1.FileVolumes{NetPermissions: []v1alpha1.NetPermission{{IPs: "1.2"}}}
	})
	w.destroy()
	w.until("repaired", func() bool {
		w.look(v)
		return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller") && !gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	})
	w.whole("invalid")
	require.Contains(t, cond(t, v, "Resolved").Message, "spec.storageProvider.fileVolumes.netPermissions")
	require.False(t, isTrue(v, "Ready"))
	require.Equal(t, conf, get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret").Data)
}

// With another cluster id the storage driver would lose sight of its volumes. Here it
// is one that an earlier installation configured, and nothing but the Secret tells it.
func TestTheClusterIDOutlivesTheSecret(t *testing.T) {
	w := start(t, pair)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vmware-system-csi"}}
	require.NoError(t, client.IgnoreAlreadyExists(w.Create(context.Background(), ns)))
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "vsphere-config-secret"},
		StringData: map[string]string{"csi-vsphere.conf": "[Global]\ncluster-id = \"one\"\n"}})
	v := w.ready(w.config("site"))
	conf := func() string {
		return string(get(w, &corev1.Secret{}, ns.Name, "vsphere-config-secret").Data["csi-vsphere.conf"])
	}
	was := conf()
	require.Contains(t, was, `cluster-id = "one"`)
	require.NoError(t, w.Delete(context.Background(), get(w, &corev1.Secret{}, ns.Name, "vsphere-config-secret")))
	w.ready(v)
	require.Equal(t, was, conf())
}

// While an inventory is lost a removal waits until it is made again.
func TestALostInventoryLeavesNothingBehind(t *testing.T) {
	w := start(t, pair)
	v := w.ready(w.config("site"))
	w.dropRecord(v)
	require.NoError(t, w.Delete(context.Background(), v))
	w.until("removed", func() bool {
		w.pass(client.ObjectKeyFromObject(v))
		return gone(w, v, w.ns, v.Name)
	})
	require.Empty(t, w.ours())
}

// What runs is taken over as it is where the inventory is lost, and nothing of it is removed.
func TestALostInventoryIsMadeAgain(t *testing.T) {
	w, v := installed(t)
	was, known := w.generations(), w.inventory(v)
	w.dropRecord(v)
	w.ready(v)
	require.Equal(t, was, w.generations())
	require.Equal(t, known.Len(), w.inventory(v).Len())
}

// With another key of configuration hashes nothing rolls, until the configuration is another one.
func TestWithAnotherHashKeyNothingRolls(t *testing.T) {
	w, v := installed(t)
	was := w.generations()
	for _, lose := range []func(s *corev1.Secret){
		func(s *corev1.Secret) { require.NoError(t, w.Delete(t.Context(), s)) },
		func(s *corev1.Secret) { w.change(s, func() { s.Data = nil }) },
	} {
		lose(get(w, &corev1.Secret{}, w.ns, "vdo-config-hash"))
		for range 2 {
			w.ready(v)
			require.Equal(t, was, w.generations(), "nothing rolls")
		}
		require.NotEmpty(t, get(w, &corev1.Secret{}, w.ns, "vdo-config-hash").Data)
	}
	w.change(v, func() { v.Spec.StorageProvider.ClusterDistribution = "Other" })
	w.until("it rolls", func() bool { w.play(); w.look(v); return !reflect.DeepEqual(was, w.generations()) })
	w.ready(v)
}

var errBroken = errors.New("no such manifest")
