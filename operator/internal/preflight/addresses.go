package preflight

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// maxNamed is how many of a VM's addresses a finding names.
const maxNamed = 4

// NodeAddress reads an address as a guest reports it; false where it can never be a node's, as the
// cloud provider passes it over whatever its settings are.
func NodeAddress(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	a = a.Unmap().WithZone("")
	return a, err == nil && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsLinkLocalMulticast()
}

// kind is the internal or the external address of a node, as it is asked for.
type kind struct {
	subnets, excluded []string
	network           string
}

func nodeAddresses(s *Snapshot, b behind) []found {
	m := b.machine
	if m.Addresses == 0 || m.MoreAddresses {
		return nil // without any it is the check's of VMware Tools; where not all are kept nothing is known
	}
	out := s.Wants.addresses(m.NICs)
	for i := range out {
		out[i].of = "node " + b.node.Name + ", with " + m.addresses()
	}
	return out
}

// addresses finds what the cloud provider would find amiss with a VM's adapters. It drops what is
// excluded, then takes what is in the subnets, then what is on the network, and the first of the
// family only where neither the internal nor the external address was found so.
func (w Wants) addresses(nics []NIC) (out []found) {
	const uninitialized = ": the cloud provider leaves the node uninitialized"
	a := w.NodeAddresses
	internal := kind{a.InternalSubnets, a.ExcludeInternalSubnets, a.InternalNetwork}
	external := kind{a.ExternalSubnets, a.ExcludeExternalSubnets, a.ExternalNetwork}
	isNamed := func(n NIC) bool {
		return strings.EqualFold(n.Network, a.InternalNetwork) || strings.EqualFold(n.Network, a.ExternalNetwork)
	}
	if a.InternalNetwork != "" && a.ExternalNetwork != "" && !slices.ContainsFunc(nics, isNamed) {
		return is("no adapter is on internalNetwork or externalNetwork" + uninitialized)
	}
	families := w.IPFamilies
	if len(families) == 0 {
		families = []string{"ipv4"}
	}
	for _, family := range families {
		leftIn, in := internal.look(nics, family)
		leftEx, ex := external.look(nics, family)
		if !leftIn && !leftEx {
			out = append(out, found{what: "no " + family + " address that is not excluded" + uninitialized})
			continue
		}
		lacks := " " + family + " address as spec.cloudProvider.nodeAddresses has it"
		if !in && (ex || !leftIn || internal.asked(family)) {
			out = append(out, found{action: Warn, what: "no internal" + lacks})
		}
		if !ex && external.asked(family) { // nodes need none
			out = append(out, found{action: Warn, what: "no external" + lacks})
		}
	}
	return out
}

// look tells whether an address of a family is not excluded, and whether such a one is as asked for.
func (k kind) look(nics []NIC, family string) (left, match bool) {
	for _, n := range nics {
		for _, a := range n.Addresses {
			if familyOf(a) == family && !within(k.excluded, a) {
				left = true
				match = match || within(k.subnets, a) || k.network != "" && strings.EqualFold(k.network, n.Network)
			}
		}
	}
	return left, match
}

// asked says whether the configuration says which address of a family it is.
func (k kind) asked(family string) bool {
	return k.network != "" || slices.ContainsFunc(k.subnets, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && familyOf(p.Addr()) == family
	})
}

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

// within tells whether an address is in one of the subnets. One that is none is refused elsewhere.
func within(subnets []string, a netip.Addr) bool {
	return slices.ContainsFunc(subnets, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && p.Contains(a)
	})
}

// addresses are the first ones that a VM has, each with its network.
func (m *Machine) addresses() string {
	var out []string
	for _, n := range m.NICs {
		for _, a := range n.Addresses {
			out = append(out, a.String()+" on "+cmp.Or(n.Network, "no network"))
		}
	}
	return fault.Few(out, maxNamed)
}
