package sipcluster

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// state is what became of one service.
type state struct {
	services.Service
	applied bool
	ready   bool
	message string // what is not ready
	address string // of its Service
}

// state finds the state of a service, nil where there is none of that name.
func (p *pass) state(name string) *state {
	for i := range p.states {
		if p.states[i].Name == name {
			return &p.states[i]
		}
	}
	return nil
}

// assess judges one service by its Deployment, which was applied in this pass or found to
// be as it shall be.
func (p *pass) assess(s services.Service, applied bool) {
	st := state{Service: s, applied: applied}
	object := func(group, kind string) *unstructured.Unstructured {
		return p.records.live[inventory.Key{Group: group, Kind: kind, Namespace: p.key.Namespace, Name: s.Name}]
	}
	if o := object("", "Service"); o != nil {
		st.address, _, _ = unstructured.NestedString(o.Object, "spec", "clusterIP")
	}
	switch o := object(appsv1.GroupName, "Deployment"); {
	case s.Err != nil:
		st.message = "it cannot be rendered: see the condition Ready"
	case !applied:
		st.message = "it is not applied yet: see the condition Ready"
	case o == nil:
		st.message = "it is being made"
	default:
		st.message = unready(o)
	}
	st.ready = st.message == ""
	p.states = append(p.states, st)
}

// unready says what is missing for a Deployment to be rolled out, or "".
func unready(o *unstructured.Unstructured) string {
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
		return "its Deployment cannot be read"
	}
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	st := d.Status
	switch {
	case !d.DeletionTimestamp.IsZero():
		return "its Deployment is being deleted, to be made anew"
	case st.ObservedGeneration < d.Generation:
		return "its Deployment was changed just now"
	case st.UpdatedReplicas >= wanted && st.AvailableReplicas >= wanted && st.Replicas <= wanted:
		return ""
	}
	return cmp.Or(stuck(st), fmt.Sprintf("%d of %d pods are new and available", min(st.UpdatedReplicas, st.AvailableReplicas), wanted))
}

func stuck(st appsv1.DeploymentStatus) string {
	for _, c := range st.Conditions {
		if (c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue) ||
			(c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse) {
			return c.Message
		}
	}
	return ""
}

// allReady reports whether all services of these kinds are ready.
func (p *pass) allReady(kinds ...services.Kind) bool {
	for _, s := range p.states {
		if !s.ready && slices.Contains(kinds, s.Kind) {
			return false
		}
	}
	return len(p.states) == len(p.rendered.Services)
}

// releasable tells whether hosts may be given back: no service leads to one that leaves,
// neither one that is rendered nor one that was taken out of the spec and is not gone yet.
func (p *pass) releasable() bool {
	leading := []services.Kind{services.LoadBalancerControlPlane, services.LoadBalancerWorker, services.JumpHost}
	return !p.again && p.allReady(leading...) && len(p.outgoing()) == 0
}

// outgoing are the services that are recorded and no longer rendered, sorted.
func (p *pass) outgoing() []string {
	var all []string
	for _, part := range p.records.inventory.Drivers() {
		if p.state(string(part)) == nil {
			all = append(all, string(part))
		}
	}
	return all
}

// endpoints are the ports of every node, and the Service's own address.
func (s state) endpoints() []string {
	var all []string
	for _, port := range s.Ports {
		text := fmt.Sprintf(":%d", port.Start)
		if port.End > port.Start {
			text += fmt.Sprintf("-%d", port.End)
		}
		all = append(all, text)
	}
	if s.address != "" && s.address != corev1.ClusterIPNone {
		all = append(all, s.address)
	}
	return all
}

// status is what is told of a service; where it was not applied, what it has is as before.
func (s state) status(before []airship.ServiceStatus) airship.ServiceStatus {
	now := airship.ServiceStatus{Name: s.Name, Kind: string(s.Kind), Ready: s.ready, Message: condition.Cut(s.message, maxMessage)}
	if s.applied {
		now.Endpoints, now.Image = s.endpoints(), s.Image
		return now
	}
	for _, was := range before {
		if was.Name == s.Name {
			now.Endpoints, now.Image = was.Endpoints, was.Image
		}
	}
	return now
}
