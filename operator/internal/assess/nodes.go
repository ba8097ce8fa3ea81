package assess

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// nodes reports the work that drivers have not done for nodes, and which drivers have done theirs for no ready node.
func (in *Input) nodes() (all []Finding, unserved map[matrix.Driver]bool) {
	registered := map[string]*storagev1.CSINodeDriver{}
	for i := range in.CSINodes {
		for j := range in.CSINodes[i].Spec.Drivers {
			if in.CSINodes[i].Spec.Drivers[j].Name == drivers.CSIDriver {
				registered[in.CSINodes[i].Name] = &in.CSINodes[i].Spec.Drivers[j]
			}
		}
	}
	settled, unserved := map[matrix.Driver]bool{}, map[matrix.Driver]bool{}
	for _, d := range in.Requested {
		settled[d] = in.settled(d) // once: it reads every pod
	}
	reaches := in.reaches()
	add := func(n *corev1.Node, d matrix.Driver, found []Finding) {
		for i := range found {
			found[i].Away, found[i].Rolling = !ready(n), in.young(n)
		}
		if others, judged := unserved[d]; ready(n) {
			unserved[d] = len(found) > 0 && (others || !judged)
		}
		all = append(all, found...)
	}
	for _, n := range in.Nodes {
		if n.Labels["type"] == "virtual-kubelet" {
			continue
		}
		if slices.Contains(in.Requested, matrix.CPI) {
			add(n, matrix.CPI, in.cloudNode(n, settled[matrix.CPI]))
		}
		if slices.Contains(in.Requested, matrix.CSI) && reaches(n) {
			add(n, matrix.CSI, in.storageNode(n, registered[n.Name], settled[matrix.CSI]))
		}
	}
	return all, unserved
}

func (o *Observed) young(n *corev1.Node) bool {
	return o.Now.Sub(n.CreationTimestamp.Time).Abs() < Grace
}

// cloudNode checks that the cloud provider has set the providerID and removed the taint.
func (in *Input) cloudNode(n *corev1.Node, settled bool) []Finding {
	f := Finding{Driver: matrix.CPI, Node: n.Name, Subject: "Node " + n.Name, Reason: fault.Incomplete}
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == TaintUninitialized })
	switch id := n.Spec.ProviderID; {
	case id != "" && !strings.HasPrefix(id, "vsphere://"):
		f.Reason = fault.Conflict
		f.Message = fmt.Sprintf("has the providerID %q of another cloud provider, which cannot be changed", in.quote(id))
		f.Remedy = "turn the distribution's own cloud provider off, delete the Node and let it join again"
		return []Finding{f}
	case tainted:
		f.Message = "must wait for the cloud provider (taint " + TaintUninitialized + ")"
		f.Remedy = uninitialized
	case id == "":
		f.Message = "without providerID, and without a taint that would make the cloud provider set one"
		f.Remedy = "start its kubelet with --cloud-provider=external, delete the Node and let it join again; or set the taint " + TaintUninitialized + "=true:NoSchedule"
	default:
		return nil
	}
	f.Waiting = in.young(n) || !settled
	return []Finding{f}
}

// uninitialized lists the conditions for the cloud provider to initialize a node.
const uninitialized = "see the log of vsphere-cloud-controller-manager for this node: its VM has to be in a datacenter listed, " +
	"its guest name has to be the node's, VMware Tools have to run, and its addresses and tags have to fit spec.cloudProvider: " +
	"`vdoctl check --only vm-tools,topology-tag`"

// storageNode checks that the node plugin has registered on the node's CSINode.
func (in *Input) storageNode(n *corev1.Node, plugin *storagev1.CSINodeDriver, settled bool) []Finding {
	f := Finding{Driver: matrix.CSI, Node: n.Name, Subject: "Node " + n.Name, Reason: fault.Incomplete}
	topology := in.NodeTopologies[n.Name]
	switch {
	case topology != "":
		f.Message = "topology cannot be found out: " + in.topologyWords(topology)
		f.Remedy = "its VM has to be in a datacenter listed; tags of each topology category have to be on its host's chain; the account has to be able to read both"
		return []Finding{f}
	case plugin == nil && !ready(n):
		return nil // a node that is not ready registers when it returns
	case plugin == nil:
		f.Message = "did not register the storage driver"
		f.Remedy = "see the log of vsphere-csi-node on it; vsphere-csi-controller has to run first, and kubelet's folder has to be spec.storageProvider.customKubeletPath where it is not /var/lib/kubelet"
	case in.Topology && len(plugin.TopologyKeys) == 0:
		f.Message = "registered the storage driver without topology"
		f.Remedy = "check the tags of its host's chain, then restart its vsphere-csi-node pod"
	default:
		return nil
	}
	f.Waiting = in.young(n) || !settled
	return []Finding{f}
}

