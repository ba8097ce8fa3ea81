package vdoconfig_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
)

// forbidden may not read an object of one name.
type forbidden struct {
	client.Reader
	name string
}

func (f forbidden) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if key.Name == f.name {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, key.Name, errors.New("no"))
	}
	return f.Reader.Get(ctx, key, o, opts...)
}

// What may not be read of one driver keeps that driver, and the VDOConfig; the others go.
func TestARemovalGoesOnBesideWhatMayNotBeRead(t *testing.T) {
	w, v := installed(t)
	c := w.r.Cluster.(*edge.Cluster)
	reader := c.Reader
	c.Reader = forbidden{reader, "vsphere-cloud-secret"}
	require.NoError(t, w.Delete(t.Context(), v))
	w.until("the storage driver is gone", func() bool {
		w.pass(client.ObjectKeyFromObject(v))
		return gone(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-controller") && gone(w, &corev1.ServiceAccount{}, "vmware-system-csi", "vsphere-csi-controller")
	})
	w.look(v)
	require.Contains(t, cond(t, v, "Ready").Message, "vsphere-cloud-secret")
	get(w, &appsv1.DaemonSet{}, "kube-system", "vsphere-cloud-controller-manager")
	c.Reader = reader
}

// A removal that waits for somebody else's finalizer is not looked at each second.
func TestARemovalThatCannotEndIsNotHurried(t *testing.T) {
	w := start(t, "cpi@1.33.1")
	v := w.config("site")
	w.change(v, func() { v.Spec.StorageProvider = nil })
	w.ready(v)
	held := get(w, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config")
	w.change(held, func() { held.Finalizers = []string{"example.org/backup"} })
	require.NoError(t, w.Delete(t.Context(), v))
	again := func() time.Duration {
		w.now = time.Now().Add(10*time.Minute + w.ahead)
		w.passes++
		result, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(v)})
		require.NoError(t, err)
		return result.RequeueAfter
	}
	w.until("only that one is left", func() bool {
		again()
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(held), held))
		return !held.DeletionTimestamp.IsZero()
	})
	again()
	require.GreaterOrEqual(t, again(), 4*time.Second)
	w.ahead = time.Hour
	require.Greater(t, again(), 30*time.Second, "and less and less often")
	w.ahead = 0
	w.change(held, func() { held.Finalizers = nil })
}

// What is being taken down is not ready, whatever was said of it before, and what is gone is not spoken of.
func TestWhatIsBeingRemovedIsSaid(t *testing.T) {
	w, v := installed(t)
	held := get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")
	w.change(held, func() { held.Finalizers = []string{"example.org/backup"} })
	t.Cleanup(func() { w.change(held, func() { held.Finalizers = nil }) })
	w.change(v, func() { v.Spec.CloudProvider = nil })
	said := func(name, typ string) bool {
		w.look(v)
		require.False(t, isTrue(v, "Ready"), describe(v))
		d := driver(v, name)
		if !strings.Contains(d.Message, "is being removed: ") {
			return false
		}
		require.False(t, d.Ready)
		require.Equal(t, "Removing", cond(t, v, typ).Reason)
		require.Equal(t, metav1.ConditionFalse, cond(t, v, typ).Status)
		return true
	}
	w.until("the cloud provider is said to be removed", func() bool { return said("cpi", "CPIReady") })
	require.True(t, isTrue(v, "CSIReady"), describe(v))
	require.True(t, driver(v, "csi").Ready)

	require.NoError(t, w.Delete(t.Context(), v))
	require.True(t, said("csi", "CSIReady"), describe(v))
	require.True(t, said("cpi", "CPIReady"), describe(v))
	require.Empty(t, v.Status.NodesReady)
	w.until("the storage driver is gone", func() bool {
		w.look(v)
		return driver(v, "csi").Driver == ""
	})
	require.NotContains(t, describe(v), "CSIReady")
	require.Contains(t, driver(v, "cpi").Message, "1 of its objects are left")
	require.Equal(t, "Removing", cond(t, v, "CPIReady").Reason)
	w.change(held, func() { held.Finalizers = nil })
}
