// Package assess judges the health of drivers and nodes from observed objects alone. A driver is healthy
// if it is rolled out and works; a node, if the drivers have done their part for it. A [Finding] is a
// problem with its reason and remedy, or unfinished work (Waiting). The package is pure: its clock is [Observed.Now].
//
// # Rules
//
//   - A rollout counts updated pods. Missing pods on nodes that are not ready do not count against it, so a
//     restarting node does not make a driver unhealthy. At least one pod must run.
//   - If two or more nodes became not ready soon after they got a new pod, they count: the pod may be why.
//   - The report does not grow with the cluster: one finding counts the nodes of a problem and names a few.
//   - The storage driver's controller has more replicas than a small control plane has nodes. One replica
//     per node is enough.
//   - A Deployment without replicas does not work.
//   - The cloud provider has no probes, so a running pod proves nothing. Its effect on nodes counts:
//     providerID, and the removed taint.
//   - A finding quotes one line of a crashing container: of its termination message, else of its log, if
//     that is readable. See pods.go.
//   - Quotes may contain a secret. Known ones are hidden, and so is the rest of a driver's line after a word
//     such as "password". See secrets.go.
//   - The storage driver is judged only on nodes that a node plugin's selector and affinity admit.
//   - A node has [Grace] after it joined before it counts as unhealthy. A rollout excuses its missing pod as long.
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
	// Grace is the time that a node may take before it counts as unhealthy.
	Grace = 3 * time.Minute
)

// Observed is the state that was read from the cluster.
type Observed struct {
	Now         time.Time      // zero: no node is young
	Nodes       []*corev1.Node // shared with other readers: do not change
	CSINodes    []*storagev1.CSINode
	DaemonSets  []appsv1.DaemonSet
	Deployments []appsv1.Deployment
	Pods        []*corev1.Pod  // of these workloads
	Events      []corev1.Event // FailedCreate, in their namespaces
	// LastWords are the ends of the logs of crashing containers, if readable; see [Observed.AddLastWords].
	LastWords map[string]string
	CSIDriver *storagev1.CSIDriver
	// SnapshotCRDs is set if the API server serves the snapshot CRDs.
	SnapshotCRDs bool
	// NodeTopologies are the errors of CSINodeTopology objects by node, "" for none.
	NodeTopologies map[string]string
	// Faults are the errors of reading a driver's objects. They concern no other driver.
	Faults map[matrix.Driver]error
	// Unread are the Faults that hide the driver's workloads, and so its version.
	Unread map[matrix.Driver]error
}

// APIServer is one API server of the cluster.
type APIServer struct {
	Address string // HOST:PORT; "" for the one that answers, or if the addresses are unreadable
	Version string // such as "v1.33.4"; "" with a reason in Err
	Err     error
}

// AddFault adds an error of reading a driver's objects.
func (o *Observed) AddFault(d matrix.Driver, err error) { o.Faults = with(o.Faults, d, err) }

// AddUnread adds an error of reading a driver's workloads.
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

// Input is everything that a judgement depends on.
type Input struct {
	Observed
	// Requested drivers; Assess judges no others.
	Requested []matrix.Driver
	// Topology is set if volumes' topology is requested.
	Topology bool
	// Missing are workloads that were installed and are missing.
	Missing []Missing
	// Secrets are the drivers' secret values. Quotes hide them wherever they occur.
	Secrets []string

	hider *strings.Replacer // of Secrets; nil until first used
	words map[string]string // quotes already made, by text
}

// Missing is a workload that was installed and is missing.
type Missing struct {
	Driver   matrix.Driver
	Workload string // "Kind namespace/name"
	// BeingMade is set if the operator is about to recreate it.
	BeingMade bool
}

// Finding is a problem, or unfinished work.
type Finding struct {
	Driver  matrix.Driver
	Node    string // "" if it concerns no node
	Subject string // the object
	Reason  fault.Reason
	Message string
	Remedy  string
	// Waiting is set for unfinished work; Rolling for that of young nodes, or of a rollout while most pods serve.
	Waiting, Rolling bool
	// Away is set if it concerns only nodes that are not ready.
	Away bool
}

// Fault returns the finding as a fault.
func (f Finding) Fault() error {
	return &fault.Error{Reason: f.Reason, Subject: f.Subject, Hint: f.Remedy, Err: fmt.Errorf("%s", f.Message)}
}

