package choose

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

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

// Refusal is hosts that one rule refused.
type Refusal struct {
	Reason Reason
	Count  int
	Hosts  []string // a few, as NAMESPACE/NAME
}

// refuses says why a free host does not fit a role, whatever else is held; or "".
func (d *decision) refuses(h Host) Reason {
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
type tally map[Reason]*Refusal

func (t tally) add(reason Reason, h Host) {
	if t[reason] == nil {
		t[reason] = &Refusal{Reason: reason}
	}
	r := t[reason]
	r.Count++
	if len(r.Hosts) < fewHosts {
		r.Hosts = append(r.Hosts, h.Key().String())
	}
}

// sorted returns the refusals, the most frequent first.
func (t tally) sorted() []Refusal {
	all := make([]Refusal, 0, len(t))
	for _, r := range t {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
