// Package preflight checks the cluster, its nodes and the vCenters for the drivers' requirements, before an
// installation and during operation.
//
//	results := preflight.Check(snapshot) // pure: all results together, in one order
//	worst := preflight.Worst(results)
//
// The caller collects the facts into a [Snapshot] before. An unreachable vCenter is one result, and hides no result of
// another one. If a part of a vCenter cannot be read, the check that needs it warns.
//
// The checks are the rows of one table, which is published as a page: what each reads, when it fails, the remedy and
// the source. Their ids are part of the interface.
//
// The checks of the bundle's content ([CheckImages]) need neither cluster nor vCenters. Each reconcile runs them, and
// they block drivers that use no vCenter too.
//
// A result names the first [MaxObjects] objects, their number, and the drivers concerned. [Gate] says what results
// block: a driver's release and, if the driver would not start, its configuration too; the current one stays. A site
// can set single checks to Warn or Disabled, with a reason ([Turned]); an overridden check stays visible.
package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// ID names a check.
type ID string

// Action is the effect of a result, from the mildest to the gravest.
type Action int

// The actions.
const (
	Pass         Action = iota // nothing to do
	Warn                       // a feature will fail or work badly; nothing is gated
	BlockInstall               // blocks installation and upgrade: the driver would not start, or lack what it needs
)

var actions = []string{"Pass", "Warn", "BlockInstall"}

// String returns the action's name.
func (a Action) String() string { return actions[a] }

// MarshalText writes the name.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads a name.
func (a *Action) UnmarshalText(b []byte) error {
	i := slices.Index(actions, string(b))
	if i < 0 {
		return fmt.Errorf("%q is not an action: %s", b, strings.Join(actions, ", "))
	}
	*a = Action(i)
	return nil
}

// Severity is how serious a result is for the administrator.
type Severity string

// The severities.
const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// MaxObjects is how many objects a result names.
const MaxObjects = 5

