package sipcluster

import (
	"context"
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// claim puts the claim on all hosts that do not have it yet, for a SIPCluster that is there: one that
// is gone would never give them back.
func (p *pass) claim(ctx context.Context) error {
	if err := p.exists(ctx, "claim hosts for"); err != nil {
		return err
	}
	for _, r := range p.choice.Roles {
		for _, h := range r.Held() {
			claim, now := p.cluster.Claim(r.Role), p.hosts[h.Key()]
			if h.Claim() == claim {
				continue
			}
			notes := map[string]any{airship.AnnotationClaim: claim, airship.AnnotationAdopt: nil}
			if p.cluster.Imports(h) && allowed(now) == nil { // what it has by the earlier default, it keeps
				notes[airship.AnnotationAllowedNamespaces] = p.key.Namespace
			}
			if err := p.patch(ctx, now, map[string]any{"annotations": notes}, nil); err != nil {
				if condition.Outdated(err) {
					p.Meter.claimLost()
				}
				return because(airship.ReasonUnableToApplyLabels, err)
			}
		}
	}
	return nil
}

// exists fails where the SIPCluster is not the one that the pass has, to the API server itself: gone,
// another one of the name, or being deleted since.
func (p *pass) exists(ctx context.Context, op string) error {
	now := &airship.SIPCluster{}
	err := p.Reader.Get(ctx, p.key, now)
	if err == nil && (now.UID != p.sip.UID || now.DeletionTimestamp.IsZero() != p.sip.DeletionTimestamp.IsZero()) {
		err = apierrors.NewConflict(schema.GroupResource{}, p.key.Name, errors.New("it is another one"))
	}
	return asked(op, "SIPCluster "+p.key.String(), err)
}

// patch merges metadata and a spec into a host's, if it is still as it was read.
func (r *Reconciler) patch(ctx context.Context, h *choose.Host, metadata, spec map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = h.UID, h.ResourceVersion
	change := map[string]any{"metadata": metadata}
	if spec != nil {
		change["spec"] = spec
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	o := &choose.BareMetalHost{}
	o.Namespace, o.Name = h.Namespace, h.Name
	err = r.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(cluster.FieldManager))
	if err != nil {
		return asked("change", h.String(), err)
	}
	h.BareMetalHost = o
	return nil
}
