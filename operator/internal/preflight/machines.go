package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LeastHardware is the lowest virtual hardware version that the drivers support.
const LeastHardware = 15

// Fix is a setting of a VM that the drivers need, and that changes while the VM is off.
type Fix string

// The settings.
const (
	DiskUUID   Fix = "disk.EnableUUID"
	Hardware   Fix = "hardware version"
	Controller Fix = "paravirtual SCSI controller"
)

// has returns a check that reports a text for the VMs of nodes that a condition selects.
func has(what string, gates func(*Machine) bool) func(*Snapshot) []found {
	return machines(func(_ *Snapshot, b behind) []found {
		if gates(b.machine) {
			return is(what)
		}
		return nil
	})
}

func hardware(_ *Snapshot, b behind) []found {
	n, err := strconv.Atoi(strings.TrimPrefix(b.machine.Hardware, "vmx-"))
	if err != nil || n >= LeastHardware {
		return nil
	}
	what := fmt.Sprintf("the hardware version is older than %d", LeastHardware)
	return []found{{what: what, of: "node " + b.node.Name + ", " + b.machine.Hardware}}
}

func controllers(_ *Snapshot, b behind) []found {
	other := slices.DeleteFunc(slices.Clone(b.machine.Controllers), func(c string) bool { return c == "pvscsi" })
	switch {
	case len(b.machine.Controllers) == 0:
		return is("no SCSI controller")
	case len(other) > 0:
		return []found{{what: "SCSI controllers that are not paravirtual: " + strings.Join(slices.Compact(other), ", "), action: Warn,
			remedy: "add a paravirtual one: `govc device.scsi.add -vm {} -type pvscsi`; move a boot disk to it with the VM off"}}
	}
	return nil
}

func tools(_ *Snapshot, b behind) []found {
	switch m := b.machine; {
	case !m.ToolsRunning:
		return is("VMware Tools does not run")
	case m.HostName == "":
		return is("VMware Tools reports no hostname")
	case m.Addresses == 0:
		return is("VMware Tools reports no address")
	}
	return nil
}

// maxLatency is the limit for disks of the control plane: above it etcd loses its leader. It is the limit of
// vsphere-problem-detector, pkg/check/node_perf.go.
const maxLatency = 100 * time.Millisecond

func diskLatency(_ *Snapshot, b behind) []found {
	if !b.node.ControlPlane || b.machine.DiskLatency <= maxLatency {
		return nil
	}
	of := fmt.Sprintf("node %s, %s", b.node.Name, b.machine.DiskLatency)
	return []found{{what: "disks of the control plane or etcd answer slowly", of: of}}
}

// changeTracking finds VMs without changed block tracking, if other VMs of their vCenter have it. Switching it on loses
// nothing.
func changeTracking(s *Snapshot) []found {
	on := map[*VCenter]bool{}
	for _, b := range s.nodesMachines() {
		on[b.vcenter] = on[b.vcenter] || b.machine.ChangeTracking
	}
	return machines(func(_ *Snapshot, b behind) []found {
		if on[b.vcenter] && !b.machine.ChangeTracking {
			return is("changed block tracking is off, and on at other nodes")
		}
		return nil
	})(s)
}

type behind struct {
	node    *Node
	vcenter *VCenter
	machine *Machine
}

// machines returns the VMs of each node as the cloud provider finds them: by UUID, else by name. A template is never a
// node.
func (s *Snapshot) machines() map[string][]behind {
	by := map[string][]behind{} // UUIDs and names
	for _, v := range s.readable() {
		for i := range v.Machines {
			m := &v.Machines[i]
			b := behind{vcenter: v, machine: m}
			for _, key := range []string{m.UUID, strings.ToLower(m.HostName)} {
				if key != "" && !m.Template {
					by[key] = append(by[key], b)
				}
			}
		}
	}
	out := make(map[string][]behind, len(s.Cluster.Nodes))
	for i := range s.Cluster.Nodes {
		n := &s.Cluster.Nodes[i]
		isKnown := func(key string) bool { return len(by[key]) > 0 }
		keys := n.Keys()
		if at := slices.IndexFunc(keys, isKnown); at >= 0 {
			for _, b := range by[keys[at]] {
				b.node = n
				out[n.Name] = append(out[n.Name], b)
			}
		}
	}
	return out
}

// several reports whether these are more than one machine. One vCenter may be configured under two names, such as for
// the cloud provider and for the storage driver, and has each machine under both.
func several(list []behind) bool {
	return slices.ContainsFunc(list[1:], func(b behind) bool {
		a := list[0]
		return a.vcenter.ID == "" || a.vcenter.ID != b.vcenter.ID || a.machine.Ref != b.machine.Ref || a.machine.UUID != b.machine.UUID
	})
}

// nodesMachines returns the nodes with exactly one VM, sorted by node. A node appears once for each name of its
// vCenter, since findings concern the drivers that use that name.
func (s *Snapshot) nodesMachines() []behind {
	var out []behind
	for _, list := range s.machines() {
		if !several(list) {
			out = append(out, list...)
		}
	}
	slices.SortFunc(out, func(a, b behind) int {
		return cmp.Or(cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.vcenter.Name, b.vcenter.Name))
	})
	return out
}

func (s *Snapshot) nodesOnce() []behind {
	return slices.CompactFunc(s.nodesMachines(), func(a, b behind) bool { return a.node.Name == b.node.Name })
}
