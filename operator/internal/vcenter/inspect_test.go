package vcenter_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/vpx"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

var everything = privileges.Features{CPI: true, Block: true, Topology: true}

// nodesOf are nodes as the kubelets of these VMs would register.
func nodesOf(vms []vcsim.VM) []preflight.Node {
	nodes := make([]preflight.Node, len(vms))
	for i, vm := range vms {
		nodes[i] = preflight.Node{Name: fmt.Sprintf("node-%d", i), UUID: vm.UUID}
	}
	return nodes
}

func vmsOf(t testing.TB, v *vcsim.VCenter, datacenter string) []vcsim.VM {
	vms, err := v.VMs(context.Background(), datacenter)
	require.NoError(t, err)
	return vms
}

func TestAnInspectionFindsWhatIsBehindNodes(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	vms := vmsOf(t, v, "/site/prod/east")
	require.NoError(t, v.Ready(vms[0].Path, "node-0"))
	require.NoError(t, v.Change(vms[1].Path, func(vm *mo.VirtualMachine) {
		vm.Config.Version = "vmx-13"
		vm.Guest = &types.GuestInfo{Net: []types.GuestNicInfo{
			{Network: "k8s", IpAddress: []string{"10.0.0.11", "fe80::1"}}, {IpAddress: []string{"10.244.0.1"}, DeviceConfigId: -1}}}
		vm.RootSnapshot = []types.ManagedObjectReference{{Type: "VirtualMachineSnapshot", Value: "snapshot-1"}}
	}))
	require.NoError(t, v.Tag(t.Context(), "k8s-region", "north", "/site/prod/east"))
	require.NoError(t, v.Tag(t.Context(), "k8s-zone", "a", "/site/prod/east/host/DC0_C0"))
	require.NoError(t, v.Tag(t.Context(), "k8s-zone", "a", "/site/prod/east/datastore/LocalDS_0"))
	require.NoError(t, v.Tag(t.Context(), "unrelated", "x", "/site/prod/east"))

	before := v.Logins(vcsim.Admin.Username)
	nodes := nodesOf(vms)
	nodes[1].UUID = preflight.Swapped(nodes[1].UUID) // as some kernels show it
	nodes = append(nodes, preflight.Node{Name: "elsewhere", UUID: "00000000-0000-0000-0000-000000000001"})
	got := vcenter.Inspect(t.Context(), target(v), vcenter.Ask{Nodes: nodes, Categories: []string{"k8s-region", "k8s-zone", "k8s-rack"}, Features: everything})
	require.NoError(t, got.Err)
	require.Empty(t, got.Failed)
	require.Equal(t, "8.0.3", got.Version)
	require.WithinDuration(t, time.Now().Add(24*time.Hour), got.CertificateExpires, 2*time.Hour)

	require.Len(t, got.Machines, 2)
	slices.SortFunc(got.Machines, func(a, b preflight.Machine) int { return strings.Compare(a.Name, b.Name) })
	first, second := got.Machines[0], got.Machines[1]
	require.Equal(t, vms[0].Path, got.MachinePath(&first))
	require.Equal(t, []any{"node-0", 1, true, "vmx-19", []string{"pvscsi"}, true, 0},
		[]any{first.HostName, first.Addresses, first.DiskUUID, first.Hardware, first.Controllers, first.ToolsRunning, first.Snapshots})
	require.Equal(t, []any{3, "vmx-13", false, 1}, []any{second.Addresses, second.Hardware, second.DiskUUID, second.Snapshots})

	require.Len(t, got.Categories, 2)
	require.Equal(t, []string{"north"}, got.Categories["k8s-region"].Tags)
	var tags []preflight.Category
	for _, r := range got.Ancestors(first.Host) {
		tags = append(tags, got.Tagged[r]...)
	}
	for _, d := range got.Datastores {
		tags = append(tags, got.Tagged[d.Ref]...)
	}
	zone := preflight.Category{Name: "k8s-zone", Tag: "a"}
	require.Equal(t, []preflight.Category{zone, {Name: "k8s-region", Tag: "north"}, zone}, tags)
	require.NotEmpty(t, got.Policies)
	require.NotEmpty(t, got.Datastores)
	for _, d := range got.Datastores {
		require.True(t, d.Accessible && d.MayHold && len(d.Hosts) > 0 && d.URL != "", "%+v", d)
	}
	require.Empty(t, got.Lacking)
	require.Equal(t, 2, v.Logins(vcsim.Admin.Username)-before, "one of the API, one of the tags' API")
	noSession(t, v)
}

