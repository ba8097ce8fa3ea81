// Package netdata finds the addresses of a host in the OpenStack network data that its operating system is
// configured from.
//
//	networks, err := netdata.Parse(document)
//	addresses, err := networks.Addresses("oam-ipv4")
//
// The document is JSON or YAML, with the list networks:
//
//	networks:
//	- {id: oam-ipv4, type: ipv4, link: bond0.41, network_id: oam, ip_address: 10.0.0.5, netmask: 255.255.255.0}
//
// An id means, in this order: the networks of that id, those of that network_id, and those on that link. The
// empty id means the only network of each family. Each family has one address at most, since a service has to
// know which to use; IPv4 comes first. Errors are faults without a subject, and say nothing of what the document
// holds but ids.
package netdata

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Networks are those of network data.
type Networks []network

type network struct {
	ID        string `json:"id"`
	NetworkID string `json:"network_id"`
	Link      string `json:"link"`
	Type      string `json:"type"`
	Address   string `json:"ip_address"`
}

// Parse reads network data. It keeps the parser's text out: that quotes what it was given, which may be secret.
func Parse(document []byte) (Networks, error) {
	var doc struct {
		Networks Networks `json:"networks"`
	}
	if err := yaml.Unmarshal(document, &doc); err != nil {
		return nil, bad(fault.InvalidInput, "write OpenStack network data, with the list networks, in JSON or YAML",
			"network data cannot be read")
	}
	return doc.Networks, nil
}

func bad(reason fault.Reason, hint, format string, args ...any) error {
	return &fault.Error{Reason: reason, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// Addresses returns the addresses of a network.
func (all Networks) Addresses(id string) ([]netip.Addr, error) {
	var found []netip.Addr
	v4 := 0
	for _, n := range all.named(id) {
		if n.Address == "" {
			continue // by DHCP
		}
		a, err := parseAddress(n.Address)
		if err != nil {
			return nil, bad(fault.InvalidInput, "write an IP address as ip_address", "network %+.64q: %w", n.ID, err)
		}
		if slices.Contains(found, a) {
			continue
		}
		found = append(found, a)
		if a.Is4() {
			v4++
		}
	}
	switch {
	case len(found) == 0:
		return nil, bad(fault.NotFound, "name a network with a fixed address in nodeInterfaceId, or add it to the host's data",
			"there is no address on network %+.64q; networks: %s", id, all.ids())
	case v4 > 1 || len(found)-v4 > 1:
		return nil, bad(fault.InvalidInput, "name a network with one address of each family in nodeInterfaceId",
			"network %+.64q has %d addresses; networks: %s", id, len(found), all.ids())
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return found, nil
}

// named returns the networks that an id means.
func (all Networks) named(id string) Networks {
	if id == "" {
		return all
	}
	for _, of := range []func(network) string{
		func(n network) string { return n.ID },
		func(n network) string { return n.NetworkID },
		func(n network) string { return n.Link },
	} {
		found := slices.DeleteFunc(slices.Clone(all), func(n network) bool { return of(n) != id })
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// ids names the networks.
func (all Networks) ids() string {
	var names []string
	for _, n := range all {
		names = append(names, fmt.Sprintf("%+.64q", n.ID))
	}
	slices.Sort(names)
	return cmp.Or(strings.Join(slices.Compact(names), ", "), "none")
}

// parseAddress reads an address, alone or with a prefix length. It refuses those by which no other machine
// reaches a host.
func parseAddress(text string) (netip.Addr, error) {
	text, _, _ = strings.Cut(text, "/")
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, errors.New("its ip_address is no IP address")
	}
	if a = a.Unmap(); !a.IsGlobalUnicast() || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%s is no address that other machines can use", a)
	}
	return a, nil
}
