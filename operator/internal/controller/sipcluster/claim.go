package sipcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
