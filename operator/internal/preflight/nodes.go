package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func unreadCluster(s *Snapshot) []found {
	if s.Cluster.Err == nil {
		return nil
	}
	return []found{{what: s.Cluster.Err.Error(), remedy: fault.HintOf(s.Cluster.Err)}}
}

func clusterID(s *Snapshot) []found {
	if s.Wants.ClusterID == "" || s.Cluster.KeptClusterID == "" || s.Wants.ClusterID == s.Cluster.KeptClusterID {
		return nil
	}
	return []found{{
		object: "ConfigMap vmware-system-csi/vsphere-csi-cluster-id",
		what:   "the cluster id is in spec.storageProvider.clusterID and in what the driver made for itself before"}}
}

func severalVCenters(s *Snapshot) (out []found) {
	n := 0
	for i := range s.VCenters {
		if s.VCenters[i].CSI {
			n++
		}
	}
	if n > 1 && len(s.Wants.Categories) == 0 {
		out = is(fmt.Sprintf("%d vCenters and no topology categories", n))
	}
	if n > maxVCenters {
		out = append(out, found{what: fmt.Sprintf("%d vCenters: the storage driver takes %d", n, maxVCenters),
			remedy: "name fewer in spec.storageProvider.vsphereCloudConfigs"})
	}
	if out = append(out, duplicates(s)...); n < 2 || len(out) > 0 {
		return out
	}
	return sharedZones(s)
}

// sharedZones finds zones of nodes whose tags another vCenter has too: vsphere-csi-driver v3.7.3,
// pkg/csi/service/common/topology.go, getVCForTopologySegments.
func sharedZones(s *Snapshot) (out []found) {
	attached := map[string]bool{} // vCenter and tag
	for _, v := range s.readable() {
		asked := s.Wants.asks(matrix.CSI, v)
		for _, list := range v.Tagged {
			for _, t := range list {
				if slices.Contains(asked, t.Name) {
					attached[v.Name+"/"+t.Tag] = true
				}
			}
		}
	}
	for _, a := range s.areas() {
		for _, v := range s.readable() {
			lacks := func(tag string) bool { return !attached[v.Name+"/"+tag] }
			if v != a.vcenter && len(a.tags) == len(s.Wants.Categories) && !slices.ContainsFunc(a.tags, lacks) {
				out = append(out, found{on: v.Name, object: strings.Join(a.tags, "/"), action: Warn,
					what:   "VsphereCloudConfig " + a.vcenter.Name + " has nodes with the same tags: the storage driver makes no volume in that zone",
					remedy: "tag it as another zone, before the driver labels its nodes: `vdoctl topology tag --vcenter NAME --username ADMIN --attach CATEGORY:TAG=PATH --replace`"})
			}
		}
	}
	return out
}

// duplicates finds vCenters that the storage driver has twice, under two names: render refuses them.
func duplicates(s *Snapshot) (out []found) {
	for i, v := range s.VCenters {
		for _, o := range s.VCenters[:i] {
			if v.ID != "" && v.ID == o.ID && v.CSI && o.CSI {
				out = append(out, found{on: v.Name, object: v.Server, remedy: render.OncePerVCenter,
					what: "it is the vCenter of VsphereCloudConfig " + o.Name + " too, by its instance UUID"})
			}
		}
	}
	return out
}

func nodeVMs(s *Snapshot) []found {
	all, unread := s.machines(), len(s.readable()) < len(s.VCenters)
	named := map[string][]string{}
	for i := range s.Cluster.Nodes {
		id := strings.ToLower(s.Cluster.Nodes[i].UUID)
		named[id] = append(named[id], s.Cluster.Nodes[i].Name)
	}
	out := nodes(func(_ *Snapshot, n *Node) found {
		switch list, same := all[n.Name], named[strings.ToLower(n.UUID)]; {
		case len(list) == 0 && unread:
			return found{action: Warn, what: "no VM in the vCenters that could be read: it may be in another one"}
		case len(list) == 0:
			return found{what: "no VM with the node's UUID or name in the datacenters that are configured"}
		case several(list):
			var paths []string
			for _, b := range list {
				paths = append(paths, b.vcenter.MachinePath(b.machine)+" in "+b.vcenter.Name)
			}
			return found{of: fault.Few(paths, 3), what: "several VMs with the node's UUID or name",
				remedy: "find the clones: `govc vm.info PATH`; rename them, or unregister those that are powered off"}
		case n.UUID != "" && len(same) > 1:
			return found{action: Warn, of: fault.Few(same, 3), what: "several nodes with one UUID, whose volumes get mixed up",
				remedy: "delete the Node that no longer exists; else give the clone's VM a UUID of its own"}
		}
		return found{}
	})(s)
	if unread {
		return out
	}
	return append(out, s.elsewhere(all)...)
}

