package vdoconfig_test

import (
	"context"
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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

var nextDigest = "sha256:" + strings.Repeat("c", 64)

// offer has the DriverBundle accept another bundle, of these releases.
func (w *world) offer(digest string, releases ...string) {
	w.t.Helper()
	if w.store.of == nil {
		w.store.of = map[string]*bundle.Contents{}
	}
	w.store.of[digest] = bundleOf(w.t, releases...)
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	b.Status.Digest = digest
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
}

func newerPair() []string { return []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.7.3"} }

// refuse has the API server refuse what is created or changed of a resource while an expression does not hold, such as
// what is tried, until what it returns is called, or the test ends.
func (w *world) refuse(group, resource, unless, message string, try client.Object) (end func()) {
	w.t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: resource + "." + w.ns},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}}}}}},
			Validations: []admissionv1.Validation{{Expression: unless, Message: message}},
		}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	w.create(policy)
	w.create(binding)
	end = func() { w.discard(binding, policy) }
	w.t.Cleanup(end)
	w.until("the policy is in force", func() bool {
		err := w.Create(context.Background(), try.DeepCopyObject().(client.Object), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), message)
	})
	return end
}

// discard deletes what is there of some objects.
func (w *world) discard(all ...client.Object) {
	for _, o := range all {
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), o)))
	}
}

// advance does passes, each two minutes after the one before, until something holds.
func (w *world) advance(v *v1alpha1.VDOConfig, what string, holds func() bool) {
	w.t.Helper()
	w.until(what, func() bool {
		w.ahead += 2 * time.Minute
		w.play()
		w.look(v)
		return holds()
	})
}

// healthy waits until the storage driver's current revision is healthy, whatever the test before has left, and returns
// its name.
func (w *world) healthy(v *v1alpha1.VDOConfig) string {
	w.t.Helper()
	w.advance(v, "healthy", func() bool {
		return revisionNamed(v, current(v, "csi")).Outcome == string(revision.Healthy)
	})
	return current(v, "csi")
}

// current is the name of the current revision of a group.
func current(v *v1alpha1.VDOConfig, group string) string {
	for _, r := range v.Status.Revisions {
		if r.Current && r.Group == group {
			return r.Name
		}
	}
	return ""
}

func revisionNamed(v *v1alpha1.VDOConfig, name string) v1alpha1.RevisionStatus {
	for _, r := range v.Status.Revisions {
		if r.Name == name {
			return r
		}
	}
	return v1alpha1.RevisionStatus{}
}

// restart makes another operator, which remembers nothing but what a matrix of the same bytes says.
func (w *world) restart() {
	w.r = &vdoconfig.Reconciler{Client: w.r.Client, Reader: w.r.Reader, Store: w.r.Store, Trust: w.r.Trust,
		Recorder: w.r.Recorder, Now: w.r.Now, Cluster: w.r.Cluster}
}

// nodePods are the pods of the node plugin that are there to stay, by node.
func (w *world) nodePods() map[string]types.UID {
	w.t.Helper()
	var pods corev1.PodList
	require.NoError(w.t, w.List(context.Background(), &pods, client.InNamespace("vmware-system-csi"),
		client.MatchingLabels{"app": "vsphere-csi-node"}))
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
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "worker-1"}},
		Soak:         metav1.Duration{Duration: soak}}}
}