// Result is the result of a check.
type Result struct {
	ID       ID       `json:"id"`
	Severity Severity `json:"severity"`
	Action   Action   `json:"action"`
	// On is the vCenter, by the name of its VsphereCloudConfig; empty for the cluster.
	On string `json:"on,omitempty"`
	// Objects are the first of the objects concerned, sorted; Count is their number.
	Objects []string `json:"objects,omitempty"`
	Count   int      `json:"count,omitempty"`
	// Drivers are the drivers concerned; none for a passed check.
	Drivers []matrix.Driver `json:"drivers,omitempty"`
	// Stops is set if a driver would not start with the requested configuration.
	Stops  bool   `json:"stopsDriver,omitempty"`
	Found  string `json:"found"`
	Why    string `json:"why,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Override is set for a check that the configuration sets to Warn or Disabled.
	Override *Override `json:"override,omitempty"`
}

// found is one finding. Findings of one check in one vCenter that differ only in objects and drivers become one
// result, with the details of an object in brackets.
type found struct {
	on     string
	object string
	of     string // details of the object, shown in brackets
	what   string // "" for no finding
	// Override the check's row. {} in a remedy stands for the first object.
	action Action
	remedy string
	// drivers concerned, if not all drivers of the check.
	drivers []matrix.Driver
}

// check is a row of the table.
type check struct {
	id    ID
	worst Action
	// of is the one driver that it is about, which is desired and uses the vCenter; "" for both.
	of matrix.Driver
	// stops is set if a driver does not start with the failure: a driver that runs with another configuration does not
	// get the failing one.
	stops                             bool
	reads, fails, why, remedy, source string
	when                              func(*Snapshot) bool // nil: always
	run                               func(*Snapshot) []found
	part                              Part // the part that it needs of each vCenter
	// seen reports whether the check read all that it needs to pass; nil: always.
	seen func(*Snapshot) bool
}

// IDs returns the ids of all checks in their order.
func IDs() (out []ID) {
	for _, c := range checks() {
		out = append(out, c.id)
	}
	return out
}

// Check runs all checks for which the snapshot has data.
func Check(s Snapshot) []Result { return run(&s, checks()) }

func run(s *Snapshot, list []check) (out []Result) {
	for _, c := range list {
		if (c.of == "" || s.uses(c.of, "")) && (c.when == nil || c.when(s)) {
			out = append(out, c.results(s)...)
		}
	}
	return out
}

// uses reports whether a driver is desired and, if a vCenter is named, uses it.
func (s *Snapshot) uses(d matrix.Driver, on string) bool {
	cpi, csi := s.Wants.CPI, s.Wants.CSI
	for i := range s.VCenters {
		if v := &s.VCenters[i]; on != "" && v.Name == on {
			cpi, csi = cpi && v.CPI, csi && v.CSI
		}
	}
	return d == matrix.CPI && cpi || d == matrix.CSI && csi
}

// Worst is the gravest action of results.
func Worst(results []Result) Action {
	worst := Pass
	for _, r := range results {
		worst = max(worst, r.Action)
	}
	return worst
}

func (c check) results(s *Snapshot) (out []Result) {
	type kind struct {
		on, what string
		action   Action
	}
	at := map[kind]int{}
	var groups [][]found
	for _, f := range append(c.unread(s), c.run(s)...) {
		if f.what == "" || c.of != "" && !s.uses(c.of, f.on) {
			continue
		}
		f.action, f.remedy = cmp.Or(f.action, c.worst), cmp.Or(f.remedy, c.remedy)
		k := kind{f.on, f.what, f.action}
		if _, known := at[k]; !known {
			at[k] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[k]] = append(groups[at[k]], f)
	}
	if len(groups) == 0 && (c.seen == nil || c.seen(s)) {
		return []Result{{ID: c.id, Severity: Info, Action: Pass, Found: "ok"}}
	}
	for _, g := range groups {
		out = append(out, c.result(s, g))
	}
	return out
}

// unread returns a finding for each vCenter whose part for the check could not be read.
func (c check) unread(s *Snapshot) (out []found) {
	for _, v := range s.readable() {
		if err := v.Failed[c.part]; err != nil {
			out = append(out, found{on: v.Name, action: Warn, what: fmt.Sprintf("%s could not be read: %v", c.part, err),
				remedy: cmp.Or(toRead[c.part], "give the account the role ReadOnly on the vCenter's root")})
		}
	}
	return out
}

// toRead is the remedy for parts that need more than ReadOnly on the root.
var toRead = map[Part]string{
	Policies: "give the account StorageProfile.View on the vCenter's root",
	CNS:      "start the service vsan-health in the vCenter (VAMI > Services), and give the account Cns.Searchable on the root",
	Tags:     "give the account the role ReadOnly on the vCenter's root, and see that the service vsphere-tagging answers",
}

// drivers returns the drivers of a result: those of its findings or, if they name none, the check's desired drivers
// that use the vCenter.
func (c check) drivers(s *Snapshot, group []found) (out []matrix.Driver) {
	for _, d := range matrix.Drivers() {
		is := s.uses(d, group[0].on) && (c.of == "" || c.of == d)
		concerns := func(f found) bool { return slices.Contains(f.drivers, d) || len(f.drivers) == 0 && is }
		if slices.ContainsFunc(group, concerns) {
			out = append(out, d)
		}
	}
	return out
}

// result returns one result for findings that differ only in their objects.
func (c check) result(s *Snapshot, group []found) Result {
	slices.SortStableFunc(group, func(a, b found) int { return strings.Compare(a.named(), b.named()) })
	var names []string
	for _, f := range group {
		if f.object != "" {
			names = append(names, f.named())
		}
	}
	names = slices.Compact(names)
	f := group[0]
	return Result{
		ID: c.id, Severity: severity(f.action), Action: f.action, On: f.on, Objects: names[:min(len(names), MaxObjects)], Count: len(names),
		Drivers: c.drivers(s, group), Stops: c.stops && f.action == BlockInstall,
		Found: f.what, Why: c.why, Remedy: remedy(f.remedy, f.object, f.on),
	}
}

func (f found) named() string {
	if f.of == "" {
		return f.object
	}
	return f.object + " (" + f.of + ")"
}

// remedy writes the names of an object and its vCenter into a remedy. It quotes them for the shell: people copy its
// commands, and a VM's name must not run code.
func remedy(text, object, on string) string {
	return strings.NewReplacer("{}", fault.Quote(object), "--vcenter NAME", "--vcenter "+fault.Quote(on)).Replace(text)
}

func severity(a Action) Severity { return []Severity{Info, Warning, Error}[a] }

// Named returns the first objects of a result, and how many more there are.
func (r Result) Named() string {
	text := strings.Join(r.Objects, ", ")
	if more := r.Count - len(r.Objects); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// readable returns the vCenters whose inventory was read.
func (s *Snapshot) readable() (out []*VCenter) {
	for i := range s.VCenters {
		if v := &s.VCenters[i]; v.Err == nil {
			out = append(out, v)
		}
	}
	return out
}

func nodes(look func(*Snapshot, *Node) found) func(*Snapshot) []found {
	return func(s *Snapshot) (out []found) {
		for i := range s.Cluster.Nodes {
			f := look(s, &s.Cluster.Nodes[i])
			f.object = s.Cluster.Nodes[i].Name
			out = append(out, f)
		}
		return out
	}
}

// vcenters returns a check that calls look for each readable vCenter. The object defaults to its server.
func vcenters(look func(*Snapshot, *VCenter) []found) func(*Snapshot) []found {
	return func(s *Snapshot) (out []found) {
		for _, v := range s.readable() {
			for _, f := range look(s, v) {
				f.on, f.object = v.Name, cmp.Or(f.object, v.Server)
				out = append(out, f)
			}
		}
		return out
	}
}

func machines(look func(*Snapshot, behind) []found) func(*Snapshot) []found {
	return func(s *Snapshot) (out []found) {
		for _, b := range s.nodesMachines() {
			for _, f := range look(s, b) {
				f.on = b.vcenter.Name
				f.object = cmp.Or(f.object, b.vcenter.MachinePath(b.machine))
				f.of = cmp.Or(f.of, "node "+b.node.Name)
				out = append(out, f)
			}
		}
		return out
	}
}

func is(what string) []found { return []found{{what: what}} }

// allAnswered reports whether each vCenter accepted the account.
func allAnswered(s *Snapshot) bool {
	return !slices.ContainsFunc(s.VCenters, func(v VCenter) bool { return v.Err != nil })
}

// Only returns the results of the desired checks. It adds blocking ones of the cluster or a vCenter, even overridden,
// since others may be missing because of them. Checks of the bundle, and these of the cluster, need no vCenter.
func Only(all []Result, desired func(ID) bool) []Result {
	ofCluster := []ID{"cluster", "cluster-id", "node-cloud-provider", "node-control-plane", "node-registered"}
	inVCenter := func(id ID) bool { return desired(id) && !slices.Contains(ofCluster, id) && !id.OfBundle() }
	asked := slices.ContainsFunc(IDs(), inVCenter)
	return slices.DeleteFunc(slices.Clone(all), func(r Result) bool {
		blocks := r.Action == BlockInstall || r.Override != nil && r.Override.Was == BlockInstall
		blind := blocks && (r.ID == "cluster" || asked && strings.HasPrefix(string(r.ID), "vcenter-"))
		return !desired(r.ID) && !blind
	})
}
