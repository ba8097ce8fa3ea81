// Package assess judges, from observed objects alone, how the drivers and the nodes
// fare: for each driver whether it is rolled out and healthy, for each node whether
// the drivers have done their part for it. What is amiss is a [Finding], with the
// reason and the remedy; what only takes its time is one that is Waiting. It is
// pure and knows no clock but the time that it is given.
//
// # Rules worth knowing
//
//   - A rollout is judged by the pods updated, and pods that lack on nodes that are
//     not ready do not count: a node that restarts does not make a driver unhealthy.
//     Never do all of them lack so: what runs on no node is not rolled out. Two nodes or more
//     that went soon after they got a new pod count: the pod may be why.
//   - The report does not grow with the cluster: the same trouble on many nodes is
//     one finding, which counts them and names a few.
//   - The storage driver's controller asks for more replicas than a small control
//     plane has nodes. As many as there are nodes for are enough.
//   - A Deployment without replicas does not work.
//   - The cloud provider has no probes: a running pod proves nothing. It is judged
//     by what it does to the nodes: providerID, and the taint that it takes away.
//   - Of a container that falls over one line is quoted, of its termination message or,
//     where it left none, of its log where that could be read: see lastwords.go.
//   - What is quoted may hold a secret: known ones are taken out, and of a driver's own
//     words all that comes after one such as "password": see secrets.go.
//   - A node has [Grace] after it joined before it counts as amiss.
package assess

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

const (
	// TaintUninitialized is on nodes that wait for a cloud provider.
	TaintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// Grace is how long a node may take before it counts as amiss.
	Grace = 3 * time.Minute
)

// Observed is what was read from the cluster.
type Observed struct {
	Nodes       []*corev1.Node // not to be changed: who reads them shares them
	CSINodes    []*storagev1.CSINode
	DaemonSets  []appsv1.DaemonSet
	Deployments []appsv1.Deployment
	Pods        []*corev1.Pod  // of those
	Events      []corev1.Event // FailedCreate, in their namespaces
	// LastWords are the ends of the logs of containers that fall over, where they could be
	// read; see [Observed.AddLastWords].
	LastWords map[string]string
	CSIDriver *storagev1.CSIDriver
	// SnapshotCRDs tells whether the snapshot kinds are served.
	SnapshotCRDs bool
	// NodeTopologies are the errors of CSINodeTopology objects, by node; "" for none.
	NodeTopologies map[string]string
	// Faults are why something of a driver could not be read. They concern no other
	// driver.
	Faults map[matrix.Driver]error
	// Unread are those of them that hide the driver's workloads, and so its version.
	Unread map[matrix.Driver]error
}

// APIServer is one API server of the cluster.
type APIServer struct {
	Address string // HOST:PORT; "" of the one that answers, and where the addresses cannot be read
	Version string // such as "v1.33.4"; "" where Err says why it is not known
	Err     error
}

// AddFault notes why something of a driver could not be read.
func (o *Observed) AddFault(d matrix.Driver, err error) { o.Faults = with(o.Faults, d, err) }

// AddUnread notes why a driver's workloads could not be read.
func (o *Observed) AddUnread(d matrix.Driver, err error) {
	o.Unread = with(o.Unread, d, err)
	o.AddFault(d, err)
}

func with(all map[matrix.Driver]error, d matrix.Driver, err error) map[matrix.Driver]error {
	if all == nil {
		all = map[matrix.Driver]error{}
	}
	all[d] = fault.Join(all[d], err)
	return all
}

// Input is what is judged.
type Input struct {
	Observed
	Now time.Time
	// Requested drivers; others are not judged.
	Requested []matrix.Driver
	// Topology tells whether volumes' topology was requested.
	Topology bool
	// Missing are workloads that were installed and are not there.
	Missing []Missing
	// Secrets are values that the drivers know and no one may read: in what is quoted they
	// are hidden, wherever they are.
	Secrets []string

	hider *strings.Replacer // of Secrets; nil until it is requested
	words map[string]string // quoted, of those that were
}

// Missing is a workload that was installed and is not there any more.
type Missing struct {
	Driver   matrix.Driver
	Workload string // "Kind namespace/name"
	// BeingMade is set where it is about to be made again.
	BeingMade bool
}

// Finding is something amiss, or not done yet.
type Finding struct {
	Driver  matrix.Driver
	Node    string // "" where it is not about a node
	Subject string // the object
	Reason  fault.Reason
	Message string
	Remedy  string
	// Waiting is set for what only takes its time.
	Waiting bool
	// Away is set for what concerns only nodes that are not ready.
	Away bool
}

// Fault returns the finding as a fault.
func (f Finding) Fault() error {
	return &fault.Error{Reason: f.Reason, Subject: f.Subject, Hint: f.Remedy, Err: fmt.Errorf("%s", f.Message)}
}

// Health is how a driver fares.
type Health struct {
	// Version that all of its workloads are of; "" where they differ or there are none.
	Version string
	// Complete tells whether the rollout of that version is complete.
	Complete bool
	// Note says which nodes a complete roll-out has not reached, as they are not ready; "" for none.
	Note     string
	Findings []Finding // sorted
}

// Healthy tells whether nothing is amiss and nothing is waited for.
func (h Health) Healthy() bool { return len(h.Findings) == 0 }

// Err returns what is amiss, or nil.
func (h Health) Err() error {
	var errs []error
	for _, f := range h.Findings {
		if !f.Waiting {
			errs = append(errs, f.Fault())
		}
	}
	return fault.Join(errs...)
}

