// Package choose decides which BareMetalHosts a SIPCluster gets. It is pure, over a snapshot of all hosts; the caller
// claims them.
//
//	choice, err := choose.Choose(cluster, spec.Nodes, hosts)
//	for role, host := range choice.Held() { … }
//	for _, r := range choice.Roles { r.Keep …; r.Take …; r.Leave …; r.Missing … }
//
// # The rules
//
//   - Held hosts count first (see [Cluster.Holds]), whatever their state and the selector. Hosts of others are
//     never taken. A new SIPCluster that holds none takes none while hosts are for an earlier one of its name.
//   - A free host is taken if its owner permits it, the selector matches it and it is fit: see [Reason]. Order
//     is by namespace and name; ControlPlane chooses before Worker. A role has at most one host for each value
//     of the topologyKey. Hosts without that label are not restricted.
//   - The target is active + standby; a missing count is zero. If too few hosts fit, the causes are counted.
//   - Excess hosts leave until the target is met: failed hosts first, then those that the selector no longer
//     matches, then the last ones. A host that is no longer permitted leaves too. A host in use never leaves,
//     unless [Cluster].ReleaseInUse is set: see [Host.InUse].
//   - A failed host is replaced if another is free, unless it is in use or [Host].Recovering. If more hosts
//     failed than the role has standby, none is replaced: an outage of a BMC network must not exchange a whole
//     cluster.
//
// The same snapshot gives the same choice, and repeating a choice that was carried out changes nothing.
package choose

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Choice is the decision for one SIPCluster, for the roles of the spec and those of held hosts.
type Choice struct{ Roles []Role }

// Role is the decision for one role.
type Role struct {
	Role        airship.Role
	TopologyKey string
	Wanted      int // number of hosts, by the spec
	// Keep are held hosts that stay, Take free hosts to claim, Leave held hosts to release.
	Keep, Take, Leave []*Host
	// Missing counts the hosts that the role lacks, and says why other hosts are not taken.
	Missing airship.MissingHosts

	selector     labels.Selector
	releaseInUse bool
}

// Held returns the hosts of the cluster after this choice, in the order of roles and of their hosts.
func (c Choice) Held() iter.Seq2[Role, *Host] {
	return func(yield func(Role, *Host) bool) {
		for _, r := range c.Roles {
			for _, h := range r.Held() {
				if !yield(r, h) {
					return
				}
			}
		}
	}
}

// Leaving returns the hosts to release.
func (c Choice) Leaving() (all []*Host) {
	for _, r := range c.Roles {
		all = append(all, r.Leave...)
	}
	return all
}

// Held returns the hosts of the role after this choice, in their order.
func (r Role) Held() []*Host {
	all := slices.Concat(r.Keep, r.Take)
	slices.SortFunc(all, (*Host).compare)
	return all
}

// InUse returns the hosts that stay only because they are in use: they are excess, or no longer permitted.
func (r Role) InUse() []*Host {
	return slices.DeleteFunc(slices.Clone(r.Keep), func(h *Host) bool {
		return h.InUse() == "" || h.Permitted && len(r.Keep) <= r.Wanted
	})
}

// Choose decides, and sorts the hosts. Errors are faults: an invalid selector, or hosts of an earlier SIPCluster.
func Choose(cluster Cluster, nodes map[airship.Role]airship.NodeSet, hosts []*Host) (c Choice, err error) {
	slices.SortFunc(hosts, (*Host).compare)
	held, free, others := divide(cluster, hosts)
	if lost := others[ReasonAdopt]; lost.Count > 0 && len(held) == 0 && !cluster.Deleting {
		return Choice{}, fault.Errorf(fault.Conflict, "choose hosts for", "SIPCluster "+cluster.String(),
			"annotate them with "+airship.AnnotationClaim+"=\"ROLE "+cluster.String()+"\", or remove claims and labels",
			"%d hosts are for an earlier one of this name: %s", lost.Count, strings.Join(lost.Hosts, ", "))
	}
	all := slices.AppendSeq(slices.Collect(maps.Keys(nodes)), maps.Keys(held)) // of the spec, and of held hosts
	slices.Sort(all)
	for _, role := range slices.Compact(all) {
		set := nodes[role]
		selector, err := metav1.LabelSelectorAsSelector(&set.LabelSelector)
		if err != nil {
			return Choice{}, fault.Errorf(fault.InvalidInput, "choose hosts by",
				fmt.Sprintf("spec.nodes.%s.labelSelector", role),
				"correct the selector: operators are In, NotIn, Exists and DoesNotExist", "%w", err)
		}
		total, standby := set.Wanted()
		r := Role{
			Role: role, TopologyKey: set.TopologyKey, Wanted: total,
			selector: selector, releaseInUse: cluster.ReleaseInUse,
		}
		r.shrink(held[role])
		refused := maps.Clone(others)
		r.Take = r.fitting(total-len(r.Keep), free, r.Keep, refused)
		r.replace(free, standby)
		if n := total - len(r.Keep) - len(r.Take); n > 0 {
			r.Missing = airship.MissingHosts{Role: role, Count: int32(n), Refused: refused.sorted()} //nolint:gosec // at most 2000
		}
		free = without(free, r.Take...)
		c.Roles = append(c.Roles, r)
	}
	return c, nil
}

// divide returns the hosts that the cluster holds, by role, the free ones, and a tally of the others.
func divide(cluster Cluster, hosts []*Host) (held map[airship.Role][]*Host, free []*Host, others tally) {
	held, others = map[airship.Role][]*Host{}, tally{}
	for _, h := range hosts {
		switch by, role := h.Holder(); {
		case cluster.Holds(h):
			held[role] = append(held[role], h)
		case by == types.NamespacedName{}:
			free = append(free, h)
		case by == cluster.NamespacedName && h.Adopts():
			others.add(ReasonNamespace, h)
		case by == cluster.NamespacedName:
			others.add(ReasonAdopt, h)
		default:
			others.add(ReasonTaken, h)
		}
	}
	return held, free, others
}

