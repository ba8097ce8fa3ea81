package sipcluster

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// render gathers what services are made of, and has them rendered. It returns faults of what
// could not be gathered, without which services are rendered all the same, and of services
// that cannot be rendered.
func (p *pass) render(ctx context.Context) error {
	hosts, unread := p.served()
	in := services.Input{
		Cluster: p.key, UID: p.sip.UID, Spec: *p.sip.Spec.Services.DeepCopy(), Hosts: hosts, Secrets: map[airship.SecretName]services.Secret{},
		Kept: p.records.secrets(), AssignsUsers: p.AssignsUsers, Egress: p.Egress, Now: p.Now(), Rand: p.Rand,
	}
	errs := []error{unread}
	for _, name := range p.sip.Spec.Services.SecretNames() {
		data, err := p.Cluster.Secret(ctx, types.NamespacedName{Namespace: p.key.Namespace, Name: string(name)})
		if err != nil {
			errs = append(errs, secretFault(p.key.Namespace, err))
		} else if data != nil {
			in.Secrets[name] = data
		}
	}
	p.reportIgnored()
	in.Images, in.PullSecret = p.images(ctx)
	p.rendered = p.Render(in)
	for _, s := range p.rendered.Services {
		for _, o := range s.Objects {
			p.mark(o)
		}
		errs = append(errs, s.Err)
	}
	return errors.Join(errs...)
}

// reportIgnored emits an event where the spec has a field that has no effect: when the spec
// changes, and when an upgrade is about to replace what an earlier version made of the field.
func (p *pass) reportIgnored() {
	changed := p.sip.Status.ObservedGeneration != p.sip.Generation
	for i, j := range p.sip.Spec.Services.JumpHost {
		name := services.Name(p.key.Name, services.JumpHost, i)
		_, made := p.records.secrets()[name+"-bmc"]
		if j.BMC != nil && (made || changed) {
			p.warn("FieldIgnored", "Render",
				"spec.services.jumpHost[%d].bmc has no effect; create a HostAction to control power", i)
		}
		if j.NodeSSHPrivateKeys != "" && (changed || p.hasFormerConfig(name)) {
			p.warn("FieldIgnored", "Render",
				"spec.services.jumpHost[%d].nodeSSHPrivateKeys has no effect; reach hosts with `ssh -J`", i)
		}
	}
}

// hasFormerConfig reports whether a jump host still has the configuration of an earlier version.
func (p *pass) hasFormerConfig(name string) bool {
	key := inventory.Key{Kind: "ConfigMap", Namespace: p.key.Namespace, Name: name + "-config"}
	o := p.records.live[key]
	if o == nil {
		return false
	}
	_, found, _ := unstructured.NestedString(o.Object, "data", "config.json")
	return found
}

func secretFault(namespace string, err error) error {
	if fault.ReasonOf(err) != fault.Forbidden {
		return err
	}
	return &fault.Error{
		Reason: fault.Forbidden, Op: "read Secrets in", Subject: "namespace " + namespace, Err: errors.New("the operator may not"),
		Hint: "bind ClusterRole vdo-sip-services to it by a RoleBinding",
	}
}

// mark puts an object into the SIPCluster's namespace, and the labels on it by which it is
// watched, and found to be ours where an apply was interrupted before its UID was recorded.
func (p *pass) mark(o *unstructured.Unstructured) {
	o.SetNamespace(p.key.Namespace)
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, p.labels())
	o.SetLabels(labels)
}

func (p *pass) labels() map[string]string {
	return map[string]string{
		render.LabelManagedBy: render.ManagedBy, airship.LabelClusterNamespace: p.key.Namespace, airship.LabelClusterName: p.key.Name,
	}
}

