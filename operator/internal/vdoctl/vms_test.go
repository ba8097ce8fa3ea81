package vdoctl_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// A VM is checked, shown, and put right with its guest shut down; stopped by Ctrl-C while a
// volume is still attached, the node stays cordoned, and the same command goes on with it.
func TestVMsAreCheckedAndPutRight(t *testing.T) {
	c := control(t)
	k := clientOf(t, c)
	v := vcsim.Start(t, vcsim.Options{Machines: 1})
	ctx := t.Context()
	vms := must.Have(v.VMs(ctx, "/site/west"))(t)
	require.NoError(t, v.Ready(vms[0].Path, "vm-node"))
	require.NoError(t, v.SetDiskUUID(vms[0].Path, false))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vm-node"}}
	require.NoError(t, k.Create(ctx, node))
	t.Cleanup(func() { require.NoError(t, k.Delete(context.Background(), node)) })
	node.Status.NodeInfo.SystemUUID = vms[0].UUID
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(t, k.Status().Update(ctx, node))
	driver := "csi.vsphere.vmware.com"
	volume := "pv"
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "attached"}, Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "vm-node", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
	require.NoError(t, k.Create(ctx, attached))

	file := onlyWest(t, v, vcsim.Admin, "")
	line := func(args ...string) []string {
		return append(append([]string{"vms"}, args...), "-f", file, "--kubeconfig", c.Kubeconfig())
	}
	run := func(args ...string) result { return vdoctl(t, nil, line(args...)...) }
	asAdmin := append([]string{"fix"}, asAdministrator(t)...)
	fix := func(args ...string) result { return run(append(asAdmin, args...)...) }

	run("check").is(8, "vm-disk-uuid in west: disk.EnableUUID is off")
	run("fix").is(2)
	fix("--drain").is(2, "add --power-off")
	check := func(args ...string) result { return run(append([]string{"check"}, args...)...) }
	for _, f := range []func(...string) result{fix, check} {
		out := f("--nodes", "other,vm-node").is(2)
		require.Equal(t, "error: read flag --nodes \"other\": there is no such node, or spec.excludedNodes leaves it out\nhint: see `kubectl get nodes`\n", out)
	}
	run("check", "--nodes", "vm-node").is(8)
	fix("-o", "json").is(0, `"disk.EnableUUID"`)
	fix().is(0, "vm-node ("+vms[0].Path+"): disk.EnableUUID, with the VM off")
	fix("--power-off").is(8, "no terminal to ask for confirmation")

	cmd := exec.CommandContext(ctx, "vdoctl", line(append(asAdmin, "--power-off", "--drain", "--yes")...)...)
	stderr := must.Have(cmd.StderrPipe())(t)
	require.NoError(t, cmd.Start())
	text := bufio.NewScanner(stderr)
	for text.Scan() && !strings.Contains(text.Text(), "vm-node: cordoned") {
		continue
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	rest := ""
	for text.Scan() {
		rest += text.Text() + "\n"
	}
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 130, exit.ExitCode(), rest)
	require.Contains(t, rest, "it stays cordoned, and the same command goes on with it")
	require.NoError(t, k.Get(ctx, client.ObjectKeyFromObject(node), node))
	require.True(t, node.Spec.Unschedulable)
	require.NoError(t, v.SetDiskUUID(vms[0].Path, true))
	fix().is(0, "vm-node ("+vms[0].Path+"): an earlier run stopped here", "1 VM to put right")
	require.NoError(t, v.SetDiskUUID(vms[0].Path, false))

	require.NoError(t, k.Delete(ctx, attached))
	fix("--power-off", "--drain", "--yes").is(0,
		"vm-node: setting disk.EnableUUID of "+vms[0].Path,
		"vm-node: uncordoned")
	fix().is(0, "0 VMs to put right\n")
	require.NoError(t, k.Get(ctx, client.ObjectKeyFromObject(node), node))
	require.False(t, node.Spec.Unschedulable)
}

