package accounts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// shared is a vCenter that others use too. It remembers what was changed.
type shared struct {
	accounts    map[string]string // descriptions
	passwords   map[string]vcenter.Password
	roles       map[string][]string
	used        map[string]int // permissions of others, by role
	permissions map[string]map[string]privileges.Permission
	sessions    []vcenter.Session
	changes     []string
	looking     func() // once, when the rules of passwords are asked for
}

func (v *shared) change(format string, a ...any) {
	v.changes = append(v.changes, fmt.Sprintf(format, a...))
}

func (*shared) Domain(context.Context) (string, error) { return "vsphere.local", nil }

func (v *shared) Account(_ context.Context, n string) (vcenter.Account, error) {
	d, ok := v.accounts[n]
	return vcenter.Account{Exists: ok, Description: d}, nil
}

func (v *shared) PasswordRules(context.Context) (vcenter.PasswordRules, error) {
	if look := v.looking; look != nil {
		v.looking = nil
		look()
	}
	return vcenter.PasswordRules{}, nil
}

func (v *shared) MakeAccount(_ context.Context, n, d string, p vcenter.Password) error {
	v.change("make account %s", n)
	v.accounts[n], v.passwords[n] = d, p
	return nil
}

func (v *shared) SetPassword(_ context.Context, n string, p vcenter.Password) error {
	v.change("set password of %s", n)
	v.passwords[n] = p
	return nil
}

func (v *shared) RemoveAccount(_ context.Context, n string) error {
	v.change("remove account %s", n)
	delete(v.accounts, n)
	return nil
}

func (v *shared) Roles(context.Context) (map[string]vcenter.Role, error) {
	out := map[string]vcenter.Role{}
	for n, p := range v.roles {
		out[n] = vcenter.Role{Name: n, Privileges: p}
	}
	return out, nil
}

func (v *shared) MakeRole(_ context.Context, n string, p []string) error {
	v.change("make role %s", n)
	v.roles[n] = p
	return nil
}

func (v *shared) ChangeRole(_ context.Context, r vcenter.Role, p []string) error {
	v.change("change role %s", r.Name)
	v.roles[r.Name] = p
	return nil
}

func (v *shared) RemoveRole(_ context.Context, r vcenter.Role) error {
	v.change("remove role %s", r.Name)
	delete(v.roles, r.Name)
	return nil
}

func (v *shared) RoleUsed(_ context.Context, r vcenter.Role) (int, error) { return v.used[r.Name], nil }

func (v *shared) Permissions(_ context.Context, n string) (map[string]privileges.Permission, error) {
	return v.permissions[n], nil
}

func (v *shared) SetPermission(_ context.Context, id, n string, r vcenter.Role, propagate bool) error {
	v.change("set %s on %s for %s, propagating: %t", r.Name, id, n, propagate)
	return nil
}

func (v *shared) RemovePermission(_ context.Context, id, n string) error {
	v.change("remove the permission of %s on %s", n, id)
	return nil
}

func (v *shared) Sessions(context.Context, string) ([]vcenter.Session, error) { return v.sessions, nil }
func (*shared) Now(context.Context) (time.Time, error)                        { return time.Now(), nil }

const (
	addDisk  = "VirtualMachine.Config.AddExistingDisk"
	attach   = "VirtualMachine.Config.AddRemoveDevice"
	encrypts = "Cryptographer.AddDisk"
)

func newShared() *shared {
	return &shared{accounts: map[string]string{}, passwords: map[string]vcenter.Password{}, used: map[string]int{},
		permissions: map[string]map[string]privileges.Permission{},
		roles: map[string][]string{
			"ReadOnly": {"System.Read", "System.View", "System.Anonymous"}, "Admin": {"Authorization.ModifyPermissions"},
			"vdo-csi-search": {"Cns.Searchable", "StorageProfile.View"}, "vdo-csi-datastore": {"Datastore.FileManagement"}, "vdo-csi-vm": {addDisk, attach}}}
}

// shareSite is what a run has of the vCenter and of a cluster with these objects.
func shareSite(t *testing.T, v *shared, objects ...client.Object) (*accounts.Site, *[]accounts.Change) {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	require.NoError(t, v1alpha1.AddToScheme(s))
	objects = append(objects, &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "west"}})
	done := &[]accounts.Change{}
	return &accounts.Site{
		API: fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build(), Namespace: "ns", Secret: "vc", Cluster: clusterID,
		Wait: time.Nanosecond, Poll: time.Millisecond, Progress: func(c accounts.Change) { *done = append(*done, c) },
		Places: []accounts.Place{{Name: "west", Server: "vc.example", VCenter: v,
			Plan: func(_ context.Context, p string) (privileges.Plan, error) {
				return privileges.NewPlan(features, p, nil, false, privileges.Existing{Roles: v.roles}), nil
			},
			Verify: func(_ context.Context, l accounts.Login) ([]string, error) { return nil, v.verify(l) }}},
	}, done
}

func recorded(t *testing.T, s *accounts.Site) (out string) {
	t.Helper()
	var m corev1.ConfigMap
	require.NoError(t, s.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "vdo-account-vc"}, &m))
	return m.Data["record.json"]
}

func record(json string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vdo-account-vc"}, Data: map[string]string{"record.json": json}}
}

func left(changes []accounts.Change, name string) (note string) {
	for _, c := range changes {
		if c.Do == accounts.Leave && c.Name == name {
			note = c.Note
		}
	}
	return note
}

