// Package maintenance puts settings of nodes' VMs right that can be changed only while a VM
// is off, one node after another.
//
// A node is cordoned, its pods are evicted (which their disruption budgets may hold up), its
// volumes are detached, the guest is shut down, the settings are changed, the VM is powered
// on, and when its kubelet is back the node is uncordoned. Where it stands is in the
// cluster and in the vCenter alone:
//
//   - an annotation on the node, [Annotation], says that it was begun, whether it was cordoned
//     here, and which boot it ran then; it is written with the cordon in one change;
//   - the rest is looked at: pods, volumes, the VM's power and settings, the node's boot.
//
// So it can be stopped at any time, and a further run goes on with the node that was begun
// before it touches another one. Only what was cordoned here is uncordoned. Of the control
// plane one node is worked on at a time, and none unless the others that are ready are a
// majority of all its nodes, and two at least: with fewer the cluster's own state would have
// no majority while the node is off. That is looked at before a node is cordoned, and again
// directly before its guest is shut down, also where the work was begun by a run before.
//
// The plan is a first look. The VM is read before each step, and once more before the node is
// uncordoned, since others may change it meanwhile. Nodes that a Machine owns are refused.
//
// VMs that are no nodes, such as templates, are changed alike, without a cluster ([Run.Machines]).
package maintenance

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// Fix is a setting that is put right while the VM is off.
type Fix string

// The settings that the drivers need.
const (
	DiskUUID   Fix = "disk.EnableUUID"
	Hardware   Fix = "hardware version"
	Controller Fix = "paravirtual SCSI controller"
)

// Machine is a VM, and what is to be done about it.
type Machine struct {
	Node         string   `json:"node,omitempty"` // that it is behind
	ControlPlane bool     `json:"controlPlane,omitempty"`
	VCenter      string   `json:"vcenter"`
	Path         string   `json:"path"`
	ID           string   `json:"-"`
	On           bool     `json:"on,omitempty"`
	Template     bool     `json:"template,omitempty"` // it is to be one afterwards
	Off          []Fix    `json:"off"`                // takes the VM off
	ByHand       []string `json:"byHand"`             // what no one but a person can decide, or do in the guest

	begun bool // by an earlier run
}

// Name is the node's or, of a VM that is no node, its path.
func (m *Machine) Name() string { return cmp.Or(m.Node, m.Path) }

// Plan says what is to be done about each VM, workers first. Hardware versions are to have the number at
// least.
func Plan(list []preflight.NodeMachine, hardware int) []Machine {
	var out []Machine
	for _, n := range list {
		m := n.Machine
		out = append(out, Machine{
			Node: n.Node.Name, ControlPlane: n.Node.ControlPlane, VCenter: n.VCenter, Path: n.Path,
			ID: m.Ref.Type + "-" + m.Ref.Value, On: m.On, Template: m.Template,
			Off: fixes(m, hardware), ByHand: byHand(&m)})
	}
	slices.SortStableFunc(out, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(rank(a.ControlPlane), rank(b.ControlPlane)), cmp.Compare(a.Name(), b.Name()))
	})
	return out
}

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

func fixes(s preflight.Machine, hardware int) []Fix {
	out := []Fix{}
	if !s.DiskUUID {
		out = append(out, DiskUUID)
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(s.Hardware, "vmx-")); err == nil && n < max(hardware, preflight.LeastHardware) {
		out = append(out, Hardware)
	}
	if len(s.Controllers) == 0 {
		out = append(out, Controller)
	}
	return out
}

// byHand is what is not changed from here: in the guest, or what may lose data.
func byHand(m *preflight.Machine) []string {
	out := []string{}
	if m.On && !m.ToolsRunning {
		out = append(out, "VMware Tools does not run: install and start open-vm-tools in the guest")
	}
	if m.Snapshots > 0 {
		out = append(out, "it has snapshots: see whether somebody needs them, then remove them")
	}
	others := slices.DeleteFunc(slices.Clone(m.Controllers), func(c string) bool { return c == "pvscsi" })
	if len(others) > 0 {
		out = append(out, fmt.Sprintf("its boot disk may be on a controller that is not paravirtual (%s): the guest has to have the driver before that is changed", strings.Join(slices.Compact(others), ", ")))
	}
	return out
}
