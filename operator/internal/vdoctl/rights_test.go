package vdoctl_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// grant applies the rights that vdoctl needs, with the test's namespace as the operator's.
func (s *shop) grant() {
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vmware-system-csi"}})
	data := strings.ReplaceAll(readFile(s.t, filepath.Join("..", "..", "..", "deploy", "rbac-vdoctl.yaml")), "vmware-system-vdo", s.ns)
	for _, o := range s.read(data) {
		require.NoError(s.t, s.k.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("admin"), client.ForceOwnership))
	}
}

// as is the shop as someone of a group sees it, with the rights of that alone.
func (s *shop) as(group string) *shop {
	s.t.Helper()
	other := *s
	other.conf = s.kubeconfig(func(c *clientcmdapi.Config) {
		user := c.AuthInfos["user"]
		user.Impersonate, user.ImpersonateGroups = "somebody", []string{group, "system:authenticated"}
	})
	return &other
}

// siteToRead is a site with all that commands read: a vCenter that answers, drivers, an
// upgrade that waits. It returns a file of the configuration and one of the password.
func (s *shop) siteToRead() (file, password string) {
	s.t.Helper()
	east, _ := vcenters(s.t)
	s.operator()
	s.upgraded()
	s.waits("r4-44444444", "csi@3.7.3", "NotApproved")
	s.create(&corev1.Secret{ObjectMeta: s.meta("vc"), StringData: map[string]string{"username": vcsim.Admin.Username, "password": vcsim.Admin.Password}})
	s.add("east", east)
	file = fileOf(s.t, "site.yaml", withoutSecret(east, east)+eastAlone)
	return file, fileOf(s.t, "password", vcsim.Admin.Password+"\n")
}

// Each command works under the rights that deploy/rbac-vdoctl.yaml gives for it: those that only read under readers',
// those that read Secrets or write under administrators'. What is not given is named.
func TestCommandsWorkUnderTheRightsThatAreWrittenForThem(t *testing.T) {
	s := newShop(t)
	s.grant()
	file, password := s.siteToRead()
	account := []string{"--username", vcsim.Admin.Username, "--password-file", password}
	reader, admin, nobody := s.as("vdo-readers"), s.as("vdo-admins"), s.as("strangers")
	for _, c := range []struct {
		args         []string
		admins, file bool // what reads Secrets; what reads a file
	}{
		{args: []string{"status"}}, {args: []string{"version"}}, {args: []string{"nodes", "check"}}, {args: []string{"upgrade", "list"}},
		{args: append([]string{"preflight", "--from-file", file, "--only", "vcenter-account"}, account...), file: true},
		{args: append([]string{"users", "plan"}, account...)}, {args: append([]string{"users", "verify"}, account...)},
		{args: []string{"preflight", "--only", "vcenter-account"}, admins: true}, {args: []string{"users", "verify"}, admins: true},
		{args: []string{"vms", "check"}, admins: true}, {args: []string{"topology", "check"}, admins: true},
	} {
		unlimited := s.run(c.args...).code // what is not well of the site is not about rights
		require.NotEqual(t, 2, unlimited, "%s: used wrongly", c.args)
		who := reader
		if c.admins {
			who = admin
		}
		out, code := who.run(c.args...).both()
		require.NotRegexp(t, "forbidden|no permission", out, c.args)
		require.Equal(t, unlimited, code, "%s: %s", c.args, out)
		switch {
		case c.admins:
			out, code = reader.run(c.args...).both()
			require.NotZero(t, code, "%s: %s", c.args, out)
			require.Contains(t, out, `secrets "vc" is forbidden`, c.args)
			require.Regexp(t, "your account; or give the login:\\s+`vdoctl users plan --username NAME`", out, c.args)
		case !c.file:
			out, code = nobody.run(c.args...).both()
			require.Equal(t, 6, code, "%s: %s", c.args, out)
			require.Equal(t, 1, strings.Count(out, "error: "), out)
			require.Regexp(t, `User "somebody" cannot (list|get) resource "|your account has no permission to get deployments.apps in namespace `, out, c.args)
			require.Contains(t, out, "have a role with", c.args)
		}
	}
	// What plan reads beyond that is the caller's to have, and not the operator's to be granted.
	out := reader.run("plan").is(6, "a cluster administrator's permissions or the operator's own")
	require.NotContains(t, out, "grant the operator")
	reader.run(append([]string{"configure", "--vcenter", "east", "--yes"}, account...)...).is(6,
		"vdoctl-secrets-reader of rbac-vdoctl.yaml bound to your account\n")
	reader.run("upgrade", "approve", "r4-44444444").is(6, `vdoconfigs.vdo.vmware.com "vdo" is forbidden`)

	admin.ok("support-bundle", filepath.Join(t.TempDir(), "whole.tar.gz"))

	part := filepath.Join(t.TempDir(), "part.tar.gz")
	out = reader.run("support-bundle", part, "--no-preflight").is(9, "Secrets of kube-system",
		"logs: left out: the Secrets whose values have to be taken out of them cannot be read")
	for name := range unpacked(t, part) {
		require.NotContains(t, name, "logs/")
	}
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "forbidden") {
			require.Contains(t, line, "Secrets of ", "nothing else is lacking")
		}
	}
	admin.ok("upgrade", "approve", "r4-44444444")
	admin.ok("configure", "--vcenter", "east", "--password-file", password, "--username", vcsim.Admin.Username, "--yes")
	out = admin.ok("delete", "--drivers", "--configuration", "--yes", "--dry-run")
	require.NotContains(t, out, "forbidden")
	refused := admin.run("delete", "--operator", "--keep-drivers", "--yes")
	require.NotZero(t, refused.code)
	refused.has("forbidden") // the operator's rights are a cluster administrator's to take away
}
