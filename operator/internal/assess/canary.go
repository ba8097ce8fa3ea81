package assess

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Canaries are the nodes that get new pods of the storage driver's node plugin first.
type Canaries struct {
	Nodes   []string // the chosen ones, sorted
	Updated int      // the number of them with a ready new pod
	// Missing are canary nodes that run no pod of the plugin, sorted.
	Missing []string
	// Replace is the pod to delete next, so that a new one replaces it. It is nil if all are new, or while one that
	// was replaced is not ready.
	Replace *Canary
	// Why lists their outdated and missing pods, "" if all ready nodes have ready new pods.
	Why string
	// Idle is set if no chosen node shows how the pods do: none is chosen, or none is ready.
	Idle bool
	// Others are other nodes with a new pod, by name. A DaemonSet that replaces no pods by itself still creates
	// missing ones, from its newest template.
	Others []*corev1.Node
}

// Canary is the pod of the node plugin on a node.
type Canary struct {
	Node            string
	Namespace, Name string
	UID             types.UID
	state           canaryState
	made            time.Time
}

// canaryState is the state of a pod; if a node has several, the lowest counts.
type canaryState int

const (
	canaryNone     canaryState = iota
	canaryBusy                 // terminates, or is new and not ready
	canaryOutdated             // of an earlier template
	canaryNew
)

// Canaries returns the state of the canary nodes. A node that is not ready is skipped, unless it became so soon after
// it got the new pod, which may be the cause. One pod is replaced at a time, only if the DaemonSet replaces
// none by itself.
func (o *Observed) Canaries(chosen labels.Selector) Canaries {
	var c Canaries
	plugins := o.plugins()
	var lacks []string
	up, busy := 0, false
	for _, n := range o.Nodes {
		if !chosen.Matches(labels.Set(n.Labels)) {
			if plugins.made[n.Name] {
				c.Others = append(c.Others, n)
			}
			continue
		}
		c.Nodes = append(c.Nodes, n.Name)
		p := plugins.pods[n.Name]
		if p.state == canaryNone {
			c.Missing = append(c.Missing, n.Name)
		}
		if !ready(n) {
			isNew := p.state == canaryNew || p.state == canaryBusy
			if after := notReadySince(n).Sub(p.made); isNew && after >= 0 && after < blamed {
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
	slices.SortFunc(c.Others, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(c.Nodes)
	slices.Sort(c.Missing)
	if busy || !plugins.held {
		c.Replace = nil
	}
	switch slices.Sort(lacks); {
	case len(c.Nodes) == 0:
		c.Why, c.Idle = fmt.Sprintf("no node matches the canary selector %q", chosen.String()), true
	case up == 0:
		c.Why, c.Idle = fmt.Sprintf("no chosen node is ready (%s)", Few(c.Nodes, ", ")), len(lacks) == 0
	default:
		c.Why = Few(lacks, "; ")
	}
	return c
}

// plugins has the pods of the storage driver's DaemonSets.
type plugins struct {
	held bool              // the DaemonSets replace no pods by themselves
	pods map[string]Canary // by node; if several, the least new one
	made map[string]bool   // nodes with a new pod
}

func (o *Observed) plugins() plugins {
	all := plugins{pods: map[string]Canary{}, made: map[string]bool{}}
	sets := slices.DeleteFunc(o.Workloads(matrix.CSI), func(w Workload) bool { return w.Kind != "DaemonSet" })
	for i, w := range sets {
		all.held = (i == 0 || all.held) && w.onDelete && w.Observed
		for p := range o.podsOf(w) {
			node, state := p.Spec.NodeName, w.canaryState(p)
			if was, known := all.pods[node]; !known || state < was.state {
				all.pods[node] = Canary{Node: node, Namespace: p.Namespace, Name: p.Name, UID: p.UID, state: state,
					made: p.CreationTimestamp.Time}
			}
			all.made[node] = all.made[node] || (p.DeletionTimestamp == nil && w.updated(p))
		}
	}
	return all
}

func (w Workload) canaryState(p *corev1.Pod) canaryState {
	switch {
	case p.DeletionTimestamp != nil:
		return canaryBusy
	case !w.updated(p):
		return canaryOutdated
	case !podReady(p):
		return canaryBusy
	}
	return canaryNew
}