func TestAnInspectionLooksInTheConfiguredDatacentersOnly(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	tg := target(v)
	tg.Datacenters = []string{"site/west"}
	nodes := nodesOf(append(vmsOf(t, v, "/site/prod/east"), vmsOf(t, v, "/site/west")...))
	got := vcenter.Inspect(t.Context(), tg, vcenter.Ask{Nodes: nodes, Features: everything})
	require.NoError(t, got.Err)
	require.Len(t, got.Machines, 2)
	for _, m := range got.Machines {
		require.True(t, strings.HasPrefix(got.MachinePath(&m), "/site/west/vm/"), got.MachinePath(&m))
	}
	inside := map[bool]int{}
	for _, d := range got.Datastores {
		inside[d.Inside]++
		require.Equal(t, strings.HasPrefix(got.Path(d.Ref), "/site/west/"), d.Inside, d.Name)
	}
	require.Len(t, inside, 2)
	noSession(t, v)
}

// What moves nodes and volumes: datastore clusters, and clusters with their rules; and how fast the disks of
// the control plane are.
func TestAnInspectionReadsWhatMovesNodesAndVolumes(t *testing.T) {
	const maxTotalLatency = 133 // simulator/vpx/performance_manager.go
	was := vpx.VmMetricData[maxTotalLatency]
	vpx.VmMetricData[maxTotalLatency] = []int64{200}
	t.Cleanup(func() { vpx.VmMetricData[maxTotalLatency] = was })
	v := vcsim.Start(t, vcsim.Options{})
	vms, yes, no := vmsOf(t, v, "/site/prod/east"), true, false
	nodes := nodesOf(vms)
	nodes[0].ControlPlane = true
	require.NoError(t, v.ClusterDatastores(t.Context()))
	vcsim.ChangeEach(v, "ClusterComputeResource", func(c *simulator.ClusterComputeResource) {
		config := c.ConfigurationEx.(*types.ClusterConfigInfoEx)
		config.DrsConfig.Enabled = &yes
		group := func(name string) types.ClusterGroupInfo { return types.ClusterGroupInfo{Name: name} }
		config.Group = []types.BaseClusterGroupInfo{
			&types.ClusterVmGroup{ClusterGroupInfo: group("vms"), Vm: []types.ManagedObjectReference{{Type: "VirtualMachine", Value: "vm-1"}}},
			&types.ClusterHostGroup{ClusterGroupInfo: group("most"), Host: []types.ManagedObjectReference{c.Host[0], c.Host[1]}},
			&types.ClusterHostGroup{ClusterGroupInfo: group("one"), Host: c.Host[:1]},
			&types.ClusterHostGroup{ClusterGroupInfo: group("none")},
		}
		config.Rule = nil
		for on, must := range map[string]*bool{"most": &yes, "one": &yes, "none": &no} { // the last one is a wish
			rule := &types.ClusterVmHostRuleInfo{VmGroupName: "vms", AffineHostGroupName: on}
			rule.Enabled, rule.Mandatory = &yes, must
			config.Rule = append(config.Rule, rule)
		}
	})
	ask := vcenter.Ask{Nodes: nodes, Features: everything, Policies: []string{"vSAN Default Storage Policy"}}
	got := vcenter.Inspect(t.Context(), target(v), ask)
	require.NoError(t, got.Err)
	require.Empty(t, got.Failed)
	for _, m := range got.Machines {
		require.True(t, got.Objects[got.Objects[m.Host].Parent].MovesVMs)
		require.Equal(t, m.UUID == vms[0].UUID, m.DiskLatency > 150*time.Millisecond, m.DiskLatency)
	}
	for _, d := range got.Datastores {
		require.True(t, got.Objects[got.Objects[d.Ref].Parent].StorageDRS, d.Name)
		require.Contains(t, got.Fits["vSAN Default Storage Policy"], d.Ref)
	}
	require.Len(t, got.Fits, 1, "of what is asked for")
	require.Len(t, got.Bound[preflight.Ref{Type: "VirtualMachine", Value: "vm-1"}], 1, "all rules hold")
}

