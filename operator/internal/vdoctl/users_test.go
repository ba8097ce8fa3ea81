package vdoctl_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/mo"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// An account that sees everything and may do nothing gets what the plan says, and nothing
// else: then the vCenter itself says that nothing is missing, and nothing too much.
func TestAPlanThatIsCarriedOutIsVerified(t *testing.T) {
	c := control(t)
	v := vcsim.Start(t, vcsim.Options{Machines: 3})
	const user = "limited@vsphere.local"
	v.SetPassword(user, "Limited-canary#1")
	require.NoError(t, v.Grant(t.Context(), user, "seeing", "/", true))
	vms, err := v.VMs(t.Context(), "/site/west")
	require.NoError(t, err)
	for i, name := range []string{1: "node's*", 2: "node's neighbour"} { // as a pattern the one is both
		if name != "" {
			require.NoError(t, v.Change(vms[i].Path, func(vm *mo.VirtualMachine) { vm.Name = name }))
			vms[i].Path = path.Dir(vms[i].Path) + "/" + name
		}
	}
	vms = vms[:2]
	clusterOf := filepath.Join(t.TempDir(), "site.yaml")
	require.NoError(t, os.WriteFile(clusterOf, []byte(fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: vc}
stringData: {username: %s, password: "Limited-canary#1"}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: west}
spec: {vcIp: %s, port: %d, credentials: vc, thumbprint: "%s", datacenters: [site/west]}
`, user, v.Host, v.Port, v.SHA256)), 0o600))
	run := func(args ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), "vdoctl", append(args, "-f", clusterOf, "--kubeconfig", c.Kubeconfig())...)
		out, err := cmd.CombinedOutput()
		require.NotContains(t, string(out), "canary")
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return string(out), exit.ExitCode()
		}
		require.NoError(t, err)
		return string(out), 0
	}
	withNodes(t, clientOf(t, c), vms)

	out, code := run("users", "verify")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "Cns.Searchable, StorageProfile.View on /\n")
	require.Contains(t, out, "VirtualMachine.Config.AddRemoveDevice on "+vms[0].Path+", "+vms[1].Path)
	require.Contains(t, out, "Datastore.FileManagement on any datastore")

	out, code = run("users", "plan")
	require.Zero(t, code, out)
	require.Contains(t, out, "change, has seeing")
	require.NotContains(t, out, "/lab/", "nothing outside of the datacenters that are configured")
	require.NotContains(t, out, "/site/prod/")
	out, code = run("users", "plan", "--vm-folders", "-o", "govc")
	require.Zero(t, code, out)
	require.Contains(t, out, `govc permissions.set -principal 'VSPHERE.LOCAL\limited' -role vdo-csi-vm -propagate=true '/site/west/vm'`)
	out, code = run("users", "plan", "-o", "powercli")
	require.Zero(t, code, out)
	require.Contains(t, out, "New-VIRole -Server $vc -Name 'vdo-csi-search' -Privilege (Get-VIPrivilege -Server $vc -Id 'Cns.Searchable', 'StorageProfile.View')")
	require.Contains(t, out, "(Get-Datastore -Server $vc -Id 'Datastore-")

	// The script adds to a role that is there and lacks something, and takes nothing from it.
	require.NoError(t, v.Grant(t.Context(), "other@vsphere.local", "vdo-csi-vm", "/lab", false, "VirtualMachine.Config.AddExistingDisk"))
	script := carryOut(t, v, run)
	require.Contains(t, script, "\ngovc role.update -a vdo-csi-vm VirtualMachine.Config.AddRemoveDevice\n")
	out, code = run("users", "verify")
	require.Zero(t, code, out)
	require.Contains(t, out, "has what the drivers need, and no more than that")
	out, code = run("users", "plan", "-o", "govc")
	require.Zero(t, code, out)
	require.NotContains(t, out, "\ngovc ", "a plan that is carried out leaves nothing to do")
	require.Contains(t, out, "\n# nothing to do\n")
	require.NotContains(t, out, "not needed", "it is carried out on these objects alone")

	require.NoError(t, v.Grant(t.Context(), user, "half", vms[0].Path, false, "VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Interact.PowerOff"))
	out, code = run("users", "verify")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "missing   VirtualMachine.Config.AddRemoveDevice on "+vms[0].Path+"\n")
	require.Contains(t, out, "too much  VirtualMachine.Interact.PowerOff on "+vms[0].Path+"\n")
}

// carryOut runs the script that a plan is printed as, as its first lines say, and returns it.
func carryOut(t *testing.T, v *vcsim.VCenter, run func(...string) (string, int), flags ...string) string {
	t.Helper()
	script, code := run(append([]string{"users", "plan", "-o", "govc"}, flags...)...)
	require.Zero(t, code, script)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), v.CA, 0o600))
	cmd := exec.CommandContext(t.Context(), "/bin/sh")
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{
		"HOME=" + dir, "PATH=" + os.Getenv("PATH"),
		"GOVC_USERNAME=" + vcsim.Administrator.Username, "GOVC_PASSWORD=" + vcsim.Administrator.Password, "GOVC_TLS_CA_CERTS=" + filepath.Join(dir, "ca.crt"),
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)
	return script
}
