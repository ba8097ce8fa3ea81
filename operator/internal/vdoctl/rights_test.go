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
	s.t.Helper()
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
	s.operator(1)
	s.upgraded()
	s.waits("r4-44444444", "csi@3.7.3", "NotApproved")
	s.create(&corev1.Secret{ObjectMeta: s.meta("vc"), StringData: map[string]string{"username": vcsim.Admin.Username, "password": vcsim.Admin.Password}})
	s.add("east", east)
	file = fileOf(s.t, "site.yaml", withoutSecret(east, east)+eastAlone)
	return file, fileOf(s.t, "password", vcsim.Admin.Password+"\n")
}

// Each command that only reads works under the rights that deploy/rbac-vdoctl.yaml gives for it, and what is not given
// is named.
func TestReadersWorkUnderTheRightsThatAreWrittenForThem(t *testing.T) {
	s := newShop(t)
	s.grant()
	file, password := s.siteToRead()
	account := []string{"--username", vcsim.Admin.Username, "--password-file", password}
	reader, nobody := s.as("vdo-readers"), s.as("strangers")
	for name, args := range map[string][]string{
		"status": {"status"}, "version": {"version"}, "nodes": {"nodes", "check"}, "upgrade": {"upgrade", "list"},
		"preflight of a file": append([]string{"preflight", "--from-file", file, "--only", "vcenter-account"}, account...),
		"users plan":          append([]string{"users", "plan"}, account...),
		"users verify":        append([]string{"users", "verify"}, account...),
	} {
		unlimited := s.run(args...).code // what is not well of the site is not about rights
		require.NotEqual(t, 2, unlimited, "%s: used wrongly", name)
		out, code := reader.run(args...).both()
		require.NotRegexp(t, "forbidden|no permission", out, name)
		require.Equal(t, unlimited, code, "%s: %s", name, out)
		if !strings.Contains(name, "file") {
			out, code = nobody.run(args...).both()
			require.Equal(t, 6, code, "%s: %s", name, out)
			require.Equal(t, 1, strings.Count(out, "error: "), out)
			require.Regexp(t, `User "somebody" cannot (list|get) resource "|your account has no permission to get deployments.apps in namespace `, out, name)
			require.Contains(t, out, "have a role with", name)
		}
	}
	// What plan reads beyond that is the caller's to have, and not the operator's to be granted.
	out := reader.run("plan").is(6, "a cluster administrator's permissions or the operator's own")
	require.NotContains(t, out, "grant the operator")
	reader.run(append([]string{"configure", "--vcenter", "east", "--yes"}, account...)...).is(6)
	reader.run("upgrade", "approve", "r4-44444444").is(6, `vdoconfigs.vdo.vmware.com "vdo" is forbidden`)
}

// Commands that read Secrets or write work under the rights of administrators.
func TestAdminsWorkUnderTheRightsThatAreWrittenForThem(t *testing.T) {
	s := newShop(t)
	s.grant()
	_, password := s.siteToRead()
	reader, admin := s.as("vdo-readers"), s.as("vdo-admins")
	for name, args := range map[string][]string{
		"preflight": {"preflight", "--only", "vcenter-account"}, "users verify": {"users", "verify"},
		"vms": {"vms", "check"}, "topology": {"topology", "check"},
	} {
		unlimited := s.run(args...).code
		require.NotEqual(t, 2, unlimited, "%s: used wrongly", name)
		out, code := admin.run(args...).both()
		require.NotRegexp(t, "forbidden|no permission", out, name)
		require.Equal(t, unlimited, code, "%s: %s", name, out)
		out, code = reader.run(args...).both()
		require.NotZero(t, code, "%s: %s", name, out)
		require.Contains(t, out, `secrets "vc" is forbidden`, name)
	}
	admin.ok("support-bundle", filepath.Join(t.TempDir(), "whole.tar.gz"))

	part := filepath.Join(t.TempDir(), "part.tar.gz")
	out := reader.run("support-bundle", part, "--no-preflight").is(9, "Secrets of kube-system",
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
