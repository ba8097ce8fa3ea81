package vdoconfig

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// interlock is what an upgrade waits for because it changes just now, "" where nothing does.
func (s *site) interlock() string {
	var all []string
	if s.kubernetes.mixed != "" && !s.ignores("APIServers") {
		all = append(all, s.kubernetes.mixed+": drivers are upgraded once all of them are of one minor version")
	}
	wanted := s.wanted()
	for _, d := range slices.Sorted(maps.Keys(s.observed.Unread)) {
		if _, there := s.installed[d]; !there && !slices.Contains(wanted, d) {
			continue // it is nobody's business
		}
		all = append(all, "what runs of "+string(d)+" cannot be read: "+fault.Text(s.observed.Unread[d]))
	}
	return sentences(all...)
}

// interlocks is all that changes just now that an upgrade or an adoption of a driver waits for, or why it
// cannot come to the chosen nodes first. Nodes concern the drivers that each of them has pods of. On
// OpenShift nodes have to know where images are: that is asked once something is in force, as before
// nothing may be installed which the mirror set would be written for.
func (s *site) interlocks(cur revision.Record) map[matrix.Driver]string {
	nodes := ""
	if !s.ignores("Nodes") {
		nodes = upgrade.NodesChange(s.nodes(), s.now)
	}
	others := s.othersChange(len(cur.Releases) > 0)
	return map[matrix.Driver]string{
		matrix.CNI: sentences(s.interlock(), nodes, others), matrix.CPI: sentences(s.interlock(), others),
		matrix.SnapshotController: sentences(s.interlock(), others),
		matrix.CSI:                sentences(s.interlock(), nodes, others, s.canaryInterlock(cur)),
	}
}

// othersChange is what of that changes just now beside nodes.
func (s *site) othersChange(installed bool) string {
	var vcenters, pools string
	if !s.ignores("VCenters") {
		vcenters = upgrade.VCentersChange(s.seenVCenters(), s.now)
	}
	if installed && !s.ignores("MachineConfigPools") {
		pools = s.poolsChange()
	}
	return sentences(vcenters, pools)
}

// followHeld is why the other nodes may not follow the chosen ones now, "" where they may: what holds a
// start holds that too.
func (s *site) followHeld() string {
	policy, err := upgradePolicy(&s.config.Spec, false)
	if err != nil {
		return fault.Text(err)
	}
	nodes := ""
	if !s.ignores("Nodes") {
		nodes = upgrade.NodesChange(s.nodes(), s.now)
	}
	closed, _ := policy.Closed(s.now)
	return sentences(s.interlock(), nodes, s.othersChange(true), closed)
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
	return seen
}

// sentences joins those that are not empty.
func sentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}
