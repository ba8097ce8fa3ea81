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
		t, err := vm.PowerOn(ctx)
		if err == nil {
			err = t.Wait(ctx)
		}
		return unless(types.VirtualMachinePowerStatePoweredOn, err)
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

// ExposeDisks sets disk.EnableUUID of a VM that is off, and leaves its other flags.
func (a *Admin) ExposeDisks(ctx context.Context, id string) error {
	return a.task(ctx, "set disk.EnableUUID of", id, func(vm *object.VirtualMachine) (*object.Task, error) {
		now, on := mo.VirtualMachine{Config: &types.VirtualMachineConfigInfo{}}, true
		if err := vm.Properties(ctx, vm.Reference(), []string{"config.flags"}, &now); err != nil {
			return nil, err
		}
		flags := now.Config.Flags
		flags.DiskUuidEnabled = &on
		return vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{Flags: &flags})
	})
}

// AddController adds a paravirtual SCSI controller to a VM that is off.
func (a *Admin) AddController(ctx context.Context, id string) error {
	return a.machine(ctx, "add a controller to", id, func(vm *object.VirtualMachine) error {
		devices, err := vm.Device(ctx)
		if err != nil {
			return err
		}
		c, err := devices.CreateSCSIController("pvscsi")
		if err != nil {
			return err
		}
		return vm.AddDevice(ctx, c)
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

// UpgradeHardware upgrades a VM that is off to a hardware version, such as vmx-15.
func (a *Admin) UpgradeHardware(ctx context.Context, id, version string) error {
	op := "upgrade to " + version + " the hardware of"
	return a.task(ctx, op, id, func(vm *object.VirtualMachine) (*object.Task, error) {
		return vm.UpgradeVM(ctx, version)
	})
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

func (a *Admin) task(ctx context.Context, op, id string, begin func(*object.VirtualMachine) (*object.Task, error)) error {
	return a.machine(ctx, op, id, func(vm *object.VirtualMachine) error {
		t, err := begin(vm)
		if err != nil {
			return err
		}
		return t.Wait(ctx)
	})
}

func (a *Admin) machine(ctx context.Context, op, id string, do func(*object.VirtualMachine) error) error {
	ref, err := refOf(id)
	if err == nil {
		err = do(object.NewVirtualMachine(a.c, ref))
	}
	return a.faultOn(ctx, op+" %s in", id, err)
}
