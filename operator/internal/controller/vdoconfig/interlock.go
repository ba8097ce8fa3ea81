package vdoconfig

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// interlock is what an upgrade waits for because it changes just now, "" where nothing does.
func (s *site) interlock() string {
	var all []string
	if s.kubernetes.mixed != "" {
		all = append(all, s.kubernetes.mixed+": drivers are upgraded once all of them are of one version")
	}
	for _, d := range slices.Sorted(maps.Keys(s.observed.Unread)) {
		all = append(all, "what runs of "+string(d)+" cannot be read: "+fault.Text(s.observed.Unread[d]))
	}
	return sentences(all...)
}

// changes is what an upgrade to a revision waits for that ends by itself: nodes, where each of
// them gets other pods, vCenters, and on OpenShift that nodes know where its images are.
func (s *site) changes(to *revision.Revision) string {
	cur, installed := s.revisions.history.InForce()
	if !installed || !upgrade.Upgrades(cur.Revision, *to) {
		return ""
	}
	var nodes, vcenters, pools string
	if upgrade.OnNodes(cur, *to) && !s.ignores("Nodes") {
		nodes = upgrade.NodesChange(s.nodes(), s.now)
	}
	if !s.ignores("VCenters") {
		vcenters = upgrade.VCentersChange(s.seenVCenters(), s.now)
	}
	if !s.ignores("MachineConfigPools") {
		pools = s.poolsChange()
	}
	return sentences(nodes, vcenters, pools)
}

// ignores tells whether upgrades do not wait for something.
func (s *site) ignores(what string) bool {
	p := s.config.Spec.UpgradePolicy
	return p != nil && slices.Contains(p.IgnoreInterlocks, what)
}

// nodes are those that drivers are for.
func (s *site) nodes() []upgrade.Node {
	all := make([]upgrade.Node, 0, len(s.observed.Nodes))
	for i := range s.observed.Nodes {
		n := s.observed.Nodes[i]
		is := upgrade.Node{Name: n.Name, Kubelet: n.Status.NodeInfo.KubeletVersion, Cordoned: n.Spec.Unschedulable}
		for _, t := range n.Spec.Taints {
			if t.Key == corev1.TaintNodeUnschedulable && t.TimeAdded != nil {
				is.Since = t.TimeAdded.Time
			}
		}
		all = append(all, is)
	}
	return all
}

// seenVCenters are the vCenters as they are remembered after this pass.
func (s *site) seenVCenters() []revision.VCenter {
	versions := map[string]string{}
	names := vCenterNames(&s.spec)
	for _, name := range names {
		if v := s.vcenters[name].version; v != nil {
			versions[name] = v.Version.String()
		}
	}
	seen := upgrade.SeenVCenters(s.inventory.Memory().Seen, names, versions, s.at0())
	if c := s.config.Status.Candidate; s.historyLost() && c != nil && c.Reason == string(upgrade.Interlocked) {
		// since when they are of these versions is lost too, and may be what it waits for
		for i := range seen {
			seen[i].Changed = s.at0()
		}
	}
	return seen
}

// sentences joins those that are not empty.
func sentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}
