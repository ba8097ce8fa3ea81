package vdoconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// These are the gates of a site; package decide has the table of all gates.

// awaited returns the wait for a vCenter or bundle before its first check.
func awaited(what string) error {
	return &fault.Error{Reason: fault.Incomplete, Op: "install", Subject: "drivers", Err: errors.New(what)}
}

// groupGates returns why a requested driver may not change. Its vCenter is unverified, a check gates it or has not run,
// or another driver of its group is gated. It is pure.
func (s *decided) groupGates() map[matrix.Driver]error { return s.gatedBy(nil) }

// gates returns these, and the rules for upgrades. It is pure.
func (s *decided) gates() map[matrix.Driver]error { return s.gatedBy(s.upgrades.gates) }

func (s *decided) gatedBy(rules map[revision.Group]error) map[matrix.Driver]error {
	if s.ungated {
		return nil
	}
	groups := maps.Clone(rules)
	for _, h := range s.driverHolds() {
		groups = joined(groups, revision.GroupOf(h.driver), h.err)
	}
	if why, needs := groups[matrix.CPI], s.needsCloud(); why != nil && needs != "" {
		groups = joined(groups, matrix.CSI, fmt.Errorf("%s: %w", needs, why))
	}
	var all map[matrix.Driver]error
	for _, d := range s.requested() {
		if why := groups[revision.GroupOf(d)]; why != nil {
			all = joined(all, d, why)
		}
	}
	return all
}

// hold is why a driver may not change, apart from its group.
type hold struct {
	driver matrix.Driver
	err    error
	waits  string // an open check without a fault; err then says so
	check  bool   // a check is why; it gates nothing while the drivers match the request
}

// driverHolds returns the holds of requested drivers: of their vCenters, and of checks.
func (s *facts) driverHolds() []hold {
	var all []hold
	add := func(h hold) {
		if h.err == nil && h.waits != "" {
			h.err = awaited(h.waits)
		}
		if h.err != nil {
			all = append(all, h)
		}
	}
	for _, d := range s.requested() {
		for _, name := range vCentersOf(d, &s.config.Spec) {
			add(hold{driver: d, err: s.vcenters[name].gated, waits: s.vcenters[name].waiting})
		}
		if s.checks.pending && slices.Contains(checked, d) {
			add(hold{driver: d, waits: beingChecked, check: true})
		}
		add(hold{driver: d, err: s.checks.gates[d].Err, check: true})
	}
	return all
}

// needsCloud returns why the desired storage driver cannot work with the present cloud provider, "" if it can. It takes
// its nodes' identity from the provider IDs that one sets, and may require one version.
func (s *decided) needsCloud() string {
	running := s.running()
	_, storage := running[matrix.CSI]
	cloud, exists := running[matrix.CPI]
	needs, exact := s.desired.needs[matrix.CPI]
	switch {
	case !exists && !storage:
		return "it needs the provider IDs of nodes, which cpi sets, and that is not installed"
	case exact && !needs.Equal(cloud):
		return fmt.Sprintf("it needs cpi@%s, and cpi stays what it is", needs)
	}
	return ""
}

// unsure returns what an upgrade of any driver waits for, "" if nothing: API servers of several minors, or unreadable
// objects.
func (s *facts) unsure() string {
	var all []string
	if s.kubernetes.mixed != "" && !s.ignores("APIServers") {
		all = append(all, s.kubernetes.mixed+": drivers are upgraded once all of them are of one minor version")
	}
	requested := s.requested()
	for _, d := range slices.Sorted(maps.Keys(s.observed.Unread)) {
		if _, exists := s.site.Installed[d]; !exists && !slices.Contains(requested, d) {
			continue // no driver depends on it
		}
		all = append(all, "the operator cannot read the workloads of "+string(d)+": "+fault.Text(s.observed.Unread[d]))
	}
	return sentences(all...)
}

// interlock returns the changes in progress that an upgrade or adoption of a group waits for, "" if none. Or it returns
// why an upgrade cannot come to canary nodes first. On OpenShift nodes must know where images are: that counts after
// the first installation, since before it no mirror set is written.
func (s *decided) interlock(group revision.Group) string {
	others := s.othersChange(len(s.upgrades.history.InForce()) > 0)
	switch group {
	case matrix.CPI:
		return sentences(s.unsure(), others)
	case matrix.CSI:
		return sentences(s.unsure(), s.nodesChange(), others, s.canaryInterlock())
	}
	return sentences(s.unsure(), s.nodesChange(), others)
}

func (s *facts) nodesChange() string {
	if s.ignores("Nodes") {
		return ""
	}
	return decide.NodesChange(s.observed.Nodes, s.now)
}

// othersChange returns the changes in progress besides those of nodes.
func (s *facts) othersChange(installed bool) string {
	var vcenters, pools string
	if !s.ignores("VCenters") {
		vcenters = decide.VCentersChange(s.seenVCenters(), s.now)
	}
	if installed && !s.ignores("MachineConfigPools") {
		pools = s.poolsChange()
	}
	return sentences(vcenters, pools)
}

// followGated returns why the other nodes may not follow the canary nodes now, "" if they may: the same gates as for a
// start.
func (s *facts) followGated() string {
	policy, err := upgradePolicy(&s.config.Spec, false)
	if err != nil {
		return fault.Text(err)
	}
	closed, _ := policy.Closed(s.now)
	all := []string{s.unsure(), s.nodesChange(), s.othersChange(true), closed}
	for _, h := range s.driverHolds() {
		if h.driver == matrix.CSI {
			all = append(all, fault.Text(h.err))
		}
	}
	return sentences(all...)
}

func (s *facts) ignores(what string) bool {
	return slices.Contains(policyOf(&s.config.Spec).IgnoreInterlocks, what)
}

// seenVCenters returns the record of the vCenters after this pass.
func (s *facts) seenVCenters() []revision.VCenter {
	versions := map[string]string{}
	names := render.VCenters(&s.spec)
	for _, name := range names {
		if v := s.vcenters[name].version; v != nil {
			versions[name] = v.Version.String()
		}
	}
	return decide.SeenVCenters(s.inventory.Memory().Seen, names, versions, s.at0())
}

// sentences joins the non-empty ones.
func sentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}