// VMs before they are nodes are found by their paths, and by the folders that they are in.
func TestAnInspectionFindsVMsByPath(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	vms := vmsOf(t, v, "/site/west")
	for path, want := range map[string]int{vms[0].Path: 1, vms[0].Path + "x": 0, "/site/west/vm": len(vms), "/lab": 0} {
		tg := target(v)
		tg.Datacenters = []string{"site/west"}
		got := vcenter.Inspect(t.Context(), tg, vcenter.Ask{Paths: []string{path}})
		require.NoError(t, got.Err)
		require.Len(t, got.Machines, want, path)
	}
}

func TestAnInspectionNamesPrivilegesThatAreLacking(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	ctx := t.Context()
	vms := vmsOf(t, v, "/site/prod/east")
	user := vcsim.Admin.Username
	require.NoError(t, v.Grant(ctx, user, "read", "/", true))
	require.NoError(t, v.Grant(ctx, user, "vm", vms[0].Path, false, "VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Config.AddRemoveDevice"))
	require.NoError(t, v.Grant(ctx, user, "half", vms[1].Path, false, "VirtualMachine.Config.AddExistingDisk"))

	got := vcenter.Inspect(ctx, target(v), vcenter.Ask{Nodes: nodesOf(vms), Features: privileges.Features{Block: true}})
	require.NoError(t, got.Err)
	require.Empty(t, got.Failed)
	require.Equal(t, []preflight.Lack{
		{Object: "/", Kind: privileges.Root, Privileges: []string{"Cns.Searchable", "StorageProfile.View"}},
		{Object: vms[1].Path, Kind: privileges.VM, Privileges: []string{"VirtualMachine.Config.AddRemoveDevice"}},
	}, got.Lacking)
	for _, d := range got.Datastores {
		require.False(t, d.MayHold, d.Name)
	}
}

// Before there are nodes the datacenters are looked at; one that is not configured is none of the
// cluster's business.
func TestPrivilegesAreThoseInTheConfiguredDatacenters(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	ctx, user := t.Context(), vcsim.Admin.Username
	require.NoError(t, v.Grant(ctx, user, "search", "/", false, "Cns.Searchable", "StorageProfile.View"))
	require.NoError(t, v.Grant(ctx, user, "read", "/site/prod/east", true))
	require.NoError(t, v.Grant(ctx, user, "power", "/lab", false, "VirtualMachine.Interact.PowerOff"))
	tg := target(v)
	tg.Datacenters = []string{"site/prod/east"}
	got := vcenter.Inspect(ctx, tg, vcenter.Ask{Features: privileges.Features{CPI: true, Block: true}})
	require.NoError(t, got.Err)
	require.Empty(t, got.Failed)
	require.Empty(t, got.Lacking)
	require.Empty(t, got.Excess)

	tg.Datacenters = nil
	got = vcenter.Inspect(ctx, tg, vcenter.Ask{Features: privileges.Features{CPI: true, Block: true}})
	require.Equal(t, []preflight.Lack{{Object: "/site/west", Kind: privileges.Ancestor, Privileges: []string{"System.Read", "System.View"}}}, got.Lacking)
	require.Len(t, got.Excess, 1)
}