// marked tells whether an object carries the labels that mark puts on it.
func (p *pass) marked(o *unstructured.Unstructured) bool {
	labels := o.GetLabels()
	for key, value := range p.labels() {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// served are the hosts that services lead to: without those that leave. Addresses are
// recorded; where a host's data cannot be read, services go on leading to those that they were
// led to last, and the fault tells of it.
func (p *pass) served() (map[airship.Role][]services.Host, error) {
	memory := p.records.inventory.Memory()
	known := memory.HostAddresses
	memory.HostAddresses = nil
	all := map[airship.Role][]services.Host{}
	var unread []string
	var first error
	for _, r := range p.choice.Roles {
		for _, h := range p.held(r) {
			e, name := p.extracted[h.Key()], h.Key().String()
			if e.problem != nil {
				unread, first = append(unread, name), cmp.Or(first, e.problem)
				e.complete(known[name], p.sip.Spec.Services.Interfaces())
			}
			all[r.Role] = append(all[r.Role], services.Host{Namespace: h.Namespace, Name: h.Name, Addresses: e.addresses})
			if len(e.addresses) > 0 {
				if memory.HostAddresses == nil {
					memory.HostAddresses = map[string]map[string][]netip.Addr{}
				}
				memory.HostAddresses[name] = e.addresses
			}
		}
	}
	p.records.inventory = p.records.inventory.WithMemory(memory)
	if first == nil {
		return all, nil
	}
	return all, &fault.Error{
		Reason: fault.ReasonOf(first), Op: "read the data of", Subject: fmt.Sprintf("%d hosts (%s)", len(unread), few(unread)), Err: first, Hint: fault.HintOf(first),
	}
}

// leftOut tells why a service does not lead to a host; "" where all do.
func (p *pass) leftOut(host types.NamespacedName) string {
	for _, s := range p.rendered.Services {
		if why := s.LeftOut[host]; why != "" {
			return why
		}
	}
	return ""
}

// held are the hosts of a role that stay, in their order.
func (p *pass) held(r choose.Role) []choose.Host {
	return choose.Sorted(append(append([]choose.Host{}, r.Keep...), r.Take...))
}

// images are those of the accepted bundle; while it cannot be used, those that run. The
// login is the one that the mirror let in, else the one that pods have already: what was
// rotated, or deleted, takes no login from them.
func (p *pass) images(ctx context.Context) (services.Images, []byte) {
	images, login, err := p.Bundles.Open(ctx)
	if err != nil {
		p.unusable = err
		images = running{p: p, given: images, why: err}
	}
	if len(login) == 0 {
		login = p.records.login()
	}
	return images, login
}

// running are the images that services run already.
type running struct {
	p     *pass
	given services.Images // that need no bundle; nil for none
	why   error
}

// Image returns the one that the service was last installed with. One that has none yet, or
// is to have another, waits for the bundle.
func (r running) Image(name string, kind services.Kind, asked string) (string, error) {
	if asked != "" && r.given != nil {
		return r.given.Image(name, kind, asked)
	}
	have, _ := r.p.records.inventory.Get(inventory.Key{Group: appsv1.GroupName, Kind: "Deployment", Namespace: r.p.key.Namespace, Name: name})
	if have.Release != "" && (asked == "" || asked == have.Release) {
		return have.Release, nil
	}
	return "", &fault.Error{
		Reason: fault.ReasonOf(r.why), Op: "find the image of", Subject: fmt.Sprintf("services.%s", kind), Err: r.why, Hint: fault.HintOf(r.why),
	}
}

// secrets are the Secrets that were made before, with what was made by chance.
func (r *records) secrets() map[string]services.Secret {
	all := map[string]services.Secret{}
	for key, o := range r.live {
		if _, recorded := r.inventory.Get(key); key.Kind != "Secret" || o == nil || !recorded {
			continue
		}
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		s := services.Secret{}
		for k, v := range data {
			if decoded, err := base64.StdEncoding.DecodeString(v); err == nil {
				s[k] = decoded
			}
		}
		all[key.Name] = s
	}
	return all
}

// login is the one that pods have already: of several the first by name, so that all get
// the same.
func (r *records) login() []byte {
	all := r.secrets()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if l, ok := all[name][corev1.DockerConfigJsonKey]; ok {
			return l
		}
	}
	return nil
}
