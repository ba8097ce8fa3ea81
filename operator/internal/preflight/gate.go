package preflight

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// cloudOnly and storageOnly are the checks that concern one driver; all others concern
// both, as far as they are asked for and use the vCenter.
var (
	cloudOnly   = []ID{"node-name", "node-address", "node-cloud-provider", "vm-tools"}
	storageOnly = []ID{
		"cluster-id", "node-zone-labels", "node-registered", "vcenter-cns", "host-version", "vm-disk-uuid", "vm-scsi",
		"vm-snapshots", "vm-change-tracking", "datastore-shared", "datastore-space", "storage-class", "topology-vcenters",
	}
)

// stopping are the checks of what a driver does not start with. Where one fails, not
// only a release is held back: the configuration that it fails on is not handed to a
// driver that runs with another one.
var stopping = []ID{
	"cluster", "cluster-id", "vcenter-connection", "vcenter-account", "vcenter-datacenters", "vcenter-version",
	"topology-category", "topology-tag", "topology-vcenters",
}

// concerned are the drivers that a finding is about: those of the check, or of the finding
// where it says so, that are asked for and, at a vCenter, use it.
func (s *Snapshot) concerned(id ID, f found) []matrix.Driver {
	if id.OfBundle() {
		return f.drivers // of those that are chosen
	}
	var out []matrix.Driver
	for _, d := range []struct {
		driver matrix.Driver
		wanted bool
		others []ID
		uses   func(*VCenter) bool
	}{
		{matrix.CPI, s.Wants.CPI, storageOnly, func(v *VCenter) bool { return v.UsedByCPI }},
		{matrix.CSI, s.Wants.CSI, cloudOnly, func(v *VCenter) bool { return v.UsedByCSI }},
	} {
		at := slices.IndexFunc(s.VCenters, func(v VCenter) bool { return v.Name == f.on })
		switch {
		case !d.wanted, slices.Contains(d.others, id):
		case f.on != "" && at >= 0 && !d.uses(&s.VCenters[at]):
		case len(f.drivers) > 0 && !slices.Contains(f.drivers, d.driver):
		default:
			out = append(out, d.driver)
		}
	}
	return out
}

// Hold is what the checks keep back of one driver. The zero value keeps back nothing.
type Hold struct {
	Upgrade       bool  // no other release, where one is installed
	Install       bool  // nor where none is
	Configuration bool  // nor another configuration than the one that it runs with
	Err           error // the findings, each with its remedy; nil where nothing is kept back
}

// maxHeldFor is how many findings a Hold names.
const maxHeldFor = 3

// Gate says what results keep back, by driver. What turns a check down is in the results
// already: see [Turned].
func Gate(results []Result) map[matrix.Driver]Hold {
	all := map[matrix.Driver]Hold{}
	for _, d := range matrix.Drivers() {
		if h := gate(d, results); h.Err != nil {
			all[d] = h
		}
	}
	return all
}

func gate(d matrix.Driver, results []Result) Hold {
	var h Hold
	var why []Result
	for _, r := range results {
		if r.Action < BlockUpgrade || !slices.Contains(r.Drivers, d) {
			continue
		}
		h.Upgrade = true
		h.Install = h.Install || r.Action >= BlockInstall
		h.Configuration = h.Configuration || r.Action >= BlockInstall && r.Stops
		why = append(why, r)
	}
	if len(why) == 0 {
		return h
	}
	slices.SortStableFunc(why, func(a, b Result) int { return cmp.Compare(b.gravity(), a.gravity()) })
	var errs []error
	for _, r := range why[:min(len(why), maxHeldFor)] {
		errs = append(errs, r.fault())
	}
	if more := len(why) - maxHeldFor; more > 0 {
		errs = append(errs, &fault.Error{Reason: fault.Refused, Op: "check", Subject: "what " + string(d) + " needs", Err: fmt.Errorf("%d more findings", more),
			Hint: "see status.preflight, or: vdoctl check"})
	}
	h.Err = fault.Join(errs...)
	return h
}

// gravity orders results: by action, and those that stop a driver first.
func (r Result) gravity() int {
	g := 2 * int(r.Action)
	if r.Stops {
		g++
	}
	return g
}

// fault is a finding as an error that a person can act on.
func (r Result) fault() error {
	what := oneLine(r.Found)
	if named := r.Named(); named != "" {
		what += ": " + oneLine(named)
	}
	subject := string(r.ID)
	if r.On != "" {
		subject += " in vCenter " + r.On
	}
	return &fault.Error{Reason: fault.Refused, Op: "check", Subject: subject, Err: errors.New(what), Hint: r.Remedy}
}
