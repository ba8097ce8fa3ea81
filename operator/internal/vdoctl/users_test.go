package vdoctl_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// An account that sees everything and may do nothing gets what the plan says, and nothing
// else: then the vCenter itself says that nothing is missing, and nothing too much. Each
// driver has a name of its own for the vCenter.
func TestAPlanThatIsCarriedOutIsVerified(t *testing.T) {
	c := control(t)
	v := vcsim.Start(t, vcsim.Options{Machines: 3})
	const user = "limited@vsphere.local"
	v.SetPassword(user, "Limited-canary#1")
	require.NoError(t, v.Grant(t.Context(), user, "seeing", "/", true))
	vms := must.Have(v.VMs(t.Context(), "/site/west"))(t)
	for i, name := range []string{1: "node's*", 2: "node's neighbour"} { // as a pattern the one is both
		if name != "" {
			require.NoError(t, v.Change(vms[i].Path, func(vm *mo.VirtualMachine) { vm.Name = name }))
			vms[i].Path = path.Dir(vms[i].Path) + "/" + name
		}
	}
	vms = vms[:2]
	file := onlyWest(t, v, vcsim.Account{Username: user, Password: "Limited-canary#1"}, fmt.Sprintf(`---
apiVersion: v1
kind: Secret
metadata: {name: vc2}
stringData: {username: limited@vsphere.local, password: "Limited-canary#1"}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: west-again}
spec: {vcIp: localhost, port: %d, credentials: vc2, thumbprint: "%s", datacenters: [site/west]}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo}
spec: {cloudProvider: {vsphereCloudConfigs: [west-again]}, storageProvider: {vsphereCloudConfig: west}}
`, v.Port, v.SHA256))
	run := func(args ...string) result {
		r := vdoctl(t, nil, append(args, "-f", file, "--kubeconfig", c.Kubeconfig())...)
		require.NotContains(t, r.out, "canary")
		return r
	}
	withNodes(t, clientOf(t, c), vms)

	run("users", "verify").is(8,
		"Cns.Searchable, StorageProfile.View on /\n",
		"VirtualMachine.Config.AddRemoveDevice on "+vms[0].Path+", "+vms[1].Path,
		"Datastore.FileManagement on any datastore")

	out := run("users", "plan").is(0, "change, has seeing")
	require.NotContains(t, out, "/lab/", "nothing outside of the datacenters that are configured")
	require.NotContains(t, out, "/site/prod/")
	out = run("users", "plan", "--vm-folders", "-o", "govc").is(0,
		`govc permissions.set -principal 'VSPHERE.LOCAL\limited' -role vdo-csi-vm -propagate=true -i VirtualMachine:`, " # "+vms[1].Path+"\n")
	require.NotContains(t, out, " # /site/west/vm\n", "a vCenter refuses permissions there")
	run("users", "plan", "-o", "powercli").is(0,
		"New-VIRole -Server $vc -Name 'vdo-csi-search' -Privilege (Get-VIPrivilege -Server $vc -Id 'Cns.Searchable', 'StorageProfile.View')",
		"(Get-Datastore -Server $vc -Id 'Datastore-")
	// The script adds to a role that is there and lacks something, and takes nothing from it.
	require.NoError(t, v.Grant(t.Context(), "other@vsphere.local", "vdo-csi-vm", "/lab", false, "VirtualMachine.Config.AddExistingDisk"))
	script, home := run("users", "plan", "-o", "govc").is(0), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "ca.crt"), v.CA, 0o600))
	cmd := exec.CommandContext(t.Context(), "/bin/sh")
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{ // as its first lines say
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GOVC_USERNAME=" + vcsim.Administrator.Username,
		"GOVC_PASSWORD=" + vcsim.Administrator.Password, "GOVC_TLS_CA_CERTS=" + filepath.Join(home, "ca.crt"),
	}
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, text)
	require.Contains(t, script, "\ngovc role.update -a vdo-csi-vm VirtualMachine.Config.AddRemoveDevice\n")
	run("users", "verify").is(0, "has what the drivers need, and no more than that")
	out = run("users", "plan", "-o", "govc").is(0)
	require.NotContains(t, out, "\ngovc ", "a plan that is carried out leaves nothing to do")
	require.NotContains(t, out, "not needed", "it is carried out on these objects alone")

	require.NoError(t, v.Grant(t.Context(), user, "half", vms[0].Path, false, "VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Interact.PowerOff"))
	run("users", "verify").is(8,
		"missing   VirtualMachine.Config.AddRemoveDevice on "+vms[0].Path+"\n",
		"too much  VirtualMachine.Interact.PowerOff on "+vms[0].Path+"\n")
}

