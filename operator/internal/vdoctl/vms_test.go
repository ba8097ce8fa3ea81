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
	require.Contains(t, fix(2, "--no-cluster", "--power-off"), "flag --no-cluster \"\": it leaves no nodes\nhint: name VMs with --vm")
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

// A vCenter without categories gets them, with tags that a node's host inherits; what is
// there stays, and what contradicts it is named before anything is changed.
func TestTopologyIsTaggedAndChecked(t *testing.T) {
	c := control(t)
	v := vcsim.Start(t, vcsim.Options{})
	ctx := t.Context()
	vms := must.Have(v.VMs(ctx, "/site/west"))(t)
	withNodes(t, clientOf(t, c), vms)
	admin := asAdministrator(t)
	file := onlyWest(t, v, vcsim.Admin, strings.ReplaceAll(eastAlone, "east", "west"))
	run := func(args ...string) result {
		return vdoctl(t, nil, append(append([]string{"topology"}, args...), "-f", file, "--kubeconfig", c.Kubeconfig())...)
	}
	tag := func(args ...string) result {
		return run(slices.Concat([]string{"tag"}, admin, args)...)
	}
	north, zone := "--attach=k8s-region:north=/site/west", "--attach=k8s-zone:a=/site/west/host/DC1_C0"

	run("check").is(8, "topology-category in west: the vCenter has no tag category of this name")
	run("tag").is(2, "who may change tags is not given")
	for flag, why := range map[string]string{"--attach=k8s-zone": "CATEGORY:TAG=PATH", "--attach=k8s-zone:a=west": "it begins with /", "--attach=k8s-zone:Nörd 1=/site/west": "no value of a node's label", "--attach=rack:a=/site/west": "does not name this category", "--vcenter=east": "no VsphereCloudConfig"} {
		tag(flag).is(2, why)
	}
	bare := onlyWest(t, v, vcsim.Admin, "")
	vdoctl(t, nil, append([]string{"topology", "tag", "-f", bare, "--no-cluster"}, admin...)...).is(4, "vdoctl configure -o "+bare+" --region-category CATEGORY --zone-category CATEGORY")
	out := tag("--attach=k8s-zone:a=/site/west/host/none", "--yes").is(4, "there is no object /site/west/host/none")
	require.NotContains(t, out, "--replace", "it does not make one")
	require.NotContains(t, out, "make category", "nothing is made")
	tag("--attach=k8s-zone:a=/site/west/vm", "--yes").is(8, "/site/west/vm is a folder without hosts: tags of zones are on")

	tag(north, zone, "--dry-run").is(0,
		"west: make category k8s-zone (ClusterComputeResource, Datacenter, Folder, HostSystem)\n",
		"west: attach k8s-zone:a to /site/west/host/DC1_C0\nNothing was changed: --dry-run.\n")
	tag("--attach=k8s-region:north=/lab", "--dry-run").is(0, "west: note: /lab is outside of the configured datacenters")
	tag(north, zone).is(8, "no terminal to ask for confirmation")
	run("check").is(8, "topology-category in west") // nothing was changed yet

	s := newShop(t)
	for _, x := range s.read(readFile(t, file)) {
		x.SetNamespace(s.ns)
		s.create(x)
	}
	s.run(slices.Concat([]string{"topology", "tag", zone, "--yes"}, admin)...).is(0,
		" annotate vdoconfigs --all --overwrite reconcile.vdo.vmware.com/requestedAt=$(date +%s)`\n") // the region is left out: one run does a part
	run("check").is(8, "no tag of k8s-region on the node's host, nor on what it is in")
	out = tag(north, zone, "--yes").is(0)
	require.NotContains(t, out, "k8s-zone", "that is there already")
	require.NotContains(t, out, "annotate", "a file may have no operator yet")
	tag(north, zone).is(0, "west: nothing to do")

	out = run("check", "-o", "json").has(
		`"tag": "north"`, `"on": "/site/west"`, `"on": "/site/west/host/DC1_C0"`, `"LocalDS_0"`)
	require.NotContains(t, out, "no tag of k8s")

	// A zone does not move while a node of the cluster uses it.
	k := clientOf(t, c)
	var node corev1.Node
	require.NoError(t, k.Get(ctx, client.ObjectKey{Name: "node-0"}, &node))
	label := func(key, value string) {
		node.Labels[key] = value
		require.NoError(t, k.Update(ctx, &node))
	}
	replace := []string{"--attach=k8s-zone:b=/site/west/host/DC1_C0", "--replace", "--yes", "-o", "json"}
	label("topology.csi.vmware.com/k8s-zone", "a")
	tag(replace...).is(8, "the tag a of k8s-zone is used by node node-0")
	label("topology.csi.vmware.com/k8s-zone", "z")
	r := vdoctl(t, []string{"HOME=" + t.TempDir(), "KUBECONFIG=", "KUBERNETES_SERVICE_HOST="},
		slices.Concat([]string{"topology", "tag", "-f", file, "--dry-run"}, admin, replace)...)
	require.NotZero(t, r.code)
	r.has("the cluster does not say whether nodes or volumes use its tags")
	tag(append(replace, "--no-cluster", "--dry-run")...).is(0)
	tag(replace...).is(0, `"do": "detach"`)
	require.NoError(t, v.Tag(ctx, "k8s-zone", "c", "/site/west/host"))
	run("check", "-o", "json").has(`"tag": "c"`, `"overruled": [`, `"b on /site/west/host/DC1_C0"`)

	// The drivers' own account may not.
	require.NoError(t, os.WriteFile(admin[len(admin)-1], []byte("wrong"), 0o600))
	out = tag(north, "--yes").is(6)
	require.False(t, strings.Contains(out, "wrong\""), out)
	left := must.Have(v.SessionCount(ctx))(t)
	require.Zero(t, left)
}
