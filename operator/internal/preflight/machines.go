package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// leastHardware is the least virtual hardware version that the drivers ask for.
const leastHardware = 15

func machineChecks() []check {
	return []check{
		{id: "vm-disk-uuid", why: "without it a volume is attached and cannot be mounted: the guest does not see which disk it is", applies: machinesForStorage, run: diskUUID},
		{id: "vm-hardware", why: "the drivers ask for hardware version 15 or later", applies: machinesKnown, run: hardware},
		{id: "vm-scsi", why: "each controller of another kind takes 15 places for volumes away", applies: machinesForStorage, run: controllers},
		{id: "vm-tools", why: "the cloud provider takes a node's name and addresses from VMware Tools", applies: func(s *Snapshot) bool { return s.Wants.CPI && machinesKnown(s) }, run: tools},
		{id: "vm-snapshots", why: "volumes cannot be attached to or detached from a VM with snapshots as they should", applies: machinesForStorage, run: snapshots},
		{id: "vm-change-tracking", why: "a volume that moves between VMs that differ in it breaks incremental backups", applies: machinesForStorage, run: changeTracking},
		{id: "vm-folder", why: "neither driver needs it; one folder makes privileges simpler", applies: machinesKnown, run: func(*Snapshot) []found { return nil }, passed: folders},
	}
}

func machinesForStorage(s *Snapshot) bool { return s.Wants.CSI && machinesKnown(s) }

// each makes a finding of each node's machine for which what is not empty.
func each(s *Snapshot, what func(behind) (string, Action), remedy string) []found {
	var out []found
	for _, b := range s.nodesMachines() {
		if text, action := what(b); text != "" {
			out = append(out, found{on: b.vcenter.Name, object: b.vcenter.MachinePath(b.machine), of: "node " + b.node.Name, what: text, action: action, remedy: remedy})
		}
	}
	return out
}

func diskUUID(s *Snapshot) []found {
	return each(s, func(b behind) (string, Action) {
		if b.machine.DiskUUID {
			return "", Pass
		}
		return "disk.EnableUUID is off", BlockInstall
	}, "drain the node, power the VM off, then: govc vm.change -vm '{}' -e disk.enableUUID=TRUE, and power it on")
}

func hardware(s *Snapshot) []found {
	return each(s, func(b behind) (string, Action) {
		n, err := strconv.Atoi(strings.TrimPrefix(b.machine.Hardware, "vmx-"))
		if err != nil || n >= leastHardware {
			return "", Pass
		}
		return fmt.Sprintf("hardware version %d, older than %d", n, leastHardware), BlockInstall
	}, "drain the node, power the VM off, then: govc vm.upgrade -vm '{}' -version 15, and power it on")
}

func controllers(s *Snapshot) []found {
	return each(s, func(b behind) (string, Action) {
		var other []string
		for _, c := range b.machine.Controllers {
			if c != "pvscsi" {
				other = append(other, c)
			}
		}
		switch {
		case len(b.machine.Controllers) == 0:
			return "no SCSI controller", BlockInstall
		case len(other) > 0:
			return "SCSI controllers that are not paravirtual: " + strings.Join(slices.Compact(other), ", "), Warn
		}
		return "", Pass
	}, "add a VMware Paravirtual controller: govc device.scsi.add -vm '{}' -type pvscsi; a boot disk is moved to it with the VM off")
}

func tools(s *Snapshot) []found {
	return each(s, func(b behind) (string, Action) {
		switch m := b.machine; {
		case !m.ToolsRunning:
			return "VMware Tools does not run", BlockInstall
		case m.HostName == "":
			return "VMware Tools reports no hostname", BlockInstall
		case m.Addresses == 0:
			return "VMware Tools reports no address", BlockInstall
		}
		return "", Pass
	}, "in the guest: apt-get install open-vm-tools (or the like) and systemctl enable --now open-vm-tools; then: govc vm.info '{}'")
}

func snapshots(s *Snapshot) []found {
	return each(s, func(b behind) (string, Action) {
		if b.machine.Snapshots == 0 {
			return "", Pass
		}
		return "the VM has snapshots", Warn
	}, "list them: govc snapshot.tree -vm '{}'; ask who made each, since it may be a backup, and delete the unneeded by name")
}

// changeTracking finds where it is off, if it is on elsewhere: to turn it on loses nothing.
func changeTracking(s *Snapshot) []found {
	list := s.nodesMachines()
	if !slices.ContainsFunc(list, func(b behind) bool { return b.machine.ChangeTracking }) {
		return nil
	}
	return each(s, func(b behind) (string, Action) {
		if b.machine.ChangeTracking {
			return "", Pass
		}
		return "changed block tracking is off, and on at other nodes", Warn
	}, "turn it on, as backups need it, with the VM off: govc vm.change -vm '{}' -e ctkEnabled=TRUE")
}

func folders(s *Snapshot) string {
	seen := map[string]bool{}
	for _, b := range s.nodesMachines() {
		seen[b.vcenter.Path(b.machine.Folder)] = true
	}
	names := make([]string, 0, len(seen))
	for f := range seen {
		names = append(names, f)
	}
	slices.Sort(names)
	r := Result{Objects: names[:min(len(names), MaxObjects)], Count: len(names)}
	return "the nodes' VMs are in " + r.Named()
}
