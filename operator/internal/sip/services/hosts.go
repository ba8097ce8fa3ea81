package services

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

const maxHostName = 253

// reached is a host, under a name that no other has, and its addresses on the service's
// network: none where they are not known, which is reported where its network data is read.
type reached struct {
	name      string
	addresses []netip.Addr
}

func (h Host) key() types.NamespacedName {
	return types.NamespacedName{Namespace: h.Namespace, Name: h.Name}
}

// hosts returns those of a role.
func (r *rendering) hosts(role airship.Role) ([]reached, error) {
	var out []reached
	var errs []error
	r.place()
	for _, h := range r.in.Hosts[role] {
		one := reached{name: r.names[h.key()]}
		for _, a := range h.Addresses[r.spec.NodeInterfaceID] {
			errs = append(errs, r.usable(h, a))
			if a = a.Unmap(); r.owners[a] == h.key() && r.leftOut[h.key()] == "" && !slices.Contains(one.addresses, a) {
				one.addresses = append(one.addresses, a)
			}
		}
		out = append(out, one)
	}
	return out, errors.Join(errs...)
}

// place gives hosts their names, and every address to the first host that has it. Another
// one that has it too is left out, since nobody knows which of the two would answer: the
// others are served.
func (r *rendering) place() {
	if r.names != nil {
		return
	}
	r.names, r.owners, r.leftOut = hostNames(r.in.Hosts), map[netip.Addr]types.NamespacedName{}, map[types.NamespacedName]string{}
	for _, role := range roles {
		for _, h := range r.in.Hosts[role] {
			addresses := h.Addresses[r.spec.NodeInterfaceID]
			if why := r.taken(h, addresses); why != "" {
				r.leftOut[h.key()] = why
				continue
			}
			for _, a := range addresses {
				r.owners[a.Unmap()] = h.key()
			}
		}
	}
}

// taken tells why a host's addresses cannot be led to; "" where they can.
func (r *rendering) taken(h Host, addresses []netip.Addr) string {
	if len(addresses) > jumphost.MaxAddresses {
		return fmt.Sprintf("services leave it out: it has %d addresses on their network, more than %d", len(addresses), jumphost.MaxAddresses)
	}
	for _, a := range addresses {
		within := func(p netip.Prefix) bool { return p.Contains(a.Unmap()) }
		if len(r.in.Egress) > 0 && !slices.ContainsFunc(r.in.Egress, within) {
			return fmt.Sprintf("services leave it out: the operator's --sip-egress does not allow its address %s", a.Unmap())
		}
		if other, has := r.owners[a.Unmap()]; has && other != h.key() {
			return fmt.Sprintf("services leave it out: it has the address %s, as the host %s has: mend the network data of one of them", a.Unmap(), other)
		}
	}
	return ""
}

// hostNames are the hosts' names, with the namespace where another host would be called the
// same, or where the name looks like an address: who asks for an address means an address.
func hostNames(hosts map[airship.Role][]Host) map[types.NamespacedName]string {
	names := map[types.NamespacedName]string{}
	for _, all := range hosts {
		for _, h := range all {
			names[h.key()] = h.Name
		}
	}
	for changed := true; changed; {
		changed = false
		users := map[string]int{}
		for _, name := range names {
			users[name]++
		}
		for key, name := range names {
			if long := longName(key); name != long && (users[name] > 1 || isAddress(name)) {
				names[key], changed = long, true
			}
		}
	}
	return names
}

// longName is NAME.NAMESPACE: a namespace has no dot in it, so that no two are the same.
// Where that is too long, or an address again, a hash stands for it.
func longName(key types.NamespacedName) string {
	name := key.Name + "." + key.Namespace
	if len(name) > maxHostName || isAddress(name) {
		return fmt.Sprintf("host-%x", sha256.Sum256([]byte(name)))[:37]
	}
	return name
}

func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}
