package accounts_test

import (
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// A role that was set on each VM goes when its folder has it, and the account is not without it.
func TestPermissionsOfVMsMoveToTheirFolder(t *testing.T) {
	w := newWorld(t)
	before := w.vcenterState()
	require.NoError(t, w.run(&fuse{left: forever}, create))
	at := slices.IndexFunc(w.objects, func(o privileges.Object) bool { return o.Kind == privileges.VM })
	vm := w.objects[at]
	ask := vcenter.Ask{Nodes: []preflight.Node{{Name: "node-0", UUID: w.uuid}}, Features: features}
	_, access := vcenter.InspectAccess(t.Context(), w.target, ask, firstName)
	isFolder := func(o privileges.Object) bool { return o.Path == path.Dir(vm.Path) }
	folder := access.Objects[slices.IndexFunc(access.Objects, isFolder)]
	w.objects[at] = privileges.Object{Kind: privileges.VM, Path: folder.Path, ID: folder.ID}
	require.NoError(t, w.run(&fuse{left: forever}, create))

	a, err := vcenter.Open(t.Context(), w.target)
	require.NoError(t, err)
	defer a.Close()
	has, err := a.Permissions(t.Context(), firstName)
	require.NoError(t, err)
	require.NotContains(t, has, vm.ID)
	require.Equal(t, "vdo-csi-vm", has[folder.ID].Role)
	require.NoError(t, w.run(&fuse{left: forever}, remove))
	w.nothingLeft(before)
}
