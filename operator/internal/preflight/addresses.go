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
	return a, err == nil && !a.IsUnspecified() && !a.IsLoopback() &&
		!a.IsLinkLocalUnicast() && !a.IsLinkLocalMulticast()
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

// addresses finds why the cloud provider would find no address among a VM's adapters. An address that is not
// excluded from both kinds is one that it takes, whatever subnets are preferred.
func (w Wants) addresses(nics []NIC) (out []found) {
	const uninitialized = ": the cloud provider leaves the node uninitialized"
	a := w.NodeAddresses
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
		isTaken := func(x netip.Addr) bool {
			excluded := within(a.ExcludeInternalSubnets, x) && within(a.ExcludeExternalSubnets, x)
			return x.Is4() == (family == "ipv4") && !excluded
		}
		if !slices.ContainsFunc(nics, func(n NIC) bool { return slices.ContainsFunc(n.Addresses, isTaken) }) {
			out = append(out, is("no "+family+" address that is not excluded"+uninitialized)...)
		}
	}
	return out
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
