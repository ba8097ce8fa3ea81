package privileges_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

func TestRolesAreNoMoreThanTheFeaturesNeed(t *testing.T) {
	names := func(f privileges.Features) (out []string) {
		for _, r := range privileges.Roles(f) {
			out = append(out, r.Name)
		}
		return out
	}
	require.Empty(t, names(privileges.Features{}))
	require.Equal(t, []string{"ReadOnly"}, names(privileges.Features{CPI: true}), "the cloud provider writes nothing")
	require.Equal(t, []string{"vdo-csi-search", "vdo-csi-datastore", "vdo-csi-vm", "ReadOnly"}, names(privileges.Features{Block: true}))
	require.Equal(t, []string{"vdo-csi-search", "vdo-csi-datastore", "vdo-csi-vm", "vdo-csi-file", "ReadOnly"}, names(privileges.Features{Block: true, File: true, CPI: true}))
	require.Equal(t, []string{"Cns.Searchable", "StorageProfile.View", "System.Read", "System.View"}, privileges.Needed(privileges.Features{Block: true}, privileges.Root))
	require.Equal(t, []string{"System.Read", "System.View"}, privileges.Needed(privileges.Features{CPI: true}, privileges.VM))
	require.Empty(t, privileges.Needed(privileges.Features{CPI: true}, privileges.Datastore))
	require.False(t, privileges.IsDriverRole(privileges.ReadOnly), "nothing makes or removes it")
}

var objects = []privileges.Object{
	{Kind: privileges.Root, Path: "/", ID: "Folder-group-d1"}, {Kind: privileges.Ancestor, Path: "/dc"}, {Kind: privileges.Ancestor, Path: "/dc/c"},
	{Kind: privileges.Cluster, Path: "/dc/c"}, {Kind: privileges.VM, Path: "/dc/vm/a"}, {Kind: privileges.Datastore, Path: "/dc/datastore/ds"},
}

func TestAPlanSaysWhichRoleIsOnWhichObject(t *testing.T) {
	p := privileges.NewPlan(privileges.Features{Block: true, File: true}, `VSPHERE.LOCAL\vdo`, objects, false, privileges.Existing{})
	roles := map[string]string{}
	for _, x := range p.Permissions {
		require.Equal(t, privileges.Create, x.State)
		require.False(t, x.Propagate)
		roles[x.Path] = x.Role
	}
	require.Equal(t, map[string]string{
		"/": "vdo-csi-search", "/dc": "ReadOnly", "/dc/c": "vdo-csi-file", "/dc/vm/a": "vdo-csi-vm", "/dc/datastore/ds": "vdo-csi-datastore"}, roles)

	p = privileges.NewPlan(privileges.Features{Block: true}, "vdo", []privileges.Object{{Kind: privileges.VM, Path: "/dc/vm/k8s"}}, true, privileges.Existing{})
	require.True(t, p.Permissions[0].Propagate)

	p = privileges.NewPlan(privileges.Features{CPI: true}, "vdo", objects, false, privileges.Existing{})
	require.Len(t, p.Permissions, 4, "none on a datastore")
}

// A node VM may move to any host of its cluster, and the storage driver reads that host.
func TestAPlanReachesAllHostsOfAComputeCluster(t *testing.T) {
	list := []privileges.Object{{Kind: privileges.Compute, Path: "/dc/c"}, {Kind: privileges.Compute, Path: "/dc/d"}}
	got := map[string]privileges.Permission{}
	f := privileges.Features{Block: true, File: true}
	plan := privileges.NewPlan(f, "vdo", append(list, objects...), true, privileges.Existing{})
	for _, x := range plan.Permissions {
		got[x.Path] = x.Permission
	}
	require.Equal(t, map[string]privileges.Permission{
		"/": {Role: "vdo-csi-search"}, "/dc": {Role: "ReadOnly"}, "/dc/datastore/ds": {Role: "vdo-csi-datastore"},
		"/dc/c": {Role: "vdo-csi-file", Propagate: true}, "/dc/d": {Role: "ReadOnly", Propagate: true},
		"/dc/vm/a": {Role: "vdo-csi-vm", Propagate: true}, // stands for a folder
	}, got)
	require.Equal(t, []string{"System.Read", "System.View"}, privileges.Needed(f, privileges.Host))
}

