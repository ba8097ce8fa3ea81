package model

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// nodePods are those of the node plugin that are there to stay, by node.
func (s *scenario) nodePods() map[string]*corev1.Pod {
	var pods corev1.PodList
	labels := client.MatchingLabels{"app": csiNode}
	require.NoError(s.t, s.List(s.ctx, &pods, client.InNamespace(csiNamespace), labels))
	all := map[string]*corev1.Pod{}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil {
			all[p.Spec.NodeName] = p
		}
	}
	return all
}

// replaced are the nodes whose pod is another one than before.
func (s *scenario) replaced(before map[string]*corev1.Pod) (all []string) {
	now := s.nodePods()
	for _, node := range s.names() {
		if now[node] == nil || now[node].UID != before[node].UID {
			all = append(all, node)
		}
	}
	return all
}

// onFirst has upgrades come to w-1 first.
func onFirst(deadline time.Duration) *v1alpha1.UpgradePolicy {
	first := metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "w-1"}}
	return &v1alpha1.UpgradePolicy{HealthDeadline: metav1.Duration{Duration: deadline},
		Canary: &v1alpha1.Canary{NodeSelector: first, Soak: metav1.Duration{Duration: 5 * time.Minute}}}
}

// An upgrade comes in stages, while drift is repaired at once, and to the chosen node first. Where its pod does not
// come up there it is gone back from, and no other node was touched; where it does, the others follow after a while.
func TestAnUpgradeComesToTheChosenNodesFirst(t *testing.T) {
	scene(t, installed, func(s *scenario) {
		was, before := s.healthy(), s.nodePods()
		require.Len(t, before, 4)
		run := s.templates()
		s.falls = func(x workload, template string) bool { return x.GetName() == csiNode && !run[template] }
		s.back = true
		s.configure(func(spec *asked) { spec.UpgradePolicy = onFirst(4 * time.Minute) })
		s.retag(bundleNext)
		s.pass(passBundle)
		s.byHand("cpi", 1)
		s.look()
		require.Equal(t, "3.7.3", s.driver("csi").Wanted)
		require.True(t, run[text(s.controller().Spec.Template)], "not before the cloud provider is rolled out")
		s.told("Updated: Changed DaemonSet kube-system/" + ccm + " of cpi@1.33.1: ")
		s.told("Repaired: Created ServiceAccount kube-system/cloud-controller-manager of cpi@1.33.1: was deleted")
		failing, told := "", ""
		s.until("the upgrade fails on the chosen node", func() bool {
			require.Subset(t, []string{"w-1"}, s.replaced(before), "no other node is touched")
			if c := s.v.Status.Rollout; c != nil {
				failing, told = c.Revision, told+c.Nodes+" "+c.Message+"\n"
			}
			return failing != "" && current(s.v).Name == was
		})
		require.Equal(t, was, s.healthy(), "it is gone back from")
		require.Equal(t, []string{"w-1"}, s.replaced(before))
		require.Contains(t, told, "0/1 waiting for the canary nodes (w-1) to be healthy with revision "+failing)
		failed := first(s.v.Status.Revisions, func(r v1alpha1.RevisionStatus) bool { return r.Name == failing })
		require.Contains(t, failed.Reason, "on the nodes that have it first: the pod on w-1 is not ready")
		require.Nil(t, s.v.Status.Rollout)
		require.Equal(t, "RolledBack", s.cond("Upgraded").Reason)
		require.Equal(t, "Failed", s.v.Status.Candidate.Gates[0].Reason)
		isOpen := func(r v1alpha1.RevisionStatus) bool { return r.Current && r.Outcome != string(revision.Healthy) }
		s.until("the chosen node has its pod back, and cpi is healthy", func() bool {
			return s.isTrue("CSIReady") && !slices.ContainsFunc(s.v.Status.Revisions, isOpen)
		})
		s.start()
		for range 3 {
			s.now = s.now.Add(time.Hour)
			require.Empty(t, s.writes(), "it is not tried again")
		}
		require.Equal(t, 1, strings.Count(s.events.String(), "RolledBack: Rolled back revision "+failing))
		strategy := s.daemonSet(csiNamespace, csiNode).Spec.UpdateStrategy.Type
		require.Equal(t, appsv1.RollingUpdateDaemonSetStrategyType, strategy)

		s.falls = nil
		s.configure(func(spec *asked) { spec.UpgradePolicy = onFirst(time.Hour) })
		before = s.nodePods()
		var named []v1alpha1.CanaryNode
		s.until("the others follow", func() bool {
			if c := s.v.Status.Rollout; c != nil && c.HealthySince != nil && len(named) == 0 {
				require.Subset(t, []string{"w-1", "w-2"}, s.replaced(before))
				if named = c.Others; len(s.replaced(before)) == 1 {
					s.stopPod(client.ObjectKeyFromObject(before["w-2"]))
				}
			}
			return strings.Contains(s.events.String(), "CanaryHealthy")
		})
		require.Equal(t, []v1alpha1.CanaryNode{{Name: "w-2", Reason: v1alpha1.CanaryPodReplaced}}, named)
		require.Equal(t, failing, s.healthy())
		require.Len(t, s.replaced(before), 4)
		require.Nil(t, s.v.Status.Rollout)
	})
}

// A node that is away neither stops nor fails an upgrade. It is named, and gets a new pod when it returns; then the
// DaemonSet is as its manifest says again.
func TestAnUpgradeGoesOnWithoutANodeThatIsAway(t *testing.T) {
	scene(t, installed, func(s *scenario) {
		was, before := s.healthy(), s.nodePods()
		unavailable := func() int {
			return s.daemonSet(csiNamespace, csiNode).Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue()
		}
		s.nodeEvent("w-2 is not ready")
		s.play()
		s.look()
		require.Equal(t, 1, unavailable(), "without a roll-out nothing is changed")

		s.retag(bundleNext)
		s.until("the new revision is healthy", func() bool {
			return current(s.v).Name != was && current(s.v).Outcome == string(revision.Healthy)
		})
		const named = "node w-2 is not ready and gets its new pod when it returns"
		require.Contains(t, s.cond("CSIReady").Message, named)
		require.Contains(t, s.driver("csi").Message, named)
		require.True(t, s.isTrue("Ready") && s.isTrue("Upgraded"))
		require.Subset(t, s.replaced(before), []string{"cp-1", "w-1", "w-3"})
		require.Empty(t, s.writes(), "it stays so")
		require.Equal(t, 2, unavailable())

		s.nodeEvent("all are ready")
		s.until("it has a new pod too", func() bool {
			return s.isTrue("Ready") && unavailable() == 1 && len(s.replaced(before)) == 4
		})
		const template = "pod-template-generation"
		require.Equal(t, s.nodePods()["w-1"].Labels[template], s.nodePods()["w-2"].Labels[template])
		require.NotContains(t, s.events.String(), "UpgradeFailed: ")
	})
}
