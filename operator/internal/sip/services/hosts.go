package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

var roles = []airship.Role{airship.RoleControlPlane, airship.RoleWorker}

func (h Host) key() types.NamespacedName {
	return types.NamespacedName{Namespace: h.Namespace, Name: h.Name}
}

// place gives hosts their names and their addresses on the service's network: none where they are not known,
// which is reported where its network data is read. Every address is the first host's that has it. Another one
// that has it too is left out, since nobody knows which of the two would answer: the others are served.
func (r *rendering) place() {
	names, owners := hostNames(r.in.Hosts), map[netip.Addr]types.NamespacedName{}
	r.leftOut = map[types.NamespacedName]string{}
	for _, role := range roles {
		for _, h := range r.in.Hosts[role] {
			var addresses []netip.Addr
			why := ""
			for _, a := range h.Addresses[r.spec.NodeInterfaceID] {
				why = cmp.Or(why, r.in.taken(h, a.Unmap(), owners))
				addresses = append(addresses, a.Unmap())
			}
			if why != "" {
				r.leftOut[h.key()], addresses = why, nil
			}
			for _, a := range addresses {
				owners[a] = h.key()
			}
			r.hosts = append(r.hosts, jumphost.Host{Name: names[h.key()], Role: string(role), Addresses: slices.Compact(addresses)})
		}
	}
}

// taken tells why a host's address cannot be led to; "" where it can.
func (in Input) taken(h Host, a netip.Addr, owners map[netip.Addr]types.NamespacedName) string {
	if !in.reaches(a) {
		return fmt.Sprintf("services leave it out: the operator's --sip-egress does not allow its address %s", a)
	}
	if other, has := owners[a]; has && other != h.key() {
		return fmt.Sprintf("services leave it out: it has the address %s, as the host %s has: correct the network data of one of them", a, other)
	}
	return ""
}

// reaches tells whether services may connect to an address of a host: never to the management API, which
// network data could name.
func (in Input) reaches(a netip.Addr) bool {
	if slices.ContainsFunc(in.APIServers, func(s netip.AddrPort) bool { return s.Addr() == a }) {
		return false
	}
	if len(in.Egress) == 0 {
		return a.IsPrivate()
	}
	return slices.ContainsFunc(in.Egress, func(p netip.Prefix) bool { return p.Contains(a) })
}

// hostNames are the hosts' names, with the namespace where another host would be called the
// same, or where the name looks like an address: who asks for an address means an address. A namespace
// has no dot in it, so that no two are the same.
func hostNames(hosts map[airship.Role][]Host) map[types.NamespacedName]string {
	names, users := map[types.NamespacedName]string{}, map[string]int{}
	for _, all := range hosts {
		for _, h := range all {
			names[h.key()] = h.Name + "." + h.Namespace
			users[h.Name]++
			users[names[h.key()]]++
		}
	}
	for key := range names {
		if _, err := netip.ParseAddr(key.Name); users[key.Name] == 1 && err != nil {
			names[key] = key.Name
		}
	}
	return names
}

// addresses are all of hosts, sorted, each once.
func addresses(hosts []jumphost.Host) []netip.Addr {
	var all []netip.Addr
	for _, h := range hosts {
		all = append(all, h.Addresses...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
