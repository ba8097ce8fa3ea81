package render

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
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
	for _, term := range items(terms) {
		term["matchExpressions"] = slices.Concat(list(term["matchExpressions"]), without)
	}
	required["nodeSelectorTerms"] = terms
}

// SkipNodeDeletion is the variable by which the cloud provider deletes no Node objects.
const SkipNodeDeletion = "SKIP_NODE_DELETION"

// exclusion is what spec.cloudProvider.acceptNodeDeletion names where the cloud provider may
// delete Node objects again.
const exclusion = "spec.excludedNodes"

// checkExclusion refuses to have no excluded nodes any more, unless that is accepted: the
// cloud provider would delete the Node objects of those that there are still. One that is made
// again is given a configuration first, by which it deletes none.
func (r *renderer) checkExclusion() error {
	if c := &r.in.Cluster; !c.KeepsNodes || c.UnsureOfNodes || len(r.in.Spec.ExcludedNodes) > 0 || r.acceptsDeletion() {
		return nil
	}
	return fault.Errorf(fault.Refused, "configure drivers", exclusion,
		"keep a label there; or, where all nodes of this cluster are on vSphere, in datacenters that it looks in, set spec.cloudProvider.acceptNodeDeletion: ["+exclusion+"]",
		"without excluded nodes the cloud provider would delete the Nodes that are not on vSphere")
}

func (r *renderer) acceptsDeletion() bool {
	return slices.Contains(r.in.Spec.Cloud().AcceptNodeDeletion, exclusion)
}

// keepForeignNodes stops the cloud provider from deleting Node objects where nodes are not
// on vSphere: it looks for their VMs and finds none.
func (r *renderer) keepForeignNodes(o *unstructured.Unstructured) {
	r.cloud.KeepsNodes = len(r.in.Spec.ExcludedNodes) > 0 || r.checkExclusion() != nil || (r.in.Cluster.UnsureOfNodes && !r.acceptsDeletion())
	if !r.cloud.KeepsNodes && !r.in.Cluster.AnotherVCenter {
		return
	}
	for _, c := range containers(podSpec(o)) {
		setVariable(c, SkipNodeDeletion, "true")
	}
	if !r.cloud.KeepsNodes { // which is remembered: another vCenter that was accepted is not
		r.note("another vCenter answers than until now: the cloud provider deletes no Node objects until it is accepted")
		return
	}
	r.note("spec.excludedNodes: the cloud provider deletes no Node objects; delete those of VMs that are gone by hand")
}
