package sipcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

var kinds = []schema.GroupVersionKind{
	appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("Service"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"),
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
}

type objectKey struct{ kind, name string }

func keyOf(o *unstructured.Unstructured) objectKey { return objectKey{o.GetKind(), o.GetName()} }

// objects are the existing objects in the services' namespace with the operator's label.
type objects map[objectKey]*unstructured.Unstructured

// deploy brings the services to their desired state. Without services it removes their namespace.
func (p *pass) deploy(ctx context.Context) (err error) {
	if err = p.loadFormer(ctx); err == nil {
		if p.sip.Spec.Services.IsEmpty() {
			p.waits, err = p.removeNamespace(ctx)
		} else {
			p.waits, err = p.prepare(ctx)
		}
	}
	if err != nil || p.waits != "" {
		p.again = true
		return because(airship.ReasonInfraServiceFailure, err)
	}
	if err := p.findAPIServers(ctx); err != nil {
		return because(airship.ReasonInfraServiceFailure, err)
	}
	missing, err := p.render(ctx), p.apply(ctx)
	if errors.Is(err, fault.ErrOutdated) {
		return err // takes precedence over other errors
	}
	return because(airship.ReasonInfraServiceFailure, errors.Join(missing, err))
}

// read lists the existing objects of the SIPCluster in a namespace.
func (p *pass) read(ctx context.Context, namespace string) (objects, error) {
	all := objects{}
	for _, kind := range kinds {
		err := pages.Each(ctx, p.Reader, pages.Empty(kind), func(o *unstructured.Unstructured) {
			all[keyOf(o)] = o
		}, client.InNamespace(namespace), client.MatchingLabels(p.labels()))
		if err != nil {
			return nil, asked("list "+kind.Kind+"s in", "namespace "+namespace, err)
		}
	}
	return all, nil
}

// apply applies the rendered objects. It deletes obsolete ones once their replacement is ready.
func (p *pass) apply(ctx context.Context) error {
	if !p.sip.Spec.Services.IsEmpty() {
		p.common = []*unstructured.Unstructured{p.isolation()}
	}
	differs := func(o *unstructured.Unstructured) bool { return !p.isCurrent(o) }
	if !p.live && slices.ContainsFunc(p.wanted(), differs) {
		return errCached // which may predate a host's last change of tenant
	}
	p.applied, p.known.refused = true, false
	errs := []error{p.put(ctx, p.common)}
	for _, service := range p.rendered {
		err := errs[0]
		if err == nil {
			if err = p.put(ctx, service.Objects); !errors.Is(err, errUnfinished) {
				errs = append(errs, err)
			}
		}
		p.assess(service, err)
	}
	return errors.Join(append(errs, p.prune(ctx), p.removeFormer(ctx))...)
}

func (p *pass) wanted() []*unstructured.Unstructured {
	all := slices.Clone(p.common)
	for _, s := range p.rendered {
		all = append(all, s.Objects...)
	}
	return all
}

// errUnfinished reports an object that is being deleted; a later reconcile recreates it.
var errUnfinished = errors.New("an object of it is being deleted")

// put applies the objects that differ from their last application.
func (p *pass) put(ctx context.Context, all []*unstructured.Unstructured) error {
	for _, o := range all {
		if p.isCurrent(o) {
			continue
		}
		if live := p.objects[keyOf(o)]; live != nil && live.GetDeletionTimestamp() != nil {
			p.again = true
			return errUnfinished
		}
		made, err := p.Cluster.Amend(ctx, o)
		if err != nil {
			p.known.refused = true
			return refused(err)
		}
		p.objects[keyOf(o)] = made
		p.known.written[keyOf(o)] = wrote(o, made)
	}
	return nil
}

// refused gives the fault of an object that the API server refuses the tenant's hint.
func refused(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if ok && f.Reason == fault.Incompatible && !strings.Contains(err.Error(), "nodePort") {
		f.Hint = "correct the service in spec.services; where a field cannot be changed, take the service out there, " +
			"and add it again once status.services lacks it"
	}
	return err
}

// written is an object as last applied and the API server's answer: of kinds with a status the generation, else the
// resource version.
type written struct {
	rendered   *unstructured.Unstructured
	uid        types.UID
	generation int64
	version    string
}

func wrote(rendered, made *unstructured.Unstructured) written {
	w := written{rendered: rendered, uid: made.GetUID(), generation: made.GetGeneration()}
	if w.generation == 0 {
		w.version = made.GetResourceVersion()
	}
	return w
}

// isCurrent reports whether an object is as this operator last applied it.
func (p *pass) isCurrent(o *unstructured.Unstructured) bool {
	live := p.objects[keyOf(o)]
	return live != nil && live.GetDeletionTimestamp() == nil && reflect.DeepEqual(p.known.written[keyOf(o)], wrote(o, live))
}

// prune deletes obsolete objects: all objects of a removed service, and of other services those that they no longer
// render, once they are ready.
func (p *pass) prune(ctx context.Context) error {
	wanted := map[objectKey]bool{}
	for _, o := range p.wanted() {
		wanted[keyOf(o)] = true
	}
	var errs []error
	for key, o := range p.objects {
		if s := state(p.states, services.NameOf(o)); wanted[key] || s != nil && !s.Ready {
			continue
		}
		p.again = true
		delete(p.known.written, key)
		errs = append(errs, p.delete(ctx, o))
	}
	return errors.Join(errs...)
}

// delete requests the deletion of an object after that of its pods; a later reconcile sees that it is gone.
func (p *pass) delete(ctx context.Context, o *unstructured.Unstructured) error {
	if o.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := o.GetUID()
	err := p.Client.Delete(ctx, o, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // replaced: a later reconcile decides
	}
	return asked("delete", o.GetKind()+" "+client.ObjectKeyFromObject(o).String(), err)
}

func state(of []airship.ServiceStatus, name string) *airship.ServiceStatus {
	for i := range of {
		if of[i].Name == name {
			return &of[i]
		}
	}
	return nil
}

// assess judges one service by its Deployment, which this reconcile applied. Its addresses and image stay as before if
// it did not: err says why, or the service has no objects.
func (p *pass) assess(s services.Service, err error) {
	st := airship.ServiceStatus{Name: s.Name, Kind: string(s.Kind)}
	addresses, pending := serviceAddresses(p.objects[objectKey{"Service", s.Name}])
	if err == nil && (s.Err == nil || len(s.Objects) > 0) {
		st.Endpoints, st.Image = slices.Concat(s.Endpoints, addresses), s.Image
	} else if was := state(p.sip.Status.Services, s.Name); was != nil {
		st.Endpoints, st.Image = was.Endpoints, was.Image
	}
	switch {
	case errors.Is(err, errUnfinished):
		st.Message = errUnfinished.Error()
	case err != nil, s.Err != nil:
		st.Message = "see the condition Ready"
	default:
		st.Message = condition.Cut(unready(p.objects[objectKey{"Deployment", s.Name}]), maxMessage)
	}
	if pending && st.Message == "" {
		st.Message = "its load balancer has no address yet"
	}
	st.Ready = st.Message == ""
	p.states = append(p.states, st)
}

// serviceAddresses returns the addresses of a Service: in the cluster, and of its load balancer, which may be
// pending.
func serviceAddresses(o *unstructured.Unstructured) (all []string, pending bool) {
	if o == nil {
		return nil, false
	}
	s := typed[corev1.Service](o)
	pending = s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0
	for _, i := range s.Status.LoadBalancer.Ingress {
		all = append(all, cmp.Or(i.IP, i.Hostname))
	}
	if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
		all = append(all, s.Spec.ClusterIP)
	}
	return all, pending
}