func without(hosts []*Host, taken ...*Host) []*Host {
	return slices.DeleteFunc(slices.Clone(hosts), func(h *Host) bool { return slices.Contains(taken, h) })
}

// replace exchanges failed hosts for free ones, unless more than standby failed. A replacement may have the
// topologyKey value of the host that it replaces.
func (r *Role) replace(free []*Host, standby int) {
	failed := slices.DeleteFunc(slices.Clone(r.Keep), func(h *Host) bool { return h.Failed() == "" })
	if len(failed) > standby {
		return
	}
	for _, h := range failed {
		if h.InUse() != "" || h.Recovering {
			continue
		}
		stay := without(r.Keep, h)
		taken := r.fitting(1, without(free, r.Take...), slices.Concat(stay, r.Take), tally{})
		if len(taken) > 0 {
			r.Keep, r.Take, r.Leave = stay, append(r.Take, taken...), append(r.Leave, h)
		}
	}
}

// shrink decides which held hosts leave: those that are not permitted, and the excess.
func (r *Role) shrink(held []*Host) {
	stays := func(h *Host) bool { return h.InUse() != "" && !r.releaseInUse }
	var order []*Host
	for _, h := range held {
		if !h.Permitted && !stays(h) {
			r.Leave = append(r.Leave, h)
			continue
		}
		r.Keep = append(r.Keep, h)
		if !stays(h) {
			order = append(order, h)
		}
	}
	slices.SortFunc(order, func(a, b *Host) int { return cmp.Or(r.worth(a)-r.worth(b), b.compare(a)) })
	for _, h := range order[:min(len(order), max(0, len(r.Keep)-r.Wanted))] {
		r.Keep, r.Leave = without(r.Keep, h), append(r.Leave, h)
	}
}

// worth orders hosts by which leaves first.
func (r *Role) worth(h *Host) int {
	switch {
	case h.InUse() != "":
		return 3
	case h.Failed() != "":
		return 0
	case !r.selector.Matches(labels.Set(h.Labels)):
		return 1
	}
	return 2
}

// fitting returns up to n free hosts that fit beside the held ones, and counts why the others do not.
func (r *Role) fitting(n int, free, held []*Host, refused tally) (taken []*Host) {
	if n <= 0 {
		return nil
	}
	values := map[string]bool{}
	for _, h := range held {
		values[h.Labels[r.TopologyKey]] = true
	}
	for _, h := range free {
		value, has := h.Labels[r.TopologyKey]
		switch reason := h.Unfit(); {
		case !r.selector.Matches(labels.Set(h.Labels)):
			refused.add(ReasonSelector, h)
		case !h.Permitted:
			refused.add(ReasonNamespace, h)
		case reason != "":
			refused.add(reason, h)
		case has && r.TopologyKey != "" && values[value]:
			refused.add(ReasonTopology, h)
		case len(taken) < n:
			taken, values[value] = append(taken, h), true
		}
	}
	return taken
}

// Problem returns what is wrong with a held host, "" for nothing.
func (r Role) Problem(h *Host) string {
	var all []string
	for _, one := range []struct {
		is   bool
		text string
	}{
		{slices.Contains(r.Leave, h), "it leaves"},
		{len(r.Keep) > r.Wanted && h.InUse() != "", "it is one too many, and " + h.InUse()},
		{!h.Permitted, "its owner does not permit it to this namespace"},
		{h.Failed() != "", h.Failed()},
		{h.Spec.AutomatedCleaningMode == "disabled", "automatedCleaningMode is disabled: the next tenant gets its disks unwiped"},
		{!r.selector.Matches(labels.Set(h.Labels)), "labelSelector no longer matches it"},
	} {
		if one.is {
			all = append(all, one.text)
		}
	}
	return strings.Join(all, "; ")
}

// Reason is why a host is not taken. There are few, so that a status stays small with any number of hosts.
type Reason string

// The reasons.
const (
	ReasonTaken     Reason = "belongs to another SIPCluster"
	ReasonAdopt     Reason = "is for a SIPCluster of this name; adopt it by annotation"
	ReasonSelector  Reason = "labelSelector does not match"
	ReasonNamespace Reason = "is not permitted to the SIPCluster's namespace"
	ReasonInUse     Reason = "is in use: consumerRef, image, customDeploy, node-reuse, or a state other than available"
	ReasonUnfit     Reason = "is not healthy, or paused, detached or being deleted"
	ReasonTopology  Reason = "has the topologyKey value of a host that is held"
)

// Unfit returns why no cluster can take the host, or "".
func (b *BareMetalHost) Unfit() Reason {
	switch {
	case b.InUse() != "":
		return ReasonInUse
	case b.Failed() != "", b.Ignored(), b.Status.OperationalStatus != "OK", b.Status.ErrorType != "":
		return ReasonUnfit
	}
	return ""
}

// fewHosts is how many hosts a reason names.
const fewHosts = 5

type tally map[Reason]airship.RefusedHosts

func (t tally) add(reason Reason, h *Host) {
	r := t[reason]
	r.Reason = string(reason)
	r.Count++
	if len(r.Hosts) < fewHosts {
		r.Hosts = append(r.Hosts, h.Key().String())
	}
	t[reason] = r
}

// sorted returns the refusals, the most frequent first.
func (t tally) sorted() []airship.RefusedHosts {
	return slices.SortedFunc(maps.Values(t), func(a, b airship.RefusedHosts) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
}
