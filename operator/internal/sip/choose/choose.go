// Package choose decides which BareMetalHosts a SIPCluster has. It is pure, over a
// snapshot of all hosts; claiming them is up to who asks.
//
//	choice, err := choose.Choose(cluster, spec.Nodes, hosts)
//	for role, host := range choice.Held() { … }
//	for _, r := range choice.Roles { r.Keep …; r.Take …; r.Leave …; r.Missing … }
//
// # The rules
//
//   - A host belongs to the SIPCluster whose UID its claim has: see [Cluster.Holds]. What another
//     one has is never taken.
//   - What is held counts first, whatever has become of it or of the selector. So a cluster
//     that has what it wants is satisfied, though no free host be left.
//   - Only a host that its owner permits is taken: see [Host].Permitted. One that is held and no
//     longer permitted leaves, unless it is in use.
//   - A free host is taken where it matches the selector and no rule refuses it: see
//     [Reason]. Order is by namespace and name; ControlPlane chooses before Worker.
//   - For each value of the topologyKey a role has at most one host, those that are held
//     counted. Hosts without that label are not restricted.
//   - The target is active + standby; no count is none.
//   - Too few: what is held stays, and what is missing is counted, with the reasons of
//     all refusals.
//   - Too many: hosts leave until the target is met; first those that failed, then those
//     that the selector no longer matches, then the others, last in the order first. A host
//     in use never leaves, unless [Cluster].ReleaseInUse: these are the active ones, so that
//     standby hosts go first. See [Host.InUse].
//   - A host that is held and failed is replaced where another is free: it leaves, unless
//     it is in use or [Host].Recovering, and the other is taken. Where more hosts failed than the role
//     has standby, none is replaced: an outage of a network of management controllers must
//     not exchange a whole cluster.
//
// The same snapshot gives the same choice, and a choice that was carried out changes
// nothing when it is made again.
package choose

