// Package preflight checks what the drivers need of the cluster, its nodes and the
// vCenters, before anything is installed and while it runs.
//
//	results := preflight.Check(snapshot) // pure: all results together, in one order
//	worst := preflight.Worst(results)
//
// What is looked at is gathered beforehand into a [Snapshot]. A vCenter that cannot be
// asked is one result, and hides nothing of another one; a part of a vCenter that cannot
// be read is a warning of the check that needs it.
//
// The checks. Their ids are part of the interface:
//
//	id                     worst action   what it asks
//	cluster                block install  can the API server be read
//	cluster-id             block install  is the storage driver's cluster id given once only
//	node-vm                block install  is there exactly one VM behind each node, by UUID or name
//	node-name              warn           is the guest's hostname the node's name, in the same case
//	node-address           block install  does each node get addresses by nodeAddresses and ipFamilies, as the cloud provider chooses them
//	node-provider-id       block install  is the provider id of the VM behind the node, or can the cloud provider set it
//	node-cloud-provider    block install  runs kube-controller-manager, as a pod, no in-tree provider
//	node-uninitialized     warn           has the cloud provider initialized each node
//	node-control-plane     block install  is there a node that the controllers can be scheduled on
//	node-zone-labels       warn           are there labels of one generation only
//	node-registered        warn           is the storage driver registered on each node, with its topology keys
//	vcenter-connection     block install  does the vCenter answer, with a certificate that is trusted
//	vcenter-account        block install  does the login succeed, with a name that the drivers accept
//	vcenter-privileges     warn           has the account the privileges, each with its object
//	vcenter-excess         warn           has it no privileges that the drivers never need, each with its object; not asked while a VsphereCloudConfig is not there
//	vcenter-datacenters    block install  are the datacenters there
//	vcenter-version        block install  is it one that the storage driver starts with, and makes snapshots with where they are asked for
//	vcenter-certificate    warn           does its certificate end soon
//	vcenter-clock          warn           are its clock and ours together
//	vcenter-tasks          warn           can tasks be read
//	vcenter-cns            warn           does cloud native storage answer
//	host-version           warn           are the hosts' ESXi releases not behind their vCenter's, nor too old for snapshots
//	vm-disk-uuid           block install  has each node's VM disk.EnableUUID
//	vm-hardware            block install  is its hardware version 15 or later
//	vm-scsi                warn           are its SCSI controllers paravirtual
//	vm-tools               block install  does VMware Tools report a hostname and addresses
//	vm-snapshots           warn           has it no snapshots
//	vm-change-tracking     warn           is changed block tracking the same on all
//	vm-folder              pass           in which folders they are
//	datastore-shared       warn           is there a datastore that all hosts (of a zone) see but for those in maintenance, and the account may use
//	datastore-space        warn           is a tenth of each of these free
//	storage-class          warn           do StorageClasses name policies and datastores that are there
//	topology-category      block install  are the tag categories there, in each vCenter: the storage driver exits without
//	topology-tag           block install  has each node's host, or what it is in, a tag of each category
//	topology-vcenters      block install  are there categories where there are several vCenters, and five of them at most
//	image-platform         block install  are the bundle's images for the platforms of the nodes that their pods would come to
//	image-mirror-set       block install  on OpenShift, with imageNames Upstream: do mirror sets lead to the bundle's place
//
// The last ones, of what the bundle holds ([CheckImages]), ask nobody: they are made at each
// pass, whether or not cluster and vCenters have answered, and hold back drivers that no vCenter
// has to do with too.
//
// A result names the first [MaxObjects] objects, how many there are, and the drivers that
// it concerns. What results keep back of a driver is [Gate]: BlockUpgrade another release,
// BlockInstall and Degrade a new installation too. What a driver would not start with keeps
// its configuration back besides: the one that it runs with stays. A site turns single
// checks to Warn or Disabled, with a reason ([Turned]); what was turned down stays visible.
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

// Action is what follows from a result, from the mildest to the gravest.
type Action int

// The actions.
const (
	Pass         Action = iota // nothing to do
	Warn                       // something will not work, or not well; nothing is held back
	BlockUpgrade               // what runs goes on; nothing newer is installed
	BlockInstall               // nothing is installed or upgraded: the driver would not start, or find nothing
	Degrade                    // what runs is not well
)

var actions = []string{"Pass", "Warn", "BlockUpgrade", "BlockInstall", "Degrade"}

// String is the action's name.
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

// Severity is how bad it is for who runs the cluster.
type Severity string

// The severities.
const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// MaxObjects is how many objects a result names.
const MaxObjects = 5

// maxFound is how many different findings of one check at one place are told apart.
const maxFound = 4

