package vcenter

import (
	"context"
	"fmt"
	"net/url"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Ready configures a VM for a node with a hostname: current hardware, disk UUIDs, a paravirtual controller, VMware
// Tools with an address.
func (v *VCenter) Ready(path, hostname string) error {
	return v.Change(path, func(vm *mo.VirtualMachine) { ready(vm, hostname) })
}

// ReadyAll configures all VMs, in any order, and sets their UUIDs.
func (v *VCenter) ReadyAll(of func(i int) (hostname, uuid string)) {
	for i, e := range v.model.Map().All("VirtualMachine") {
		v.edit(e.Reference(), func(r mo.Reference) {
			vm := &r.(*simulator.VirtualMachine).VirtualMachine
			hostname, uuid := of(i)
			ready(vm, hostname)
			vm.Config.Uuid, vm.Summary.Config.Uuid = uuid, uuid
		})
	}
}

func ready(vm *mo.VirtualMachine, hostname string) {
	on := true
	vm.Config.Version = "vmx-19"
	vm.Config.Flags.DiskUuidEnabled = &on
	for i, d := range vm.Config.Hardware.Device {
		if c, ok := d.(types.BaseVirtualSCSIController); ok {
			vm.Config.Hardware.Device[i] = &types.ParaVirtualSCSIController{VirtualSCSIController: *c.GetVirtualSCSIController()}
		}
	}
	vm.Guest = &types.GuestInfo{
		HostName: hostname, ToolsRunningStatus: string(types.VirtualMachineToolsRunningStatusGuestToolsRunning),
		Net: []types.GuestNicInfo{{Network: "VM Network", IpAddress: []string{"10.0.0.10"}}}}
}

// Change changes a VM.
func (v *VCenter) Change(path string, change func(*mo.VirtualMachine)) error {
	vm, err := find.NewFinder(v.client()).VirtualMachine(context.Background(), path)
	if err != nil {
		return err
	}
	v.edit(vm.Reference(), func(r mo.Reference) { change(&r.(*simulator.VirtualMachine).VirtualMachine) })
	return nil
}

// ChangeEach changes each object of a kind; T is its type in the simulator.
func ChangeEach[T mo.Reference](v *VCenter, kind string, change func(T)) {
	for _, e := range v.model.Map().All(kind) {
		v.edit(e.Reference(), func(r mo.Reference) { change(r.(T)) })
	}
}

// ClusterDatastores moves the datastores of each folder into a datastore cluster with Storage DRS.
func (v *VCenter) ClusterDatastores(ctx context.Context) error {
	pods := map[types.ManagedObjectReference]types.ManagedObjectReference{}
	for _, e := range v.model.Map().All("Datastore") {
		in := *e.Entity().Parent
		if _, ok := pods[in]; !ok {
			pod, err := object.NewFolder(v.client(), in).CreateStoragePod(ctx, "pod")
			if err != nil {
				return err
			}
			v.edit(pod.Reference(), func(r mo.Reference) {
				on := &types.PodStorageDrsEntry{}
				on.StorageDrsConfig.PodConfig.Enabled = true
				r.(*simulator.StoragePod).PodStorageDrsEntry = on
			})
			pods[in] = pod.Reference()
		}
		pod := pods[in]
		v.edit(e.Reference(), func(r mo.Reference) { r.(*simulator.Datastore).Parent = &pod })
	}
	return nil
}

func (v *VCenter) edit(ref types.ManagedObjectReference, change func(mo.Reference)) {
	registry := v.model.Map()
	ctx := v.model.Service.Context
	registry.WithLock(ctx, ref, func() { change(registry.Get(ref)) })
}

// Tag puts a tag of a category on an object, and creates missing ones.
func (v *VCenter) Tag(ctx context.Context, category, tag, path string) error {
	return v.tagging(ctx, func(m *tags.Manager, c *vim25.Client) error {
		if _, err := m.GetCategory(ctx, category); err != nil {
			if _, err := m.CreateCategory(ctx, &tags.Category{Name: category, Cardinality: "SINGLE"}); err != nil {
				return err
			}
		}
		if _, err := m.GetTagForCategory(ctx, tag, category); err != nil {
			if _, err := m.CreateTag(ctx, &tags.Tag{Name: tag, CategoryID: category}); err != nil {
				return err
			}
		}
		if path == "" {
			return nil
		}
		t, err := m.GetTagForCategory(ctx, tag, category)
		if err != nil {
			return err
		}
		ref, err := v.find(ctx, path)
		if err != nil {
			return err
		}
		return m.AttachTag(ctx, t.ID, ref)
	})
}

func (v *VCenter) tagging(ctx context.Context, work func(*tags.Manager, *vim25.Client) error) error {
	u := &url.URL{Scheme: "https", Host: v.Address(), Path: vim25.Path}
	c, err := vim25.NewClient(ctx, soap.NewClient(u, true))
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	rc := rest.NewClient(c)
	v.mu.Lock()
	password := v.passwords[Admin.Username]
	v.mu.Unlock()
	if err := rc.Login(ctx, url.UserPassword(Admin.Username, password)); err != nil {
		return err
	}
	return work(tags.NewManager(rc), c)
}

// find returns one object by its inventory path.
func (v *VCenter) find(ctx context.Context, path string) (types.ManagedObjectReference, error) {
	if path == "/" {
		return v.content().RootFolder, nil
	}
	list, err := find.NewFinder(v.client()).ManagedObjectList(ctx, path)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	if len(list) != 1 {
		return types.ManagedObjectReference{}, fmt.Errorf("%q is %d objects", path, len(list))
	}
	return list[0].Object.Reference(), nil
}

// SetDiskUUID sets disk.EnableUUID of a VM.
func (v *VCenter) SetDiskUUID(path string, on bool) error {
	return v.Change(path, func(vm *mo.VirtualMachine) { vm.Config.Flags.DiskUuidEnabled = &on })
}
