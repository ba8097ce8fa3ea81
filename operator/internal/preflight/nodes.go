package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func nodeChecks() []check {
	return []check{
		{id: "node-vm", why: "the cloud provider and the storage driver know a node by its VM; without it nothing is attached, and the node may be deleted", applies: machinesKnown, run: nodeVMs, passed: countNodes("%d nodes, each with its VM")},
		{id: "node-name", why: "the cloud provider looks new nodes up by name, letter by letter", applies: func(s *Snapshot) bool { return s.Wants.CPI && machinesKnown(s) }, run: nodeNames},
		{id: "node-address", why: "a node for which the cloud provider finds no address of a family stays uninitialized; one without an internal address cannot be reached by its cluster", applies: func(s *Snapshot) bool { return s.Wants.CPI && machinesKnown(s) }, run: nodeAddresses},
		{id: "node-provider-id", why: "it is set once, by the cloud provider, and only on nodes that the kubelet has tainted", applies: nodesKnown, run: providerIDs},
		{
			id: "node-cloud-provider", run: inTree,
			why:     "an in-tree provider sets up and deletes nodes as the cloud provider does",
			applies: func(s *Snapshot) bool { return s.Wants.CPI && nodesKnown(s) },
			seen:    func(s *Snapshot) bool { return len(s.Cluster.CloudProviders) > 0 },
		},
		{id: "node-uninitialized", why: "no ordinary pod is scheduled there", applies: nodesKnown, run: uninitialized},
		{id: "node-control-plane", why: "the controllers of both drivers are scheduled on control-plane nodes alone", applies: nodesKnown, run: controlPlane, passed: nil},
		{id: "node-zone-labels", why: "the storage driver 2.4 refuses a mix, and volumes are placed by one family only", applies: nodesKnown, run: zoneLabels},
		{id: "node-registered", why: "pods with volumes are not scheduled on a node that is not registered", applies: func(s *Snapshot) bool { return nodesKnown(s) && s.Wants.CSI && s.Cluster.StorageInstalled }, run: registered},
	}
}

func countNodes(format string) func(*Snapshot) string {
	return func(s *Snapshot) string { return fmt.Sprintf(format, len(s.Cluster.Nodes)) }
}

func nodeVMs(s *Snapshot) []found {
	all := s.machines()
	unread := len(s.readable()) < len(s.VCenters)
	var out []found
	for i := range s.Cluster.Nodes {
		n := &s.Cluster.Nodes[i]
		switch list := all[n.Name]; {
		case len(list) == 0 && unread:
			out = append(out, found{object: n.Name, action: Warn, what: "no VM in the vCenters that could be read: it may be in another one", remedy: "mend the vCenters that could not be read, then check again"})
		case len(list) == 0:
			out = append(out, found{object: n.Name, action: BlockInstall,
				what:   "no VM with the node's UUID or name in the datacenters that are configured",
				remedy: "compare `kubectl get node {} -o jsonpath='{.status.nodeInfo.systemUUID}'` with `govc vm.info -vm.uuid`; correct spec.datacenters, or give the account ReadOnly on the VM and what it is in"})
		case several(list):
			out = append(out, found{object: n.Name, of: paths(list), action: BlockInstall,
				what: "several VMs with the node's UUID or name", remedy: "find the clones: govc vm.info PATH; rename them, or unregister those that are powered off"})
		}
	}
	return out
}

