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

// The cloud provider finds no address of a family where none is there or all are excluded from both kinds,
// and looks no further where neither of two networks is there; else it takes one.
func TestANodeHasAnAddressThatTheCloudProviderFinds(t *testing.T) {
	two := []preflight.NIC{nic("Front", "192.0.2.5", "fe80::1"), nic("k8s", "127.0.0.1", "10.0.0.5", "2001:db8::5")}
	both, nodes, all := []string{"ipv4", "ipv6"}, []string{"10.0.0.0/16"}, []string{"0.0.0.0/0"}
	const none = "no ipv4 address that is not excluded: the cloud provider leaves the node uninitialized"
	for name, c := range map[string]struct {
		nics      []preflight.NIC
		addresses v1alpha1.NodeAddresses
		families  []string
		found     string
	}{
		"both families":              {nics: two, families: both},
		"networks, in another case":  {nics: two, addresses: v1alpha1.NodeAddresses{InternalNetwork: "K8S", ExternalNetwork: "front"}},
		"one of two networks":        {nics: two, addresses: v1alpha1.NodeAddresses{InternalNetwork: "k8s", ExternalNetwork: "none"}},
		"neither of two networks":    {two, v1alpha1.NodeAddresses{InternalNetwork: "a", ExternalNetwork: "b", InternalSubnets: nodes}, nil, "no adapter is on"},
		"no address of the family":   {two[:1], v1alpha1.NodeAddresses{}, []string{"ipv6"}, "no ipv6 address"},
		"none but the guest's own":   {[]preflight.NIC{nic("k8s", "127.0.0.1")}, v1alpha1.NodeAddresses{}, nil, none},
		"all are excluded":           {two, v1alpha1.NodeAddresses{ExcludeInternalSubnets: all, ExcludeExternalSubnets: append(nodes, "192.0.2.0/24")}, nil, none},
		"internal ones are excluded": {nics: two, addresses: v1alpha1.NodeAddresses{ExcludeInternalSubnets: all}},
		"a subnet of nobody":         {nics: two, addresses: v1alpha1.NodeAddresses{InternalSubnets: []string{"10.9.0.0/16"}}},
	} {
		s := healthy()
		s.Wants.NodeAddresses, s.Wants.IPFamilies = c.addresses, c.families
		for i := range s.VCenters[0].Machines {
			s.VCenters[0].Machines[i].NICs = c.nics
		}
		found := of(preflight.Check(s), "node-address")
		require.Equal(t, c.found == "", found == "", name)
		require.Contains(t, found, c.found, name)
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
