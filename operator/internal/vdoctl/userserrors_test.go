package vdoctl_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/mo"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// usersCase is a fault of a site, and what the commands about accounts say of it.
type usersCase struct {
	name    string
	account *vcsim.Account // of the Secret; nil for that of the drivers
	secret  string         // in its place
	spec    string         // of the VsphereCloudConfig, in the place of the right one
	more    string         // documents
	arrange func()
	run     []string // of users
	code    int
	says    []string
	hint    string
}

// What drivers end with at run time is named before by the commands about accounts. The
// number is the one that the error has in the list of the drivers' known errors.
func TestUsersNameKnownErrors(t *testing.T) {
	c := control(t)
	v := vcsim.Start(t, vcsim.Options{})
	alias := vcsim.Start(t, vcsim.Options{Names: []string{"vc.example"}})
	vms, err := v.VMs(t.Context(), "/site/west")
	require.NoError(t, err)
	withNodes(t, clientOf(t, c), vms)
	limited := vcsim.Account{Username: "limited@vsphere.local", Password: "Limited-canary#1"}
	v.SetPassword(limited.Username, limited.Password)
	require.NoError(t, v.Grant(t.Context(), limited.Username, "seeing", "/", true))
	blind := vcsim.Account{Username: "blind@vsphere.local", Password: "Blind-canary#1"}
	v.SetPassword(blind.Username, blind.Password)
	require.NoError(t, v.Grant(t.Context(), blind.Username, "seeing", "/", false))
	require.NoError(t, v.Grant(t.Context(), blind.Username, "seeing", "/site/west", false))
	admin := filepath.Join(t.TempDir(), "admin")
	require.NoError(t, os.WriteFile(admin, []byte(vcsim.Administrator.Password), 0o600))
	verify, plan := []string{"verify"}, []string{"plan"}
	create := []string{"create", "--dry-run", "--username", vcsim.Administrator.Username, "--password-file", admin}
	at := func(port int, rest string) string {
		return fmt.Sprintf("{vcIp: 127.0.0.1, port: %d, credentials: vc%s}", port, rest)
	}
	pinned := `, thumbprint: "` + v.SHA256 + `"`
	for _, x := range []usersCase{
		{name: "1 a wrong password", account: &vcsim.Account{Username: limited.Username, Password: "wrong-canary"}, run: verify, code: 6,
			says: []string{"refuses the user name or password of limited@vsphere.local"}, hint: "correct the Secret that spec.credentials names"},
		{name: "3 no Secret", secret: "none", run: plan, code: 4, says: []string{"its Secret, vc, is not in ", "site.yaml"}, hint: "--username and --password-file"},
		{name: "5 no user name and no password", secret: "{other: x}", run: verify, code: 2,
			says: []string{"key username is absent or empty", "key password is absent or empty"}, hint: "the keys username and password"},
		{name: "50 an empty user name", secret: `{username: "", password: "canary"}`, run: plan, code: 2, says: []string{"key username is absent or empty"}, hint: "the keys username and password"},
		{name: "6 a user name without a domain", account: &vcsim.Account{Username: "limited", Password: limited.Password}, run: verify, code: 6,
			says: []string{"limited, which has no domain: write NAME@DOMAIN"}},
		{name: "7 an authority that is not known", spec: at(v.Port, ""), run: verify, code: 5, says: []string{"signed by an unknown authority"}, hint: "spec.thumbprint"},
		{name: "8 a name that is not in the certificate", spec: at(alias.Port, ", ca: {configMap: ca, key: ca.crt}"), more: caMap(string(alias.CA)), run: create, code: 5,
			says: []string{"its certificate is for vc.example, not for 127.0.0.1"}, hint: "spec.vcIp"},
		{name: "9 a thumbprint of another certificate", spec: at(v.Port, `, thumbprint: "`+alias.SHA256+`"`), run: create, code: 5, says: []string{"thumbprint"}, hint: "spec.thumbprint"},
		{name: "10 a CA that is none", spec: at(v.Port, ", ca: {configMap: ca, key: ca.crt}"), more: caMap("no certificate"), run: create, code: 2, says: []string{"PEM"}, hint: "-----BEGIN CERTIFICATE-----"},
		{name: "11 nothing listens", spec: at(1, pinned), run: create, code: 5, says: []string{"connection refused"}, hint: "spec.vcIp and spec.port"},
		{name: "11 no such host", spec: `{vcIp: no-such-host.invalid, credentials: vc` + pinned + `}`, run: verify, code: 5, says: []string{"no-such-host.invalid"}, hint: "spec.vcIp"},
		{name: "12 no such datacenter", spec: at(v.Port, pinned+", datacenters: [/site/none]"), run: verify, code: 4, says: []string{"/site/none"}, hint: "spec.datacenters"},
		{name: "13 25 no VM of a node", spec: at(v.Port, pinned+", datacenters: [/lab]"), run: plan, code: 0,
			says: []string{"warning: find the VMs of nodes node-0, node-1: none with their UUID in the configured datacenters"}, hint: "vdoctl check --only node-vm"},
		{name: "30 a privilege is missing", run: verify, code: 8, says: []string{"Cns.Searchable, StorageProfile.View on /\n", "VirtualMachine.Config.AddRemoveDevice on " + vms[0].Path}},
		{name: "49 what the nodes' VMs are in cannot be read", account: &blind, run: verify, code: 8, says: []string{"missing   System.Read, System.View on /site, /site/west/host, /site/west/host/DC1_C0, /site/west/host/DC1_C0/"}},
		{name: "31 no datastore that it may use", run: verify, code: 8, says: []string{"missing   Datastore.FileManagement on any datastore"}},
		{name: "31 32 no datastore that is shared", arrange: func() { v.ChangeHosts(func(h *mo.HostSystem) { h.Datastore = nil }) }, run: create, code: 8,
			says: []string{"find datastores for volumes in", "none is shared by the hosts that the nodes run on"}, hint: "a datastore in common"},
		{name: "31 32 no datastore that is shared, in a plan", run: plan, code: 0, says: []string{"warning: find datastores for volumes in"}, hint: "a datastore in common"},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.arrange != nil {
				x.arrange()
			}
			if x.account == nil {
				x.account = &limited
			}
			if x.spec == "" {
				x.spec = at(v.Port, pinned+", datacenters: [/site/west]")
			}
			file := filepath.Join(t.TempDir(), "site.yaml")
			require.NoError(t, os.WriteFile(file, []byte(x.site()), 0o600))
			out, err := exec.CommandContext(t.Context(), "vdoctl", append(append([]string{"users"}, x.run...), "-f", file, "--kubeconfig", c.Kubeconfig())...).CombinedOutput()
			var exit *exec.ExitError
			code := 0
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			}
			require.Equal(t, x.code, code, string(out))
			for _, s := range x.says {
				require.Contains(t, string(out), s)
			}
			if x.hint != "" {
				_, hints, _ := strings.Cut(string(out), "hint: ")
				require.Contains(t, hints, x.hint)
			}
			require.NotContains(t, string(out), "canary")
		})
	}
}

func (x *usersCase) site() string {
	secret := fmt.Sprintf("{username: %q, password: %q}", x.account.Username, x.account.Password)
	if x.secret != "" {
		secret = x.secret
	}
	out := "apiVersion: v1\nkind: Secret\nmetadata: {name: vc}\nstringData: " + secret + "\n---\n"
	if secret == "none" {
		out = ""
	}
	return out + "apiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\nmetadata: {name: west}\nspec: " + x.spec + "\n" + x.more
}

func caMap(pem string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca}\ndata: {ca.crt: %q}\n", pem)
}
