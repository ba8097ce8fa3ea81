package model

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// How pods are replaced is up to Kubernetes' own DaemonSet controller here, on nodes that KWOK answers for.
func TestUpgradesOfARealDaemonSet(t *testing.T) {
	tier.Later(t, tier.Peers)
	site := newSite(t)
	nodes := []cluster.Node{{Name: "cp-1", ControlPlane: true}, {Name: "w-1"}, {Name: "w-2"}}
	bare, c := site.cfg, cluster.New(t, cluster.Options{Nodes: nodes})
	site.cfg, site.real = c.Config(), true
	t.Cleanup(func() { site.cfg, site.real = bare, false })
	scene(t, installed, func(s *scenario) {
		s.comesToChosenNodesFirst()
		s.goesOnWithoutANodeThatIsAway()
	})
}

// nodePods are those of the node plugin that are there to stay, by node.
func (s *scenario) nodePods() map[string]*corev1.Pod {
	s.t.Helper()
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
	for _, node := range []string{"cp-1", "w-1", "w-2"} {
		if now[node] == nil || now[node].UID != before[node].UID {
			all = append(all, node)
		}
	}
	return all
}

// canary asks for upgrades that come to w-1 first.
func (s *scenario) canary(soak, deadline time.Duration) {
	s.configure(func(spec *asked) {
		first := metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "w-1"}}
		spec.UpgradePolicy = &v1alpha1.UpgradePolicy{HealthDeadline: metav1.Duration{Duration: deadline},
			Canary: &v1alpha1.Canary{NodeSelector: first, Soak: metav1.Duration{Duration: soak}}}
	})
}

// onlyWith has the API server refuse pods of the node plugin with images of another digest, until it is ended.
func (s *scenario) onlyWith(digest string) (end func()) {
	s.t.Helper()
	named := metav1.ObjectMeta{Name: "refused.by.the.test"}
	pods := admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": csiNode}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: pods}}}},
		Validations: []admissionv1.Validation{{Message: "it would crash",
			Expression: "object.spec.containers.all(c, c.image.endsWith('" + digest + "'))"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: named.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	s.put(policy, binding)
	probe := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	probe.Namespace, probe.Name, probe.Labels = metav1.NamespaceSystem, "probe", map[string]string{"app": csiNode}
	require.Eventually(s.t, func() bool {
		err := s.Create(s.ctx, probe.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "it would crash")
	}, patience, poll)
	return func() { s.drop(binding); s.drop(policy) }
}

// An upgrade comes to the chosen node first. Where its pod does not come up there it is gone back from, and no other
// node was touched; where it does, the others follow after a while.
func (s *scenario) comesToChosenNodesFirst() {
	t := s.t
	was, before := s.healthy(), s.nodePods()
	require.Len(t, before, 3)
	_, digest, _ := strings.Cut(before["w-1"].Spec.Containers[0].Image, "@")
	let := s.onlyWith(digest)
	s.canary(5*time.Minute, 4*time.Minute)
	s.retag(bundleNext)
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
	require.Contains(t, failed.Reason, "on the nodes that have it first: w-1 has no pod of it")
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

	let()
	s.canary(5*time.Minute, time.Hour)
	before = s.nodePods()
	var named []v1alpha1.CanaryNode
	s.until("the others follow", func() bool {
		if c := s.v.Status.Rollout; c != nil && c.HealthySince != nil && len(named) == 0 {
			require.Subset(t, []string{"w-1", "w-2"}, s.replaced(before))
			if named = c.Others; len(s.replaced(before)) == 1 {
				s.drop(before["w-2"])
			}
		}
		return strings.Contains(s.events.String(), "CanaryHealthy")
	})
	require.Equal(t, []v1alpha1.CanaryNode{{Name: "w-2", Reason: v1alpha1.CanaryPodReplaced}}, named)
	require.Equal(t, failing, s.healthy())
	require.Len(t, s.replaced(before), 3)
	require.Nil(t, s.v.Status.Rollout)
}

// silence has KWOK's node not be ready. A heartbeat that KWOK began before it saw that the node is away may come later.
func (w *world) silence(name string) {
	var node corev1.Node
	w.must(w.Get(w.ctx, types.NamespacedName{Name: name}, &node))
	was := node.DeepCopy()
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionFalse {
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.Now()
			w.must(w.Status().Patch(w.ctx, &node, client.MergeFrom(was)))
		}
	}
}

// A node that is away neither stops nor fails an upgrade. It is named, and gets a new pod when it returns; then the
// DaemonSet is as its manifest says again.
func (s *scenario) goesOnWithoutANodeThatIsAway() {
	t := s.t
	s.configure(func(spec *asked) { spec.UpgradePolicy = nil })
	s.ready()
	was, before := s.healthy(), s.nodePods()
	unavailable := func() int {
		return s.daemonSet(csiNamespace, csiNode).Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue()
	}
	node, pod := get(s, &corev1.Node{}, "", "w-2"), before["w-2"]
	s.change(node, func() { node.Labels[cluster.LabelAway] = "" })
	s.change(pod, func() { pod.Finalizers = []string{"vdo.test/held"} })
	s.away = "w-2"
	s.play()
	s.look()
	require.Equal(t, 1, unavailable(), "without a roll-out nothing is changed")

	s.site.push(t, "third", "release", mirror.Drivers{Releases: append(pair[:2:2], "csi@3.7.3"), Seed: 3})
	s.retag("third")
	s.until("the new revision is healthy", func() bool {
		return current(s.v).Name != was && current(s.v).Outcome == string(revision.Healthy)
	})
	const named = "node w-2 is not ready and gets its new pod when it returns"
	require.Contains(t, s.cond("CSIReady").Message, named)
	require.Contains(t, s.driver("csi").Message, named)
	require.True(t, s.isTrue("Ready") && s.isTrue("Upgraded"))
	require.Subset(t, s.replaced(before), []string{"cp-1", "w-1"})
	require.Empty(t, s.writes(), "it stays so")
	require.Equal(t, 2, unavailable())

	s.away = ""
	s.change(pod, func() { pod.Finalizers = nil })
	s.change(node, func() { delete(node.Labels, cluster.LabelAway) })
	s.until("it has a new pod too", func() bool {
		return s.isTrue("Ready") && unavailable() == 1 && len(s.replaced(before)) == 3
	})
	require.Equal(t, 1, strings.Count(s.events.String(), "UpgradeFailed: "), "that of the canary")
	pods := s.nodePods()
	require.Equal(t, pods["cp-1"].Spec.Containers[0].Image, pods["w-2"].Spec.Containers[0].Image)
}
