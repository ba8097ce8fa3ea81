package preflight

import (
	"cmp"
	"slices"
)

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
