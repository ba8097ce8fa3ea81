package vcenter_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

func as(v *vcsim.VCenter, a vcsim.Account) vcenter.Target {
	tg := target(v)
	tg.Username, tg.Password = a.Username, vcenter.Password(a.Password)
	return tg
}

func TestAnAccountIsMadeAndHasWhatItIsGiven(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	ctx := t.Context()
	a, err := vcenter.Open(ctx, as(v, vcsim.Administrator))
	require.NoError(t, err)
	defer a.Close()
	const name = "drivers@vsphere.local"
	mine := vcsim.Account{Username: name, Password: "Good-Pass word#1"}

	domain, err := a.Domain(ctx)
	require.NoError(t, err)
	require.Equal(t, "vsphere.local", domain)
	found, err := a.Account(ctx, name)
	require.NoError(t, err)
	require.False(t, found.Exists)
	rules, err := a.PasswordRules(ctx)
	require.NoError(t, err)
	require.Equal(t, vcenter.PasswordRules{Least: 8, Most: 20, Adjacent: 3, Days: 90, Upper: 1, Lower: 1, Alphabetic: 2, Numeric: 1, Special: 1}, rules)
	require.NoError(t, a.MakeAccount(ctx, name, "made for a test", vcenter.Password(mine.Password)))
	found, err = a.Account(ctx, name)
	require.NoError(t, err)
	require.Equal(t, vcenter.Account{Exists: true, Description: "made for a test"}, found)
	_, err = vcenter.Check(ctx, as(v, mine))
	refused(t, err, fault.Forbidden, "has no role in this vCenter")

	require.NoError(t, a.MakeRole(ctx, "vdo-csi-search", []string{"Cns.Searchable"}))
	roles, err := a.Roles(ctx)
	require.NoError(t, err)
	require.Contains(t, roles["vdo-csi-search"].Privileges, "Cns.Searchable")
	root := "Folder-group-d1"
	require.NoError(t, a.SetPermission(ctx, root, name, roles["vdo-csi-search"], true))
	has, err := a.Permissions(ctx, name)
	require.NoError(t, err)
	require.Equal(t, map[string]privileges.Permission{root: {Role: "vdo-csi-search", Propagate: true}}, has)
	_, err = vcenter.Check(ctx, as(v, mine))
	require.NoError(t, err)

	err = a.RemoveRole(ctx, roles["vdo-csi-search"])
	require.Error(t, err, "a role that is used stays")
	used, err := a.RoleUsed(ctx, roles["vdo-csi-search"])
	require.NoError(t, err)
	require.Equal(t, 1, used)
	for range 2 { // what is done is done
		require.NoError(t, a.RemovePermission(ctx, root, name))
		require.NoError(t, a.RemoveAccount(ctx, name))
	}
	require.NoError(t, a.RemoveRole(ctx, roles["vdo-csi-search"]))
	_, err = vcenter.Check(ctx, as(v, mine))
	refused(t, err, fault.Unauthorized, "refuses the user name or password")
}

func TestWhoMayNotChangeAVCenterIsToldSo(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	ctx := t.Context()
	v.SetPassword("limited@vsphere.local", "Limited-Pass#1")
	require.NoError(t, v.Grant(ctx, "limited@vsphere.local", "seeing", "/", true))
	a, err := vcenter.Open(ctx, as(v, vcsim.Account{Username: "limited@vsphere.local", Password: "Limited-Pass#1"}))
	require.NoError(t, err)
	defer a.Close()
	err = a.MakeRole(ctx, "x", nil)
	refused(t, err, fault.Forbidden, "Authorization.ModifyRoles")
	require.Contains(t, fault.HintOf(err), "--username administrator@vsphere.local")
	err = a.MakeAccount(ctx, "x@vsphere.local", "", "Good-Pass word#1")
	refused(t, err, fault.Forbidden, "no administrator of the single sign-on")
	require.Contains(t, fault.HintOf(err), "--account-password-file")

	b, err := vcenter.Open(ctx, as(v, vcsim.Administrator))
	require.NoError(t, err)
	defer b.Close()
	_, err = b.Account(ctx, "x@corp.example")
	refused(t, err, fault.Refused, "accounts of corp.example are not its own")
	err = b.MakeAccount(ctx, "x@vsphere.local", "", vcenter.Password(strings.Repeat("aA1#", 9)))
	refused(t, err, fault.Refused, "not of the policy")
	_, err = vcenter.Open(ctx, as(v, vcsim.Account{Username: vcsim.Administrator.Username, Password: "wrong"}))
	refused(t, err, fault.Unauthorized, "refuses the user name or password")
}
