package sipcluster

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
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
	if p.allReady(services.LoadBalancerControlPlane) {
		for r, h := range p.choice.Held() {
			if !h.Labelled(p.key, r.Role) {
				errs = append(errs, p.patch(ctx, h, map[string]any{"labels": map[string]any{
					airship.LabelClusterNamespace: p.key.Namespace, airship.LabelClusterName: p.key.Name,
					airship.LabelNodeType: string(r.Role),
				}}, nil))
			}
		}
	}
	errs = append(errs, p.letLeave(ctx))
	return because(airship.ReasonUnableToApplyLabels, errors.Join(errs...))
}

// letLeave gives back what leaves, each host as it was decided on: one that was written meanwhile is
// decided on again.
func (p *pass) letLeave(ctx context.Context) error {
	leaving := p.choice.Leaving()
	if len(leaving) == 0 || !p.releasable() {
		return nil
	}
	var err error
	if p.leading, err = p.whoLeads(ctx); err != nil || p.leading != "" {
		p.again = p.again || err == nil
		return err
	}
	var errs []error
	for _, h := range leaving {
		errs = append(errs, p.patch(ctx, h, map[string]any{
			"annotations": map[string]any{airship.AnnotationClaim: nil}, "labels": map[string]any{
				airship.LabelClusterNamespace: nil, airship.LabelClusterName: nil, airship.LabelNodeType: nil,
			},
		}, nil))
	}
	return errors.Join(errs...)
}

// whoLeads says which pod may still lead to a host that leaves; "" for none. That the API server has
// the new configuration is not enough: a pod that was replaced goes on with its open connections.
func (p *pass) whoLeads(ctx context.Context) (string, error) {
	if p.sip.Spec.Services.IsEmpty() {
		return "", nil // nor is there their namespace
	}
	var pods corev1.PodList
	if err := p.Reader.List(ctx, &pods, client.InNamespace(p.home)); err != nil {
		return "", p.homeFault("list pods in", err)
	}
	for i := range pods.Items {
		if services.Leads(pods.Items[i].Labels) && !pods.Items[i].DeletionTimestamp.IsZero() {
			return "pod " + pods.Items[i].Name + " is ending, and what is open goes on until then", nil
		}
	}
	return "", nil
}
