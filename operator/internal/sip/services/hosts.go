package services

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

var roles = []airship.Role{airship.RoleControlPlane, airship.RoleWorker}

// place gives hosts their addresses on the service's network: none where they are not known, which is reported
// where network data is read, or where services may not connect to one.
func (r *rendering) place() {
	r.leftOut = map[types.NamespacedName]string{}
	for _, role := range roles {
		for _, h := range r.in.Hosts[role] {
			placed := jumphost.Host{Namespace: h.Namespace, Name: h.Name, Role: string(role)}
			for _, a := range h.Addresses[r.spec.NodeInterfaceID] {
				placed.Addresses = append(placed.Addresses, a.Unmap())
			}
			for _, a := range placed.Addresses {
				if !r.in.reaches(a) {
					r.leftOut[types.NamespacedName{Namespace: h.Namespace, Name: h.Name}] = fmt.Sprintf(
						"services leave it out: the operator's --sip-egress does not allow its address %s", a)
					placed.Addresses = nil
					break
				}
			}
			r.hosts = append(r.hosts, placed)
		}
	}
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

// addresses are all of hosts, sorted, each once.
func addresses(hosts []jumphost.Host) []netip.Addr {
	var all []netip.Addr
	for _, h := range hosts {
		all = append(all, h.Addresses...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
