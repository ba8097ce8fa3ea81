package sipcluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// state finds the state of a service, nil where there is none of that name.
func state(of []airship.ServiceStatus, name string) *airship.ServiceStatus {
	for i := range of {
		if of[i].Name == name {
			return &of[i]
		}
	}
	return nil
}

// assess judges one service by its Deployment, which was applied in this pass, or why it was not: then what it
// has is as before.
func (p *pass) assess(s services.Service, err error) {
	st := airship.ServiceStatus{Name: s.Name, Kind: string(s.Kind)}
	addresses, pending := serviceAddresses(p.objects[objectKey{"Service", s.Name}])
	if err == nil {
		st.Endpoints, st.Image = append(endpoints(s.Ports), addresses...), s.Image
	} else if was := state(p.sip.Status.Services, s.Name); was != nil {
		st.Endpoints, st.Image = was.Endpoints, was.Image
	}
	d := p.objects[objectKey{"Deployment", s.Name}]
	switch {
	case s.Err != nil:
		st.Message = "it cannot be rendered: see the condition Ready"
	case errors.Is(err, errUnfinished):
		st.Message = errUnfinished.Error()
	case err != nil:
		st.Message = "it is not applied yet: see the condition Ready"
	case d == nil:
		st.Message = "it is being made"
	default:
		st.Message = condition.Cut(unready(d), maxMessage)
	}
	if pending && st.Message == "" {
		st.Message = "its load balancer has no address yet"
	}
	st.Ready = st.Message == ""
	p.states = append(p.states, st)
}

// serviceAddresses are those of a Service: of its load balancer, which may be pending, and in the cluster.
func serviceAddresses(o *unstructured.Unstructured) (all []string, pending bool) {
	var s corev1.Service
	if o == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s) != nil {
		return nil, false
	}
	pending = s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0
	for _, i := range s.Status.LoadBalancer.Ingress {
		all = append(all, cmp.Or(i.IP, i.Hostname))
	}
	if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
		all = append(all, s.Spec.ClusterIP)
	}
	return all, pending
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
		if !s.Ready && slices.Contains(kinds, services.Kind(s.Kind)) {
			return false
		}
	}
	return len(p.states) == len(p.rendered)
}

// releasable reports whether hosts may be released: no service leads to one that leaves,
// neither one that is rendered nor one that was taken out of the spec and is not gone yet.
func (p *pass) releasable() bool {
	return !p.again && p.allReady(services.Leading...) && len(p.outgoing()) == 0
}

// outgoing are the services that exist and are not rendered, sorted.
func (p *pass) outgoing() []string {
	var all []string
	for key := range p.objects {
		if key.kind == "Deployment" && state(p.states, key.name) == nil {
			all = append(all, key.name)
		}
	}
	slices.Sort(all)
	return all
}

// endpoints are ports of every node.
func endpoints(ports []airship.PortRange) (all []string) {
	for _, port := range ports {
		text := fmt.Sprintf(":%d", port.Start)
		if port.End > port.Start {
			text += fmt.Sprintf("-%d", port.End)
		}
		all = append(all, text)
	}
	return all
}
