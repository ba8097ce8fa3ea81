package preflight_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// nic is an adapter on a network.
func nic(network string, addresses ...string) preflight.NIC {
	n := preflight.NIC{Network: network}
	for _, a := range addresses {
		if address, can := preflight.NodeAddress(a); can {
			n.Addresses = append(n.Addresses, address)
		}
	}
	return n
}

// What the cloud provider finds of a node's addresses: excluded ones never count, subnets go
// before networks, and the first of a family is taken only where no kind was found otherwise.
func TestANodeGetsTheAddressesThatTheCloudProviderFinds(t *testing.T) {
	const uninitialized = "leaves the node uninitialized"
	two := []preflight.NIC{nic("Front", "192.0.2.5", "fe80::1"), nic("k8s", "127.0.0.1", "10.0.0.5", "2001:db8::5")}
	both := []string{"ipv4", "ipv6"}
	for name, c := range map[string]struct {
		nics      []preflight.NIC
		addresses v1alpha1.NodeAddresses
		families  []string
		action    preflight.Action
		found     []string // in the order of the kinds and families
	}{
		"nothing is said":            {nics: two},
		"both families":              {nics: two, families: both},
		"subnets of both kinds":      {nics: two, addresses: v1alpha1.NodeAddresses{InternalSubnets: []string{"10.9.0.0/16", "10.0.0.0/16"}, ExternalSubnets: []string{"192.0.2.0/24"}}},
		"networks, in another case":  {nics: two, addresses: v1alpha1.NodeAddresses{InternalNetwork: "K8S", ExternalNetwork: "front"}},
		"a network for a subnet":     {nics: two, addresses: v1alpha1.NodeAddresses{InternalSubnets: []string{"10.9.0.0/16"}, InternalNetwork: "k8s"}},
		"internal alone":             {nics: two, addresses: v1alpha1.NodeAddresses{InternalSubnets: []string{"10.0.0.0/16"}}},
		"one of two networks":        {nics: two, addresses: v1alpha1.NodeAddresses{InternalNetwork: "k8s", ExternalNetwork: "none"}, action: preflight.Warn, found: []string{"no external ipv4 address: none is in externalNetwork none"}},
		"neither of two networks":    {nics: two, addresses: v1alpha1.NodeAddresses{InternalNetwork: "a", ExternalNetwork: "b", InternalSubnets: []string{"10.0.0.0/16"}}, action: preflight.BlockInstall, found: []string{"internalNetwork a or externalNetwork b: the cloud provider " + uninitialized}},
		"no address of the family":   {nics: two[:1], families: []string{"ipv6"}, action: preflight.BlockInstall, found: []string{"no ipv6 address: the cloud provider " + uninitialized}},
		"none but the guest's own":   {nics: []preflight.NIC{nic("k8s", "127.0.0.1")}, action: preflight.BlockInstall, found: []string{"no ipv4 address"}},
		"all are excluded":           {nics: two, addresses: v1alpha1.NodeAddresses{ExcludeInternalSubnets: []string{"0.0.0.0/0"}, ExcludeExternalSubnets: []string{"10.0.0.0/8", "192.0.2.0/24"}}, action: preflight.BlockInstall, found: []string{"excludeInternalSubnets and excludeExternalSubnets: the cloud provider " + uninitialized}},
		"internal ones are excluded": {nics: two, addresses: v1alpha1.NodeAddresses{ExcludeInternalSubnets: []string{"0.0.0.0/0"}}, action: preflight.Warn, found: []string{"no internal ipv4 address: all are in excludeInternalSubnets"}},
		"external ones are excluded": {nics: two, addresses: v1alpha1.NodeAddresses{ExcludeExternalSubnets: []string{"0.0.0.0/0"}}},
		"an excluded one in the subnet": {nics: two, addresses: v1alpha1.NodeAddresses{InternalSubnets: []string{"10.0.0.0/16"}, ExcludeInternalSubnets: []string{"10.0.0.5/32"}},
			action: preflight.Warn, found: []string{"no ipv4 address in internalSubnets 10.0.0.0/16: the cloud provider takes the first one as internal"}},
		"external alone": {nics: two, addresses: v1alpha1.NodeAddresses{ExternalSubnets: []string{"192.0.2.0/24"}}, action: preflight.Warn, found: []string{"no internal ipv4 address: none is in a subnet or network that is named for it"}},
		"a subnet of nobody": {nics: two, addresses: v1alpha1.NodeAddresses{InternalSubnets: []string{"10.9.0.0/16"}, ExternalSubnets: []string{"198.51.100.0/24"}}, families: both, action: preflight.Warn,
			found: []string{"no ipv4 address in internalSubnets 10.9.0.0/16: the cloud provider takes the first one as internal", "no ipv4 address in externalSubnets 198.51.100.0/24"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			s.Wants.NodeAddresses, s.Wants.IPFamilies = c.addresses, c.families
			for i := range s.VCenters[0].Machines {
				s.VCenters[0].Machines[i].NICs = c.nics
			}
			results := slices.DeleteFunc(preflight.Check(s), func(r preflight.Result) bool { return r.ID != "node-address" || r.Action == preflight.Pass })
			require.Len(t, results, len(c.found), "%+v", results)
			for i, text := range c.found {
				require.Contains(t, results[i].Found, text)
				require.Equal(t, c.action, results[i].Action)
				require.Equal(t, 3, results[i].Count)
			}
		})
	}
}

// Of a VM with more addresses than are kept, or whose guest reports none, nothing is said of
// addresses here, nor of one that the cloud provider does not look for.
func TestAddressesThatAreNotKnownAreNotJudged(t *testing.T) {
	for name, change := range map[string]func(*preflight.Snapshot){
		"more than are kept": func(s *preflight.Snapshot) { s.VCenters[0].Machines[0].MoreAddresses = true },
		"none reported":      func(s *preflight.Snapshot) { s.VCenters[0].Machines[0].Addresses = 0 },
		"storage alone":      func(s *preflight.Snapshot) { s.VCenters[0].UsedByCPI = false },
	} {
		s := healthy()
		s.VCenters[0].Machines[0].NICs = []preflight.NIC{{Network: "k8s", Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::1")}}}
		of := func() bool {
			return slices.ContainsFunc(preflight.Check(s), func(r preflight.Result) bool { return r.ID == "node-address" && r.Action != preflight.Pass })
		}
		require.True(t, of(), name)
		change(&s)
		require.False(t, of(), name)
	}
}
