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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// These are the gates of a site; package decide has the table of all.

// awaited is a vCenter or bundle that no one has looked at yet.
func awaited(what string) error {
	return &fault.Error{Reason: fault.Incomplete, Op: "install", Subject: "drivers", Err: errors.New(what)}
}

// groupGates says why nothing new may be installed of a driver, for each that is requested and
// uses a vCenter that was not verified, that a check keeps back or that was not checked yet,
// or is of a group with one that is held: pure.
func (s *decided) groupGates() map[matrix.Driver]error { return s.gatedBy(nil) }

// gates are those, and the rules that an upgrade has to meet: pure.
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

// hold is why nothing new may be installed of a driver, for its own sake.
type hold struct {
	driver matrix.Driver
	err    error
	waits  string // what is not known yet, for which no one is at fault: then err says that
	check  bool   // a check is why, which holds up nothing while all is as it shall be
}

// driverHolds are those of the drivers that are requested: by the vCenters that they use, and by checks.
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

// needsCloud says why the storage driver that is desired cannot do with the cloud provider that there is, "" where
// it can: it takes its nodes' identity from the provider IDs that one sets, or is for another version of it alone.
func (s *decided) needsCloud() string {
	_, storage := s.site.Installed[matrix.CSI]
	cloud, exists := s.site.Installed[matrix.CPI]
	needs, exact := s.desired.needs[matrix.CPI]
	switch {
	case !exists && !storage:
		return "it needs the provider IDs of nodes, which cpi sets, and that is not installed"
	case exact && !needs.Equal(cloud):
		return fmt.Sprintf("it needs cpi@%s, and cpi stays what it is", needs)
	}
	return ""
}

// unsure is what an upgrade of any driver waits for, "" where nothing does: API servers of several minors, and
// what cannot be read.
func (s *facts) unsure() string {
	var all []string
	if s.kubernetes.mixed != "" && !s.ignores("APIServers") {
		all = append(all, s.kubernetes.mixed+": drivers are upgraded once all of them are of one minor version")
	}
	requested := s.requested()
	for _, d := range slices.Sorted(maps.Keys(s.observed.Unread)) {
		if _, exists := s.site.Installed[d]; !exists && !slices.Contains(requested, d) {
			continue // it is no one's business
		}
		all = append(all, "what runs of "+string(d)+" cannot be read: "+fault.Text(s.observed.Unread[d]))
	}
	return sentences(all...)
}

// interlock is all that changes just now that an upgrade or an adoption of a group waits for, or why it cannot come to
// the canary nodes first; "" where nothing does. On OpenShift nodes have to know where images are: that is asked once
// anything is installed, as before nothing may be installed which the mirror set would be written for.
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

// othersChange is what of that changes just now beside nodes.
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

// followGated is why the other nodes may not follow the chosen ones now, "" where they may: what holds a
// start holds that too.
func (s *facts) followGated() string {
	policy, err := upgradePolicy(&s.config.Spec, false)
	if err != nil {
		return fault.Text(err)
	}
	closed, _ := policy.Closed(s.now)
	return sentences(s.unsure(), s.nodesChange(), s.othersChange(true), closed)
}

func (s *facts) ignores(what string) bool {
	return slices.Contains(policyOf(&s.config.Spec).IgnoreInterlocks, what)
}

// seenVCenters are the vCenters as they are remembered after this pass.
func (s *facts) seenVCenters() []revision.VCenter {
	versions := map[string]string{}
	names := vCenterNames(&s.spec)
	for _, name := range names {
		if v := s.vcenters[name].version; v != nil {
			versions[name] = v.Version.String()
		}
	}
	return decide.SeenVCenters(s.inventory.Memory().Seen, names, versions, s.at0())
}

// sentences joins those that are not empty.
func sentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}