// Result is what a check found.
type Result struct {
	ID       ID       `json:"id"`
	Severity Severity `json:"severity"`
	Action   Action   `json:"action"`
	// On is the vCenter, by the name of its VsphereCloudConfig; empty for the cluster.
	On string `json:"on,omitempty"`
	// Objects are the first of those concerned, sorted; Count is how many there are.
	Objects []string `json:"objects,omitempty"`
	Count   int      `json:"count,omitempty"`
	// Drivers are those that it concerns; none of what passed.
	Drivers []matrix.Driver `json:"drivers,omitempty"`
	// Stops is set where a driver would not start with what is asked for.
	Stops  bool   `json:"stopsDriver,omitempty"`
	Found  string `json:"found"`
	Why    string `json:"why,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Override is set of a check that the configuration turned down.
	Override *Override `json:"override,omitempty"`
}

// found is one finding. Findings of one check at one place that differ in their objects
// only become one result.
type found struct {
	on     string
	object string
	of     string // what is said of it in brackets
	what   string
	action Action
	why    string // in the place of the check's
	remedy string // {} stands for the first object
	// drivers that it concerns, where not all that the check is about.
	drivers []matrix.Driver
}

// check is one entry of the table.
type check struct {
	id      ID
	why     string
	applies func(*Snapshot) bool
	run     func(*Snapshot) []found
	passed  func(*Snapshot) string
	// seen says whether all was seen that it has to see to have passed; nil: always.
	seen func(*Snapshot) bool
}

// IDs returns the ids of all checks in their order.
func IDs() []ID {
	var out []ID
	for _, c := range checks() {
		out = append(out, c.id)
	}
	return out
}

func checks() []check {
	return slices.Concat(clusterChecks(), vcenterChecks(), nodeChecks(), machineChecks(), storageChecks(), topologyChecks(), imageChecks())
}

// Check runs all checks that the snapshot has something for.
func Check(s Snapshot) []Result {
	var out []Result
	for _, c := range checks() {
		if c.applies == nil || c.applies(&s) {
			out = append(out, c.results(&s)...)
		}
	}
	return out
}

// Worst is the gravest action of results.
func Worst(results []Result) Action {
	worst := Pass
	for _, r := range results {
		worst = max(worst, r.Action)
	}
	return worst
}

func (c check) results(s *Snapshot) []Result {
	list := c.run(s)
	if len(list) == 0 && c.seen != nil && !c.seen(s) {
		return nil
	}
	if len(list) == 0 {
		what := "ok"
		if c.passed != nil {
			what = c.passed(s)
		}
		return []Result{{ID: c.id, Severity: Info, Action: Pass, Found: what}}
	}
	groups := grouped(list)
	out := make([]Result, 0, len(groups))
	for _, g := range groups {
		r := c.result(g)
		r.Drivers, r.Stops = s.concerned(c.id, g[0]), slices.Contains(stopping, c.id)
		out = append(out, r)
	}
	return out
}

// grouped puts findings together that differ in their objects only, keeping the order in
// which they came. From the maxFound-th kind of finding at one place on, the text is that
// of the first of the rest.
func grouped(list []found) [][]found {
	type key struct {
		on, what, of string
		action       Action
	}
	at := map[key]int{}
	kinds := map[string]int{}
	var out [][]found
	for _, f := range list {
		of := fmt.Sprint(f.drivers)
		k := key{f.on, f.what, of, f.action}
		if _, known := at[k]; !known {
			if kinds[f.on] >= maxFound {
				k = key{on: f.on, what: "more", of: of, action: f.action}
			}
			if _, known := at[k]; !known {
				kinds[f.on]++
				at[k] = len(out)
				out = append(out, nil)
			}
		}
		out[at[k]] = append(out[at[k]], f)
	}
	return out
}

func (c check) result(group []found) Result {
	first := group[0]
	r := Result{ID: c.id, Action: first.action, Severity: severity(first.action), On: first.on, Found: first.what, Why: cmp.Or(first.why, c.why)}
	names, bare := make([]string, 0, len(group)), map[string]string{}
	for _, f := range group {
		if f.object != "" {
			names = append(names, f.named())
			bare[f.named()] = f.object
		}
		if f.what != first.what {
			r.Found = first.what + ", and others of the kind"
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	r.Count = len(names)
	r.Objects = names[:min(len(names), MaxObjects)]
	object := ""
	if len(names) > 0 {
		object = bare[names[0]]
	}
	r.Remedy = remedy(first.remedy, object)
	return r
}

// named is the object with what is said of it.
func (f found) named() string {
	if f.of == "" {
		return f.object
	}
	return f.object + " (" + f.of + ")"
}

// remedy writes an object's name into a remedy, whose commands people copy into a shell:
// who may name a VM has nothing run there.
func remedy(text, object string) string {
	quoted := fault.Quote(object)
	word := quoted
	if !strings.HasSuffix(word, "'") {
		word = "'" + word + "'"
	}
	return strings.NewReplacer("'{}'", word, "{}", quoted).Replace(text)
}

func severity(a Action) Severity {
	switch a {
	case Pass:
		return Info
	case Warn:
		return Warning
	}
	return Error
}

// Named writes the objects of a result: the first ones, and how many more there are.
func (r Result) Named() string {
	text := strings.Join(r.Objects, ", ")
	if more := r.Count - len(r.Objects); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// readable are the vCenters that were asked with success.
func (s *Snapshot) readable() []*VCenter {
	var out []*VCenter
	for i := range s.VCenters {
		if v := &s.VCenters[i]; v.Err == nil && v.Failed[Inventory] == nil {
			out = append(out, v)
		}
	}
	return out
}

func anyVCenter(s *Snapshot) bool   { return len(s.VCenters) > 0 }
func someReadable(s *Snapshot) bool { return len(s.readable()) > 0 }

func nodesKnown(s *Snapshot) bool {
	return !s.Cluster.Skipped && s.Cluster.Err == nil && len(s.Cluster.Nodes) > 0
}

// machinesKnown says whether there are nodes and a vCenter to find them in.
func machinesKnown(s *Snapshot) bool { return nodesKnown(s) && someReadable(s) }

// unread is the finding that a part could not be read.
func (v *VCenter) unread(p Part, remedy string) []found {
	err := v.Failed[p]
	if err == nil {
		return nil
	}
	return []found{{on: v.Name, what: fmt.Sprintf("%s could not be read: %v", p, err), action: Warn, remedy: remedy}}
}