// Roles are shared by all clusters of a vCenter: none loses what another one needs.
func TestARoleThatOthersHaveLosesNothing(t *testing.T) {
	v := newShared()
	v.roles["vdo-csi-vm"] = []string{encrypts, addDisk, attach} // another cluster has encryption
	s, done := shareSite(t, v)
	require.NoError(t, s.Create(t.Context(), accounts.Login{}))
	require.Equal(t, []string{"make account " + firstName}, v.changes)
	require.Contains(t, left(*done, "vdo-csi-vm"), encrypts)

	// What is lacking is added to what there is; the record says what was set.
	v = newShared()
	v.roles["vdo-csi-vm"] = []string{encrypts, addDisk}
	s, _ = shareSite(t, v)
	require.NoError(t, s.Create(t.Context(), accounts.Login{}))
	require.Equal(t, []string{encrypts, addDisk, attach}, v.roles["vdo-csi-vm"])
	var r struct {
		Places map[string]struct {
			Roles map[string]struct{ Privileges, Set []string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(recorded(t, s)), &r))
	require.Equal(t, []string{encrypts, addDisk, attach}, r.Places["west"].Roles["vdo-csi-vm"].Set)

	for name, c := range map[string]struct {
		arrange func()
		want    []string
		note    string
	}{
		"others have it":             {func() { v.used["vdo-csi-vm"] = 2 }, []string{encrypts, addDisk, attach}, "2 permissions of others have it"},
		"somebody has added to it":   {func() { v.roles["vdo-csi-vm"] = []string{"x", encrypts, addDisk, attach} }, []string{"x", encrypts, addDisk, attach}, "somebody has changed it since"},
		"somebody has taken from it": {func() { v.roles["vdo-csi-vm"] = []string{attach} }, []string{attach}, "somebody has changed it since"},
		"nobody else has it":         {func() {}, []string{encrypts, addDisk}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v.used, v.roles["vdo-csi-vm"] = map[string]int{}, []string{encrypts, addDisk, attach}
			c.arrange()
			before := recorded(t, s)
			run, done := shareSite(t, v, record(before))
			require.NoError(t, run.Delete(t.Context()))
			require.Equal(t, c.want, v.roles["vdo-csi-vm"])
			if c.note == "" {
				require.Empty(t, left(*done, "vdo-csi-vm"))
				return
			}
			require.Contains(t, left(*done, "vdo-csi-vm"), c.note)
		})
	}
}

// Whoever may write ConfigMaps of the namespace, and nothing in the vCenter, gets nothing
// there by the hand of the administrator who takes the account away.
func TestARecordThatIsForgedGrantsNothing(t *testing.T) {
	const mallory, root = "mallory@corp.example", "Folder-group-d1"
	forged := func(roles, before string) *corev1.ConfigMap {
		return record(`{"account":"` + mallory + `","places":{"west":{"roles":` + roles + `,"permissions":{"` + mallory + `":{"` + root + `":` + before + `}}}}}`)
	}
	for name, c := range map[string]struct {
		roles, before string
		now           privileges.Permission
		want          []string
	}{
		"Admin":                 {"{}", `{"role":"Admin","propagate":true}`, privileges.Permission{Role: "ReadOnly"}, nil},
		"another role of ours":  {"{}", `{"role":"vdo-csi-vm"}`, privileges.Permission{Role: "ReadOnly"}, nil},
		"propagating":           {"{}", `{"role":"ReadOnly","propagate":true}`, privileges.Permission{Role: "vdo-csi-vm"}, nil},
		"no more than it has":   {"{}", `{"role":"ReadOnly"}`, privileges.Permission{Role: "vdo-csi-vm"}, []string{"set ReadOnly on " + root + " for " + mallory + ", propagating: false"}},
		"what it has is Admin":  {`{"Admin":null}`, "null", privileges.Permission{Role: "Admin"}, nil},
		"more for a role":       {`{"vdo-csi-vm":{"privileges":["Authorization.ModifyPermissions"],"set":["` + addDisk + `","` + attach + `"]}}`, `{"role":"ReadOnly"}`, privileges.Permission{Role: "ReadOnly"}, nil},
		"another role":          {`{"backup":{"privileges":[],"set":["x"]}}`, `{"role":"ReadOnly"}`, privileges.Permission{Role: "ReadOnly"}, nil},
		"another role was made": {`{"backup":null}`, `{"role":"ReadOnly"}`, privileges.Permission{Role: "ReadOnly"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := newShared()
			v.roles["backup"] = []string{"x"}
			v.permissions[mallory] = map[string]privileges.Permission{root: c.now}
			s, done := shareSite(t, v, forged(c.roles, c.before))
			require.NoError(t, s.Delete(t.Context()))
			require.Equal(t, c.want, v.changes)
			if c.want == nil {
				require.True(t, slices.ContainsFunc(*done, func(x accounts.Change) bool { return x.Do == accounts.Leave && x.Kind != "account" }) || c.before == `{"role":"ReadOnly"}`, "what is left is named: %v", *done)
			}
		})
	}
}

// verify refuses a password that is not the account's.
func (v *shared) verify(l accounts.Login) error {
	if p, ok := v.passwords[l.Username]; ok && p != l.Password {
		return &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: "vc.example", Err: errors.New("refused")}
	}
	return nil
}
