package sipcluster

import (
	"context"
	"errors"
	"slices"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// label puts the labels on what is held, once the load balancers of the control plane are ready:
// no other service keeps the tenant cluster from its hosts. It gives back what leaves, once no
// service leads there any more.
func (p *pass) label(ctx context.Context) error {
	if !p.applied {
		return nil // nothing is known of the services
	}
	var errs []error
	for _, r := range p.choice.Roles {
		if p.allReady(services.LoadBalancerControlPlane) {
			for _, h := range p.held(r) {
				errs = append(errs, p.labelHost(ctx, r.Role, p.snapshot.hosts[h.Key()]))
			}
		}
	}
	errs = append(errs, p.letLeave(ctx))
	return because(airship.ReasonUnableToApplyLabels, errors.Join(errs...))
}

// letLeave gives back what leaves, each host as it was decided on: one that was written meanwhile is
// decided on again.
func (p *pass) letLeave(ctx context.Context) error {
	if !p.leaves() || !p.releasable() {
		return nil
	}
	var err error
	if p.leading, err = p.whoLeads(ctx); err != nil || p.leading != "" {
		p.again = p.again || err == nil
		return err
	}
	if err := p.unchanged(ctx, "give back hosts of"); err != nil {
		return err
	}
	var errs []error
	for _, r := range p.choice.Roles {
		for _, l := range r.Leave {
			patched, err := p.patchHost(ctx, p.snapshot.hosts[l.Key()], released())
			if err == nil {
				p.snapshot.hosts[l.Key()] = patched
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *pass) leaves() bool {
	return slices.ContainsFunc(p.choice.Roles, func(r choose.Role) bool { return len(r.Leave) > 0 })
}

func (p *pass) labelHost(ctx context.Context, role airship.Role, h *host) error {
	return p.editHost(ctx, h, func(now *host) map[string]any {
		if now.Claim != p.cluster.Claim(role) || now.Labelled(p.key, role) {
			return nil
		}
		return map[string]any{"labels": map[string]any{
			airship.LabelClusterNamespace: p.key.Namespace, airship.LabelClusterName: p.key.Name, airship.LabelNodeType: string(role),
		}}
	})
}

// released takes labels and claim off a host, in one patch.
func released() map[string]any {
	labels := map[string]any{}
	for _, key := range []string{airship.LabelClusterNamespace, airship.LabelClusterName, airship.LabelNodeType} {
		labels[key] = nil
	}
	return map[string]any{"labels": labels, "annotations": map[string]any{airship.AnnotationClaim: nil}}
}
