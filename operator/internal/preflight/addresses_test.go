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
	two := []preflight.NIC{nic("Front", "192.0.2.5", "fe80::1"), nic("k8s", "127.0.0.1", "10.0.0.5", "2001:db8::5")}
	both, nodes, front := []string{"ipv4", "ipv6"}, []string{"10.0.0.0/16"}, []string{"192.0.2.0/24"}
	nobody, all := []string{"10.9.0.0/16"}, []string{"0.0.0.0/0"}
	const internal, external = "no internal ipv4 address as spec.", "no external ipv4 address as spec."
	warn, block := preflight.Warn, preflight.BlockInstall
	for name, c := range map[string]struct {
		nics      []preflight.NIC
		addresses v1alpha1.NodeAddresses
		families  []string
		action    preflight.Action
		found     []string // in the order of the kinds and families
	}{
		"nothing is said":               {nics: two},
		"both families":                 {nics: two, families: both},
		"subnets of both kinds":         {nics: two, addresses: v1alpha1.NodeAddresses{InternalSubnets: slices.Concat(nobody, nodes), ExternalSubnets: front}},
		"networks, in another case":     {nics: two, addresses: v1alpha1.NodeAddresses{InternalNetwork: "K8S", ExternalNetwork: "front"}},
		"a network for a subnet":        {nics: two, addresses: v1alpha1.NodeAddresses{InternalSubnets: nobody, InternalNetwork: "k8s"}},
		"internal alone":                {nics: two, addresses: v1alpha1.NodeAddresses{InternalSubnets: nodes}},
		"one of two networks":           {two, v1alpha1.NodeAddresses{InternalNetwork: "k8s", ExternalNetwork: "none"}, nil, warn, []string{external}},
		"neither of two networks":       {two, v1alpha1.NodeAddresses{InternalNetwork: "a", ExternalNetwork: "b", InternalSubnets: nodes}, nil, block, []string{"no adapter is on"}},
		"no address of the family":      {two[:1], v1alpha1.NodeAddresses{}, []string{"ipv6"}, block, []string{"no ipv6 address that is not excluded: the cloud provider leaves the node uninitialized"}},
		"none but the guest's own":      {[]preflight.NIC{nic("k8s", "127.0.0.1")}, v1alpha1.NodeAddresses{}, nil, block, []string{"no ipv4 address"}},
		"all are excluded":              {two, v1alpha1.NodeAddresses{ExcludeInternalSubnets: all, ExcludeExternalSubnets: slices.Concat(nodes, front)}, nil, block, []string{"no ipv4 address"}},
		"internal ones are excluded":    {two, v1alpha1.NodeAddresses{ExcludeInternalSubnets: all}, nil, warn, []string{internal}},
		"external ones are excluded":    {nics: two, addresses: v1alpha1.NodeAddresses{ExcludeExternalSubnets: all}},
		"an excluded one in the subnet": {two, v1alpha1.NodeAddresses{InternalSubnets: nodes, ExcludeInternalSubnets: nodes}, nil, warn, []string{internal}},
		"external alone":                {two, v1alpha1.NodeAddresses{ExternalSubnets: front}, nil, warn, []string{internal}},
		"a subnet of nobody":            {two, v1alpha1.NodeAddresses{InternalSubnets: nobody, ExternalSubnets: []string{"198.51.100.0/24"}}, both, warn, []string{internal, external}},
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
