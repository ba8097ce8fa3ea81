package sipcluster

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// tries is how often hosts are gathered again in one pass, or one of them is read again,
// where somebody else was faster: Metal3 writes to hosts often.
const tries = 5

// gather chooses, and claims what was chosen. Where nothing has to change it is content
// with the cache.
func (p *pass) gather(ctx context.Context) error {
	s, err := p.cached(ctx)
	if err != nil {
		return err
	}
	if err := p.choose(ctx, s); err != nil || !p.changes() {
		return err
	}
	for range tries {
		if s, err = p.live(ctx); err != nil {
			return err
		}
		if err = p.choose(ctx, s); err != nil {
			return err
		}
		if err = p.claim(ctx); fault.ReasonOf(err) != fault.Conflict {
			return err
		}
		p.Meter.claimLost()
	}
	return err
}

// choose decides over a snapshot. What of the hosts chosen cannot be read is noted in the
// snapshot, and decided on again: a free host is then refused.
func (p *pass) choose(ctx context.Context, s snapshot) error {
	permits, err := p.Permissions.Of(ctx, p.key.Namespace)
	if err != nil {
		return err
	}
	for _, h := range s.hosts {
		// Earlier versions permitted every namespace without an annotation; see claim.
		h.Recovering = p.recovering(h)
		h.Permitted = permits(h) || h.allowed == nil && p.cluster.Imports(h.Host)
	}
	for {
		choice, err := choose.Choose(p.cluster, p.sip.Spec.Nodes, s.list())
		if err != nil {
			return because(airship.ReasonUnschedulable, err)
		}
		found := false
		for _, r := range choice.Roles {
			for _, c := range append(append([]choose.Host{}, r.Keep...), r.Take...) {
				h := s.hosts[c.Key()]
				e, err := p.extract(ctx, h)
				if err != nil {
					return err
				}
				if e.problem != nil && h.Problem == "" {
					h.Problem, h.ProblemReason, found = fault.Text(e.problem), e.reason, true
				}
			}
		}
		if !found {
			p.choice, p.snapshot = choice, s
			return nil
		}
	}
}

// clusterOf is a SIPCluster as far as it chooses hosts.
func clusterOf(sip object) choose.Cluster {
	c := choose.Cluster{
		NamespacedName: client.ObjectKeyFromObject(sip), UID: sip.UID, Listed: map[types.NamespacedName]bool{},
		Deleting:     !sip.DeletionTimestamp.IsZero(),
		ReleaseInUse: sip.Annotations[airship.AnnotationReleaseInUse] == "true",
	}
	for _, h := range sip.Status.Hosts {
		c.Listed[types.NamespacedName{Namespace: h.Namespace, Name: h.Name}] = true
	}
	return c
}

// failedSince is when a host was first seen failed; zero for one that did not fail.
func (p *pass) failedSince(h *host) time.Time {
	if h.Failed() == "" {
		return time.Time{}
	}
	for _, was := range p.sip.Status.Hosts {
		if was.Namespace == h.Namespace && was.Name == h.Name && was.FailedSince != nil {
			return was.FailedSince.Time
		}
	}
	return p.Now()
}

// recovering reports whether a host in error may recover by itself, and notes when to look again.
func (p *pass) recovering(h *host) bool {
	if h.Operational != "error" || h.Deleting || h.Detached || h.Unhealthy || !p.cluster.Holds(h.Host) {
		return false
	}
	left := p.Grace - p.Now().Sub(p.failedSince(h))
	if left > 0 && (p.graceEnds == 0 || left < p.graceEnds) {
		p.graceEnds = left
	}
	return left > 0
}

// changes tells whether hosts have to be claimed or given back. One that is adopted or imported
// has no claim with the UID yet.
func (p *pass) changes() bool {
	for _, r := range p.choice.Roles {
		for _, h := range r.Keep {
			if h.Claim != p.cluster.Claim(r.Role) {
				return true
			}
		}
	}
	return p.choice.Changes()
}