// elsewhere finds nodes whose VM is only in vCenters of the other driver. The storage driver still serves its own
// nodes; the cloud provider may delete such a node.
func (s *Snapshot) elsewhere(all map[string][]behind) (out []found) {
	for _, d := range []matrix.Driver{matrix.CPI, matrix.CSI} {
		f := found{drivers: []matrix.Driver{d},
			what:   fmt.Sprintf("%s is not configured with the vCenter of the node's VM", d),
			remedy: "name the VsphereCloudConfig of that vCenter for both drivers, or exclude the node by spec.excludedNodes"}
		if d == matrix.CSI {
			f.action = Warn
		}
		for name, list := range all {
			isUsed := func(b behind) bool { return s.uses(d, b.vcenter.Name) }
			if s.uses(d, "") && !slices.ContainsFunc(list, isUsed) {
				f.object, f.of = name, "VM in "+list[0].vcenter.Name
				out = append(out, f)
			}
		}
	}
	return out
}

func nodeNames(s *Snapshot) (out []found) {
	for _, b := range s.nodesOnce() {
		if host := b.machine.HostName; host != "" && host != b.node.Name {
			out = append(out, found{object: b.node.Name, of: "guest: " + host, what: "the guest's hostname is not the node's name"})
		}
	}
	return out
}

func providerIDs(s *Snapshot) []found {
	known := map[string]*Machine{}
	for _, b := range s.nodesMachines() {
		known[b.node.Name] = b.machine
	}
	return nodes(func(_ *Snapshot, n *Node) found {
		id, ours := strings.CutPrefix(n.ProviderID, "vsphere://")
		switch m := known[n.Name]; {
		case n.ProviderID == "" && !n.Uninitialized:
			return found{action: Warn, what: "no provider id and no taint: the kubelet runs without --cloud-provider=external, and the cloud provider leaves the node alone",
				remedy: "see `vdoctl nodes check`; for a node that runs: `kubectl taint node {} node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule`"}
		case n.ProviderID != "" && !ours:
			return found{what: "the provider id is of another cloud, and cannot be changed",
				remedy: "see `vdoctl nodes check` (k3s: --disable-cloud-controller); drain the node, delete it, and join it again with --cloud-provider=external"}
		case ours && m != nil && !SameUUID(id, m.UUID):
			return found{what: "the provider id is of another VM than the one behind the node: the VM was cloned, or its UUID changed"}
		}
		return found{}
	})(s)
}

// inTree finds controller managers and kubelets with an in-tree provider. They have none without the flag.
func inTree(s *Snapshot) (out []found) {
	for _, pod := range slices.Sorted(maps.Keys(s.Cluster.CloudProviders)) {
		if p := s.Cluster.CloudProviders[pod]; p != "" && p != "external" {
			out = append(out, found{object: pod, what: "an in-tree provider runs: --cloud-provider=" + p})
		}
	}
	return out
}

