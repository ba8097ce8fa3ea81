package vdoconfig_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is being taken down is not ready, whatever was said of it before, and Ready does not say that what is wanted
// is all there is. It is hurried but for what waits for somebody else's finalizer, and what is gone is not spoken of.
func TestWhatIsBeingRemovedIsSaid(t *testing.T) {
	w, v := installed(t)
	held := get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")
	w.change(held, func() { held.Finalizers = []string{"example.org/backup"} })
	t.Cleanup(func() { w.change(held, func() { held.Finalizers = nil }) })
	w.change(v, func() { v.Spec.CloudProvider = nil })
	hurried := false
	said := func(name, typ string) bool {
		w.look(v)
		require.False(t, isTrue(v, "Ready"), describe(v))
		hurried = hurried || w.next.RequeueAfter <= time.Second
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
	require.True(t, hurried)
	require.Contains(t, cond(t, v, "Ready").Message, "no longer wanted")
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
	w.until("it is not looked at each second", func() bool { w.look(v); return w.next.RequeueAfter >= 4*time.Second })
	w.ahead = time.Hour
	w.look(v)
	require.Greater(t, w.next.RequeueAfter, 30*time.Second, "and less and less often")
}