// Before a cluster exists, VMs are named by their paths. Those that are on are left so without --power-off.
func TestVMsArePreparedBeforeACluster(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{Machines: 2})
	vms := must.Have(v.VMs(t.Context(), "/site/west"))(t)
	require.NoError(t, v.Ready(vms[0].Path, "later-a-node"))
	require.NoError(t, v.SetDiskUUID(vms[0].Path, false))
	require.NoError(t, v.Change(vms[1].Path, func(vm *mo.VirtualMachine) {
		vm.Config.Template, vm.ResourcePool, vm.Runtime.PowerState = true, nil, types.VirtualMachinePowerStatePoweredOff
	}))
	login := append(asAdministrator(t), "-f", onlyWest(t, v, vcsim.Admin, ""))
	fix := func(want int, args ...string) string {
		t.Helper()
		out := vdoctl(t, []string{"KUBECONFIG=/dev/null"}, slices.Concat([]string{"vms", "fix"}, login, args)...).is(want)
		return out
	}
	// A kubeconfig that cannot be used may be of a cluster that runs: its nodes are not known.
	unusable := fileOf(t, "unusable", `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
`)
	off := append([]string{"vms", "fix", "--vm", vms[0].Path, "--power-off", "--yes"}, login...)
	for _, kubeconfig := range []string{unusable, unusable + "-mistyped"} {
		vdoctl(t, []string{"KUBECONFIG=" + kubeconfig}, off...).is(4, "read the kubeconfig")
	}
	folder, template := []string{"--folder", path.Dir(vms[0].Path)}, []string{"--template", vms[1].Path}
	require.Contains(t, fix(2, append(folder, "--drain")...), "no node is worked on")
	require.Contains(t, fix(2, append(folder, "--nodes", "worker-1")...), "fix "+folder[1]+": no node is worked on")
	require.Contains(t, fix(2, append(folder, "--hardware-version", "14")...), "a number from 15 on")
	out := fix(4, "--vm", "/site/west/vm/none")
	require.Contains(t, out, "find VMs at /site/west/vm/none")
	require.Contains(t, out, "add its datacenter to spec.datacenters, which has site/west")
	for _, how := range []string{"--yes", "--dry-run"} {
		require.Contains(t, fix(8, append(folder, "--hardware-version", "99", "--power-off", how)...),
			"hardware of "+vms[0].Path+": its host does not support vmx-99")
	}
	fix(0, append(folder, "--hardware-version", "99", "--dry-run")...) // it is on, and stays as it is
	out = fix(0, append(folder, "--hardware-version", "99")...)
	require.Contains(t, out, vms[0].Path+": hardware version, with the VM off")
	require.NotContains(t, out, "setting")
	out = fix(0, slices.Concat(folder, template, []string{"--hardware-version", "21", "--power-off", "--yes"})...)
	for _, vm := range vms {
		require.Contains(t, out, "setting hardware version of "+vm.Path)
	}
	require.Contains(t, out, "powering on "+vms[0].Path)
	require.NotContains(t, out, "powering on "+vms[1].Path)
	out = fix(0, slices.Concat(folder, template, []string{"--hardware-version", "21"})...)
	require.Contains(t, out, "0 VMs to put right")
	require.Contains(t, fix(0, "--vm", vms[1].Path), "0 VMs to put right")

	// A run that was stopped after the last change has left no template.
	isTemplate := func() (is bool) {
		require.NoError(t, v.Change(vms[1].Path, func(vm *mo.VirtualMachine) { is = vm.Config.Template }))
		return is
	}
	require.NoError(t, v.Change(vms[1].Path, func(vm *mo.VirtualMachine) { vm.Config.Template = false }))
	require.Contains(t, fix(0, append(template, "--hardware-version", "21", "--yes")...), "1 VM to put right")
	require.True(t, isTemplate())
}
