package preflight

import (
	"cmp"
	"slices"
	"strings"
)

// behind is the machine of a node, and where it is.
type behind struct {
	node    *Node
	vcenter *VCenter
	machine *Machine
}

// machines finds what is behind each node, as the cloud provider does: by UUID, and for
// want of it by name. A template is never a node.
func (s *Snapshot) machines() map[string][]behind {
	byUUID, byName := map[string][]behind{}, map[string][]behind{}
	type place struct {
		vcenter string
		ref     Ref
	}
	known := map[place]bool{}
	for _, v := range s.readable() {
		for i := range v.Machines {
			m := &v.Machines[i]
			at := place{v.ID, m.Ref}
			if m.Template || (v.ID != "" && known[at]) {
				continue // one vCenter may be asked under two names
			}
			known[at] = true
			b := behind{vcenter: v, machine: m}
			byUUID[m.UUID] = append(byUUID[m.UUID], b)
			if m.HostName != "" {
				byName[strings.ToLower(m.HostName)] = append(byName[strings.ToLower(m.HostName)], b)
			}
		}
	}
	out := make(map[string][]behind, len(s.Cluster.Nodes))
	for i := range s.Cluster.Nodes {
		n := &s.Cluster.Nodes[i]
		list := byUUID[strings.ToLower(n.UUID)]
		if len(list) == 0 {
			list = byUUID[Swapped(n.UUID)]
		}
		if len(list) == 0 {
			list = byName[strings.ToLower(n.Name)]
		}
		for _, b := range list {
			b.node = n
			out[n.Name] = append(out[n.Name], b)
		}
	}
	return out
}

// nodesMachines are the nodes with exactly one machine behind, sorted by node.
func (s *Snapshot) nodesMachines() []behind {
	var out []behind
	for _, list := range s.machines() {
		if len(list) == 1 {
			out = append(out, list[0])
		}
	}
	slices.SortFunc(out, func(a, b behind) int { return cmp.Compare(a.node.Name, b.node.Name) })
	return out
}
