package vcenter

import (
	"context"
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// MachineState is what a VM is like now.
type MachineState struct {
	On, Off      bool // neither where it is suspended
	ToolsRunning bool
	DiskUUID     bool
	Hardware     string   // vmx-15
	Controllers  []string // kinds of its SCSI controllers, sorted

	flags types.VirtualMachineFlagInfo
}

func (a *Admin) machine(id string) (*object.VirtualMachine, error) {
	ref, err := refOf(id)
	return object.NewVirtualMachine(a.c, ref), err
}

// MachineState reads a VM by its id, Type-Value.
func (a *Admin) MachineState(ctx context.Context, id string) (MachineState, error) {
	ref, err := refOf(id)
	var vm mo.VirtualMachine
	if err == nil {
		err = property.DefaultCollector(a.c).RetrieveOne(ctx, ref, []string{"runtime.powerState", "guest.toolsRunningStatus", "config.flags", "config.version", "config.hardware.device"}, &vm)
	}
	if err != nil {
		return MachineState{}, a.fault("read the VM "+id+" of", err)
	}
	s := MachineState{On: vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn, Off: vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff}
	if vm.Guest != nil {
		s.ToolsRunning = vm.Guest.ToolsRunningStatus == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	}
	if c := vm.Config; c != nil {
		s.Hardware, s.flags, s.Controllers = c.Version, c.Flags, controllers(c.Hardware.Device)
		s.DiskUUID = c.Flags.DiskUuidEnabled != nil && *c.Flags.DiskUuidEnabled
	}
	return s, nil
}

// ShutDown asks the guest to shut down, and does not wait for it.
func (a *Admin) ShutDown(ctx context.Context, id string) error {
	vm, err := a.machine(id)
	if err == nil {
		_, err = methods.ShutdownGuest(ctx, a.c, &types.ShutdownGuest{This: vm.Reference()})
	}
	return a.fault("shut down the guest of "+id+" in", err)
}

// PowerOn powers a VM on.
func (a *Admin) PowerOn(ctx context.Context, id string) error {
	return a.task(ctx, "power on "+id+" in", id, func(vm *object.VirtualMachine) (*object.Task, error) { return vm.PowerOn(ctx) })
}

// ExposeDisks sets disk.EnableUUID of a VM that is off.
func (a *Admin) ExposeDisks(ctx context.Context, id string, now MachineState) error {
	flags, on := now.flags, true
	flags.DiskUuidEnabled = &on
	return a.task(ctx, "set disk.EnableUUID of "+id+" in", id, func(vm *object.VirtualMachine) (*object.Task, error) {
		return vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{Flags: &flags})
	})
}

// AddController gives a VM that is off a paravirtual SCSI controller.
func (a *Admin) AddController(ctx context.Context, id string) error {
	vm, err := a.machine(id)
	if err != nil {
		return err
	}
	devices, err := vm.Device(ctx)
	if err == nil {
		var c types.BaseVirtualDevice
		if c, err = devices.CreateSCSIController("pvscsi"); err == nil {
			err = vm.AddDevice(ctx, c)
		}
	}
	return a.fault("add a controller to "+id+" in", err)
}

// UpgradeHardware gives a VM that is off another hardware version, such as vmx-15.
func (a *Admin) UpgradeHardware(ctx context.Context, id, version string) error {
	return a.task(ctx, fmt.Sprintf("upgrade the hardware of %s to %s in", id, version), id, func(vm *object.VirtualMachine) (*object.Task, error) {
		return vm.UpgradeVM(ctx, version)
	})
}

func (a *Admin) task(ctx context.Context, op, id string, begin func(*object.VirtualMachine) (*object.Task, error)) error {
	vm, err := a.machine(id)
	if err == nil {
		var t *object.Task
		if t, err = begin(vm); err == nil {
			err = t.Wait(ctx)
		}
	}
	return a.fault(op, err)
}
