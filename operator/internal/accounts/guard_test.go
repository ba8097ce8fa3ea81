package accounts_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

const corp = "k8s@corp.example"

var corpLogin = accounts.Login{Username: corp, Password: "Corp-Pass word#1"}

// asked has the site's plans made from what the vCenter answers about an account, groups and
// inheritance included.
func (w *world) asked(do func(*accounts.Site) error) func(*accounts.Site) error {
	return func(s *accounts.Site) error {
		s.Places[0].Plan = func(ctx context.Context, principal string) (privileges.Plan, error) {
			found, access := vcenter.InspectAccess(ctx, w.target, vcenter.Ask{Nodes: []preflight.Node{{Name: "node-0", UUID: w.uuid}}, Features: features}, principal)
			return privileges.NewPlan(features, access.Principal, w.objects, false, access.Existing), errors.Join(found.Err, found.Failed[preflight.Privileges])
		}
		return do(s)
	}
}

func (w *world) secret(l accounts.Login) {
	w.t.Helper()
	require.NoError(w.t, w.api.Create(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "vc"}, Type: corev1.SecretTypeBasicAuth,
		Data: map[string][]byte{"username": []byte(l.Username), "password": []byte(l.Password)}}))
}

// everything is all permissions of the vCenter, and its roles.
func (w *world) everything() map[string]string {
	w.t.Helper()
	out := w.vcenterState()
	a, err := vcenter.Open(w.t.Context(), w.target)
	require.NoError(w.t, err)
	defer a.Close()
	for _, n := range []string{corp, vcsim.Administrator.Username} {
		list, err := a.Permissions(w.t.Context(), n)
		require.NoError(w.t, err)
		for id, p := range list {
			out["permission "+n+" "+id] = p.Role
		}
	}
	return out
}

func (w *world) untouched(before map[string]string) {
	w.t.Helper()
	require.Equal(w.t, before, w.everything())
	require.True(w.t, apierrors.IsNotFound(w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: "vdo-account-vc"}, &corev1.ConfigMap{})), "nothing is noted of what is refused")
}

// The drivers' roles take the place of what an account has, so an account that has more is
// refused, whoever it is and wherever it has that from; nothing is changed.
func TestAnAccountThatHasMoreIsNotCutDown(t *testing.T) {
	w := newWorld(t)
	w.v.SetPassword(corp, string(corpLogin.Password))
	grant := func(role string, ids ...string) {
		require.NoError(t, w.v.Grant(t.Context(), corp, role, "/", true, ids...))
	}
	admin := accounts.Login{Username: vcsim.Administrator.Username, Password: vcenter.Password(vcsim.Administrator.Password)}
	for _, c := range []struct {
		name    string
		arrange func()
		login   accounts.Login
		why     string
	}{
		{"who is logged in", func() {}, admin, "it is the account that you are logged in with"},
		{"who is logged in, by the other name", func() {}, accounts.Login{Username: `VSPHERE.LOCAL\Administrator`, Password: admin.Password}, "it is the account that you are logged in with"},
		{"an administrator by a group", func() {}, corpLogin, "on /, and on "},
		{"one with a role of its own", func() {
			grant("site", "Cns.Searchable", "Datastore.FileManagement", "VirtualMachine.Interact.PowerOff")
		}, corpLogin, "Datastore.FileManagement, VirtualMachine.Interact.PowerOff of its role site on /"},
		{"an administrator", func() { grant("Admin") }, corpLogin, "of its role Admin on /"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.arrange()
			before := w.everything()
			err := w.run(&fuse{left: forever}, w.asked(func(s *accounts.Site) error { return s.Create(t.Context(), c.login) }))
			require.Equal(t, fault.Refused, fault.ReasonOf(err), err)
			require.ErrorContains(t, err, c.why)
			require.Equal(t, "name an account for the drivers alone: --principal NAME@DOMAIN", fault.HintOf(err))
			w.untouched(before)
		})
	}

	// What sees everything and may do nothing has no more than it gets.
	grant("seeing")
	require.NoError(t, w.run(&fuse{left: forever}, w.asked(func(s *accounts.Site) error { return s.Create(t.Context(), corpLogin) })))
	require.Contains(t, w.changes, accounts.Change{VCenter: "west", Do: accounts.Set, Kind: "permission", Name: "vdo-csi-search", Account: corp, On: "/", Note: "instead of seeing, propagating"})
	for _, x := range w.changes {
		require.Equal(t, corp, x.Account, "%v", x)
	}
	require.NoError(t, w.run(&fuse{left: forever}, w.asked(func(s *accounts.Site) error { return s.Create(t.Context(), corpLogin) })))
	require.Empty(t, w.changes)
}

