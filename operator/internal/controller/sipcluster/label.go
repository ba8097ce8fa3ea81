package sipcluster

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// label labels the held hosts once the load balancers of the control plane are ready. The tenant cluster needs no
// other service to use its hosts. It releases leaving hosts once no service forwards to them.
func (p *pass) label(ctx context.Context) error {
	if !p.applied {
		return nil // the services are unknown
	}
	var errs []error
	awaited := func(s airship.ServiceStatus) bool {
		return !s.Ready && s.Kind == string(services.LoadBalancerControlPlane)
	}
	if !slices.ContainsFunc(p.states, awaited) {
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

// letLeave releases leaving hosts. A host that changed since the decision waits for the next reconcile.
func (p *pass) letLeave(ctx context.Context) error {
	leaving := p.choice.Leaving()
	if len(leaving) == 0 || !p.releasable() {
		return nil
	}
	var err error
	if p.waits, err = p.whoLeads(ctx); err != nil || p.waits != "" {
		p.again = p.again || err == nil
		return err
	}
	var errs []error
	for _, h := range leaving {
		notes := map[string]any{airship.AnnotationClaim: nil}
		// The next tenant's host must not reboot for this one, nor stay off.
		if hasOurs(h, annotationReboot) {
			notes[annotationReboot] = nil
		}
		var spec map[string]any
		if !h.Spec.Online && hasOurs(h, "online") {
			spec = map[string]any{"online": true}
		}
		err := p.patch(ctx, h, map[string]any{
			"annotations": notes, "labels": map[string]any{
				airship.LabelClusterNamespace: nil, airship.LabelClusterName: nil, airship.LabelNodeType: nil,
			},
		}, spec)
		errs = append(errs, err)
		for _, about := range []client.Object{p.sip, h.BareMetalHost} {
			if err == nil {
				p.Writer.Recorder.Eventf(about, nil, corev1.EventTypeNormal, "Released", "Release",
					"Released %s from SIPCluster %s", h, p.key)
			}
		}
	}
	return errors.Join(errs...)
}

// whoLeads returns the pod that may still forward to a leaving host; "" for none. A new configuration at the API
// server is not enough: a replaced pod keeps its open connections.
func (p *pass) whoLeads(ctx context.Context) (string, error) {
	if p.sip.Spec.Services.IsEmpty() {
		return "", nil // their namespace is gone too
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