// An upgrade comes to the chosen node first. Where its pod does not come up there it is gone back from, and no other
// node was touched; where it does, the others follow after a while.
func TestAnUpgradeComesToChosenNodesFirst(t *testing.T) {
	w, v := installed(t)
	was, before := w.healthy(v), w.nodePods()
	require.Len(t, before, 3)
	digest := image.DigestOf([]byte(image.MustReference("registry.k8s.io/csi-vsphere/driver:v3.7.3").String())).String()
	let := w.refuse("", "pods", "!has(object.metadata.labels) || !('app' in object.metadata.labels) || object.metadata.labels['app'] != 'vsphere-csi-node' || "+
		"!object.spec.containers.exists(c, c.image.contains('"+digest+"'))", "it would crash",
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "probe", Labels: map[string]string{"app": "vsphere-csi-node"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x@" + digest}}}})
	w.change(v, func() { v.Spec.UpgradePolicy = canary(5*time.Minute, 4*time.Minute) })
	w.offer(nextDigest, newerPair()...)
	others := func() {
		t.Helper()
		now := w.nodePods()
		for _, node := range []string{"cp-1", "worker-2"} {
			require.Equal(t, before[node], now[node], "no other node is touched")
		}
	}
	failing, told := "", ""
	w.advance(v, "the upgrade failed on the chosen node, and is gone back from", func() bool {
		others()
		if c := v.Status.Canary; c != nil {
			failing, told = c.Revision, told+c.Nodes+" "+c.Message+"\n"
		}
		return failing != "" && current(v, "csi") == was && revisionNamed(v, was).Outcome == string(revision.Healthy)
	})
	w.until("the chosen node has its pod back", func() bool { w.play(); w.look(v); return isTrue(v, "CSIReady") })
	others()
	require.NotEqual(t, before["worker-1"], w.nodePods()["worker-1"], "it was tried there")
	require.Contains(t, told, "0/1 waiting for the chosen nodes (worker-1) to be healthy with revision "+failing)
	require.Contains(t, revisionNamed(v, failing).Reason, "on the nodes that have it first: worker-1 has no pod of it")
	require.Nil(t, v.Status.Canary)
	require.Equal(t, "RolledBack", cond(t, v, "Upgraded").Reason)
	require.Equal(t, "Failed", v.Status.Candidate.Gates[0].Reason)
	w.restart()
	w.writes = 0
	for range 3 {
		w.ahead += time.Hour
		w.look(v)
	}
	require.Zero(t, w.writes, "it is not tried again, and nothing is written")
	require.Equal(t, 1, strings.Count(w.events.all(), "RolledBack: Rolled back revision "+failing))
	strategy := get(w, &appsv1.DaemonSet{}, "vmware-system-csi", "vsphere-csi-node").Spec.UpdateStrategy.Type
	require.Equal(t, appsv1.RollingUpdateDaemonSetStrategyType, strategy)

	let()
	w.change(v, func() { v.Spec.UpgradePolicy = canary(20*time.Minute, time.Hour) })
	var named []v1alpha1.CanaryNode
	w.advance(v, "the others follow", func() bool {
		if c := v.Status.Canary; c != nil && c.HealthySince != nil && len(named) == 0 {
			if named = c.Others; w.nodePods()["worker-2"] == before["worker-2"] {
				others()
				w.discard(w.nodePodOn("worker-2"))
			}
		}
		return strings.Contains(w.events.all(), "CanaryHealthy")
	})
	require.Equal(t, []v1alpha1.CanaryNode{{Name: "worker-2", Reason: v1alpha1.CanaryPodReplaced}}, named)
	w.advance(v, "all nodes have it", func() bool { return revisionNamed(v, failing).Outcome == string(revision.Healthy) })
	for node, uid := range w.nodePods() {
		require.NotEqual(t, before[node], uid, node)
	}
	require.Nil(t, v.Status.Canary)
	require.Equal(t, failing, current(v, "csi"))
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

// takeAway has a node not be ready, and the node plugin's pod there not end, until it is given back.
func (w *world) takeAway(name string) (giveBack func()) {
	w.t.Helper()
	const held = "vdo.test/held"
	node, pod := get(w, &corev1.Node{}, "", name), w.nodePodOn(name)
	w.change(node, func() { node.Labels[cluster.LabelAway] = "" })
	w.change(pod, func() { pod.Finalizers = []string{held} })
	w.silence(get(w, node, "", name))
	giveBack = func() {
		w.change(pod, func() { pod.Finalizers = nil })
		w.change(node, func() { delete(node.Labels, cluster.LabelAway) })
	}
	w.t.Cleanup(giveBack)
	return giveBack
}

// silence has a node not be ready. A heartbeat that KWOK began before it saw that the node is away may come later.
func (w *world) silence(node *corev1.Node) {
	w.t.Helper()
	was := node.DeepCopy()
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionFalse {
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.Now()
			require.NoError(w.t, w.Status().Patch(context.Background(), node, client.MergeFrom(was)))
		}
	}
}

// A node that is away neither stops nor fails an upgrade. It is named, and gets a
// new pod when it returns; then the DaemonSet is as its manifest says again.
func TestAnUpgradeGoesOnWithoutANodeThatIsAway(t *testing.T) {
	w, v := installed(t)
	was, before := w.healthy(v), w.nodePods()
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
		return current(v, "csi") != was && revisionNamed(v, current(v, "csi")).Outcome == string(revision.Healthy)
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

// late is a cluster of which listing shows, while it is behind, that nothing is rolled out,
// which what is watched does not show yet.
type late struct {
	vdoconfig.Cluster
	behind bool
	listed int
}

func (l *late) ObserveListed(ctx context.Context) (assess.Observed, error) {
	l.listed++
	o, err := l.Cluster.ObserveListed(ctx)
	for i := range o.DaemonSets {
		if l.behind {
			o.DaemonSets[i].Status.NumberAvailable, o.DaemonSets[i].Status.UpdatedNumberScheduled = 0, 0
			o.DaemonSets[i].Status.DesiredNumberScheduled = 1
		}
	}
	return o, err
}

// Neither is anything removed nor a revision called healthy by what is watched alone: all
// of it is listed before.
func TestWhatIsNotTakenBackIsListedBefore(t *testing.T) {
	w, v := installed(t)
	was, l := w.healthy(v), &late{Cluster: w.r.Cluster, behind: true}
	w.r.Cluster = l
	w.store.contents = bundleOf(t, strings.Fields(newer)...)
	w.advance(v, "another revision is looked at", func() bool {
		is := current(v, "csi")
		require.False(t, is != was && revisionNamed(v, is).Outcome == "Healthy", "it is not rolled out")
		return is != was && l.listed >= 2
	})
	l.behind = false
	w.healthy(v)

	l.behind, l.listed = true, 0
	w.change(v, func() { v.Spec.StorageProvider = nil })
	there := func() bool { return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", csiController) }
	w.until("the removal is looked at", func() bool {
		w.play()
		w.look(v)
		require.True(t, there(), "nothing is removed: the cloud provider is not rolled out")
		return l.listed >= 2
	})
	l.behind = false
	w.until("the storage driver is gone", func() bool { w.look(v); return !there() })
}
