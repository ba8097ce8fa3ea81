package vcenter

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// machines finds the VMs that may be nodes by few properties of all VMs, and reads the others only for these. A guest
// chooses its name, so that counts only for a node whose UUID no VM has.
func (i *inspection) machines(ctx context.Context) error {
	if len(i.ask.Nodes) == 0 && len(i.ask.Paths) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for n := range i.ask.Nodes {
		for _, key := range i.ask.Nodes[n].Keys() {
			wanted[key] = key != ""
		}
	}
	read := []string{"config.uuid", "guest.hostName"}
	if len(i.ask.Paths) > 0 {
		read = append(read, "name", "parent")
	}
	all, err := i.view(ctx, map[string][]string{"VirtualMachine": read})
	if err != nil {
		return err
	}
	var refs []types.ManagedObjectReference
	by := map[string][]types.ManagedObjectReference{} // UUIDs and names
	for n := range all {
		var vm mo.VirtualMachine
		if mo.LoadObjectContent(all[n:n+1], &vm) != nil {
			continue // the account may not read it
		}
		m := machine(&vm)
		if i.asked(&m) {
			refs = append(refs, vm.Self)
		}
		for _, key := range []string{m.UUID, strings.ToLower(m.HostName)} {
			if wanted[key] {
				by[key] = append(by[key], vm.Self)
			}
		}
	}
	for n := range i.ask.Nodes {
		keys := i.ask.Nodes[n].Keys()
		if at := slices.IndexFunc(keys, func(key string) bool { return len(by[key]) > 0 }); at >= 0 {
			refs = append(refs, by[keys[at]]...)
		}
	}
	slices.SortFunc(refs, func(a, b types.ManagedObjectReference) int { return strings.Compare(a.Value, b.Value) })
	refs = slices.Compact(refs)
	for page := range slices.Chunk(refs, machinesPage) {
		if err := i.details(ctx, page); err != nil {
			return err
		}
	}
	return nil
}

// asked reports whether a VM is at or below one of the requested paths.
func (i *inspection) asked(m *preflight.Machine) bool {
	path := i.found.MachinePath(m)
	return slices.ContainsFunc(i.ask.Paths, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}

var machineProperties = []string{
	"name", "parent", "resourcePool", "runtime.host", "runtime.powerState", "config.uuid", "config.version", "config.flags", "config.template",
	"config.changeTrackingEnabled", "config.hardware.device", "guest.hostName", "guest.net", "guest.toolsRunningStatus", "rootSnapshot",
}

func (i *inspection) details(ctx context.Context, refs []types.ManagedObjectReference) error {
	var list []mo.VirtualMachine
	err := property.DefaultCollector(i.c).Retrieve(ctx, refs, machineProperties, &list)
	for n := range list {
		if m := machine(&list[n]); i.configured(m) {
			i.found.Machines = append(i.found.Machines, m)
		}
	}
	return err
}

// configured reports whether a VM is in one of the drivers' datacenters. A VM of a vApp is in no folder.
func (i *inspection) configured(m preflight.Machine) bool {
	return i.inside(m.Folder) || i.inside(m.Pool) || i.inside(m.Host)
}

// inside reports whether an object is in one of the configured datacenters; true if none is configured.
func (i *inspection) inside(start preflight.Ref) bool {
	if len(i.target.Datacenters) == 0 {
		return true
	}
	for _, r := range i.found.Ancestors(start) {
		if r.Type == "Datacenter" {
			is := func(name string) bool { return "/"+strings.Trim(name, "/") == i.found.Path(r) }
			return slices.ContainsFunc(i.target.Datacenters, is)
		}
	}
	return false
}

func machine(vm *mo.VirtualMachine) preflight.Machine {
	m := preflight.Machine{
		Ref: ref(vm.Self), Name: vm.Name,
	}
	m.Folder, m.Pool, m.Host = parent(vm.Parent), parent(vm.ResourcePool), parent(vm.Runtime.Host)
	m.On = vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
	m.Off = vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff
	if c := vm.Config; c != nil {
		m.UUID, m.Hardware, m.Template = strings.ToLower(c.Uuid), c.Version, c.Template
		m.DiskUUID = isOn(c.Flags.DiskUuidEnabled)
		m.ChangeTracking = c.ChangeTrackingEnabled != nil && *c.ChangeTrackingEnabled
		m.Controllers = controllers(c.Hardware.Device)
	}
	if g := vm.Guest; g != nil {
		m.HostName = g.HostName
		m.ToolsRunning = g.ToolsRunningStatus == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
		for _, nic := range g.Net {
			m.Addresses += len(nic.IpAddress)
		}
	}
	m.Snapshots = len(vm.RootSnapshot)
	return m
}

func controllers(devices []types.BaseVirtualDevice) []string {
	var out []string
	for _, d := range devices {
		switch d.(type) {
		case *types.ParaVirtualSCSIController:
			out = append(out, "pvscsi")
		case *types.VirtualLsiLogicSASController:
			out = append(out, "lsilogic-sas")
		case *types.VirtualLsiLogicController:
			out = append(out, "lsilogic")
		case *types.VirtualBusLogicController:
			out = append(out, "buslogic")
		}
	}
	slices.Sort(out)
	return out
}

// MachineState reads a VM by its id, Type-Value.
func (a *Admin) MachineState(ctx context.Context, id string) (preflight.Machine, error) {
	ref, err := refOf(id)
	var vm mo.VirtualMachine
	if err == nil {
		err = property.DefaultCollector(a.c).RetrieveOne(ctx, ref, machineProperties, &vm)
	}
	if err != nil {
		return preflight.Machine{}, a.faultOn(ctx, "read %s of", id, err)
	}
	return machine(&vm), nil
}

// ShutDown requests a shutdown of the guest, and does not wait for it.
func (a *Admin) ShutDown(ctx context.Context, id string) error {
	return a.machine(ctx, "shut down the guest of", id, func(vm *object.VirtualMachine) error {
		return unless(types.VirtualMachinePowerStatePoweredOff, vm.ShutdownGuest(ctx))
	})
}

// PowerOn powers a VM on.
func (a *Admin) PowerOn(ctx context.Context, id string) error {
	return a.machine(ctx, "power on", id, func(vm *object.VirtualMachine) error {
		return unless(types.VirtualMachinePowerStatePoweredOn, end(ctx)(vm.PowerOn(ctx)))
	})
}

// unless returns an error unless it says that the VM has a state already: another run was faster.
func unless(state types.VirtualMachinePowerState, err error) error {
	var now *types.InvalidPowerState
	if asFault(err, &now) && now.ExistingState == state {
		return nil
	}
	return err
}

// Fix changes a setting of a VM that is off, and leaves the others. version is that of the hardware, such as vmx-15.
func (a *Admin) Fix(ctx context.Context, id string, f preflight.Fix, version string) error {
	op := map[preflight.Fix]string{preflight.Hardware: "upgrade to " + version + " the hardware of",
		preflight.DiskUUID: "set disk.EnableUUID of", preflight.Controller: "add a controller to"}[f]
	return a.machine(ctx, op, id, func(vm *object.VirtualMachine) error {
		switch f {
		case preflight.Hardware:
			return end(ctx)(vm.UpgradeVM(ctx, version))
		case preflight.Controller:
			devices, err := vm.Device(ctx)
			if err != nil {
				return err
			}
			c, err := devices.CreateSCSIController("pvscsi")
			if err != nil {
				return err
			}
			return vm.AddDevice(ctx, c)
		}
		now := mo.VirtualMachine{Config: &types.VirtualMachineConfigInfo{}}
		if err := vm.Properties(ctx, vm.Reference(), []string{"config.flags"}, &now); err != nil {
			return err
		}
		now.Config.Flags.DiskUuidEnabled = types.NewBool(true)
		return end(ctx)(vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{Flags: &now.Config.Flags}))
	})
}

