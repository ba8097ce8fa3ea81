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
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
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
		require.Equal(t, before["cp-1"], now["cp-1"], "no other node is touched")
		require.Equal(t, before["worker-2"], now["worker-2"], "no other node is touched")
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
	healthy := false
	w.advance(v, "the others follow", func() bool {
		if strings.Contains(w.events.all(), "CanaryHealthy") {
			return true
		}
		others()
		if c := v.Status.Canary; c != nil && c.HealthySince != nil {
			healthy = healthy || (c.Nodes == "1/1" && strings.Contains(c.Message, "to be healthy for 20m0s"))
		}
		return false
	})
	require.True(t, healthy, "the status told of it")
	w.advance(v, "all nodes have it", func() bool { return revisionNamed(v, failing).Outcome == string(revision.Healthy) })
	for node, uid := range w.nodePods() {
		require.NotEqual(t, before[node], uid, node)
	}
	require.Nil(t, v.Status.Canary)
	require.Equal(t, failing, v.Status.Revision)
}

// Where no node can be first, the upgrade waits and says why.
func TestAnUpgradeWaitsForNodesThatCanBeFirst(t *testing.T) {
	w, v := installed(t)
	was := v.Status.Revision
	w.change(v, func() {
		v.Spec.UpgradePolicy = canary(0, time.Hour)
		v.Spec.UpgradePolicy.Canary.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"role": "canary"}}
	})
	w.offer(nextDigest, newerPair()...)
	w.look(v)
	require.Equal(t, "Interlocked", v.Status.Candidate.Reason, describe(v))
	require.Contains(t, v.Status.Candidate.Message, "spec.upgradePolicy.canary.nodeSelector chooses no node")
	require.Equal(t, was, v.Status.Revision)
	w.change(v, func() {
		v.Spec.UpgradePolicy = canary(0, time.Hour)
		v.Spec.Drift = &v1alpha1.DriftPolicy{Ignore: []v1alpha1.DriftIgnore{{Kind: "DaemonSet", Paths: []string{"/spec/updateStrategy/rollingUpdate"}}}}
	})
	w.look(v)
	require.Contains(t, v.Status.Candidate.Message, "spec.drift.ignore leaves how the storage driver's pods are replaced to others")
	for name, c := range map[string]v1alpha1.Canary{
		"all nodes": {}, "a long soak": {NodeSelector: canary(0, 0).Canary.NodeSelector, Soak: metav1.Duration{Duration: 200 * time.Hour}},
	} {
		w.change(v, func() {})
		v.Spec.UpgradePolicy.Canary = &c
		require.True(t, apierrors.IsInvalid(w.Update(context.Background(), v, client.DryRunAll)), name)
	}
}

// nodePodImages are the images of the node plugin's pods that are there to stay, by node.
func (w *world) nodePodImages() map[string]string {
	w.t.Helper()
	var pods corev1.PodList
	require.NoError(w.t, w.List(context.Background(), &pods, client.InNamespace("vmware-system-csi"), client.MatchingLabels{"app": "vsphere-csi-node"}))
	all := map[string]string{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			for _, c := range p.Spec.Containers {
				all[p.Spec.NodeName] += c.Image + " "
			}
		}
	}
	return all
}

// join has a node join, until the test is over.
func (w *world) join(name string) {
	w.t.Helper()
	require.NoError(w.t, shared.c.AddNode(context.Background(), cluster.Node{Name: name}))
	w.t.Cleanup(func() {
		ctx := context.Background()
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})))
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}})))
		w.until("no pod is left on "+name, func() bool {
			var pods corev1.PodList
			require.NoError(w.t, w.List(ctx, &pods))
			left := 0
			for i := range pods.Items {
				if pods.Items[i].Spec.NodeName == name {
					left++
					require.NoError(w.t, client.IgnoreNotFound(w.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))))
				}
			}
			return left == 0
		})
	})
}

// While chosen nodes are first, a pod that is missing elsewhere is made anew from the newest
// template: on a node that joins, or where somebody deleted it. The status names these nodes,
// and a rollback puts the pods of before there too.
func TestNodesThatHaveNewPodsBesideTheChosenOnesAreNamedAndPutBack(t *testing.T) {
	w, v := installed(t)
	was, before := v.Status.Revision, w.nodePods()
	w.advance(v, "what the test before has left is healthy again", func() bool { return revisionNamed(v, was).Outcome == string(revision.Healthy) })
	image := w.nodePodImages()["cp-1"]
	w.change(v, func() { v.Spec.UpgradePolicy = canary(time.Hour, time.Hour) })
	w.offer(nextDigest, newerPair()...)
	w.until("the chosen node has it", func() bool {
		w.play()
		c := w.look(v).Status.Canary
		return c != nil && c.Nodes == "1/1"
	})
	require.Empty(t, v.Status.Canary.Others)
	require.Zero(t, v.Status.Canary.OtherNodes)

	w.join("worker-9")
	require.NoError(t, w.Delete(context.Background(), w.nodePodOn("worker-2")))
	w.until("the status names them", func() bool {
		w.play()
		return w.look(v).Status.Canary.OtherNodes == 2
	})
	require.Equal(t, []v1alpha1.CanaryNode{{Name: "worker-2", Reason: v1alpha1.CanaryPodReplaced}, {Name: "worker-9", Reason: v1alpha1.CanaryJoined}}, v.Status.Canary.Others)
	for _, text := range []string{v.Status.Canary.Message, cond(t, v, "Ready").Message} {
		require.Contains(t, text, "other nodes that have it already: worker-2 (its pod was deleted by others); worker-9 (it joined meanwhile)")
	}
	now := w.nodePodImages()
	require.NotEqual(t, image, now["worker-2"])
	require.NotEqual(t, image, now["worker-9"])
	require.Equal(t, image, now["cp-1"])

	w.change(v, func() { v.Spec.UpgradePolicy = canary(time.Hour, 4*time.Minute) })
	registration := get(w, &storagev1.CSINode{}, "", "worker-1")
	w.until("it is gone back from, since the driver does not register on the chosen node", func() bool {
		w.change(registration, func() { registration.Spec.Drivers = nil })
		w.ahead += 2 * time.Minute
		return w.look(v).Status.Revision == was
	})
	w.advance(v, "what was put back is healthy", func() bool { return revisionNamed(v, was).Outcome == string(revision.Healthy) })
	w.until("all nodes have the pods of before", func() bool {
		w.play()
		w.look(v)
		all := w.nodePodImages()
		for _, node := range []string{"cp-1", "worker-1", "worker-2", "worker-9"} {
			if all[node] != image {
				return false
			}
		}
		return isTrue(v, "CSIReady")
	})
	require.Equal(t, before["cp-1"], w.nodePods()["cp-1"], "it was not touched")
	require.Nil(t, v.Status.Canary)
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
