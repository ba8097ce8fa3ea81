package decide

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	_ "time/tzdata" // the operator's image has no time zones

	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

const (
	// draining is how long a cordoned node counts as being drained. Later it is only out of use, maybe for
	// weeks. A time as far in the future is ignored, since anyone who may change nodes can write it.
	draining = time.Hour
	// settling is how long a vCenter counts as being upgraded after a change of its version: its services
	// start one after the other.
	settling = 10 * time.Minute
)

// NodesChange returns why nodes are being upgraded or drained, "" if not. Kubelets differ in minor version, or in patch
// while a node is cordoned, or a node was cordoned lately. Pools that stay at different patches are no upgrade.
func NodesChange(nodes []*corev1.Node, now time.Time) string {
	kubelets, minors := map[string]bool{}, map[matrix.Minor]bool{}
	cordoned := false
	var lately []string
	for _, n := range nodes {
		kubelet := n.Status.NodeInfo.KubeletVersion
		if v, err := matrix.ParseKubernetes(kubelet); err == nil {
			kubelets[kubelet], minors[v.Minor()] = true, true
		}
		if !n.Spec.Unschedulable {
			continue
		}
		cordoned = true
		for _, t := range n.Spec.Taints {
			if t.Key != corev1.TaintNodeUnschedulable || t.TimeAdded == nil {
				continue
			}
			if since := now.Sub(t.TimeAdded.Time); since > -draining && since < draining {
				lately = append(lately, n.Name)
			}
		}
	}
	switch {
	case len(minors) > 1, len(kubelets) > 1 && cordoned:
		return "nodes are being upgraded: kubelets are of " + few(slices.Sorted(maps.Keys(kubelets)))
	case len(lately) > 0:
		slices.Sort(lately)
		return "nodes are being emptied: " + few(lately)
	}
	return ""
}

func few(all []string) string { return fault.Few(all, 5) }

// SeenVCenters returns the record of the named vCenters, sorted by name, after a look at their versions. A
// vCenter of unknown version keeps its record; one that is not among names loses it.
func SeenVCenters(before []revision.VCenter, names []string, versions map[string]string, now time.Time) []revision.VCenter {
	var all []revision.VCenter
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		i := slices.IndexFunc(before, func(v revision.VCenter) bool { return v.Name == name })
		is, known := versions[name]
		switch {
		case i < 0 && known:
			all = append(all, revision.VCenter{Name: name, Version: is})
		case i >= 0 && known && is != before[i].Version:
			all = append(all, revision.VCenter{Name: name, Version: is, Changed: now})
		case i >= 0:
			all = append(all, before[i])
		}
	}
	return all
}

// VCentersChange returns why a vCenter counts as being upgraded, "" if none does.
func VCentersChange(seen []revision.VCenter, now time.Time) string {
	var all []string
	for _, v := range seen {
		if since := now.Sub(v.Changed); !v.Changed.IsZero() && since >= 0 && since < settling {
			all = append(all, fmt.Sprintf("vCenter %s is of version %s since %s", v.Name, v.Version, v.Changed.UTC().Format(time.RFC3339)))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: drivers are upgraded %s after the last change", few(all), settling)
}

// reacting is how long OpenShift's Machine Config Operator gets to render the node configuration of a new
// mirror set; normally it takes seconds. Until then all pools report that they are up to date.
const reacting = 5 * time.Minute

// Pool is the part of an OpenShift MachineConfigPool that an upgrade depends on.
type Pool struct {
	Name string
	// Target is the requested configuration of its nodes, and Has is the last one that all of them had.
	Target, Has string
	// Updated reports whether all nodes are ready with Target. Updates of its Nodes have it.
	Updated        bool
	Updates, Nodes int64
	Paused         bool // its nodes get no new configuration
	Degraded       bool // some nodes cannot apply Target
}

// String describes the state that a pool is in.
func (p Pool) String() string {
	text := "MachineConfigPool " + p.Name
	switch {
	case p.Paused:
		return text + " (paused: its nodes take nothing up)"
	case p.Degraded:
		return text + " (degraded)"
	}
	return fmt.Sprintf("%s (%d of %d nodes updated)", text, p.Updates, p.Nodes)
}

// PoolsChange returns which nodes do not have a mirror set yet that was written at a time, "" if all have it.
func PoolsChange(set string, written time.Time, pools []Pool, now time.Time) string {
	if reacts(written, now) {
		return fmt.Sprintf("%s was written at %s, and OpenShift is given until %s to begin with it", set, clock(written), clock(written.Add(reacting)))
	}
	var all []string
	for _, p := range pools {
		if !p.Updated || p.Degraded || p.Target != p.Has {
			all = append(all, p.String())
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return "some nodes have not applied " + set + ": " + few(all)
}

// PoolsRoll reports whether nodes get another configuration now, or may soon after a set was written.
// Paused and degraded pools do not count, since they need a person.
func PoolsRoll(written time.Time, pools []Pool, now time.Time) bool {
	rolls := func(p Pool) bool { return p.Target != p.Has && !p.Paused && !p.Degraded }
	return reacts(written, now) || slices.ContainsFunc(pools, rolls)
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// reacts reports whether written is near now in either direction, since clocks differ.
func reacts(written, now time.Time) bool {
	since := now.Sub(written)
	return since > -reacting && since < reacting
}

// Window is a recurring time at which upgrades may start. Only [ParseWindow] returns one that ever opens.
type Window struct {
	schedule cron.Schedule
	lasts    time.Duration
	zone     *time.Location
}

// ParseWindow parses a window of a VDOConfig. Its errors are faults.
func ParseWindow(w v1alpha1.UpgradeWindow) (Window, error) {
	bad := func(err error) (Window, error) {
		return Window{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: fmt.Sprintf("spec.upgradePolicy.windows: %q", w.Schedule), Err: err,
			Hint: "write minute hour day-of-month month day-of-week, such as 0 2 * * 6, and a time zone such as Europe/Berlin",
		}
	}
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil {
		return bad(err)
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse(w.Schedule)
	switch {
	case err != nil:
		return bad(err)
	case w.Duration.Duration <= 0:
		return bad(errors.New("it has no duration"))
	}
	return Window{schedule: schedule, lasts: w.Duration.Duration, zone: zone}, nil
}

// Open reports whether the window is open. A window that opens again while open is extended.
func (w Window) Open(now time.Time) bool {
	if w.schedule == nil {
		return false
	}
	opened := w.schedule.Next(now.In(w.zone).Add(-w.lasts))
	return !opened.IsZero() && !opened.After(now)
}

// Next returns when the window opens next, the zero time if never.
func (w Window) Next(now time.Time) time.Time {
	if w.schedule == nil {
		return time.Time{}
	}
	return w.schedule.Next(now.In(w.zone))
}