// Health is the health of a driver.
type Health struct {
	// Version of all its workloads; "" if they differ or none exists.
	Version string
	// Complete is set if the rollout of that version is complete.
	Complete bool
	// Unserved is set if the driver has done its part for no ready node.
	Unserved bool
	// Note names nodes that are not ready and that a complete rollout has not reached; "" for none.
	Note     string
	Findings []Finding // sorted
}

// Healthy reports whether the driver has no findings but those that are Rolling.
func (h Health) Healthy() bool {
	return !slices.ContainsFunc(h.Findings, func(f Finding) bool { return !f.Rolling })
}

// Err returns the findings that are not Waiting, or nil.
func (h Health) Err() error {
	var errs []error
	for _, f := range h.Findings {
		if !f.Waiting {
			errs = append(errs, f.Fault())
		}
	}
	return fault.Join(errs...)
}

// Waits returns the findings that are Waiting in one sentence, or "".
func (h Health) Waits() string {
	var all []string
	for _, f := range h.Findings {
		if f.Waiting {
			all = append(all, f.Subject+" "+f.Message)
		}
	}
	return Few(all, "; ")
}

// Few joins the first three and counts the rest.
func Few(all []string, sep string) string {
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

// Report is the result of Assess.
type Report struct {
	Drivers map[matrix.Driver]Health
	// Nodes are the findings about nodes, sorted by node.
	Nodes                []Finding
	NodesReady, NodesAll int
}

// Assess judges all requested drivers and all nodes.
func Assess(in Input) Report {
	rep := Report{Drivers: map[matrix.Driver]Health{}, NodesAll: len(in.Nodes)}
	for _, d := range in.Requested {
		rep.Drivers[d] = in.driver(d)
	}
	var unserved map[matrix.Driver]bool
	rep.Nodes, unserved = in.nodes()
	slices.SortStableFunc(rep.Nodes, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Driver, b.Driver))
	})
	rep.NodesReady = rep.NodesAll
	for i, f := range rep.Nodes {
		if i == 0 || f.Node != rep.Nodes[i-1].Node {
			rep.NodesReady--
		}
	}
	rep.rollUp(unserved)
	return rep
}

// rollUp adds the nodes' findings to the drivers: per driver one for problems and one for unfinished work. So a
// thousand nodes do not make a thousand lines.
func (r *Report) rollUp(unserved map[matrix.Driver]bool) {
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
					first.Rolling = first.Rolling && f.Rolling
				}
			}
			if len(names) > 0 {
				young := first.Rolling && !unserved[d]
				first.Rolling = waiting && h.Healthy() && (young || len(h.Findings) > 0)
				first.Node, first.Subject = "", fmt.Sprintf("%d of %d nodes (%s)", len(names), r.NodesAll, Few(names, ", "))
				h.Findings = append(h.Findings, first)
			}
		}
		h.Unserved = unserved[d]
		r.Drivers[d] = h
	}
}

func (in *Input) driver(d matrix.Driver) Health {
	var h Health
	workloads := in.Workloads(d)
	h.Version, h.Complete = commonVersion(workloads), len(workloads) > 0
	for _, w := range workloads {
		a := in.away(w)
		f, open := in.rollout(w, a)
		late := a.text()
		switch {
		case open:
			f.Message = join(f.Message+in.notUp(w, a), late)
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
	if d == matrix.CSI && len(workloads) > 0 && in.CSIDriver == nil {
		h.Findings = append(h.Findings, Finding{
			Driver: d, Subject: "CSIDriver " + drivers.CSIDriver, Reason: fault.NotFound, Message: "is not there",
			Remedy: "the operator makes it again, unless spec.suspend or spec.drift.mode keeps it from that: set them back"})
	}
	h.Findings = append(h.Findings, in.withoutNodes(workloads)...)
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

// withoutNodes reports DaemonSets that no node may run. A cluster may have no node for the Windows plugin.
func (in *Input) withoutNodes(workloads []Workload) (all []Finding) {
	for _, w := range workloads {
		runs := !w.Observed || w.Desired > 0 || w.Name == drivers.NodeWindows
		if w.Kind != "DaemonSet" || runs || len(in.Nodes) == 0 {
			continue
		}
		f := Finding{Driver: w.Driver, Subject: w.String(), Reason: fault.Incomplete, Message: "finds no node to run on",
			Remedy: "check spec.excludedNodes, and its nodeSelector and tolerations in spec.patches"}
		if w.Driver == matrix.CPI {
			f.Remedy = "label the control-plane nodes: `kubectl label node NAME node-role.kubernetes.io/control-plane=`"
		}
		all = append(all, f)
	}
	return all
}
