package render

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// nodesFor returns the names of the nodes that can hold a workload's pods, sorted. Node selector, required node
// affinity, lasting taints and cordons decide. Temporary taints (not ready, uninitialized) do not count, so that
// replicas do not follow them.
func (r *renderer) nodesFor(o *unstructured.Unstructured) []string {
	var spec corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(podSpec(o), &spec); err != nil {
		return nil // the lint has read it, and no later step changes its shape
	}
	var names []string
	reaches := reach(&spec)
	for i := range r.in.Cluster.Nodes {
		if n := &r.in.Cluster.Nodes[i]; !n.Unschedulable && reaches(n) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (r *renderer) windows() bool {
	return slices.ContainsFunc(r.in.Cluster.Nodes, func(n Node) bool {
		return n.Labels[corev1.LabelOSStable] == "windows"
	})
}

// reach returns whether pods fit a node by node selector, required node affinity and lasting taints, as in the
// scheduler. It parses these once, for many nodes.
func reach(spec *corev1.PodSpec) func(n *Node) bool {
	required := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
	log, node := klog.Background(), corev1.Node{}
	return func(n *Node) bool {
		node.Name, node.Labels = n.Name, n.Labels
		fits, err := required.Match(&node)
		_, repels := scheduling.FindMatchingUntoleratedTaint(log, n.Taints, spec.Tolerations, lasts, false)
		return err == nil && fits && !repels
	}
}

func lasts(t *corev1.Taint) bool {
	return t.Effect != corev1.TaintEffectPreferNoSchedule &&
		!strings.HasPrefix(t.Key, "node.kubernetes.io/") && !strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
}
