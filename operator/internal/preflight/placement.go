package preflight

import (
	"cmp"
	"slices"
	"strings"
)

// Placement is where a node is, and which tags it gets from that.
type Placement struct {
	Node    string  `json:"node"`
	VCenter string  `json:"vcenter"`
	Host    string  `json:"host"` // inventory path
	Levels  []Level `json:"levels"`
}

// Level is what a node gets of one tag category.
type Level struct {
	Category string `json:"category"`
	Tag      string `json:"tag,omitempty"` // empty where there is none
	On       string `json:"on,omitempty"`  // the nearest object that has it
	// Overruled are other tags of the category on what that object is in.
	Overruled []string `json:"overruled,omitempty"`
}

// Placements returns where each node with a VM is, by node.
func Placements(s Snapshot) []Placement {
	var out []Placement
	for _, b := range s.nodesOnce() {
		v := b.vcenter
		p := Placement{Node: b.node.Name, VCenter: v.Name, Host: v.Path(b.machine.Host), Levels: []Level{}}
		for _, c := range s.Wants.AllCategories() {
			p.Levels = append(p.Levels, v.level(c, v.Ancestors(b.machine.Host)))
		}
		out = append(out, p)
	}
	return out
}

func (v *VCenter) level(category string, chain []Ref) Level {
	l := Level{Category: category}
	for _, r := range chain {
		for _, t := range v.Tagged[r] {
			switch {
			case t.Name != category || t.Tag == l.Tag:
			case l.Tag == "":
				l.Tag, l.On = t.Tag, v.Path(r)
			default:
				l.Overruled = append(l.Overruled, t.Tag+" on "+v.Path(r))
			}
		}
	}
	return l
}

// Zone is the nodes of one vCenter that have the same tags.
type Zone struct {
	VCenter string   `json:"vcenter"`
	Tags    []string `json:"tags"` // by category, sorted; none without topology
	Nodes   int      `json:"nodes"`
	// Datastores that all hosts of its nodes see, and that the account may use.
	Datastores []string `json:"datastores"`
}

// Zones returns the zones of the storage driver, sorted.
func Zones(s Snapshot) []Zone {
	nodes := map[string]int{}
	for _, b := range s.nodesMachines() {
		tags, _ := b.vcenter.tagsOf(s.Wants.Categories, b.vcenter.Ancestors(b.machine.Host))
		nodes[b.vcenter.Name+" "+strings.Join(tags, "/")]++
	}
	var out []Zone
	for _, a := range s.areas() {
		z := Zone{VCenter: a.vcenter.Name, Nodes: nodes[a.vcenter.Name+" "+a.name], Tags: []string{}, Datastores: []string{}}
		if a.name != "" {
			z.Tags = strings.Split(a.name, "/")
		}
		for i := range a.vcenter.Datastores {
			if d := &a.vcenter.Datastores[i]; d.Accessible && d.MayHold && d.sharedBy(a.hosts) {
				z.Datastores = append(z.Datastores, d.Name)
			}
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

// NodeMachines returns them by node.
func NodeMachines(s Snapshot) []NodeMachine {
	var out []NodeMachine
	for _, b := range s.nodesOnce() {
		out = append(out, NodeMachine{Node: *b.node, VCenter: b.vcenter.Name, Path: b.vcenter.MachinePath(b.machine), Machine: *b.machine})
	}
	return out
}