func TestAPlanIsComparedWithWhatIsThere(t *testing.T) {
	f := privileges.Features{Block: true}
	has := privileges.Existing{
		Roles: map[string][]string{
			"vdo-csi-search": {"System.Read", "System.View", "System.Anonymous", "StorageProfile.View", "Cns.Searchable"},
			"vdo-csi-vm":     {"VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Interact.PowerOff"}},
		Permissions: map[string]privileges.Permission{
			"/": {Role: "vdo-csi-search"}, "/dc": {Role: "Admin", Propagate: true}, "/other": {Role: "Admin"}},
	}
	p := privileges.NewPlan(f, "vdo", objects, false, has)
	states := map[string]privileges.State{}
	for _, r := range p.Roles {
		states[r.Name] = r.State
	}
	require.Equal(t, map[string]privileges.State{"vdo-csi-search": "keep", "vdo-csi-datastore": "create", "vdo-csi-vm": "change"}, states)
	require.Equal(t, []string{"VirtualMachine.Config.AddRemoveDevice"}, p.Roles[2].Add)
	require.Equal(t, []string{"VirtualMachine.Interact.PowerOff"}, p.Roles[2].TooMuch)
	require.Equal(t, privileges.Keep, p.Permissions[0].State)
	require.Equal(t, &privileges.Permission{Role: "Admin", Propagate: true}, p.Permissions[1].Has)
	require.Equal(t, map[string]privileges.Permission{"/other": {Role: "Admin"}}, p.NotNeeded)
}

// The role that an account gets on an object takes the place of what it has there: of its
// own permission all that is more, of groups and inheritance what drivers never need.
func TestAPlanSaysWhatAnAccountWouldLose(t *testing.T) {
	attach := "VirtualMachine.Config.AddRemoveDevice"
	has := privileges.Existing{
		Roles: map[string][]string{"Admin": {"Global.Licenses", "System.View", "Cns.Searchable"}, "vdo-csi-vm": {attach}, "vdo-csi-search": {"Cns.Searchable", "Global.Licenses"}},
		Permissions: map[string]privileges.Permission{
			"/": {Role: "vdo-csi-search"}, "/dc": {Role: "Admin", Propagate: true}, "/dc/c": {Role: "vdo-csi-vm"}, "/dc/vm/a": {Role: "ReadOnly"}},
		Effective: map[string][]string{
			"/": {"Global.Licenses"}, "/dc": {"Global.Licenses", "Cns.Searchable"}, "/dc/vm/a": {"Task.Create", attach, "System.Read"}, "/dc/datastore/ds": {attach}},
	}
	loses := map[string][]string{}
	p := privileges.NewPlan(privileges.Features{Block: true}, "vdo", objects, false, has)
	for _, x := range p.Permissions {
		loses[x.Path] = x.Loses
	}
	require.Equal(t, map[string][]string{"/": nil, "/dc": {"Cns.Searchable", "Global.Licenses"}, "/dc/c": {attach}, "/dc/vm/a": {"Task.Create"}, "/dc/datastore/ds": nil}, loses)
	require.Equal(t, "Cns.Searchable, Global.Licenses of its role Admin on /dc, and on 2 more objects", privileges.Losses([]privileges.PlannedPermission{p.Permissions[1], p.Permissions[2], p.Permissions[4]}))
	require.Empty(t, privileges.Losses(nil))
}

// Other clusters with the same account may find their VMs by it alone.
func TestAPlanNeverEndsPropagationSilently(t *testing.T) {
	has := privileges.Existing{Permissions: map[string]privileges.Permission{
		"/": {Role: "ReadOnly", Propagate: true}, "/dc": {Role: "ReadOnly", Propagate: true}}}
	p := privileges.NewPlan(privileges.Features{Block: true}, "vdo", objects, false, has)
	require.Equal(t, privileges.Permission{Role: "vdo-csi-search", Propagate: true}, p.Permissions[0].Permission)
	require.Equal(t, privileges.Change, p.Permissions[0].State)
	require.Equal(t, privileges.Keep, p.Permissions[1].State)
}

func TestAccountsAreTheSameInBothForms(t *testing.T) {
	require.Equal(t, `VSPHERE.LOCAL\vdo`, privileges.DomainUser("vdo@vsphere.local"))
	require.True(t, privileges.SameUser("vdo@vsphere.local", `VSPHERE.LOCAL\VDO`))
	require.False(t, privileges.SameUser("vdo@vsphere.local", "vdo@other"))
}