// unready returns what a Deployment lacks to be rolled out, or "".
func unready(o *unstructured.Unstructured) string {
	d := typed[appsv1.Deployment](o)
	up, wanted := clusterstate.NewPods(d)
	st := d.Status
	observed := d.DeletionTimestamp.IsZero() && st.ObservedGeneration >= d.Generation
	if observed && up >= wanted && st.Replicas <= wanted {
		return ""
	}
	for _, c := range st.Conditions {
		if observed && (c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse) {
			return c.Message
		}
	}
	return fmt.Sprintf("%d of %d pods are new and available", up, wanted)
}

// releasable reports whether hosts may be released: no service forwards to a leaving one, neither a rendered service
// nor a removed one that still exists. A service may lack something else, such as its port.
func (p *pass) releasable() bool {
	if p.again || len(p.outgoing()) > 0 {
		return false
	}
	var stay []netip.Addr
	for _, h := range p.choice.Held() {
		e := p.extracted[h.Key()]
		for _, on := range e.addresses {
			stay = append(stay, on...)
		}
		if e.problem != nil {
			stay = append(stay, p.before(h.Key())...)
		}
	}
	leaves := func(a netip.Addr) bool { return !slices.Contains(stay, a) }
	return !slices.ContainsFunc(p.states, func(s airship.ServiceStatus) bool {
		d := p.objects[objectKey{"Deployment", s.Name}]
		if d == nil || s.Kind == string(services.Auth) {
			return false
		}
		to := services.LeadsTo(typed[appsv1.Deployment](d))
		return unready(d) != "" || slices.ContainsFunc(to, leaves)
	})
}

// outgoing returns the services that exist and are not rendered, sorted.
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

// loadFormer reads the objects of an earlier version, and deletes its empty inventory. Versions before v0.1 ran
// services in the SIPCluster's own namespace, with an inventory. v0.2 drops this, and removeFormer.
func (p *pass) loadFormer(ctx context.Context) error {
	owner := types.NamespacedName{Namespace: p.Namespace, Name: p.key.Namespace + "." + p.key.Name}
	record, err := p.Cluster.LoadInventory(ctx, owner)
	if err != nil || !record.Exists {
		return err
	}
	if record.Len() == 0 { // the operator may lack permissions there
		return p.Cluster.DeleteInventory(ctx, owner)
	}
	p.former, err = p.read(ctx, p.key.Namespace)
	switch {
	case fault.ReasonOf(err) == fault.Forbidden:
		return fault.Errorf(fault.Forbidden, "read services in", "namespace "+p.key.Namespace,
			"bind ClusterRole "+servicesRole+" to it by a RoleBinding", "the operator may not")
	case err != nil || len(p.former) > 0:
		return err
	}
	return p.Cluster.DeleteInventory(ctx, owner)
}

// removeFormer deletes the earlier version's objects of services whose pods run here, or that are gone. Only then can
// the Service be applied: two Services cannot share a node port.
func (p *pass) removeFormer(ctx context.Context) error {
	var errs []error
	for _, o := range p.former {
		p.again = true
		name := services.NameOf(o)
		d := p.objects[objectKey{"Deployment", name}]
		if d != nil && unready(d) == "" || state(p.states, name) == nil {
			errs = append(errs, p.delete(ctx, o))
		}
	}
	return errors.Join(errs...)
}
