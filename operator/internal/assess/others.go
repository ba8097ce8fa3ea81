package assess

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// Other is a node that is not chosen to be first and has a new pod of the storage driver's
// node plugin: a DaemonSet that replaces no pods by itself still makes one wherever one is
// missing, and makes it from its newest template.
type Other struct {
	Node string
	// Joined tells why: the node came after the pods of before were made, and this is its
	// first one. Else its pod of before was deleted.
	Joined bool
}

// firstPod is how soon after it has joined a node gets its first pod.
const firstPod = 5 * time.Minute

// others are the nodes that have a new pod, but those that are chosen. Times are those of the
// API server, compared with each other alone.
func (o *Observed) others(chosen []string) []Other {
	made := map[string]time.Time{} // new pods, by node
	var before time.Time           // the youngest of the old ones
	for _, d := range o.nodePlugins() {
		selects, generation := selector(d.Spec.Selector), d.Annotations[appsv1.DeprecatedTemplateGeneration]
		for i := range o.Pods {
			p := o.Pods[i]
			if p.Namespace != d.Namespace || !selects.Matches(labelsOf(p)) || p.DeletionTimestamp != nil || generation == "" {
				continue
			}
			at := p.CreationTimestamp.Time
			switch node := p.Spec.NodeName; {
			case p.Labels[podGeneration] != generation && at.After(before):
				before = at
			case p.Labels[podGeneration] == generation && node != "" && !slices.Contains(chosen, node):
				made[node] = at
			}
		}
	}
	var all []Other
	for i := range o.Nodes {
		n := o.Nodes[i]
		if at, ok := made[n.Name]; ok {
			since := n.CreationTimestamp.Time
			all = append(all, Other{Node: n.Name, Joined: !since.Before(before) && at.Sub(since) < firstPod})
		}
	}
	slices.SortFunc(all, func(a, b Other) int { return cmp.Compare(a.Node, b.Node) })
	return all
}
