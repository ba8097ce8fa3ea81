package sipcluster

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// remember takes hosts' addresses from the status, where the record is lost or bears no seal:
// that is written under another right. The status does not say which network one is on: that a
// record without a seal does, and else there may be one network alone.
func (r *records) remember(p *pass) {
	memory := r.inventory.Memory()
	recorded := memory.HostAddresses
	memory.HostAddresses = nil
	for _, h := range p.sip.Status.Hosts {
		name := h.Namespace + "/" + h.Name
		known := confirmed(recorded[name], h.Addresses)
		if wanted := p.sip.Spec.Services.Interfaces(); len(known) == 0 && len(wanted) == 1 {
			known = onOnly(wanted[0], h.Addresses)
		}
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

// onOnly are the addresses that are told, on the only network.
func onOnly(id string, told []string) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, text := range told {
		if a, err := netip.ParseAddr(text); err == nil {
			out[id] = append(out[id], a)
		}
	}
	return out
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