func TestAnInspectionNamesPrivilegesThatAreTooMuch(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	ctx := t.Context()
	vms := vmsOf(t, v, "/site/prod/east")
	ask := vcenter.Ask{Nodes: nodesOf(vms), Features: privileges.Features{CPI: true, Block: true}}
	got := vcenter.Inspect(ctx, target(v), ask)
	require.Empty(t, got.Failed)
	require.Len(t, got.Excess, 1, "what an administrator may do everywhere is named once")
	require.Equal(t, "/", got.Excess[0].Object)
	require.Contains(t, got.Excess[0].Privileges, "Authorization.ModifyPermissions")
	require.NotContains(t, got.Excess[0].Privileges, "Datastore.FileManagement")

	user := vcsim.Admin.Username
	require.NoError(t, v.Grant(ctx, user, "search", "/", true, "Cns.Searchable", "StorageProfile.View"))
	require.NoError(t, v.Grant(ctx, user, "vm", vms[0].Path, false, "VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Config.AddRemoveDevice"))
	require.NoError(t, v.Grant(ctx, user, "power", vms[1].Path, false, "VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Interact.PowerOff"))
	got = vcenter.Inspect(ctx, target(v), ask)
	require.Empty(t, got.Failed)
	require.Equal(t, []preflight.Lack{{Object: vms[1].Path, Kind: privileges.VM, Privileges: []string{"VirtualMachine.Interact.PowerOff"}}}, got.Excess,
		"what the drivers need somewhere is not too much anywhere")
}

func TestAPartThatCannotBeReadHidesNoOther(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	vms := vmsOf(t, v, "/site/prod/east")
	for method, part := range map[string]preflight.Part{
		"HasUserPrivilegeOnEntities": preflight.Privileges, "PbmQueryProfile": preflight.Policies, "CnsQueryVolume": preflight.CNS, "FetchUserPrivilegeOnEntities": preflight.Excess,
	} {
		v.Break(method, &types.NoPermission{PrivilegeId: "X.Y"})
		got := vcenter.Inspect(t.Context(), target(v), vcenter.Ask{Nodes: nodesOf(vms), Features: everything, Categories: []string{"zone"}})
		v.Mend()
		require.NoError(t, got.Err, method)
		require.Len(t, got.Machines, 2, method)
		if part != preflight.Policies && part != preflight.CNS { // their services are simulated apart, without faults
			require.Len(t, got.Failed, 1, method)
			refused(t, got.Failed[part], fault.Forbidden, "X.Y")
		}
	}
	noSession(t, v)
}

// requestsOf counts what an inspection of so many nodes asks the vCenter.
func requestsOf(t *testing.T, machines int) int {
	v := vcsim.Start(t, vcsim.Options{Machines: machines})
	for _, dc := range []string{"/site/prod/east", "/site/west", "/lab"} {
		require.NoError(t, v.Tag(t.Context(), "zone", "z", dc))
	}
	var calls atomic.Int64
	p := passOn(v)
	p.ModifyResponse = func(*http.Response) error { calls.Add(1); return nil }
	nodes := nodesOf(slices.Concat(vmsOf(t, v, "/site/prod/east"), vmsOf(t, v, "/site/west"), vmsOf(t, v, "/lab")))
	got := vcenter.Inspect(t.Context(), serve(t, p.ServeHTTP), vcenter.Ask{Nodes: nodes, Categories: []string{"zone"}, Features: everything})
	require.NoError(t, got.Err)
	require.Empty(t, got.Failed)
	require.Len(t, got.Machines, 3*machines)
	return int(calls.Load())
}

// There is a page for each thousand nodes of VMs, privileges and tags, and for each two hundred of VMs' details.
func TestRoundTripsDoNotDependOnTheNumberOfNodes(t *testing.T) {
	few := requestsOf(t, 1)
	require.Equal(t, few, requestsOf(t, 60))
	require.LessOrEqual(t, few, 32)
}

// The node has its VM, by UUID, in east. Root in any VM of west sets its guest's name to the node's.
func TestAForeignVMOfANodesNameGetsNoRole(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	east, west := vmsOf(t, v, "/site/prod/east"), vmsOf(t, v, "/site/west")
	require.NoError(t, v.Ready(east[0].Path, "node-0"))
	require.NoError(t, v.Ready(west[0].Path, "node-0"))
	tg := target(v)
	tg.Datacenters = nil
	ask := vcenter.Ask{Access: true, Nodes: nodesOf(east[:1]), Features: everything}
	access := vcenter.Inspect(t.Context(), tg, ask).Access
	require.NotEmpty(t, access.Objects)
	var foreign []string
	for _, o := range access.Objects {
		if strings.HasPrefix(o.Path, "/site/west") {
			foreign = append(foreign, string(o.Kind)+" "+o.Path)
		}
	}
	require.Empty(t, foreign)
}
