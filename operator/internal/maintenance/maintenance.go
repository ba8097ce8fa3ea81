// Package maintenance fixes settings of nodes' VMs that can change only while a VM is off, node by node.
//
// It cordons a node, evicts its pods (which their disruption budgets may delay), and waits for its volumes to detach.
// Then it shuts the guest down, changes the settings, and powers the VM on. When the kubelet is back, it uncordons the
// node. Only the cluster and the vCenter have the state:
//
//   - an annotation on the node, [Annotation], records that the work began, whether it cordoned the node, and the
//     node's last boot before a shutdown; one write sets it and the cordon;
//   - the package observes the rest: pods, volumes, the VM's power and settings, the node's boot.
//
// So it can be stopped at any time, and a later run first continues with the nodes that were begun. It uncordons only
// nodes that it cordoned. It works on one control plane node at a time. The other ready ones have to be a majority of
// all and at least two. With fewer the cluster's state would have no majority while the node is off. The same holds for
// nodes of etcd, which may be others. It checks that before a cordon and again directly before the shutdown of the
// guest, even if an earlier run began the work.
//
// The plan is a first read. The VM is read before each step, and again before the node is uncordoned, since others may
// change it. Nodes that a Machine owns are refused.
//
// VMs that are no nodes, such as templates, are changed alike, without a cluster.
package maintenance

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// Machine is a VM, and the changes that it needs.
type Machine struct {
	Node         string          `json:"node,omitempty"`         // the node of this VM
	ControlPlane bool            `json:"controlPlane,omitempty"` // or etcd
	VCenter      string          `json:"vcenter"`
	Path         string          `json:"path"`
	ID           string          `json:"-"`
	Owner        string          `json:"-"` // the Machine of a Machine API that owns the node
	On           bool            `json:"on,omitempty"`
	Template     bool            `json:"template,omitempty"` // it is a template again afterwards
	Off          []preflight.Fix `json:"off"`                // changes that need the VM off
	Begun        bool            `json:"begun,omitempty"`    // by an earlier run that stopped
	ByHand       []string        `json:"byHand"`             // changes that an administrator has to decide, or make in the guest
}

// Name returns the node's name, or the path of a VM that is no node.
func (m *Machine) Name() string { return cmp.Or(m.Node, m.Path) }

// Plan returns the changes that each VM needs, workers first. hardware is the lowest accepted hardware version.
func Plan(list []preflight.NodeMachine, hardware int) []Machine {
	var out []Machine
	for _, n := range list {
		m := n.Machine
		out = append(out, Machine{
			Node: n.Node.Name, ControlPlane: n.Node.ControlPlane, Begun: n.Node.Begun, VCenter: n.VCenter, Path: n.Path,
			ID: m.Ref.Type + "-" + m.Ref.Value, Owner: n.Node.Machine, On: m.On, Template: m.Template,
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

// Pending returns the VMs with work left, first those whose node was begun. It refuses nodes of a Machine API: a
// MachineHealthCheck may delete one that is off.
func Pending(list []Machine) ([]Machine, error) {
	var errs []error
	list = slices.DeleteFunc(slices.Clone(list), func(m Machine) bool { return len(m.Off) == 0 && !m.Begun })
	for _, m := range list {
		if m.Owner != "" && !m.Begun {
			errs = append(errs, fault.Errorf(fault.Refused, "power off the VM of", m.Node,
				"correct the template of its Machines and roll it out; name other nodes with --nodes",
				"Machine %s owns the node, and a MachineHealthCheck may delete it while its VM is off", m.Owner))
		}
	}
	slices.SortStableFunc(list, func(a, b Machine) int { return rank(b.Begun) - rank(a.Begun) })
	return list, fault.Join(errs...)
}

func fixes(s preflight.Machine, hardware int) []preflight.Fix {
	out := []preflight.Fix{}
	if !s.DiskUUID {
		out = append(out, preflight.DiskUUID)
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(s.Hardware, "vmx-")); err == nil && n < max(hardware, preflight.LeastHardware) {
		out = append(out, preflight.Hardware)
	}
	if len(s.Controllers) == 0 {
		out = append(out, preflight.Controller)
	}
	return out
}

// byHand returns the changes for an administrator: in the guest, or with a risk for data.
func byHand(m *preflight.Machine) []string {
	out := []string{}
	if m.On && !m.ToolsRunning {
		out = append(out, "VMware Tools does not run: install and start open-vm-tools in the guest")
	}
	if m.Snapshots > 0 {
		out = append(out, "it has snapshots: remove them if they are not needed")
	}
	others := slices.DeleteFunc(slices.Clone(m.Controllers), func(c string) bool { return c == "pvscsi" })
	if len(others) > 0 {
		out = append(out, fmt.Sprintf("its boot disk may be on a controller that is not paravirtual (%s): the guest has to have the driver before that is changed", strings.Join(slices.Compact(others), ", ")))
	}
	return out
}
