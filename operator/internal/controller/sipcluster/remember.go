package sipcluster

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
)

// remember takes hosts' addresses from the status, where the record is lost or bears no seal:
// that is written under another right.
func (r *records) remember(p *pass) {
	memory := r.inventory.Memory()
	recorded := memory.HostAddresses
	memory.HostAddresses = nil
	for _, h := range p.sip.Status.Hosts {
		name := h.Namespace + "/" + h.Name
		known := remembered(h, recorded[name], p.sip.Spec.Services.Interfaces())
		if len(known) == 0 {
			continue
		}
		if memory.HostAddresses == nil {
			memory.HostAddresses = map[string]map[string][]netip.Addr{}
		}
		memory.HostAddresses[name] = known
	}
	r.inventory = r.inventory.WithMemory(memory)
}

// remembered are the addresses of a host by network. Which one is on which the status says where
// services use several; where it does not, a record without a seal does, and else there may be
// one network alone.
func remembered(h airship.HostStatus, recorded map[string][]netip.Addr, wanted []string) map[string][]netip.Addr {
	known := map[string][]netip.Addr{}
	for _, one := range h.Interfaces {
		known[one.ID] = parsed(one.Addresses)
	}
	if len(known) == 0 {
		known = confirmed(recorded, h.Addresses)
	}
	if len(known) == 0 && len(wanted) == 1 && len(h.Addresses) > 0 {
		known[wanted[0]] = parsed(h.Addresses)
	}
	return known
}

// confirmed are the addresses, by network, that are among those told.
func confirmed(recorded map[string][]netip.Addr, told []string) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for id, all := range recorded {
		both := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return !slices.Contains(told, a.String()) })
		if len(both) > 0 {
			out[id] = both
		}
	}
	return out
}

// parsed are the addresses that are told.
func parsed(told []string) (all []netip.Addr) {
	for _, text := range told {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// imageOf is the image of a Deployment's only container, "" of other kinds.
func imageOf(o *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if len(containers) != 1 {
		return ""
	}
	first, _ := containers[0].(map[string]any)
	image, _ := first["image"].(string)
	return image
}
