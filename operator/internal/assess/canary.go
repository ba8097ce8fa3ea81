package assess

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Canaries are the nodes that have new pods of the storage driver's node plugin first.
type Canaries struct {
	Nodes   []string // that are chosen, sorted
	Updated int      // of them, that have the new pod, and it is ready
	// Missing are chosen nodes that run no pod of the plugin, sorted.
	Missing []string
	// Replace is the pod to delete next, so that a new one takes its place; nil where none
	// is: all are new, or one that was replaced is not ready yet.
	Replace *Canary
	// Why is what they lack, "" where all of them that are ready have ready new pods.
	Why string
	// Others are nodes that are not chosen and have a new pod nevertheless, by name.
	Others []Other
}

// Canary is the pod of the node plugin on a chosen node.
type Canary struct {
	Node            string
	Namespace, Name string
	UID             types.UID
	state           canaryState
}

type canaryState int

const (
	canaryNone     canaryState = iota
	canaryOutdated             // of an earlier template
	canaryBusy                 // ends, or is new and not ready
	canaryNew
)

// Canaries looks at the chosen nodes. A node that is not ready counts when it is back, as
// long as there is another one, unless it has the new pod: that may be what ails it. One pod
// is replaced at a time, and only while the DaemonSet replaces none by itself.
func (o *Observed) Canaries(chosen labels.Selector) Canaries {
	var c Canaries
	pods := o.canaryPods()
	var lacks []string
	up, busy := 0, false
	for i := range o.Nodes {
		n := o.Nodes[i]
		if !chosen.Matches(labels.Set(n.Labels)) {
			continue
		}
		c.Nodes = append(c.Nodes, n.Name)
		p := pods[n.Name]
		if p.state == canaryNone {
			c.Missing = append(c.Missing, n.Name)
		}
		if !ready(n) {
			if p.state == canaryNew || p.state == canaryBusy {
				lacks, busy = append(lacks, n.Name+" is not ready, and has the new pod"), true
			}
			continue
		}
		up++
		switch p.state {
		case canaryNew:
			c.Updated++
			continue
		case canaryOutdated:
			lacks = append(lacks, n.Name+" has the pod of before")
			if c.Replace == nil || n.Name < c.Replace.Node {
				c.Replace = &p
			}
			continue
		case canaryNone:
			lacks = append(lacks, n.Name+" has no pod of it")
		case canaryBusy:
			lacks = append(lacks, "the pod on "+n.Name+" is not ready")
		}
		busy = true
	}
	c.Others = o.others(c.Nodes)
	slices.Sort(c.Nodes)
	slices.Sort(c.Missing)
	if busy || !o.heldBack() {
		c.Replace = nil
	}
	switch slices.Sort(lacks); {
	case len(c.Nodes) == 0:
		c.Why = "no node is chosen"
	case up == 0:
		c.Why = fmt.Sprintf("no chosen node is ready (%s)", few(c.Nodes, ", "))
	default:
		c.Why = strings.TrimSpace(few(lacks, "; "))
	}
	return c
}

// nodePlugins are the storage driver's DaemonSets.
func (o *Observed) nodePlugins() []*appsv1.DaemonSet {
	var all []*appsv1.DaemonSet
	for i := range o.DaemonSets {
		if w, ok := FromDaemonSet(&o.DaemonSets[i]); ok && !w.Foreign && w.Driver == matrix.CSI {
			all = append(all, &o.DaemonSets[i])
		}
	}
	return all
}

// heldBack tells whether the node plugin's DaemonSets are there and replace no pods by
// themselves.
func (o *Observed) heldBack() bool {
	all := o.nodePlugins()
	return len(all) > 0 && !slices.ContainsFunc(all, func(d *appsv1.DaemonSet) bool {
		return d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType || d.Status.ObservedGeneration < d.Generation
	})
}

// canaryPods are the node plugin's pods by node; of several on a node the one that is least new.
func (o *Observed) canaryPods() map[string]Canary {
	all := map[string]Canary{}
	for _, d := range o.nodePlugins() {
		chosen, generation := selector(d.Spec.Selector), d.Annotations[appsv1.DeprecatedTemplateGeneration]
		for i := range o.Pods {
			p := o.Pods[i]
			if p.Namespace != d.Namespace || !chosen.Matches(labelsOf(p)) || p.Spec.NodeName == "" {
				continue
			}
			is := Canary{Node: p.Spec.NodeName, Namespace: p.Namespace, Name: p.Name, UID: p.UID, state: canaryStateOf(p, generation)}
			if was, known := all[is.Node]; !known || (is.state == canaryBusy && was.state != canaryBusy) || (was.state == canaryNew && is.state == canaryOutdated) {
				all[is.Node] = is
			}
		}
	}
	return all
}

func canaryStateOf(p *corev1.Pod, generation string) canaryState {
	switch {
	case p.DeletionTimestamp != nil:
		return canaryBusy
	case generation == "" || p.Labels[podGeneration] != generation:
		return canaryOutdated
	case !podReady(p):
		return canaryBusy
	}
	return canaryNew
}