func paths(list []behind) string {
	var out []string
	for _, b := range list[:min(len(list), 3)] {
		out = append(out, b.vcenter.MachinePath(b.machine))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func nodeNames(s *Snapshot) []found {
	var out []found
	for _, b := range s.nodesOnce() {
		if host := b.machine.HostName; host != "" && host != b.node.Name {
			out = append(out, found{object: b.node.Name, of: "guest: " + host, action: Warn,
				what:   "the guest's hostname is not the node's name",
				remedy: "set the same name in the guest, then register the node anew: hostnamectl set-hostname {}"})
		}
	}
	return out
}

const rejoin = "drain the node, delete it, and join it again"

const vspherePrefix = "vsphere://"

func providerIDs(s *Snapshot) []found {
	known := map[string]*Machine{}
	for _, b := range s.nodesMachines() {
		known[b.node.Name] = b.machine
	}
	var out []found
	for i := range s.Cluster.Nodes {
		n := &s.Cluster.Nodes[i]
		add := func(action Action, what, remedy string) {
			out = append(out, found{object: n.Name, action: action, what: what, remedy: remedy})
		}
		id, ours := strings.CutPrefix(n.ProviderID, vspherePrefix)
		switch m := known[n.Name]; {
		case n.ProviderID == "" && !n.Uninitialized && s.Wants.CPI:
			add(Warn, "no provider id and no taint: the kubelet runs without --cloud-provider=external, and the cloud provider leaves the node alone",
				"see `vdoctl nodes check`; for a node that runs: kubectl taint node {} node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule")
		case n.ProviderID == "":
		case strings.HasPrefix(n.ProviderID, "k3s://"):
			add(BlockInstall, "the provider id is of k3s' own cloud controller, and cannot be changed", "install k3s with --disable-cloud-controller and --kubelet-arg=cloud-provider=external, then "+rejoin)
		case !ours:
			add(BlockInstall, "the provider id is of another cloud", rejoin+" with --cloud-provider=external")
		case m != nil && !SameUUID(id, m.UUID):
			add(BlockInstall, "the provider id is of another VM than the one behind the node", "the VM was cloned or its UUID changed: "+rejoin)
		case id != strings.ToLower(id):
			add(Warn, "the provider id is not in lower case", rejoin)
		}
	}
	return out
}

// inTree finds controller managers with an in-tree provider. Without the flag they have none.
func inTree(s *Snapshot) []found {
	var out []found
	for _, pod := range slices.Sorted(maps.Keys(s.Cluster.CloudProviders)) {
		if p := s.Cluster.CloudProviders[pod]; p != "" && p != "external" {
			out = append(out, found{
				object: pod, action: BlockInstall, what: "kube-controller-manager runs with --cloud-provider=" + p,
				remedy: "start it and each kubelet with --cloud-provider=external, see `vdoctl nodes check`",
			})
		}
	}
	return out
}

func uninitialized(s *Snapshot) []found {
	var out []found
	for i := range s.Cluster.Nodes {
		if n := &s.Cluster.Nodes[i]; n.Uninitialized {
			what, remedy := "waits for the cloud provider", "this ends when the cloud provider runs; where it runs: kubectl -n kube-system logs ds/vsphere-cloud-controller-manager | grep {}"
			if !s.Wants.CPI {
				what, remedy = "waits for a cloud provider, and none is configured", "configure spec.cloudProvider, or run the kubelet without --cloud-provider=external"
			}
			out = append(out, found{object: n.Name, action: Warn, what: what, remedy: remedy})
		}
	}
	return out
}

func controlPlane(s *Snapshot) []found {
	for i := range s.Cluster.Nodes {
		if s.Cluster.Nodes[i].ControlPlane {
			return nil
		}
	}
	return []found{{action: BlockInstall, what: "no node has the label node-role.kubernetes.io/control-plane or master",
		remedy: "kubectl label node NAME node-role.kubernetes.io/control-plane="}}
}

const (
	oldZones = "failure-domain.beta.kubernetes.io/"
	newZones = "topology.kubernetes.io/"
	csiZones = "topology.csi.vmware.com/"
)

// IsZoneLabel reports whether a driver writes a label of this name from a tag.
func IsZoneLabel(name string) bool {
	prefix := name[:strings.Index(name, "/")+1]
	return prefix == oldZones || prefix == newZones || prefix == csiZones
}

func zoneLabels(s *Snapshot) []found {
	var olds, news []string
	for i := range s.Cluster.Nodes {
		for label := range s.Cluster.Nodes[i].Zones {
			if strings.HasPrefix(label, oldZones) {
				olds = append(olds, s.Cluster.Nodes[i].Name)
			} else if strings.HasPrefix(label, newZones) {
				news = append(news, s.Cluster.Nodes[i].Name)
			}
		}
	}
	if len(olds) == 0 || len(news) == 0 {
		return nil
	}
	var out []found
	for _, n := range olds {
		out = append(out, found{object: n, action: Warn, what: "nodes carry zone labels of both generations",
			remedy: "keep one family: kubectl label node {} failure-domain.beta.kubernetes.io/zone- failure-domain.beta.kubernetes.io/region-"})
	}
	return out
}

func registered(s *Snapshot) []found {
	var out []found
	for i := range s.Cluster.Nodes {
		n := &s.Cluster.Nodes[i]
		switch {
		case !n.Registered:
			out = append(out, found{object: n.Name, action: Warn, what: "the storage driver is not registered",
				remedy: "read its registrar: kubectl -n vmware-system-csi logs ds/vsphere-csi-node -c node-driver-registrar; and kubectl get csinodetopology {} -o yaml"})
		case len(s.Wants.Categories) > 0 && len(n.TopologyKeys) == 0:
			out = append(out, found{object: n.Name, action: Warn, what: "the storage driver is registered without topology keys",
				remedy: "it was registered before topology was configured: kubectl -n vmware-system-csi rollout restart ds/vsphere-csi-node"})
		}
	}
	return out
}
