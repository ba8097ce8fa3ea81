package render

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
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
	for _, n := range r.in.Cluster.Nodes {
		if !n.Spec.Unschedulable && reaches(n) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (r *renderer) windows() bool {
	return slices.ContainsFunc(r.in.Cluster.Nodes, func(n *corev1.Node) bool {
		return n.Labels[corev1.LabelOSStable] == "windows"
	})
}

// reach returns whether pods fit a node by node selector, required node affinity and lasting taints, as in the
// scheduler. It parses these once, for many nodes.
func reach(spec *corev1.PodSpec) func(n *corev1.Node) bool {
	required := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
	log := klog.Background()
	return func(n *corev1.Node) bool {
		fits, err := required.Match(n)
		_, repels := scheduling.FindMatchingUntoleratedTaint(log, n.Spec.Taints, spec.Tolerations, lasts, false)
		return err == nil && fits && !repels
	}
}

func lasts(t *corev1.Taint) bool {
	return t.Effect != corev1.TaintEffectPreferNoSchedule &&
		!strings.HasPrefix(t.Key, "node.kubernetes.io/") && !strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
}

// exclude keeps pods away from nodes with one of the labels. It adds this requirement to each term of the node
// affinity, since one term suffices.
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

// SkipNodeDeletion is the variable that stops the cloud provider from deleting Node objects.
const SkipNodeDeletion = "SKIP_NODE_DELETION"

// exclusion is the entry of spec.cloudProvider.acceptNodeDeletion that lets the cloud provider delete Node objects
// again.
const exclusion = "spec.excludedNodes"

// checkExclusion refuses to remove the last excluded nodes, unless that is accepted: the cloud provider would delete
// their Node objects. If the earlier state is unknown, keepForeignNodes keeps them instead.
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

// keepForeignNodes stops the cloud provider from deleting Node objects if nodes are not on vSphere, since it would
// not find their VMs.
func (r *renderer) keepForeignNodes(o *unstructured.Unstructured) {
	r.cloud.KeepsNodes = len(r.in.Spec.ExcludedNodes) > 0 || r.checkExclusion() != nil || (r.in.Cluster.UnsureOfNodes && !r.acceptsDeletion())
	if !r.cloud.KeepsNodes && !r.in.Cluster.AnotherVCenter {
		return
	}
	for _, c := range containers(podSpec(o)) {
		setVariable(c, SkipNodeDeletion, "true")
	}
	if !r.cloud.KeepsNodes { // the inventory stores KeepsNodes, but no vCenter that waits for acceptance
		r.note("another vCenter answers than until now: the cloud provider deletes no Node objects until it is accepted and checked")
		return
	}
	r.note("spec.excludedNodes: the cloud provider deletes no Node objects; delete those of VMs that are gone by hand")
}
