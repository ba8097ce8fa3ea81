package render

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

const ipv4, ipv6 = "ipv4", "ipv6"

// nodeAddresses returns section nodes, with lists joined with commas. It refuses entries that the cloud provider would
// silently ignore: an invalid subnet, or one of a family without node addresses.
func nodeAddresses(p *v1alpha1.CloudProvider) (map[string]string, error) {
	a := ptr.Deref(p.NodeAddresses, v1alpha1.NodeAddresses{})
	families := p.IPFamilies
	if len(families) == 0 {
		families = []string{ipv4}
	}
	nodes := map[string]string{"internalVmNetworkName": a.InternalNetwork, "externalVmNetworkName": a.ExternalNetwork}
	var bad []error
	for _, l := range []struct {
		field, key string
		subnets    []string
	}{
		{"internalSubnets", "internalNetworkSubnetCidr", a.InternalSubnets},
		{"externalSubnets", "externalNetworkSubnetCidr", a.ExternalSubnets},
		{"excludeInternalSubnets", "excludeInternalNetworkSubnetCidr", a.ExcludeInternalSubnets},
		{"excludeExternalSubnets", "excludeExternalNetworkSubnetCidr", a.ExcludeExternalSubnets},
	} {
		bad = append(bad, checkSubnets("spec.cloudProvider.nodeAddresses."+l.field, l.subnets, families))
		nodes[l.key] = strings.Join(l.subnets, ",")
	}
	maps.DeleteFunc(nodes, func(_, value string) bool { return value == "" })
	return nodes, fault.Join(bad...)
}

func checkSubnets(field string, subnets, families []string) error {
	var bad problems
	for _, s := range subnets {
		prefix, err := netip.ParsePrefix(s)
		if bad.when(err != nil, field, "write it as 10.0.0.0/16; one address as 10.0.0.5/32", "%q is not a subnet", s); err != nil {
			continue
		}
		family := ipv6
		if prefix.Addr().Is4() {
			family = ipv4
		}
		bad.when(!slices.Contains(families, family), field, "add "+family+" to spec.cloudProvider.ipFamilies, or leave the subnet out",
			"%s has no effect: nodes get no %s addresses", s, family)
	}
	return fault.Join(bad...)
}

// setFamilies enables two families in the cloud provider, which refuses them otherwise.
func setFamilies(o *unstructured.Unstructured, families []string) {
	if len(families) < 2 {
		return
	}
	for _, c := range containers(podSpec(o)) {
		setVariable(c, "ENABLE_ALPHA_DUAL_STACK", "true")
	}
}

// checkNarrowing refuses a configuration with fewer locations, unless acceptNodeDeletion names the rest. The cloud
// provider deletes the Node object of a VM that it does not find, and with it all pods there.
func (r *renderer) checkNarrowing(vcenters []vcenter) error {
	accepted := acceptedPlaces(r.in.Spec.Cloud().AcceptNodeDeletion)
	var lost []string
	now := map[string]vcenter{}
	for _, v := range vcenters {
		now[v1alpha1.CanonicalHost(v.Server)] = v
	}
	was := r.searchedUntilNow()
	for _, v := range vcenters { // at another address
		id := v.InstanceUUID
		for server := range was {
			if _, stays := now[server]; !stays && id != "" && id == r.in.Cluster.Servers[server] {
				now[server] = v
			}
		}
	}
	for _, server := range slices.Sorted(maps.Keys(was)) {
		if !slices.Contains(accepted, server) {
			lost = append(lost, left(server, was[server], now)...)
		}
	}
	lost = slices.DeleteFunc(lost, func(l string) bool { return slices.Contains(accepted, l) })
	if len(lost) == 0 {
		return nil
	}
	places := strings.Join(lost, ", ")
	for i, server := range lost {
		if v, stays := now[server]; stays {
			lost[i] += " outside of " + strings.Join(v.Datacenters, ", ")
		}
	}
	return fault.Errorf(fault.Refused, "configure drivers", "spec.cloudProvider",
		"keep them in the VsphereCloudConfigs' datacenters; or, where no node of this cluster is there any more, set spec.cloudProvider.acceptNodeDeletion: ["+places+"]",
		"the cloud provider would not look in %s any more, and delete the Nodes whose VMs are there", strings.Join(lost, ", "))
}

// searchedUntilNow returns the current datacenters by vCenter, from the configuration on the cluster. For vCenters
// not in it, the last rendered ones count: the cloud provider keeps running with a deleted configuration.
func (r *renderer) searchedUntilNow() map[string][]string {
	live, all := searched(r.in.Cluster.CloudConfig), map[string][]string{}
	for _, place := range r.in.Cluster.Searched {
		server, datacenter, part := strings.Cut(place, "/")
		server = v1alpha1.CanonicalHost(server)
		if all[server] = append(all[server], datacenter); !part {
			all[server] = nil
		}
	}
	maps.Copy(all, live)
	return all
}

// Places returns the locations in which the cloud provider looks with this configuration: SERVER/DATACENTER or
// SERVER.
func Places(config []byte) []string {
	all := []string{}
	for server, datacenters := range searched(config) {
		if len(datacenters) == 0 {
			all = append(all, server)
		}
		for _, d := range datacenters {
			all = append(all, server+"/"+d)
		}
	}
	slices.Sort(all)
	return all
}

// acceptedPlaces returns the given locations as [renderer.checkNarrowing] names them: a server in the form of
// [v1alpha1.CanonicalHost].
func acceptedPlaces(given []string) []string {
	all := make([]string, len(given))
	for i, place := range given {
		server, datacenter, part := strings.Cut(place, "/")
		all[i] = v1alpha1.CanonicalHost(server)
		if part {
			all[i] += "/" + strings.Trim(datacenter, "/")
		}
	}
	return all
}

// left returns the locations of a vCenter that are no longer searched: all of it, or datacenters.
func left(server string, was []string, now map[string]vcenter) []string {
	v, exists := now[server]
	is := datacenterList(strings.Join(v.Datacenters, ","))
	switch {
	case !exists, len(is) > 0 && len(was) == 0:
		return []string{server}
	case len(is) == 0:
		return nil // all of it
	}
	var lost []string
	for _, d := range was {
		if !slices.Contains(is, d) {
			lost = append(lost, server+"/"+d)
		}
	}
	return lost
}