// What drivers end with at run time is named before by the commands about accounts. The
// number is the one that the error has in the list of the drivers' known errors.
func TestUsersNameKnownErrors(t *testing.T) {
	c := control(t)
	v := vcsim.Start(t, vcsim.Options{})
	vms := must.Have(v.VMs(t.Context(), "/site/west"))(t)
	withNodes(t, clientOf(t, c), vms)
	limited := vcsim.Account{Username: "limited@vsphere.local", Password: "Limited-canary#1"}
	v.SetPassword(limited.Username, limited.Password)
	require.NoError(t, v.Grant(t.Context(), limited.Username, "seeing", "/", true))
	blind := vcsim.Account{Username: "blind@vsphere.local", Password: "Blind-canary#1"}
	v.SetPassword(blind.Username, blind.Password)
	require.NoError(t, v.Grant(t.Context(), blind.Username, "seeing", "/", false))
	require.NoError(t, v.Grant(t.Context(), blind.Username, "seeing", "/site/west", false))
	wrong := vcsim.Account{Username: limited.Username, Password: "wrong-canary"}
	verify, plan := []string{"verify"}, []string{"plan"}
	create := append([]string{"create", "--dry-run"}, asAdministrator(t)...)
	script := append([]string{"plan", "-o", "govc"}, asAdministrator(t)...)
	for _, x := range []struct {
		name    string
		account vcsim.Account // of the Secret, if there is one
		arrange func()
		run     []string // of users
		code    int
		says    []string
		hint    string
	}{
		{name: "1 a wrong password", account: wrong, run: verify, code: 6,
			says: []string{"refuses the user name or password of limited@vsphere.local"}, hint: "correct the Secret that spec.credentials names"},
		{name: "a Secret of another account", account: limited, run: create, code: 8,
			says: []string{"site.yaml has this Secret, for limited@vsphere.local"}, hint: "remove the Secret from the file"},
		{name: "3 no Secret", run: plan, code: 4, says: []string{"there is no Secret vc in ", "site.yaml has none"}, hint: "--username and --password-file"},
		{name: "49 what the nodes' VMs are in cannot be read", account: blind, run: verify, code: 8, says: []string{"missing   System.Read, System.View on /site, /site/west/host/DC1_C0, /site/west/host/DC1_C0/"}},
		{name: "31 32 no datastore that is shared", arrange: func() { vcsim.ChangeEach(v, "HostSystem", func(h *simulator.HostSystem) { h.Datastore = nil }) }, run: create, code: 8,
			says: []string{"find datastores for volumes in", "none is shared by the hosts that the nodes run on"}, hint: "a datastore in common"},
		{name: "31 32 no datastore that is shared, in a plan", account: limited, run: plan, code: 0, says: []string{"warning: find datastores for volumes in"}, hint: "a datastore in common"},
		{name: "an account that would be a command of the script", account: vcsim.Account{Username: `"drivers@corp.example\ntouch x"`}, run: script, code: 8,
			says: []string{"write a script for", "the account's name has no domain, or characters"}, hint: "--principal NAME@DOMAIN"},
		{name: "a datacenter that is gone", arrange: func() {
			vcsim.ChangeEach(v, "Datacenter", func(d *simulator.Datacenter) { d.Name += "-moved" })
		}, run: create, code: 4, says: []string{`["site/west"] not there or not readable`}, hint: "correct spec.datacenters"},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.arrange != nil {
				x.arrange()
			}
			file := onlyWest(t, v, x.account, "")
			args := append(append([]string{"users"}, x.run...), "-f", file, "--kubeconfig", c.Kubeconfig())
			out := vdoctl(t, nil, args...).is(x.code, x.says...)
			if x.hint != "" {
				_, hints, _ := strings.Cut(out, "hint: ")
				require.Contains(t, hints, x.hint)
			}
			require.NotContains(t, out, "canary")
		})
	}
}

