package assess

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// A pod that the scheduler finds no node for has no container whose state could tell:
// what the scheduler says of it is in a condition of the pod.

// unscheduled finds pods of a driver that have no place. A workload that is rolled out may
// lack pods: the storage driver's controller asks for more than a small control plane has
// nodes. For a while a place is only waited for, since a pod that goes leaves one.
func (in *Input) unscheduled(d matrix.Driver) []Finding {
	var all []Finding
	for _, w := range in.Workloads(d) {
		if in.RolledOut(w) {
			continue
		}
		found := map[string]*trouble{}
		for p := range in.podsOf(w) {
			if c := homeless(p); c != nil {
				in.noPlace(found, w, p, c)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(found)) {
			t := found[key]
			slices.Sort(t.nodes)
			if t.nodes = slices.Compact(t.nodes); t.nodes[0] != "" {
				t.finding.Message = fmt.Sprintf("its pod has no place on %s: %s", nodesNamed(t.nodes), key)
			}
			all = append(all, t.finding)
		}
	}
	return all
}

// homeless returns the condition of a pod that the scheduler found no node for.
func homeless(p *corev1.Pod) *corev1.PodCondition {
	if p.Spec.NodeName != "" || p.DeletionTimestamp != nil {
		return nil
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c
		}
	}
	return nil
}

// noPlace notes a pod without a place, under what the scheduler says is the cause.
func (in *Input) noPlace(found map[string]*trouble, w Workload, p *corev1.Pod, c *corev1.PodCondition) {
	cause, remedy := schedulingTrouble(c.Message)
	cause = in.quote(cause)
	t := found[cause]
	if t == nil {
		t = &trouble{finding: Finding{Driver: w.Driver, Subject: w.String(), Reason: fault.Incomplete, Remedy: remedy,
			Message: "its pods have no place: " + cause, Waiting: true}}
		found[cause] = t
	}
	t.finding.Waiting = t.finding.Waiting && in.Now.Sub(c.LastTransitionTime.Time) < Grace
	t.nodes = append(t.nodes, nodeOfDaemonPod(p))
}

// nodeOfDaemonPod returns the only node that a DaemonSet's pod may run on, or "".
func nodeOfDaemonPod(p *corev1.Pod) string {
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == "metadata.name" && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// causes are what the scheduler says of a node that a pod does not fit on, and what
// helps. Of several the first is named: another node's affinity is no trouble.
var causes = []struct {
	pattern *regexp.Regexp
	remedy  string
}{
	{regexp.MustCompile(`Too many pods`), "the node has as many pods as its kubelet takes (maxPods): move other pods away, or raise it"},
	{regexp.MustCompile(`Insufficient [\w./-]+`), "make room on the node: move other pods away or lower their requests"},
	{regexp.MustCompile(`node\(s\) had untolerated taint\(?s?\)? ?\{[^}]*\}`), "take the taint away, or have the driver tolerate it"},
	{regexp.MustCompile(`node\(s\) didn't have free ports for the requested pod ports`), "another program on that node listens on the port that the driver needs: see the pod's hostPort, and move the other one"},
	{regexp.MustCompile(`node\(s\) didn't match pod anti-affinity rules`), "each replica needs a node of its own: add control-plane nodes, or wait until a node is back"},
	{regexp.MustCompile(`node\(s\) were unschedulable`), "uncordon the node: `kubectl uncordon NAME`"},
	{regexp.MustCompile(`node\(s\) didn't match Pod's node affinity/selector`), "label a node as the pod demands: control-plane nodes need node-role.kubernetes.io/control-plane"},
}

// schedulingTrouble returns the cause in what the scheduler says, without the numbers of
// nodes, which change with every node that joins.
func schedulingTrouble(message string) (cause, remedy string) {
	for _, c := range causes {
		if found := c.pattern.FindString(message); found != "" {
			return found, c.remedy
		}
	}
	cause, _, _ = strings.Cut(message, "preemption:")
	return strings.TrimSpace(cause), "see `kubectl describe pod`"
}
