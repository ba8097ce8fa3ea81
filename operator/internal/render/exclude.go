package render

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// exclude keeps pods away from nodes that have one of the labels: each term of the node
// affinity, of which one has to hold, gets it as a further requirement.
func exclude(spec map[string]any, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	var without []any
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		without = append(without, map[string]any{"key": key, "operator": "NotIn", "values": []any{labels[key]}})
	}
	required := child(child(child(spec, "affinity"), "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution")
	terms := list(required["nodeSelectorTerms"])
	if len(terms) == 0 {
		terms = []any{map[string]any{}}
	}
	for _, t := range terms {
		if term, ok := t.(map[string]any); ok {
			term["matchExpressions"] = slices.Concat(list(term["matchExpressions"]), without)
		}
	}
	required["nodeSelectorTerms"] = terms
}

// keepForeignNodes stops the cloud provider from deleting Node objects where nodes are not
// on vSphere: it looks for their VMs and finds none.
func (r *renderer) keepForeignNodes(o *unstructured.Unstructured) {
	if len(r.in.Spec.ExcludedNodes) == 0 {
		return
	}
	for _, c := range containers(podSpec(o)) {
		setVariable(c, "SKIP_NODE_DELETION", "true")
	}
	r.note("spec.excludedNodes: the cloud provider deletes no Node objects; delete those of VMs that are gone by hand")
}
