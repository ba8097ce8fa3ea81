package decide

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

const (
	// draining is for how long a node that was cordoned counts as being emptied; longer than
	// that it is kept out of use, which may be for weeks. A time that is as much ahead of ours
	// says nothing: whoever may change nodes has written it.
	draining = time.Hour
	// settling is how long a vCenter counts as being upgraded after its version changed: its
	// services start one after the other.
	settling = 10 * time.Minute
)

// NodesChange says that nodes are being upgraded or emptied, "" where they are not: kubelets
// are of different minor versions, or of different patches while a node is cordoned, or a node
// was cordoned lately. Pools that stay at different patches are no upgrade.
func NodesChange(nodes []*corev1.Node, now time.Time) string {
	kubelets, minors := map[string]bool{}, map[matrix.Minor]bool{}
	cordoned := false
	var lately []string
	for _, n := range nodes {
		kubelets[n.Status.NodeInfo.KubeletVersion] = true
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
	for kubelet := range kubelets {
		if v, err := matrix.ParseKubernetes(kubelet); err == nil {
			minors[v.Minor()] = true
		} else {
			delete(kubelets, kubelet)
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

// SeenVCenters is what is remembered of vCenters once their versions of now were seen, sorted
// by name. Of one whose version is not known now what was known stays; those that are not
// among names are forgotten.
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

// VCentersChange says that a vCenter is being upgraded, "" where none is.
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

// reacting is how long OpenShift's Machine Config Operator is given to make a configuration of nodes
// of a mirror set that was written: before that all pools say that they are up to date. It takes
// some seconds where nothing is amiss.
const reacting = 5 * time.Minute

// Pool is what an upgrade looks at of a MachineConfigPool of OpenShift's.
type Pool struct {
	Name string
	// Target is the configuration that its nodes are to have, and Has what all of them had last.
	Target, Has string
	// Updated tells whether all nodes are ready with what they are to have, and Updates and Nodes
	// are how many have it, of how many.
	Updated        bool
	Updates, Nodes int64
	Paused         bool // its nodes get nothing new
	Degraded       bool // something is amiss with what they are to have
}

func (p Pool) taken() bool { return p.Updated && !p.Degraded && p.Target == p.Has }

// String says what a pool waits for.
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

// PoolsChange says that nodes have not taken up a mirror set that was written at a time, "" where
// all have.
func PoolsChange(set string, written time.Time, pools []Pool, now time.Time) string {
	if reacts(written, now) {
		return fmt.Sprintf("%s was written at %s, and OpenShift is given until %s to begin with it", set, clock(written), clock(written.Add(reacting)))
	}
	var all []string
	for _, p := range pools {
		if !p.taken() {
			all = append(all, p.String())
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return "not all nodes have taken up " + set + ": " + few(all)
}

// PoolsRoll tells whether nodes get another configuration just now, or may after a set was written.
// What someone has to see to does not count.
func PoolsRoll(written time.Time, pools []Pool, now time.Time) bool {
	rolls := func(p Pool) bool { return p.Target != p.Has && !p.Paused && !p.Degraded }
	return reacts(written, now) || slices.ContainsFunc(pools, rolls)
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// reacts is bounded both ways: clocks differ.
func reacts(written, now time.Time) bool {
	since := now.Sub(written)
	return since > -reacting && since < reacting
}
