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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// nodePods are the pods of the node plugin that are there to stay, by node.
func (w *world) nodePods() map[string]types.UID {
	w.t.Helper()
	var pods corev1.PodList
	require.NoError(w.t, w.List(context.Background(), &pods, client.InNamespace("vmware-system-csi"), client.MatchingLabels{"app": "vsphere-csi-node"}))
	all := map[string]types.UID{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			all[p.Spec.NodeName] = p.UID
		}
	}
	return all
}

// canary asks for upgrades that come to worker-1 first.
func canary(soak, deadline time.Duration) *v1alpha1.UpgradePolicy {
	return &v1alpha1.UpgradePolicy{HealthDeadline: metav1.Duration{Duration: deadline}, Canary: &v1alpha1.Canary{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "worker-1"}}, Soak: metav1.Duration{Duration: soak}}}
}

// An upgrade comes to the chosen node first, though a write fails every now and then and the
// operator starts anew. Where its pod does not come up there it is gone back from, and no other
// node was touched; where it does, the others follow after a while.
func TestAnUpgradeComesToChosenNodesFirst(t *testing.T) {
	w, v := installed(t)
	was, before := v.Status.Revision, w.nodePods()
	w.advance(v, "what the test before has left is healthy again", func() bool { return revisionNamed(v, was).Outcome == string(revision.Healthy) })
	require.Len(t, before, 3)
	let := w.refuse("has(object.metadata.labels) && 'app' in object.metadata.labels && object.metadata.labels['app'] == 'vsphere-csi-node'")
	w.change(v, func() { v.Spec.UpgradePolicy = canary(5*time.Minute, 4*time.Minute) })
	w.offer(nextDigest, newerPair()...)
	stop, kills := w.writes+1, 0
	w.fail = func(n int) error {
		if n < stop {
			return nil
		}
		kills++
		// not at the same write of each pass; package model kills after each of an upgrade
		stop = n + tier.Pick(12, 3) + kills%7
		return errors.New("connection reset by peer")
	}
	others := func() {
		t.Helper()
		now := w.nodePods()
		for _, node := range []string{"cp-1", "worker-2"} {
			require.Equal(t, before[node], now[node], "no other node is touched")
		}
	}
	failing, told := "", ""
	w.advance(v, "the upgrade failed on the chosen node, and is gone back from", func() bool {
		w.restart()
		others()
		if c := v.Status.Canary; c != nil {
			failing, told = c.Revision, told+c.Nodes+" "+c.Message+"\n"
		}
		return failing != "" && v.Status.Revision == was && revisionNamed(v, was).Outcome == string(revision.Healthy)
	})
	w.fail = nil
	w.until("the chosen node has its pod back", func() bool { w.play(); w.look(v); return isTrue(v, "CSIReady") })
	others()
	require.NotEqual(t, before["worker-1"], w.nodePods()["worker-1"], "it was tried there")
	require.Contains(t, told, "0/1 waiting for the chosen nodes (worker-1) to be healthy with revision "+failing)
	require.Contains(t, revisionNamed(v, failing).Reason, "on the nodes that have it first: worker-1 has no pod of it")
	require.Nil(t, v.Status.Canary)
	require.Equal(t, appsv1.RollingUpdateDaemonSetStrategyType, get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Spec.UpdateStrategy.Type)

	let()
	w.change(v, func() { v.Spec.UpgradePolicy = canary(20*time.Minute, time.Hour) })
	var named []v1alpha1.CanaryNode
	w.advance(v, "the others follow", func() bool {
		if strings.Contains(w.events.all(), "CanaryHealthy") {
			return true
		}
		c := v.Status.Canary
		if len(named) > 0 || c == nil {
			return false
		}
		if named = c.Others; len(named) > 0 || c.HealthySince == nil {
			return false
		}
		if _, untouched := before["worker-2"]; untouched {
			others()
			require.Equal(t, "1/1", c.Nodes)
			w.discard(w.nodePodOn("worker-2"))
			delete(before, "worker-2")
		}
		return false
	})
	require.Equal(t, []v1alpha1.CanaryNode{{Name: "worker-2", Reason: v1alpha1.CanaryPodReplaced}}, named)
	w.advance(v, "all nodes have it", func() bool { return revisionNamed(v, failing).Outcome == string(revision.Healthy) })
	for node, uid := range w.nodePods() {
		require.NotEqual(t, before[node], uid, node)
	}
	require.Nil(t, v.Status.Canary)
	require.Equal(t, failing, v.Status.Revision)
}

func (w *world) nodePodOn(node string) *corev1.Pod {
	w.t.Helper()
	var pods corev1.PodList
	require.NoError(w.t, w.List(context.Background(), &pods, client.InNamespace("vmware-system-csi"), client.MatchingLabels{"app": "vsphere-csi-node"}))
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil && p.Spec.NodeName == node {
			return p
		}
	}
	w.t.Fatalf("no pod on %s", node)
	return nil
}
