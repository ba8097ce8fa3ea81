package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// twins makes two VDOConfigs in one second, the one that sorts last first.
func (w *world) twins() (last, first *v1alpha1.VDOConfig) {
	w.t.Helper()
	for {
		last, first = w.config("z-installed"), w.config("a-later")
		if last.CreationTimestamp.Equal(&first.CreationTimestamp) {
			return last, first
		}
		require.NoError(w.t, w.Delete(context.Background(), last))
		require.NoError(w.t, w.Delete(context.Background(), first))
	}
}

// Of two VDOConfigs of one age the name would decide; who has installed something
// decides before that, and to delete the other one, as its status says, harms nothing.
func TestWhoInstalledStaysInForceAndDeletingTheOtherHarmsNothing(t *testing.T) {
	w := start(t, pair)
	installed, later := w.twins()
	// The other one is not seen yet when the first one installs.
	require.NoError(t, w.Delete(context.Background(), later))
	installed = w.ready(installed)
	later = &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: later.Name}, Spec: later.Spec}
	w.create(later)
	own := w.r.Client
	w.r.Client = sameAge{Client: own, at: installed.CreationTimestamp}

	was, writes := w.generations(), w.writes
	w.look(later)
	require.True(t, isTrue(later, "Stalled"))
	require.Contains(t, cond(t, later, "Ready").Message, "VDOConfig "+w.ns+"/z-installed is active")
	require.Contains(t, cond(t, later, "Ready").Message, "delete this one; what is installed stays")
	require.Empty(t, later.Finalizers)
	w.ready(installed)

	// Both may hold the finalizer, from a pass that did not see the other one, and an
	// earlier version of this program left inventories of both.
	w.change(later, func() { later.Finalizers = []string{"vdo.vmware.com/drivers"} })
	w.look(later)
	require.True(t, isTrue(later, "Stalled"))
	inv := get(w, &corev1.ConfigMap{}, w.ns, inventory.VDOConfigs.ConfigMap(installed.Name))
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: inventory.VDOConfigs.ConfigMap(later.Name)}, Data: inv.Data})
	w.change(later, func() { later.Spec.OnDelete = v1alpha1.DeleteRemove })
	w.r.Client = own // the older of the two then
	require.NoError(t, w.Delete(context.Background(), later))
	w.until("let go", func() bool { w.pass(client.ObjectKeyFromObject(later)); return gone(w, later, w.ns, later.Name) })
	require.Equal(t, was, w.generations(), "nothing was torn down")
	get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	get(w, &corev1.Secret{}, w.ns, "vdo-config-hash")
	w.ready(installed)
	require.LessOrEqual(t, w.writes-writes, 2, "the other one's inventory is all that was removed")
}

// sameAge shows all VDOConfigs as made at one time.
type sameAge struct {
	client.Client
	at metav1.Time
}

func (c sameAge) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := c.Client.List(ctx, list, opts...)
	if all, ok := list.(*v1alpha1.VDOConfigList); ok {
		for i := range all.Items {
			all.Items[i].CreationTimestamp = c.at
		}
	}
	return err
}

func (c sameAge) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, o, opts...)
	if v, ok := o.(*v1alpha1.VDOConfig); ok {
		v.CreationTimestamp = c.at
	}
	return err
}

// While something is there that is not wanted any more, Ready does not say that what
// is wanted is all there is, and the next pass follows at once.
func TestReadyWaitsForWhatIsNotWantedAnyMore(t *testing.T) {
	w, v := installed(t)
	w.change(v, func() { v.Spec.CloudProvider = nil })
	left := func() bool {
		return !gone(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager") || !gone(w, &corev1.Secret{}, "kube-system", "vsphere-cloud-secret")
	}
	key := types.NamespacedName{Namespace: w.ns, Name: v.Name}
	passes := 0
	w.until("the cloud provider is gone", func() bool {
		before := left()
		w.passes++
		result, err := w.r.Reconcile(context.Background(), reconcile.Request{NamespacedName: key})
		require.NoError(t, err)
		require.NoError(t, w.Get(context.Background(), key, v))
		if passes++; left() {
			require.False(t, isTrue(v, "Ready"), "pass %d\n%s", passes, describe(v))
			require.LessOrEqual(t, result.RequeueAfter.Seconds(), 1.0, "pass %d\n%s", passes, describe(v))
			require.Contains(t, cond(t, v, "Ready").Message, "no longer wanted")
		}
		return !before && !left()
	})
	w.ready(v)
	require.True(t, isTrue(v, "CSIReady"))
}