// topologyWords returns the quote of a topology error, made once for many nodes.
func (in *Input) topologyWords(s string) string {
	words, known := in.words[s]
	if !known {
		if in.words == nil {
			in.words = map[string]string{}
		}
		words = in.quote(withoutSecrets(in.hide(s)))
		in.words[s] = words
	}
	return words
}

// reaches returns whether a node plugin of the storage driver may run on a node; before there is one, each may.
func (in *Input) reaches() func(*corev1.Node) bool {
	var plugins []nodeaffinity.RequiredNodeAffinity
	for _, w := range in.Workloads(matrix.CSI) {
		if w.pod != nil {
			plugins = append(plugins, nodeaffinity.NewRequiredNodeAffinity(w.pod.NodeSelector, w.pod.Affinity))
		}
	}
	return func(n *corev1.Node) bool {
		return len(plugins) == 0 || slices.ContainsFunc(plugins, func(p nodeaffinity.RequiredNodeAffinity) bool {
			fits, err := p.Match(n)
			return err == nil && fits
		})
	}
}

// settled reports whether a driver is rolled out and its pods are older than [Grace], but for those on nodes that are
// young or gone. Until then, findings about its nodes are only Waiting.
func (in *Input) settled(d matrix.Driver) bool {
	all := in.Workloads(d)
	if len(all) == 0 {
		return false
	}
	old := map[string]bool{}
	for _, n := range in.Nodes {
		old[n.Name] = !in.young(n)
	}
	for _, w := range all {
		if !in.RolledOut(w) {
			return false
		}
		for p := range in.podsOf(w) {
			if old[p.Spec.NodeName] && in.Now.Sub(p.CreationTimestamp.Time) < Grace {
				return false
			}
		}
	}
	return true
}

// Canaries are the nodes that get new pods of the storage driver's node plugin first.
type Canaries struct {
	Nodes   []string // the chosen ones, sorted
	Updated int      // the number of them with a ready new pod
	// Missing are canary nodes that run no pod of the plugin, sorted.
	Missing []string
	// Replace is the pod to delete next, so that a new one replaces it. It is nil if all are new, or while one that
	// was replaced is not ready.
	Replace *corev1.Pod
	// Why lists their outdated and missing pods, "" if all ready nodes have ready new pods.
	Why string
	// Idle is set if no chosen node shows how the pods do: none is chosen, or none is ready.
	Idle bool
	// Others are other nodes with a new pod, by name. A DaemonSet that replaces no pods by itself still creates
	// missing ones, from its newest template.
	Others []*corev1.Node
}

// Canaries returns the state of the canary nodes. A node that is not ready is skipped, unless it became so soon after
// it got the new pod, which may be the cause. One pod is replaced at a time, only if the DaemonSet replaces
// none by itself.
func (o *Observed) Canaries(chosen labels.Selector) Canaries {
	var c Canaries
	plugins, held := o.plugins()
	var lacks []string
	up, busy := 0, false
	for _, n := range o.Nodes {
		p := plugins[n.Name]
		if !chosen.Matches(labels.Set(n.Labels)) {
			if p.young != nil && p.young.DeletionTimestamp == nil {
				c.Others = append(c.Others, n)
			}
			continue
		}
		c.Nodes = append(c.Nodes, n.Name)
		missing := p == plugin{}
		if missing {
			c.Missing = append(c.Missing, n.Name)
		}
		if !ready(n) {
			if p.young != nil && mayBreak(p.young, n) {
				lacks, busy = append(lacks, n.Name+" is not ready, and has the new pod"), true
			}
			continue
		}
		up++
		switch {
		case missing:
			lacks, busy = append(lacks, n.Name+" has no pod of it"), true
		case p.busy:
			lacks, busy = append(lacks, "the pod on "+n.Name+" is not ready"), true
		case p.old == nil:
			c.Updated++
		default:
			lacks = append(lacks, n.Name+" has the pod of before")
			if c.Replace == nil || n.Name < c.Replace.Spec.NodeName {
				c.Replace = p.old
			}
		}
	}
	slices.SortFunc(c.Others, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(c.Nodes)
	slices.Sort(c.Missing)
	if busy || !held {
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

// plugin is the node plugin on a node.
type plugin struct {
	old, young *corev1.Pod // of an earlier template, and of the current one
	busy       bool        // a pod terminates, or is new and not ready
}

// plugins returns the plugin by node, and whether its DaemonSets replace no pods by themselves.
func (o *Observed) plugins() (on map[string]plugin, held bool) {
	on, held = map[string]plugin{}, true
	for _, w := range o.Workloads(matrix.CSI) {
		if w.Kind != "DaemonSet" {
			continue
		}
		held = held && w.onDelete && w.Observed
		for p := range o.podsOf(w) {
			is := on[p.Spec.NodeName]
			switch {
			case w.updated(p):
				is.young, is.busy = p, is.busy || p.DeletionTimestamp != nil || !podReady(p)
			case p.DeletionTimestamp != nil:
				is.busy = true
			default:
				is.old = p
			}
			on[p.Spec.NodeName] = is
		}
	}
	return on, held
}
