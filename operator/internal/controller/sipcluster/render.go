package sipcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// render renders the services. It returns faults of unreadable hosts, without which services are still rendered, and
// of services that cannot be rendered.
func (p *pass) render(ctx context.Context) error {
	kept, running := p.existing()
	hosts, unread := p.served()
	in := services.Input{
		Cluster: p.key, Spec: *p.sip.Spec.Services.DeepCopy(), Hosts: hosts,
		Kept: kept, Running: running, Egress: p.Egress, APIServers: p.apiServers, Now: p.Now(),
		OutOfReach: p.outOfReach, AssignsUsers: p.AssignsUsers, Templates: p.Templates,
		Secret: func(name airship.SecretName) (services.Secret, error) {
			data, err := p.Cluster.Data(ctx, p.key.Namespace, v1alpha1.KeyReference{Secret: string(name)})
			if fault.ReasonOf(err) == fault.Forbidden {
				err = fault.Errorf(fault.Forbidden, "read Secrets in", "namespace "+p.key.Namespace,
					"bind ClusterRole vdo-sip-tenants to it by a RoleBinding", "the operator may not")
			}
			return data.Values, err
		},
	}
	errs := []error{unread}
	in.Images, in.PullSecret, p.unusable = p.Bundles.Open(ctx)
	if in.Unusable = p.unusable; len(in.PullSecret) == 0 {
		in.PullSecret = login(kept)
	}
	p.rendered = services.Render(in)
	for _, s := range p.rendered {
		for _, o := range s.Objects {
			p.mark(o)
		}
		errs = append(errs, s.Err)
	}
	return errors.Join(errs...)
}

// findAPIServers finds the addresses of the management API: its Service's, and the endpoints'.
func (p *pass) findAPIServers(ctx context.Context) error {
	var service corev1.Service
	var slice discoveryv1.EndpointSlice
	name := types.NamespacedName{Namespace: corev1.NamespaceDefault, Name: "kubernetes"}
	err := p.Reader.Get(ctx, name, &service)
	if err == nil {
		err = client.IgnoreNotFound(p.Reader.Get(ctx, name, &slice)) // if none is published, none is known
	}
	if err != nil {
		return fault.Errorf(fault.Unreachable, "find the addresses of", "the management API", manifestsHint, "%w", err)
	}
	add := func(port int32, texts []string) {
		for _, text := range texts {
			if a, err := netip.ParseAddr(text); err == nil {
				p.apiServers = append(p.apiServers, netip.AddrPortFrom(a, uint16(port))) //nolint:gosec // of a Service
			}
		}
	}
	for _, port := range service.Spec.Ports {
		add(port.Port, service.Spec.ClusterIPs)
	}
	for _, port := range slice.Ports {
		if port.Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			add(*port.Port, e.Addresses)
		}
	}
	return nil
}

// reportIgnored emits an event if a field of the spec has no effect: when the spec changes, and when an upgrade moves
// the services.
func (p *pass) reportIgnored() {
	moves := len(p.former) > 0 && p.sip.Status.Namespace == ""
	if p.sip.Status.ObservedGeneration == p.sip.Generation && !moves {
		return
	}
	ignored := func(field, instead string) {
		p.Writer.Recorder.Eventf(p.sip, nil, corev1.EventTypeWarning, "FieldIgnored", "Render", "%s",
			condition.Cut("Ignored spec.services."+field+"; "+instead, condition.MaxNote))
	}
	for i, j := range p.sip.Spec.Services.JumpHost {
		if j.BMC != nil {
			ignored(fmt.Sprintf("jumpHost[%d].bmc", i), "create a HostAction to control power")
		}
		if j.NodeSSHPrivateKeys != "" {
			ignored(fmt.Sprintf("jumpHost[%d].nodeSSHPrivateKeys", i), "reach hosts with `ssh -J`")
		}
	}
	for field, s := range p.sip.Spec.Services.All() {
		if s.Image != "" {
			ignored(field+".image", "the bundle's image runs")
		}
	}
}

// mark sets an object's namespace to the services', and adds the labels that the operator watches.
func (p *pass) mark(o *unstructured.Unstructured) {
	o.SetNamespace(p.home)
	labels := p.labels()
	maps.Copy(labels, o.GetLabels())
	o.SetLabels(labels)
}

func (p *pass) labels() map[string]string {
	return map[string]string{
		render.LabelManagedBy: render.ManagedBy, airship.LabelClusterNamespace: p.key.Namespace, airship.LabelClusterName: p.key.Name,
	}
}