// CanUpgrade refuses a hardware version that a VM's host does not support. It accepts all if the vCenter lists none.
func (a *Admin) CanUpgrade(ctx context.Context, id, version string) error {
	var list []types.VirtualMachineConfigOptionDescriptor
	var at mo.VirtualMachine
	err := a.machine(ctx, "read the hardware versions for", id, func(vm *object.VirtualMachine) error {
		err := vm.Properties(ctx, vm.Reference(), []string{"environmentBrowser", "runtime.host"}, &at)
		if err == nil && at.EnvironmentBrowser.Value != "" {
			list, err = object.NewEnvironmentBrowser(a.c, at.EnvironmentBrowser).QueryConfigOptionDescriptor(ctx)
		}
		return err
	})
	var can []string
	for i := range list {
		d := &list[i]
		here := len(d.Host) == 0 || at.Runtime.Host == nil || slices.Contains(d.Host, *at.Runtime.Host)
		n, _ := strconv.Atoi(strings.TrimPrefix(d.Key, "vmx-"))
		if here && d.UpgradeSupported && n >= preflight.LeastHardware {
			can = append(can, d.Key)
		}
	}
	if err != nil || len(list) == 0 || slices.Contains(can, version) {
		return err
	}
	hint := "upgrade its host"
	if len(can) > 0 {
		hint = "give one of these to --hardware-version: " + strings.ReplaceAll(strings.Join(can, ", "), "vmx-", "")
	}
	return fault.Errorf(fault.Refused, "upgrade the hardware of", a.PathOf(ctx, id), hint,
		"its host does not support %s", version)
}

// UnmarkTemplate converts a template to a VM, in the root pool of its host's cluster.
func (a *Admin) UnmarkTemplate(ctx context.Context, id string) error {
	return a.machine(ctx, "make a VM of the template", id, func(vm *object.VirtualMachine) error {
		host, err := vm.HostSystem(ctx)
		if err != nil {
			return err
		}
		pool, err := host.ResourcePool(ctx)
		if err != nil {
			return err
		}
		return vm.MarkAsVirtualMachine(ctx, *pool, host)
	})
}

// MarkTemplate converts a VM that is off to a template.
func (a *Admin) MarkTemplate(ctx context.Context, id string) error {
	return a.machine(ctx, "make a template of", id, func(vm *object.VirtualMachine) error {
		return vm.MarkAsTemplate(ctx)
	})
}

// end waits for a task that was begun.
func end(ctx context.Context) func(*object.Task, error) error {
	return func(t *object.Task, err error) error {
		if err != nil {
			return err
		}
		return t.Wait(ctx)
	}
}

func (a *Admin) machine(ctx context.Context, op, id string, do func(*object.VirtualMachine) error) error {
	ref, err := refOf(id)
	if err == nil {
		err = do(object.NewVirtualMachine(a.c, ref))
	}
	return a.faultOn(ctx, op+" %s in", id, err)
}