func controlPlane(s *Snapshot) []found {
	if s.Cluster.ControlPlane {
		return nil
	}
	return is("no node has the label node-role.kubernetes.io/control-plane or master")
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

func registered(s *Snapshot, n *Node) found {
	switch {
	case !n.Registered:
		return found{what: "the storage driver is not registered"}
	case slices.ContainsFunc(s.Wants.Categories, func(category string) bool {
		key := csiZones + category
		return n.Zones[key] == "" || !slices.Contains(n.TopologyKeys, key)
	}):
		return found{what: "the storage driver is registered without topology keys of all categories, or their labels",
			remedy: "it was registered before topology was configured. The operator restarts the node plugin; if they are missing for longer: `kubectl -n vmware-system-csi rollout restart ds/vsphere-csi-node`"}
	}
	return found{}
}

// Placement is where a node runs, and the tags it gets from there.
type Placement struct {
	Node    string  `json:"node"`
	VCenter string  `json:"vcenter"`
	Host    string  `json:"host"` // inventory path
	Levels  []Level `json:"levels"`
}

// Level is the tag that a node gets of one category.
type Level struct {
	Category string `json:"category"`
	Tag      string `json:"tag,omitempty"` // empty if it has none
	On       string `json:"on,omitempty"`  // the object that has it
	// Overruled are other tags of the category on the host and its ancestors.
	Overruled []string `json:"overruled,omitempty"`

	twice bool // the storage driver before 3.3 fails at a second tag
}

// Placements returns the placement of each node with a VM, sorted by node.
func Placements(s Snapshot) []Placement {
	var out []Placement
	for _, b := range s.nodesOnce() {
		v := b.vcenter
		p := Placement{Node: b.node.Name, VCenter: v.Name, Host: v.Path(b.machine.Host), Levels: []Level{}}
		chain := v.Ancestors(b.machine.Host)
		p.Levels = append(p.Levels, v.climb(s.Wants.Categories, chain)...)
		for _, l := range v.climb([]string{s.Wants.Region, s.Wants.Zone}, chain) {
			if l.Category != "" && !slices.Contains(s.Wants.Categories, l.Category) {
				p.Levels = append(p.Levels, l)
			}
		}
		slices.SortFunc(p.Levels, func(a, b Level) int { return cmp.Compare(a.Category, b.Category) })
		out = append(out, p)
	}
	return out
}

// climb walks from a host to the root as the drivers do. A tag on a higher object replaces a lower one, until each
// category has one: cloud-provider-vsphere v1.36.0, pkg/common/connectionmanager/zones.go, LookupZoneByMoref;
// vsphere-csi-driver from v3.3.0, pkg/common/cns-lib/vsphere/virtualmachine.go, GetTopologyLabels.
func (v *VCenter) climb(categories []string, chain []Ref) []Level {
	out := make([]Level, len(categories))
	for i, c := range categories {
		out[i].Category = c
	}
	open := len(categories)
	for _, r := range chain {
		for _, t := range v.Tagged[r] {
			i := slices.Index(categories, t.Name)
			if i < 0 {
				continue
			}
			l, on := &out[i], v.Path(r)
			switch {
			case l.Tag == "":
				l.Tag, l.On = t.Tag, on
				open--
				continue
			case open > 0:
				l.twice = true
				l.Tag, t.Tag, l.On, on = t.Tag, l.Tag, on, l.On
			}
			if t.Tag != l.Tag {
				l.Overruled = append(l.Overruled, t.Tag+" on "+on)
			}
		}
	}
	return out
}

// Zone is the nodes of one vCenter with the same tags.
type Zone struct {
	VCenter string   `json:"vcenter"`
	Tags    []string `json:"tags"` // by category, sorted; none without topology
	Nodes   int      `json:"nodes"`
	// Datastores that all hosts of its nodes mount, and that the account may use.
	Datastores []string `json:"datastores"`
}

// Zones returns the zones of the storage driver, sorted.
func Zones(s Snapshot) []Zone {
	var out []Zone
	for _, a := range s.areas() {
		z := Zone{VCenter: a.vcenter.Name, Nodes: a.nodes, Tags: append([]string{}, a.tags...), Datastores: []string{}}
		for _, d := range a.shared(true) {
			z.Datastores = append(z.Datastores, d.Name)
		}
		out = append(out, z)
	}
	slices.SortFunc(out, func(a, b Zone) int { return cmp.Or(cmp.Compare(a.VCenter, b.VCenter), slices.Compare(a.Tags, b.Tags)) })
	return out
}

// NodeMachine is a node and the one VM behind it.
type NodeMachine struct {
	Node    Node
	VCenter string // by the name of its VsphereCloudConfig
	Path    string
	Machine Machine
}

// NodeMachines returns the nodes with one VM, sorted by node. The VM has the node's UUID: any guest can choose the
// node's name.
func NodeMachines(s Snapshot) []NodeMachine {
	var out []NodeMachine
	for _, b := range s.nodesOnce() {
		if !SameUUID(b.node.UUID, b.machine.UUID) {
			continue
		}
		out = append(out, NodeMachine{Node: *b.node, VCenter: b.vcenter.Name, Path: b.vcenter.MachinePath(b.machine), Machine: *b.machine})
	}
	return out
}