// Linked vCenters count the failed logins of an account together, and five lock it.
func TestAWrongPasswordIsTriedOnce(t *testing.T) {
	c := control(t)
	east, west := vcenters(t)
	wrong, file := fileOf(t, "wrong", "wrong"), fileOf(t, "site.yaml", withoutSecret(east, west)+bothVCenters)
	for _, args := range [][]string{
		{"preflight", "--no-cluster"}, {"users", "plan"}, {"users", "create", "--yes"}, {"vms", "fix"},
	} {
		user := vcsim.Administrator.Username
		before := east.Refused(user) + west.Refused(user)
		args = append(args, "-f", file, "--kubeconfig", c.Kubeconfig(), "--username", user, "--password-file", wrong)
		out, code := vdoctl(t, nil, args...).both()
		require.NotZero(t, code)
		require.Equal(t, before+1, east.Refused(user)+west.Refused(user), "%s\n%s", args, out)
		require.Contains(t, out, "the same account and password was refused by")
	}
}

// What is left in a vCenter that is gone is named before it is done, also where no other one is left.
func TestAVCenterThatIsGoneIsNamed(t *testing.T) {
	s := newShop(t)
	v := vcsim.Start(t, vcsim.Options{Machines: 1})
	admin := asAdministrator(t)
	const account = "vdo-gone@vsphere.local"
	record := &corev1.ConfigMap{ObjectMeta: s.meta("vdo-account-vc"),
		Data: map[string]string{"record.json": fmt.Sprintf(
			`{"account":%q,"made":true,"places":{"west":{},"away":{},"old":{}}}`, account)}}
	s.create(record)
	login := map[string]string{"username": account, "password": "p"}
	s.create(&corev1.Secret{ObjectMeta: s.meta("vc"), StringData: login})
	s.add("west", v, "site/west")
	s.add("away", &vcsim.VCenter{Host: v.Host, Port: 1}, "site/west")
	s.create(&v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo"), Spec: v1alpha1.VDOConfigSpec{
		CloudProvider: &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"away", "west"}}}})
	remove := func(name string) {
		require.NoError(t, s.k.Delete(t.Context(), &v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta(name)}))
	}
	left := "would leave account " + account + " in "
	for _, x := range []struct {
		arrange func()
		do      string
		code    int
		says    []string
	}{
		{func() { remove("away") }, "rotate", 4, []string{"away"}},
		{nil, "delete", 0, []string{left + "away", left + "old"}},
		{func() { remove("west") }, "delete", 4, []string{"no VsphereCloudConfig names the Secret", "--secret NAME"}},
		{nil, "delete --secret vc", 0, []string{left + "west"}},
		{func() { require.NoError(t, s.k.Delete(t.Context(), s.config())) }, "delete --secret vc", 0, []string{left + "west"}},
	} {
		if x.arrange != nil {
			x.arrange()
		}
		args := append([]string{"users"}, strings.Fields(x.do)...)
		args = append(append(args, admin...), "--dry-run")
		s.run(args...).is(x.code, x.says...)
		require.True(t, s.there(record))
	}
}