import (
	"cmp"
	"errors"
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

// Choice is what was decided for one SIPCluster, by role; roles that the spec no longer
// has and hosts are held of are among them.
type Choice struct{ Roles []Role }

// Role is what was decided for one role.
type Role struct {
	Role        airship.Role
	TopologyKey string
	// Wanted is how many hosts the spec asks for.
	Wanted int
	// Keep are hosts that are held and stay, Take those to claim, Leave those to give back;
	// each in the order of hosts.
	Keep, Take []*Host
	Leave      []Leaving
	// Problems of hosts that are held and stay, by namespace and name.
	Problems map[types.NamespacedName]string
	// Missing is how many are wanted and not there, and why the other hosts are not taken.
	Missing airship.MissingHosts
}

// Leaving is a host that is given back, and why.
type Leaving struct {
	*Host
	Why string
}

// Held are the hosts that the cluster has then: in the order of roles, and in theirs.
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

// Leaving are the hosts that are given back.
func (c Choice) Leaving() (all []Leaving) {
	for _, r := range c.Roles {
		all = append(all, r.Leave...)
	}
	return all
}

// Held are the hosts that the role has then, in their order.
func (r Role) Held() []*Host {
	all := slices.Concat(r.Keep, r.Take)
	slices.SortFunc(all, (*Host).compare)
	return all
}

// InUse are the hosts that stay only since they are in use: there are too many, or they are no
// longer permitted.
func (r Role) InUse() []*Host {
	return slices.DeleteFunc(slices.Clone(r.Keep), func(h *Host) bool {
		return h.InUse() == "" || h.Permitted && len(r.Keep) <= r.Wanted
	})
}

// Choose decides, and sorts the hosts. Errors are faults: a selector that cannot be
// understood.
func Choose(cluster Cluster, nodes map[airship.Role]airship.NodeSet, hosts []*Host) (Choice, error) {
	slices.SortFunc(hosts, (*Host).compare)
	held, free, others := divide(cluster, hosts)
	var errs []error
	var c Choice
	all := slices.AppendSeq(slices.Collect(maps.Keys(nodes)), maps.Keys(held)) // of the spec, and of what is held
	slices.Sort(all)
	for _, role := range slices.Compact(all) {
		set := nodes[role]
		selector, err := metav1.LabelSelectorAsSelector(&set.LabelSelector)
		if err != nil {
			errs = append(errs, fault.Errorf(fault.InvalidInput, "choose hosts by",
				fmt.Sprintf("spec.nodes.%s.labelSelector", role),
				"correct the selector: operators are In, NotIn, Exists and DoesNotExist", "%w", err))
			continue
		}
		d := decision{
			cluster: cluster, role: role, set: set, selector: selector, held: held[role], free: free, others: others,
		}
		decided := d.decide()
		free = without(free, decided.Take...)
		c.Roles = append(c.Roles, decided)
	}
	if len(errs) > 0 {
		return Choice{}, errors.Join(errs...)
	}
	return c, nil
}

// divide tells apart what the cluster holds, by role, what nobody does, and the rest.
func divide(cluster Cluster, hosts []*Host) (held map[airship.Role][]*Host, free, others []*Host) {
	held = map[airship.Role][]*Host{}
	for _, h := range hosts {
		switch by, role := h.Holder(); {
		case cluster.Holds(h):
			held[role] = append(held[role], h)
		case by == types.NamespacedName{}:
			free = append(free, h)
		default:
			others = append(others, h)
		}
	}
	return held, free, others
}

func without(hosts []*Host, taken ...*Host) []*Host {
	return slices.DeleteFunc(slices.Clone(hosts), func(h *Host) bool { return slices.Contains(taken, h) })
}

// decision is what is decided on for one role.
type decision struct {
	cluster            Cluster
	role               airship.Role
	set                airship.NodeSet
	selector           labels.Selector
	held, free, others []*Host
}

func (d *decision) decide() Role {
	total, standby := d.set.Wanted()
	r := Role{Role: d.role, TopologyKey: d.set.TopologyKey, Wanted: total, Problems: map[types.NamespacedName]string{}}
	r.Keep, r.Leave = d.shrink(total)
	taken, refused := d.gather(total-len(r.Keep), r.Keep)
	r.Take = taken
	d.replace(&r, standby)
	if n := total - len(r.Keep) - len(r.Take); n > 0 {
		r.Missing = airship.MissingHosts{Role: d.role, Count: int32(n), Refused: refused} //nolint:gosec // at most 2000
	}
	d.tell(&r)
	slices.SortFunc(r.Take, (*Host).compare)
	slices.SortFunc(r.Leave, func(a, b Leaving) int { return a.compare(b.Host) })
	return r
}

// replace exchanges failed hosts for free ones, where they are not more than standby. The
// failed one may be what kept the topologyKey's value from the other.
func (d *decision) replace(r *Role, standby int) {
	failed := slices.DeleteFunc(slices.Clone(r.Keep), func(h *Host) bool { return h.Failed() == "" })
	if len(failed) > standby {
		return
	}
	for _, h := range failed {
		if h.InUse() != "" || h.Recovering {
			continue
		}
		stay := without(r.Keep, h)
		rest := *d
		rest.free, rest.others = without(d.free, r.Take...), nil
		taken, _ := rest.gather(1, append(slices.Clone(stay), r.Take...))
		if len(taken) == 0 {
			continue
		}
		r.Keep, r.Take = stay, append(r.Take, taken...)
		r.Leave = append(r.Leave, Leaving{Host: h, Why: "it failed and is replaced: " + h.Failed()})
	}
}

const notPermitted = "its owner does not permit it to this namespace"

// shrink says who leaves: who is not permitted, and where more than total are held.
func (d *decision) shrink(total int) (stay []*Host, leave []Leaving) {
	for _, h := range d.held {
		if h.Permitted || h.InUse() != "" && !d.cluster.ReleaseInUse {
			stay = append(stay, h)
		} else {
			leave = append(leave, Leaving{Host: h, Why: notPermitted})
		}
	}
	order := slices.DeleteFunc(slices.Clone(stay), func(h *Host) bool {
		return !d.cluster.ReleaseInUse && h.InUse() != ""
	})
	slices.SortFunc(order, func(a, b *Host) int { return cmp.Or(d.worth(a)-d.worth(b), b.compare(a)) })
	for _, h := range order[:min(len(order), max(0, len(stay)-total))] {
		stay = without(stay, h)
		leave = append(leave, Leaving{Host: h, Why: "fewer hosts are wanted"})
	}
	return stay, leave
}

// worth orders hosts by who leaves first.
func (d *decision) worth(h *Host) int {
	switch {
	case h.InUse() != "":
		return 3
	case h.Failed() != "":
		return 0
	case !d.selector.Matches(labels.Set(h.Labels)):
		return 1
	}
	return 2
}

// gather takes up to n free hosts, beside those that are held.
func (d *decision) gather(n int, held []*Host) (taken []*Host, refused []airship.RefusedHosts) {
	if n <= 0 {
		return nil, nil
	}
	values := map[string]bool{}
	for _, h := range held {
		values[h.Labels[d.set.TopologyKey]] = true
	}
	tally := tally{}
	for _, h := range d.others {
		reason := ReasonTaken
		if by, _ := h.Holder(); by == d.cluster.NamespacedName {
			reason = ReasonAdopt
		}
		tally.add(reason, h)
	}
	for _, h := range d.free {
		value, has := h.Labels[d.set.TopologyKey]
		switch reason := d.refuses(h); {
		case reason != "":
			tally.add(reason, h)
		case has && d.set.TopologyKey != "" && values[value]:
			tally.add(ReasonTopology, h)
		case len(taken) < n:
			taken, values[value] = append(taken, h), true
		}
	}
	return taken, tally.sorted()
}

// tell says what is wrong with hosts that are held and stay.
func (d *decision) tell(r *Role) {
	for _, h := range r.Keep {
		var all []string
		for _, one := range []struct {
			is   bool
			text string
		}{
			{len(r.Keep) > r.Wanted && h.InUse() != "", "it is one too many, and " + h.InUse()},
			{!h.Permitted, notPermitted + ", and " + h.InUse()},
			{h.Failed() != "", h.Failed()},
			{h.Problem != "", h.Problem},
			{h.Spec.AutomatedCleaningMode == "disabled", "automatedCleaningMode is disabled: the next tenant gets its disks unwiped"},
			{!d.selector.Matches(labels.Set(h.Labels)), "labelSelector no longer matches it"},
		} {
			if one.is {
				all = append(all, one.text)
			}
		}
		if len(all) > 0 {
			r.Problems[h.Key()] = strings.Join(all, "; ")
		}
	}
}

// Reason is why a host is not taken. There are few of them, so that a status stays small
// whatever the number of hosts.
type Reason string

// The reasons, in the order in which they are looked for.
const (
	ReasonTaken       Reason = "belongs to another SIPCluster"
	ReasonAdopt       Reason = "is for a SIPCluster of this name; adopt it by annotation"
	ReasonSelector    Reason = "labelSelector does not match"
	ReasonNamespace   Reason = "is not permitted to the SIPCluster's namespace"
	ReasonDeleting    Reason = "is being deleted"
	ReasonConsumer    Reason = "has a consumerRef"
	ReasonDeployed    Reason = "has spec.image or spec.customDeploy"
	ReasonPaused      Reason = "is paused"
	ReasonUnhealthy   Reason = "is marked unhealthy by Cluster API"
	ReasonDetached    Reason = "is detached"
	ReasonState       Reason = "is not provisioning state available"
	ReasonOperational Reason = "is not operational status OK"
	ReasonNetworkData Reason = "has no address on a nodeInterfaceId"
	ReasonTopology    Reason = "has the topologyKey value of a host that is held"
)

// fewHosts is how many hosts are named for a reason.
const fewHosts = 5

// refuses says why a free host does not fit a role, whatever else is held; or "".
func (d *decision) refuses(h *Host) Reason {
	switch {
	case !d.selector.Matches(labels.Set(h.Labels)):
		return ReasonSelector
	case !h.Permitted:
		return ReasonNamespace
	}
	if h.Unfit() == "" && h.Problem != "" {
		return ReasonNetworkData
	}
	return h.Unfit()
}

// Unfit says why a host cannot be taken by anybody, or "".
func (b *BareMetalHost) Unfit() Reason {
	switch {
	case !b.DeletionTimestamp.IsZero():
		return ReasonDeleting
	case b.Consumer() != "":
		return ReasonConsumer
	case b.has(AnnotationPaused):
		return ReasonPaused
	case b.has(annotationDetached):
		return ReasonDetached
	case b.has(AnnotationUnhealthy, annotationUnhealthyOld):
		return ReasonUnhealthy
	case b.isDeployed():
		return ReasonDeployed
	case !b.available():
		return ReasonState
	case b.Status.OperationalStatus != "OK" || b.Status.ErrorType != "":
		return ReasonOperational
	}
	return ""
}

// tally counts refusals.
type tally map[Reason]*airship.RefusedHosts

func (t tally) add(reason Reason, h *Host) {
	if t[reason] == nil {
		t[reason] = &airship.RefusedHosts{Reason: string(reason)}
	}
	r := t[reason]
	r.Count++
	if len(r.Hosts) < fewHosts {
		r.Hosts = append(r.Hosts, h.Key().String())
	}
}

// sorted returns the refusals, the most frequent first.
func (t tally) sorted() []airship.RefusedHosts {
	all := make([]airship.RefusedHosts, 0, len(t))
	for _, r := range t {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b airship.RefusedHosts) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
