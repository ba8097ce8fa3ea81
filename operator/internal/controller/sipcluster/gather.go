package sipcluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// errCached is that a pass that read hosts from the cache has something to change: it is made again, with
// hosts from the API server.
var errCached = fmt.Errorf("hosts are from a cache: %w", fault.ErrOutdated)

// gather chooses, and claims what was chosen.
func (p *pass) gather(ctx context.Context) error {
	s, err := p.readHosts(ctx, p.live)
	if err == nil {
		err = p.choose(ctx, s)
	}
	switch {
	case err != nil || !p.changes():
		return err
	case !p.live:
		return errCached
	}
	return p.claim(ctx)
}

// choose decides over a snapshot. What of the hosts chosen cannot be read is noted in the
// snapshot, and decided on again: a free host is then refused.
func (p *pass) choose(ctx context.Context, s hosts) error {
	permits := func(*choose.Host) bool { return true } // what is given back needs no permission
	if !p.cluster.Deleting {
		var err error
		if permits, err = p.permits(ctx, p.key.Namespace); err != nil {
			return err
		}
	}
	for _, h := range s {
		// Earlier versions permitted every namespace without an annotation; see claim.
		h.Permitted = permits(h) || allowed(h) == nil && p.cluster.Imports(*h)
		h.Recovering = p.recovering(h)
	}
	for {
		choice, err := choose.Choose(p.cluster, p.sip.Spec.Nodes, s.list())
		if err != nil {
			return because(airship.ReasonUnschedulable, err)
		}
		found := false
		for _, r := range choice.Roles {
			for _, c := range r.Held() {
				h := s[c.Key()]
				e, err := p.extract(ctx, h)
				if err != nil {
					return err
				}
				if e.problem != nil && h.Problem == "" {
					h.Problem, found = fault.Text(e.problem), true
				}
			}
		}
		if !found {
			p.choice, p.hosts = choice, s
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
func (p *pass) failedSince(h *choose.Host) time.Time {
	if h.Failed() == "" {
		return time.Time{}
	}
	if since := p.was(h.Key()).FailedSince; since != nil {
		return since.Time
	}
	return p.Now()
}

// recovering reports whether a host in error may recover by itself, and notes when to look again.
func (p *pass) recovering(h *choose.Host) bool {
	if !h.MayRecover() || !p.cluster.Holds(*h) {
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
			if h.Claim() != p.cluster.Claim(r.Role) {
				return true
			}
		}
	}
	return p.choice.Changes()
}