// Waits returns what is waited for, one sentence, or "".
func (h Health) Waits() string {
	var all []string
	for _, f := range h.Findings {
		if f.Waiting {
			all = append(all, f.Subject+" "+f.Message)
		}
	}
	return few(all, "; ")
}

// few joins the first few and counts the rest.
func few(all []string, sep string) string {
	const most = 3
	if len(all) <= most {
		return strings.Join(all, sep)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(all[:most], sep), sep, len(all)-most)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// Report is the judgement.
type Report struct {
	Drivers map[matrix.Driver]Health
	// Nodes are the findings about nodes, sorted by node.
	Nodes                []Finding
	NodesReady, NodesAll int
}

// Assess judges.
func Assess(in Input) Report {
	rep := Report{Drivers: map[matrix.Driver]Health{}, NodesAll: len(in.Nodes)}
	for _, d := range in.Requested {
		rep.Drivers[d] = in.driver(d)
	}
	rep.Nodes = in.nodes()
	slices.SortStableFunc(rep.Nodes, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Driver, b.Driver))
	})
	rep.NodesReady = rep.NodesAll
	for i, f := range rep.Nodes {
		if i == 0 || f.Node != rep.Nodes[i-1].Node {
			rep.NodesReady--
		}
	}
	rep.rollUp()
	return rep
}

// rollUp makes the nodes' findings the drivers' too: one finding a driver for
// those amiss and one for those waited for, so that a thousand nodes are no
// thousand lines.
func (r *Report) rollUp() {
	for d, h := range r.Drivers {
		for _, waiting := range []bool{false, true} {
			var names []string
			var first Finding
			for _, f := range r.Nodes {
				if f.Driver == d && f.Waiting == waiting {
					if len(names) == 0 {
						first = f
					}
					names, first.Away = append(names, f.Node), first.Away && f.Away
				}
			}
			if len(names) > 0 {
				first.Node, first.Subject = "", fmt.Sprintf("%d of %d nodes (%s)", len(names), r.NodesAll, few(names, ", "))
				h.Findings = append(h.Findings, first)
			}
		}
		r.Drivers[d] = h
	}
}

func (in *Input) driver(d matrix.Driver) Health {
	var h Health
	workloads := in.Workloads(d)
	h.Version, h.Complete = commonVersion(workloads), len(workloads) > 0
	for _, w := range workloads {
		f, open := in.rollout(w)
		late := in.away(w).text()
		switch {
		case open:
			f.Message = join(f.Message+in.notUp(w), late)
			h.Findings = append(h.Findings, f)
			h.Complete = false
		case late != "":
			h.Note = join(h.Note, w.String()+": "+late)
		}
	}
	missing := in.missing(d)
	h.Findings = append(h.Findings, missing...)
	h.Complete = h.Complete && len(missing) == 0
	if len(workloads) == 0 && len(missing) == 0 {
		h.Findings = append(h.Findings, Finding{Driver: d, Subject: string(d), Reason: fault.Incomplete, Message: "is not installed yet", Waiting: true})
	}
	for _, f := range fault.All(in.Faults[d]) {
		h.Findings = append(h.Findings, Finding{Driver: d, Subject: f.Subject, Reason: f.Reason, Message: "cannot be read: " + in.quote(reason(f)), Remedy: f.Hint})
		h.Complete = false
	}
	h.Findings = append(h.Findings, in.pods(d, workloads)...)
	h.Findings = append(h.Findings, in.refusedPods(workloads)...)
	if d == matrix.CSI {
		h.Findings = append(h.Findings, in.storage(len(workloads) > 0)...)
	}
	if d == matrix.CPI {
		h.Findings = append(h.Findings, in.noPlaceForCPI(workloads)...)
	}
	return h
}

func reason(f *fault.Error) string {
	if f.Err == nil {
		return string(f.Reason)
	}
	return f.Err.Error()
}

func (in *Input) missing(d matrix.Driver) []Finding {
	var all []Finding
	for _, m := range in.Missing {
		if m.Driver == d {
			all = append(all, Finding{
				Driver: d, Subject: m.Workload, Reason: fault.NotFound, Message: "was installed and is not there", Waiting: m.BeingMade,
				Remedy: "it is made again as soon as nothing prevents it: see the conditions Resolved and Applied",
			})
		}
	}
	return all
}

func commonVersion(all []Workload) string {
	version := ""
	for i, w := range all {
		if i > 0 && w.Version != version {
			return ""
		}
		version = w.Version
	}
	return version
}

// storage is what the storage driver needs beside its pods.
func (in *Input) storage(installed bool) []Finding {
	var all []Finding
	if installed && in.CSIDriver == nil {
		all = append(all, Finding{Driver: matrix.CSI, Subject: "CSIDriver " + drivers.CSIDriver, Reason: fault.NotFound, Message: "is not there",
			Remedy: "it is made again at the next pass; while the operator is suspended, set spec.suspend to false"})
	}
	return all
}

// noPlaceForCPI finds the cloud provider without a node that it may run on.
func (in *Input) noPlaceForCPI(workloads []Workload) []Finding {
	for _, w := range workloads {
		if w.Kind == "DaemonSet" && w.Observed && w.Desired == 0 && len(in.Nodes) > 0 {
			return []Finding{{Driver: matrix.CPI, Subject: w.String(), Reason: fault.Incomplete, Message: "finds no node to run on",
				Remedy: "label the control-plane nodes: `kubectl label node NAME node-role.kubernetes.io/control-plane=`"}}
		}
	}
	return nil
}
