package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// labelCluster is Cluster API's label with the name of an object's Cluster.
const labelCluster = "cluster.x-k8s.io/cluster-name"

// machine is the Metal3Machine that uses a host.
type machine struct {
	cluster  string // of Cluster API
	selected bool   // its hostSelector names the SIPCluster
	// addresses are one of each family at most, IPv4 first: which of several to use, nothing tells.
	addresses []netip.Addr
}

// verify finds hosts that the machine of another Cluster than the tenant's uses: Cluster API takes any host
// in its namespace that matches. Services do not lead there. Consumers of other kinds are not verified.
func (p *pass) verify() {
	p.clusterName, p.foreign = p.expectedCluster(), map[types.NamespacedName]string{}
	for _, h := range p.choice.Held() {
		if m := p.extracted[h.Key()].machine; m != nil && m.cluster != p.clusterName {
			p.foreign[h.Key()] = fmt.Sprintf("%s of Cluster %q uses it", h.Consumer(), m.cluster)
		}
	}
}

// expectedCluster is the one of the spec, else of machines that select the SIPCluster's hosts, else of all
// machines. Where they are of several Clusters, it is the one of before.
func (p *pass) expectedCluster() string {
	if name := p.sip.Spec.ClusterName; name != "" {
		return name
	}
	all, selected := map[string]bool{}, map[string]bool{}
	for _, e := range p.extracted {
		if m := e.machine; m != nil {
			all[m.cluster] = true
			if m.selected {
				selected[m.cluster] = true
			}
		}
	}
	if len(selected) == 0 {
		selected = all
	}
	if len(selected) == 1 {
		return slices.Collect(maps.Keys(selected))[0]
	}
	return p.sip.Status.ClusterName
}

// machineOf reads the Metal3Machine that uses a host; nil where none does. Faults of one that is not there, or
// cannot be understood, have the reasons NotFound and InvalidInput; of the latter it returns its Cluster.
func (p *pass) machineOf(ctx context.Context, h *choose.Host) (*machine, error) {
	ref := h.Spec.ConsumerRef
	kind := ref.GroupVersionKind()
	if kind.Group != "infrastructure.cluster.x-k8s.io" || kind.Kind != "Metal3Machine" {
		return nil, nil //nolint:nilnil // another kind
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	err := p.Reader.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, o)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, &fault.Error{Reason: fault.NotFound, Err: errors.New("it is not there"), Hint: "correct the host's consumerRef"}
	case err != nil:
		return nil, asked("read", h.Consumer(), err)
	}
	var read struct {
		Spec struct {
			HostSelector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"hostSelector"`
		} `json:"spec"`
		Status struct {
			Addresses []struct {
				Type    string `json:"type"`
				Address string `json:"address"`
			} `json:"addresses"`
		} `json:"status"`
	}
	m := &machine{cluster: o.GetLabels()[labelCluster]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &read); err != nil {
		return m, &fault.Error{Reason: fault.InvalidInput, Err: err, Hint: "correct its spec and status"}
	}
	selects, _ := choose.HolderByLabels(read.Spec.HostSelector.MatchLabels)
	m.selected = selects == p.key
	families := map[bool][]netip.Addr{} // by whether it is IPv4
	for _, one := range read.Status.Addresses {
		a, err := netip.ParseAddr(one.Address)
		if a = a.Unmap(); err == nil && one.Type == "InternalIP" && a.IsGlobalUnicast() {
			families[a.Is4()] = append(families[a.Is4()], a)
		}
	}
	for _, family := range []bool{true, false} {
		if len(families[family]) == 1 {
			m.addresses = append(m.addresses, families[family]...)
		}
	}
	return m, nil
}

// foreignFault names the hosts that others use; nil for none.
func (p *pass) foreignFault() error {
	var all []string
	for key, why := range p.foreign {
		all = append(all, key.String()+": "+why)
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return because(airship.ReasonInfraServiceFailure, fault.Errorf(fault.Refused, "serve",
		"hosts that another Cluster uses",
		"copy status.hostSelector into the Metal3MachineTemplates, or correct spec.clusterName", "%s", few(all)))
}