// Drivers that run as the administrator get an account of their own; the administrator's
// keeps all that it has, and its own session holds nothing up.
func TestTheAdministratorsAccountIsRotatedAwayFrom(t *testing.T) {
	w := newWorld(t)
	w.secret(accounts.Login{Username: vcsim.Administrator.Username, Password: vcenter.Password(vcsim.Administrator.Password)})
	before := w.everything()
	err := w.run(&fuse{left: forever}, w.asked(create))
	require.Equal(t, fault.Refused, fault.ReasonOf(err), err)
	require.Equal(t, "give the drivers an account of their own: vdoctl users rotate --username ADMIN --principal NAME@DOMAIN", fault.HintOf(err))
	w.untouched(before)

	require.NoError(t, w.run(&fuse{left: forever}, rotate))
	w.complete(firstName)
	after := w.everything()
	for what, of := range before {
		require.Equal(t, of, after[what], what)
	}

	// Who logs in with an account does not take it from itself.
	l := w.login()
	require.NoError(t, w.v.Grant(t.Context(), l.Username, "Admin", "/", true))
	own := w.target
	own.Username, own.Password = l.Username, l.Password
	before = w.everything()
	for name, do := range map[string]func(*accounts.Site) error{"delete": remove, "rotate": rotate, "create": create} {
		w.target, own = own, w.target
		err := w.run(&fuse{left: forever}, do)
		w.target, own = own, w.target
		require.Error(t, err, name)
		require.Equal(t, before, w.everything(), name)
		if name != "create" { // which asks the directory first, where it is no administrator
			require.ErrorContains(t, err, "it is the account that you are logged in with", name)
			require.Contains(t, fault.HintOf(err), "--username NAME@DOMAIN", name)
		}
	}
}

// Whoever may write the Secret, and nothing in the vCenter, gets no roles there for an
// account of their own: who logs in has to name it.
func TestAnAccountThatNobodyNamedGetsNothing(t *testing.T) {
	const mallory = "mallory@corp.example"
	all := func(root string) []privileges.Object {
		return []privileges.Object{{Kind: privileges.Root, Path: "/", ID: root}}
	}
	for name, objects := range map[string][]client.Object{
		"by the Secret":                {secretWith(mallory, "p")},
		"by the record and the Secret": {secretWith(mallory, "p"), record(`{"account":"` + mallory + `"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			v := newShared()
			s, _ := shareSite(t, v, objects...)
			s.Places[0].Plan = func(_ context.Context, p string) (privileges.Plan, error) {
				return privileges.NewPlan(features, p, all("Folder-group-d1"), false, privileges.Existing{Roles: v.roles}), nil
			}
			err := s.Create(t.Context(), accounts.Login{})
			require.Equal(t, fault.Refused, fault.ReasonOf(err), err)
			require.Equal(t, "if it is the drivers' account, name it: --principal "+mallory, fault.HintOf(err))
			require.Empty(t, v.changes)
			require.NoError(t, s.Create(t.Context(), accounts.Login{Username: mallory}))
			require.Equal(t, []string{"set vdo-csi-search on Folder-group-d1 for " + mallory + ", propagating: false"}, v.changes)
		})
	}

	// A rotation to it that the record says was begun: neither with the administrator's
	// password for the next account, nor made here.
	v := newShared()
	s, _ := shareSite(t, v, secretWith(firstName, "p"), record(`{"account":"`+firstName+`","made":true,"next":"`+mallory+`"}`))
	s.Places[0].Plan = func(_ context.Context, p string) (privileges.Plan, error) {
		return privileges.NewPlan(features, p, all("Folder-group-d1"), false, privileges.Existing{Roles: v.roles}), nil
	}
	err := s.Rotate(t.Context(), accounts.Login{Password: "p"})
	require.Equal(t, fault.Refused, fault.ReasonOf(err), err)
	require.Empty(t, v.changes)
}

// Names that others write go to a terminal, and are names therefore.
func TestANameThatIsNoneIsRefused(t *testing.T) {
	const evil = "a\x1b]0;x\x07@corp.example"
	for name, objects := range map[string][]client.Object{
		"of the Secret":      {secretWith(evil, "p")},
		"of the record":      {record(`{"account":"a\u001b]0;x\u0007@corp.example"}`)},
		"of what comes next": {secretWith(firstName, "p"), record(`{"account":"` + firstName + `","next":"a\u001b]0;x@corp.example"}`)},
		"of a vCenter":       {record(`{"account":"` + corp + `","places":{"\u001b]0;x":{}}}`)},
	} {
		for _, do := range []func(*accounts.Site) error{create, rotate, remove} {
			s, done := shareSite(t, newShared(), objects...)
			err := do(s)
			if err != nil {
				require.NotContains(t, err.Error()+fault.HintOf(err), "\x1b", name)
			}
			for _, x := range *done {
				require.NotContains(t, x.Name+x.Account+x.Note, "\x1b", name)
			}
		}
	}
	for name, want := range map[string]accounts.Login{"no domain": {Username: "vdo"}, "blanks": {Username: "v d o@x"}} {
		s, _ := shareSite(t, newShared(), secretWith(firstName, "p"), record(`{"account":"`+firstName+`","made":true}`))
		err := s.Rotate(t.Context(), want)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), name)
		require.Equal(t, "write NAME@DOMAIN", fault.HintOf(err), name)
	}
	for name, do := range map[string]func(*accounts.Site, accounts.Login) error{
		"create": func(s *accounts.Site, l accounts.Login) error { return s.Create(t.Context(), l) },
		"rotate": func(s *accounts.Site, l accounts.Login) error { return s.Rotate(t.Context(), l) },
	} {
		objects := []client.Object{}
		if name == "rotate" {
			objects = append(objects, secretWith(firstName, "p"))
		}
		s, _ := shareSite(t, newShared(), objects...)
		err := do(s, accounts.Login{Password: "x"})
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), name)
		require.Contains(t, fault.HintOf(err), "--principal NAME@DOMAIN", name)
	}
}
