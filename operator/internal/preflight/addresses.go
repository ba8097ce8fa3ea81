package preflight

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// maxNamed is how many of a VM's addresses a finding names.
const maxNamed = 4

// cannotBeANode says whether the cloud provider passes an address over, whatever its settings are.
func cannotBeANode(a netip.Addr) bool {
	return !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast()
}

// NodeAddress reads an address as a guest reports it; false where it can never be a node's.
func NodeAddress(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	a = a.Unmap().WithZone("")
	return a, err == nil && !cannotBeANode(a)
}

// addressed is one address, and the port group that it is on.
type addressed struct {
	netip.Addr

	network string
}

// kind is the internal or the external address of a node: what is asked of it, of one family.
type kind struct {
	name     string
	subnets  []netip.Prefix
	excluded []netip.Prefix
	network  string
}

// kinds are what the cloud provider looks for, of one family.
func kinds(a *v1alpha1.NodeAddresses, family string) []kind {
	return []kind{
		{"internal", subnets(a.InternalSubnets, family), subnets(a.ExcludeInternalSubnets, family), a.InternalNetwork},
		{"external", subnets(a.ExternalSubnets, family), subnets(a.ExcludeExternalSubnets, family), a.ExternalNetwork},
	}
}

// subnets are those of a family. One that is none is refused elsewhere.
func subnets(list []string, family string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil && familyOf(p.Addr()) == family {
			out = append(out, p.Masked())
		}
	}
	return out
}

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

// asked says whether the configuration says which address it is.
func (k kind) asked() bool { return len(k.subnets) > 0 || k.network != "" }

// left are the addresses that are not excluded.
func (k kind) left(all []addressed) []addressed {
	return slices.DeleteFunc(slices.Clone(all), func(a addressed) bool { return within(k.excluded, a) })
}

// match says whether one of the addresses is in a subnet or on the network.
func (k kind) match(left []addressed) bool {
	return slices.ContainsFunc(left, func(a addressed) bool {
		return within(k.subnets, a) || k.network != "" && strings.EqualFold(k.network, a.network)
	})
}

func within(list []netip.Prefix, a addressed) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a.Addr) })
}

// where names what is asked for.
func (k kind) where() string {
	var out []string
	if len(k.subnets) > 0 {
		out = append(out, k.name+"Subnets "+joined(k.subnets))
	}
	if k.network != "" {
		out = append(out, k.name+"Network "+k.network)
	}
	return strings.Join(out, " or ")
}

func joined(prefixes []netip.Prefix) string {
	out := make([]string, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.String()
	}
	return strings.Join(out, ", ")
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
func (w Wants) addresses(nics []NIC) []found {
	a := w.NodeAddresses
	if a.InternalNetwork != "" && a.ExternalNetwork != "" && !slices.ContainsFunc(nics, func(n NIC) bool {
		return strings.EqualFold(n.Network, a.InternalNetwork) || strings.EqualFold(n.Network, a.ExternalNetwork)
	}) {
		return []found{{action: BlockInstall, what: fmt.Sprintf("no adapter is on internalNetwork %s or externalNetwork %s: the cloud provider leaves the node uninitialized", a.InternalNetwork, a.ExternalNetwork)}}
	}
	families := w.IPFamilies
	if len(families) == 0 {
		families = []string{"ipv4"}
	}
	var out []found
	for _, family := range families {
		out = append(out, ofFamily(kinds(&a, family), family, candidates(nics, family))...)
	}
	return out
}

func candidates(nics []NIC, family string) []addressed {
	var out []addressed
	for _, n := range nics {
		for _, a := range n.Addresses {
			if familyOf(a) == family {
				out = append(out, addressed{a, n.Network})
			}
		}
	}
	return out
}

func ofFamily(kinds []kind, family string, all []addressed) []found {
	if len(all) == 0 {
		return []found{{action: BlockInstall, what: "no " + family + " address: the cloud provider leaves the node uninitialized"}}
	}
	anyLeft, anyMatch := false, false
	for _, k := range kinds {
		left := k.left(all)
		anyLeft, anyMatch = anyLeft || len(left) > 0, anyMatch || k.match(left)
	}
	if !anyLeft {
		return []found{{action: BlockInstall, what: "each " + family + " address is in excludeInternalSubnets and excludeExternalSubnets: the cloud provider leaves the node uninitialized"}}
	}
	var out []found
	for _, k := range kinds {
		if what := k.amiss(family, k.left(all), anyMatch); what != "" {
			out = append(out, found{action: Warn, what: what})
		}
	}
	return out
}

// amiss says what of a node that does get an address is not as asked for; "" for nothing. An
// external address that nobody asks for may lack.
func (k kind) amiss(family string, left []addressed, anyMatch bool) string {
	switch {
	case k.match(left), k.name != "internal" && !k.asked():
		return ""
	case len(left) == 0:
		return fmt.Sprintf("no %s %s address: all are in %s", k.name, family, "exclude"+strings.ToUpper(k.name[:1])+k.name[1:]+"Subnets")
	case anyMatch:
		return fmt.Sprintf("no %s %s address: none is in %s, and the other kind has one", k.name, family, cmp.Or(k.where(), "a subnet or network that is named for it"))
	case k.asked():
		return fmt.Sprintf("no %s address in %s: the cloud provider takes the first one as %s", family, k.where(), k.name)
	}
	return ""
}

// addresses are the first ones that a VM has, each with its network.
func (m *Machine) addresses() string {
	var out []string
	for _, n := range m.NICs {
		for _, a := range n.Addresses {
			out = append(out, a.String()+" on "+cmp.Or(n.Network, "no network"))
		}
	}
	if len(out) == 0 {
		return "none but those of its own guest"
	}
	return fault.Few(out, maxNamed)
}
