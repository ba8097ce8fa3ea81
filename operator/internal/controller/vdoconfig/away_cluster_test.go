package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// takeAway has a node not be ready, and the node plugin's pod there not end, until it is given back.
func (w *world) takeAway(name string) (giveBack func()) {
	w.t.Helper()
	const held = "vdo.test/held"
	node, pod := get(w, &corev1.Node{}, "", name), w.nodePodOn(name)
	w.change(node, func() { node.Labels[cluster.LabelAway] = "" })
	w.change(pod, func() { pod.Finalizers = []string{held} })
	node = get(w, node, "", name)
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.Now()
		}
	}
	require.NoError(w.t, w.Status().Update(context.Background(), node))
	giveBack = func() {
		w.change(pod, func() { pod.Finalizers = nil })
		w.change(node, func() { delete(node.Labels, cluster.LabelAway) })
	}
	w.t.Cleanup(giveBack)
	return giveBack
}

// A node that is away neither stops nor fails an upgrade. It is named, and gets a
// new pod when it returns; then the DaemonSet is as its manifest says again.
func TestAnUpgradeGoesOnWithoutANodeThatIsAway(t *testing.T) {
	w, v := installed(t)
	was, before := v.Status.Revision, w.nodePods()
	healthy := func() bool {
		return v.Status.Revision == was && revisionNamed(v, was).Outcome == string(revision.Healthy)
	}
	w.advance(v, "what the test before has left is healthy again", healthy)
	unavailable := func() int {
		s := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Spec.UpdateStrategy
		return s.RollingUpdate.MaxUnavailable.IntValue()
	}
	const named = "node worker-2 is not ready and gets its new pod when it returns"
	giveBack := w.takeAway("worker-2")
	w.look(v)
	require.Equal(t, 1, unavailable(), "without a roll-out nothing is changed")

	w.offer(nextDigest, newerPair()...)
	w.advance(v, "the new revision is healthy", func() bool {
		return v.Status.Revision != was && revisionNamed(v, v.Status.Revision).Outcome == string(revision.Healthy)
	})
	require.Contains(t, cond(t, v, "CSIReady").Message, named, describe(v))
	require.Contains(t, driver(v, "csi").Message, named)
	require.True(t, isTrue(v, "Ready") && isTrue(v, "Upgraded"), describe(v))
	now := w.nodePods()
	for _, n := range []string{"cp-1", "worker-1"} {
		require.NotEqual(t, before[n], now[n], n)
	}
	writes := w.writes
	w.look(v)
	require.Equal(t, []int{writes, 2}, []int{w.writes, unavailable()}, "it stays so without further writes")

	giveBack()
	w.until("it has a new pod too", func() bool {
		w.play()
		w.look(v)
		return isTrue(v, "Ready") && unavailable() == 1 && w.nodePods()["worker-2"] != before["worker-2"]
	})
	require.NotContains(t, w.events.all(), "UpgradeFailed")
	require.Equal(t, "csi@3.7.3", cond(t, v, "CSIReady").Message)
	require.Equal(t, w.nodePodOn("cp-1").Spec.Containers[0].Image, w.nodePodOn("worker-2").Spec.Containers[0].Image)
}
