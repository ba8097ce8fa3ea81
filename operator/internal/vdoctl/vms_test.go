package vdoctl_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// A VM is checked, shown, and put right with its guest shut down; stopped by Ctrl-C while a
// volume is still attached, the node stays cordoned, and the same command goes on with it.
func TestVMsAreCheckedAndPutRight(t *testing.T) {
	c := control(t)
	k := clientOf(t, c)
	v := vcsim.Start(t, vcsim.Options{Machines: 1})
	ctx := t.Context()
	vms, err := v.VMs(ctx, "/site/west")
	require.NoError(t, err)
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

	dir := t.TempDir()
	file, admin := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "admin")
	require.NoError(t, os.WriteFile(admin, []byte(vcsim.Administrator.Password), 0o600))
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: vc}
stringData: {username: %s, password: %q}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: west}
spec: {vcIp: %s, port: %d, credentials: vc, thumbprint: "%s", datacenters: [site/west]}
`, vcsim.Admin.Username, vcsim.Admin.Password, v.Host, v.Port, v.SHA256)), 0o600))
	command := func(args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "vdoctl", append(append([]string{"vms"}, args...), "-f", file, "--kubeconfig", c.Kubeconfig())...)
	}
	run := func(args ...string) (string, int) {
		out, err := command(args...).CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return string(out), exit.ExitCode()
		}
		require.NoError(t, err)
		return string(out), 0
	}
	asAdmin := []string{"fix", "--username", vcsim.Administrator.Username, "--password-file", admin}
	fix := func(args ...string) (string, int) { return run(append(asAdmin, args...)...) }

	out, code := run("check")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "vm-disk-uuid in west: disk.EnableUUID is off")
	require.Contains(t, out, "vm-node ("+vms[0].Path+"): disk.EnableUUID, with the VM off")
	out, code = run("fix")
	require.Equal(t, 2, code, out)
	out, code = fix("--drain")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "add --power-off")
	for _, f := range []func(...string) (string, int){fix, func(args ...string) (string, int) { return run(append([]string{"check"}, args...)...) }} {
		out, code = f("--nodes", "other,vm-node")
		require.Equal(t, 2, code, out)
		require.Equal(t, "error: read flag --nodes \"other\": there is no such node, or spec.excludedNodes leaves it out\nhint: the nodes are vm-node\n", out)
	}
	out, code = run("check", "--nodes", "vm-node")
	require.Equal(t, 8, code, out)
	out, code = fix("-o", "json")
	require.Zero(t, code, out)
	require.Contains(t, out, `"disk.EnableUUID"`)
	out, code = fix("--power-off")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "there is no terminal to ask for consent")

	cmd := command(append(asAdmin, "--power-off", "--drain", "--yes")...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
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

	require.NoError(t, k.Delete(ctx, attached))
	out, code = fix("--power-off", "--drain", "--yes")
	require.Zero(t, code, out)
	require.Contains(t, out, "vm-node: setting disk.EnableUUID of "+vms[0].Path)
	require.Contains(t, out, "vm-node: uncordoned")
	out, code = run("check")
	require.Contains(t, out, "no VM has to be powered off", code)
	require.NoError(t, k.Get(ctx, client.ObjectKeyFromObject(node), node))
	require.False(t, node.Spec.Unschedulable)
}
