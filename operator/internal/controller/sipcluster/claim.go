package sipcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
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

// claim puts the claim on all hosts that do not have it yet, for a SIPCluster that is there: one that
// is gone would never give them back.
func (p *pass) claim(ctx context.Context) error {
	if err := p.exists(ctx, "claim hosts for"); err != nil {
		return err
	}
	for i := range p.choice.Roles {
		r := &p.choice.Roles[i]
		for _, h := range append(append([]choose.Host{}, r.Keep...), r.Take...) {
			claim, now := p.cluster.Claim(r.Role), p.snapshot.hosts[h.Key()]
			if h.Claim == claim {
				continue
			}
			notes := map[string]any{airship.AnnotationClaim: claim, airship.AnnotationAdopt: nil}
			if p.cluster.Imports(h) && now.allowed == nil { // what it has by the earlier default, it keeps
				notes[airship.AnnotationAllowedNamespaces] = p.key.Namespace
			}
			patched, err := p.patchHost(ctx, now, map[string]any{"annotations": notes})
			if err != nil {
				return because(airship.ReasonUnableToApplyLabels, err)
			}
			p.snapshot.hosts[h.Key()] = patched
		}
	}
	return nil
}

// stale is that a pass was decided on what is no longer so.
func stale(op, subject string) error {
	return &fault.Error{Reason: fault.Conflict, Op: op, Subject: subject, Err: fault.ErrOutdated}
}

// exists fails where the SIPCluster is not the one that the pass has, to the API server itself: gone,
// another one of the name, or being deleted since.
func (p *pass) exists(ctx context.Context, op string) error {
	return p.confirm(ctx, op, func(now object) bool {
		return now.UID == p.sip.UID && now.DeletionTimestamp.IsZero() == p.sip.DeletionTimestamp.IsZero() && slices.Contains(now.Finalizers, airship.Finalizer)
	})
}

// unchanged fails where the SIPCluster is not as the pass has it, in spec or status: somebody else may
// have decided otherwise since.
func (p *pass) unchanged(ctx context.Context, op string) error {
	return p.confirm(ctx, op, func(now object) bool { return now.ResourceVersion == p.sip.ResourceVersion })
}

func (p *pass) confirm(ctx context.Context, op string, same func(now object) bool) error {
	now := &airship.SIPCluster{}
	switch err := p.Reader.Get(ctx, p.key, now); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: "SIPCluster " + p.key.String(), Err: err}
	case same(now):
		return nil
	}
	return stale(op, "SIPCluster "+p.key.String())
}

// stillHeld looks, where hosts came from the cache, whether the API server agrees that those
// that services are about to lead to are held: the cache may be as old as a host's last holder.
func (p *pass) stillHeld(ctx context.Context) error {
	if p.snapshot.live {
		return nil
	}
	held := map[types.NamespacedName]bool{}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(HostKind.GroupVersion().WithKind(HostKind.Kind + "List"))
	err := pages.Each(ctx, p.Reader, list, func() {
		for i := range list.Items {
			o := &list.Items[i]
			h := choose.Host{Labels: o.Labels, Claim: o.Annotations[airship.AnnotationClaim]}
			held[client.ObjectKeyFromObject(o)] = p.cluster.Holds(h)
		}
	})
	if err != nil {
		return listFault(err)
	}
	for _, r := range p.choice.Roles {
		for _, h := range p.held(r) {
			if !held[h.Key()] {
				return stale("lead services to", h.String())
			}
		}
	}
	return nil
}

// patchHost changes a host's metadata, if it is still as it was read.
func (r *Reconciler) patchHost(ctx context.Context, h *host, metadata map[string]any) (*host, error) {
	return r.patchObject(ctx, h, map[string]any{"metadata": metadata})
}

// patchObject applies a merge patch that has metadata, if the host is still as it was read.
func (r *Reconciler) patchObject(ctx context.Context, h *host, change map[string]any) (*host, error) {
	metadata, _ := change["metadata"].(map[string]any)
	metadata["uid"], metadata["resourceVersion"] = h.uid, h.resourceVersion
	patch, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	o := hostObject(h.Key())
	if err := r.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(cluster.FieldManager)); err != nil {
		return nil, hostFault("change", h, err)
	}
	return readHost(o), nil
}

func hostObject(key types.NamespacedName) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(HostKind)
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	return o
}

func hostFault(op string, h *host, err error) error {
	f := &fault.Error{Reason: fault.Unreachable, Op: op, Subject: h.String(), Err: err}
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		f.Reason, f.Err = fault.Conflict, fmt.Errorf("%w: %w", fault.ErrOutdated, err) // it is another one, or none
	case apierrors.IsForbidden(err):
		f.Reason, f.Hint = fault.Forbidden, "grant the operator that right: `vdo-bundle install-manifests BUNDLE --sip | kubectl apply -f -`"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		f.Reason, f.Hint = fault.Incompatible, "see what refuses the change: Metal3's kinds or an admission policy"
	}
	return f
}

// editHost changes a host's metadata as it is now. The edit gets the newest state and says
// what to change, or nil where nothing is. Who was faster may have been the next SIPCluster of the name.
func (p *pass) editHost(ctx context.Context, h *host, edit func(*host) map[string]any) error {
	err := errors.New("never tried")
	for range tries {
		metadata := edit(h)
		if metadata == nil {
			return nil
		}
		var patched *host
		if patched, err = p.patchHost(ctx, h, metadata); err == nil {
			*h = *patched
			return nil
		}
		if fault.ReasonOf(err) != fault.Conflict {
			return err
		}
		o := hostObject(h.Key())
		switch e := p.Reader.Get(ctx, h.Key(), o); {
		case apierrors.IsNotFound(e):
			return nil // with a host go its labels
		case e != nil:
			return hostFault("read", h, e)
		}
		*h = *readHost(o)
		if err := p.exists(ctx, "change hosts of"); err != nil {
			return err
		}
	}
	return err
}
