// Package netdata finds the addresses of a host in the data that its operating system is configured from:
// OpenStack network data and the meta-data that Metal3 puts beside it.
//
//	data, err := netdata.Parse(networkData, metaData)
//	addresses, err := data.Addresses("oam-ipv4")
//
// Both are JSON or YAML. Meta-data is a flat document of keys and values; network data has the list networks:
//
//	networks:
//	- {id: oam-ipv4, type: ipv4, link: bond0.41, network_id: oam, ip_address: 10.0.0.5, netmask: 255.255.255.0}
//
// An id means, in this order: the networks of that id, those of that network_id, those on that link, and the
// meta-data of that key. The empty id means the only network of each family. Each family has one address at
// most, since a service has to know which to use; IPv4 comes first. Errors are faults without a subject, and
// say nothing of what the documents hold but ids.
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

// Data is what was read. The zero value has no addresses.
type Data struct {
	networks []network
	meta     map[string]any
}

type network struct {
	ID        string `json:"id"`
	NetworkID string `json:"network_id"`
	Link      string `json:"link"`
	Type      string `json:"type"`
	Address   string `json:"ip_address"`
}

// Parse reads network data and meta-data, either of which may be empty.
func Parse(networkData, metaData []byte) (Data, error) {
	var d Data
	var doc struct {
		Networks []network `json:"networks"`
	}
	if err := unmarshal("network data", networkData, &doc); err != nil {
		return Data{}, err
	}
	d.networks = doc.Networks
	if err := unmarshal("meta-data", metaData, &d.meta); err != nil {
		return Data{}, err
	}
	return d, nil
}

// unmarshal keeps the parser's text out: it quotes what it was given, which may be secret.
func unmarshal(what string, data []byte, into any) error {
	if err := yaml.Unmarshal(data, into); err != nil {
		return bad(fault.InvalidInput, "write OpenStack network data with the list networks, and meta-data as keys and values, in JSON or YAML", "%s cannot be read", what)
	}
	return nil
}

func bad(reason fault.Reason, hint, format string, args ...any) error {
	return &fault.Error{Reason: reason, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// Addresses returns the addresses of a network.
func (d Data) Addresses(id string) ([]netip.Addr, error) {
	var all []netip.Addr
	v4 := 0
	for _, n := range d.named(id) {
		if n.Address == "" {
			continue // by DHCP
		}
		a, err := parseAddress(n.Address)
		if err != nil {
			return nil, bad(fault.InvalidInput, "write an IP address as ip_address", "network %+.64q: %w", n.ID, err)
		}
		if slices.Contains(all, a) {
			continue
		}
		all = append(all, a)
		if a.Is4() {
			v4++
		}
	}
	switch {
	case len(all) == 0:
		return nil, bad(fault.NotFound, "name a network with a fixed address in nodeInterfaceId, or add it to the host's data",
			"there is no address on network %+.64q; networks: %s", id, d.ids())
	case v4 > 1 || len(all)-v4 > 1:
		return nil, bad(fault.InvalidInput, "name a network with one address of each family in nodeInterfaceId",
			"network %+.64q has %d addresses; networks: %s", id, len(all), d.ids())
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, nil
}

// named returns the networks that an id means.
func (d Data) named(id string) []network {
	if id == "" {
		return d.networks
	}
	for _, of := range []func(network) string{
		func(n network) string { return n.ID },
		func(n network) string { return n.NetworkID },
		func(n network) string { return n.Link },
	} {
		found := slices.DeleteFunc(slices.Clone(d.networks), func(n network) bool { return of(n) != id })
		if len(found) > 0 {
			return found
		}
	}
	if value, ok := d.meta[id].(string); ok {
		return []network{{ID: id, Address: value}}
	}
	return nil
}

// ids names the networks.
func (d Data) ids() string {
	var names []string
	for _, n := range d.networks {
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
