package render

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/klog/v2"
)

// nodesFor returns the names of the nodes that can hold a workload's pods, sorted.
// It decides as the scheduler does by node selector, required node affinity,
// taints and cordons, except that taints which come and go by themselves (not
// ready, uninitialized) do not count: replicas shall not follow them up and down.
func (r *renderer) nodesFor(o *unstructured.Unstructured) []string {
	var spec corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(podSpec(o), &spec); err != nil {
		return nil // the lint has read it; nothing has changed its shape since
	}
	var names []string
	for _, n := range r.in.Cluster.Nodes {
		if !n.Unschedulable && selects(spec, n) && tolerates(spec.Tolerations, n.Taints) {
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

func selects(spec corev1.PodSpec, n Node) bool {
	if !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(n.Labels)) {
		return false
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil ||
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return termMatches(t, n) })
}

// termMatches: all requirements of a term must hold, and one without any selects nothing.
func termMatches(t corev1.NodeSelectorTerm, n Node) bool {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return false
	}
	holds := func(set labels.Set) func(corev1.NodeSelectorRequirement) bool {
		return func(req corev1.NodeSelectorRequirement) bool {
			r, err := labels.NewRequirement(req.Key, operator(req.Operator), req.Values)
			return err == nil && r.Matches(set)
		}
	}
	all := func(reqs []corev1.NodeSelectorRequirement, set labels.Set) bool {
		return !slices.ContainsFunc(reqs, func(r corev1.NodeSelectorRequirement) bool { return !holds(set)(r) })
	}
	return all(t.MatchExpressions, n.Labels) && all(t.MatchFields, labels.Set{"metadata.name": n.Name})
}

// operator turns In, NotIn, Exists, DoesNotExist, Gt, Lt into their forms in label
// selectors; an unknown one makes the requirement invalid.
func operator(op corev1.NodeSelectorOperator) selection.Operator {
	switch op {
	case corev1.NodeSelectorOpDoesNotExist:
		return selection.DoesNotExist
	case corev1.NodeSelectorOpGt:
		return selection.GreaterThan
	case corev1.NodeSelectorOpLt:
		return selection.LessThan
	}
	return selection.Operator(strings.ToLower(string(op)))
}

func tolerates(tolerations []corev1.Toleration, taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		return lasts(t) && !slices.ContainsFunc(tolerations, func(have corev1.Toleration) bool {
			return have.ToleratesTaint(klog.Background(), &t, false)
		})
	})
}

func lasts(t corev1.Taint) bool {
	return t.Effect != corev1.TaintEffectPreferNoSchedule &&
		!strings.HasPrefix(t.Key, "node.kubernetes.io/") && !strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
}