// served returns the hosts that services forward to, without leaving ones, and their addresses in reach. If a host's
// data is unreadable, services keep forwarding to it, and the fault reports it.
func (p *pass) served() (map[airship.Role][]services.Host, error) {
	all := map[airship.Role][]services.Host{}
	var unread []string
	var first error
	for r, h := range p.choice.Held() {
		if p.foreign[h.Key()] != "" {
			continue
		}
		e := p.extracted[h.Key()]
		one := services.Host{Namespace: h.Namespace, Name: h.Name, Addresses: maps.Clone(e.addresses)}
		maps.DeleteFunc(one.Addresses, func(_ string, on []netip.Addr) bool {
			return slices.ContainsFunc(on, p.outOfReach)
		})
		if e.problem != nil {
			unread, first = append(unread, h.Key().String()), cmp.Or(first, e.problem)
			one.Unread, one.Before = true, slices.DeleteFunc(p.before(h.Key()), p.outOfReach)
		}
		all[r.Role] = append(all[r.Role], one)
	}
	if first == nil {
		return all, nil
	}
	return all, fault.Errorf(fault.ReasonOf(first), "read the data of",
		fmt.Sprintf("%d hosts (%s)", len(unread), few(unread)), fault.HintOf(first), "%w", first)
}

// outOfReach reports whether services may not connect to an address of a host: never to the management API, which
// network data could name.
func (p *pass) outOfReach(a netip.Addr) bool {
	a = a.Unmap()
	if slices.ContainsFunc(p.apiServers, func(s netip.AddrPort) bool { return s.Addr() == a }) {
		return true
	}
	if len(p.Egress) == 0 {
		return !a.IsPrivate()
	}
	return !slices.ContainsFunc(p.Egress, func(n netip.Prefix) bool { return n.Contains(a) })
}

// leftOut returns why a service does not forward to a host, or not to it alone; "" if all do.
func (p *pass) leftOut(h *choose.Host) string {
	e := p.extracted[h.Key()]
	if why := p.foreign[h.Key()]; why != "" || e == nil {
		return why
	}
	for _, id := range slices.Sorted(maps.Keys(e.addresses)) {
		on := e.addresses[id]
		if i := slices.IndexFunc(on, p.outOfReach); i >= 0 {
			return fmt.Sprintf("services leave it out: the operator's --sip-egress does not allow its address %s", on[i])
		}
		if len(on) == 0 && e.problem == nil && h.Provisioned() {
			return fmt.Sprintf("services leave it out: it is provisioned and has no address where nodeInterfaceId is %q", id)
		}
	}
	return p.shared[h.Key()]
}

// leftOutFault names the hosts that another Cluster uses, or that services cannot tell apart or connect to; nil for
// none.
func (p *pass) leftOutFault() error {
	all, _ := p.heldWith(p.leftOut)
	if len(all) == 0 {
		return nil
	}
	hint := "correct the hosts' network data; an administrator can change --sip-egress"
	if len(p.foreign) > 0 {
		hint = "copy status.hostSelector into the Metal3MachineTemplates, or correct spec.clusterName; else " + hint
	}
	return because(airship.ReasonInfraServiceFailure,
		fault.Errorf(fault.Refused, "serve", "all hosts", hint, "%s", few(all)))
}

// existing returns the Secrets with generated keys and certificates, and the Deployments. It returns Secrets only of an
// earlier version: the tenant can change the rest.
func (p *pass) existing() (kept map[string]services.Secret, running map[string]*appsv1.Deployment) {
	kept, running = map[string]services.Secret{}, map[string]*appsv1.Deployment{}
	for _, o := range slices.AppendSeq(slices.Collect(maps.Values(p.former)), maps.Values(p.objects)) {
		switch here := o.GetNamespace() == p.home; {
		case o.GetKind() == "Secret":
			kept[o.GetName()] = typed[corev1.Secret](o).Data
		case o.GetKind() == "Deployment" && here:
			running[o.GetName()] = typed[appsv1.Deployment](o)
		}
	}
	return kept, running
}

// typed returns an object as its type. The API server's objects always convert.
func typed[T any](o *unstructured.Unstructured) *T {
	out := new(T)
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out)
	return out
}

// login returns the pods' current pull secret, which stays if the mirror accepts none: a rotated or deleted Secret
// takes none from them. It is the first by name, so that all get the same.
func login(kept map[string]services.Secret) []byte {
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if l, ok := kept[name][corev1.DockerConfigJsonKey]; ok {
			return l
		}
	}
	return nil
}
