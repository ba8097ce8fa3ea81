package accounts_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// A program that is killed after any change converges when it is run again: with the same command, or
// with another one. What was to be made is made once, what was made is taken away, and nothing else
// is touched: neither an account that is made elsewhere.
func TestKilledAfterAnyChangeItConverges(t *testing.T) {
	for name, c := range map[string]struct {
		account string
		login   accounts.Login
	}{"made here": {firstName, none}, "of elsewhere": {corp, corpLogin}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newVC("west", nil))
			before, making, taking := w.state(), whole(), whole()
			require.NoError(t, w.create(making, c.login))
			w.complete(c.account)
			after := w.state()
			require.NoError(t, w.create(whole(), c.login))
			require.Empty(t, w.changes, "nothing is left to do")
			require.NoError(t, w.remove(taking))
			isNamed := func(c accounts.Change) bool { return c.Kind == "permission" && c.On == "/dc/vm/k8s/a" }
			require.True(t, slices.ContainsFunc(w.changes, isNamed), "by their paths: %v", w.changes)
			w.gone(before, 0)
			for n := range making.changes {
				require.ErrorIs(t, w.create(&fuse{left: n}, c.login), errKilled, n)
				w.gone(before, n)
				require.ErrorIs(t, w.create(&fuse{left: n}, c.login), errKilled, n)
				require.NoError(t, w.create(whole(), c.login), n)
				require.Equal(t, after, w.state(), n)
				w.complete(c.account)
				require.True(t, w.works(w.login()))
				w.gone(before, n)
			}
			for n := range taking.changes {
				require.NoError(t, w.create(whole(), c.login), n)
				require.ErrorIs(t, w.remove(&fuse{left: n}), errKilled, n)
				require.NoError(t, w.create(whole(), c.login), n)
				w.complete(c.account)
				require.ErrorIs(t, w.remove(&fuse{left: n}), errKilled, n)
				w.gone(before, n)
			}
		})
	}
}

// During a rotation what the drivers are configured with is valid at every moment, wherever
// the program is killed; the account before goes when nothing runs with it.
func TestARotationLeavesTheDriversALoginThatWorks(t *testing.T) {
	w := newWorld(t, newVC("west", nil), controllerWith("nobody", "")...)
	before := w.state()
	require.NoError(t, w.create(whole(), none))
	require.Regexp(t, `^9-[A-Z2-7]{9}[a-z2-7]{9}$`, string(w.login().Password), "all kinds of characters")
	w.operator(4)
	valid := func() {
		require.True(t, w.works(w.tried[len(w.tried)-1]))
	}
	for steps, why := range []string{
		"the operator has not logged in with it to west", "the configuration of vmware-system-csi/vsphere-csi-controller has another account",
		"were started with the configuration before", "of 1 pods of",
	} {
		w.operator(steps)
		valid()
		must.Fail(t, w.rotate(whole(), none), fault.Incomplete, why)
		require.True(t, w.works(w.tried[0]), "the account before is valid until no pod has it")
	}
	w.operator(4)
	require.NoError(t, w.rotate(whole(), none))
	w.complete(nextName)
	valid()
	require.NotEqual(t, w.tried[0].Password, w.login().Password)
	require.False(t, w.works(w.tried[0]))
	require.ErrorContains(t, w.remove(whole()), "vsphere-csi-controller uses it")

	turning, current := whole(), nextName
	turn := func(f *fuse) {
		err := w.rotate(f, none)
		require.Error(t, err) // killed, or it waits for the operator
		valid()
		current = map[string]string{firstName: nextName, nextName: firstName}[current]
		for range 3 {
			w.operator(4)
			valid()
			if err = w.rotate(whole(), none); err == nil {
				break
			}
			require.Equal(t, fault.Incomplete, fault.ReasonOf(err), err)
		}
		require.NoError(t, err)
		w.complete(current)
		valid()
	}
	turn(turning)
	for n := range turning.changes {
		turn(&fuse{left: n})
	}

	// Of a rotation that was killed nothing is left either.
	w = newWorld(t, newVC("west", nil))
	for n := range turning.changes {
		require.NoError(t, w.create(whole(), none), n)
		_ = w.rotate(&fuse{left: n}, none)
		if err := w.create(whole(), none); err != nil {
			require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%d: %v", n, err)
			require.Contains(t, fault.HintOf(err), "vdoctl users rotate", n)
		}
		w.gone(before, n)
	}
}

// The Secret is in kube-system, where the earlier operator had it (credentials.Fallback); the VsphereCloudConfig is in
// the operator's namespace. vdoctl sets Site.Namespace to kube-system then (vdoctl/accounts.go, recorded).
func TestRotationOfASecretInKubeSystemEnds(t *testing.T) {
	old := secretWith(corp, string(corpLogin.Password))
	old.Namespace = "kube-system"
	w := newWorld(t, newVC("west", nil), append(controllerWith(corp, string(corpLogin.Password)), old)...)
	w.secrets = "kube-system"
	require.Error(t, w.rotate(whole(), none), "the operator has not run yet")
	w.operator(4)
	require.NoError(t, w.rotate(whole(), none), "all is done: it has to end")
	w.complete(firstName)
}

// Of a Secret that something else writes the next one is printed: vdoctl writes nothing to it, and goes on once
// the cluster has it.
func TestASecretThatSomethingElseWritesIsPrinted(t *testing.T) {
	w := newWorld(t, newVC("west", nil), controllerWith("nobody", "")...)
	w.vcs[0].days = 90
	before := w.state()
	var printed *corev1.Secret
	output := func(do func(*accounts.Site, context.Context, accounts.Login) error) {
		s := w.site(whole())
		s.Output = func(x *corev1.Secret) error { printed = x.DeepCopy(); return nil }
		printed, s.DryRun = nil, true
		require.NoError(t, do(s, t.Context(), none))
		require.Nil(t, printed)
		s.DryRun = false
		require.NoError(t, do(s, t.Context(), none))
	}
	arrives := func() {
		s := &corev1.Secret{ObjectMeta: in("ns", "vc")}
		if !w.get("vc", s) {
			s.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "site"}
			require.NoError(t, w.api.Create(t.Context(), s))
		}
		s.Data = printed.Data
		require.NoError(t, w.api.Update(t.Context(), s))
		require.True(t, w.works(w.login()))
	}
	output((*accounts.Site).Create)
	require.Empty(t, w.login())
	day := strings.TrimPrefix(printed.Annotations[credentials.EndsAnnotation], firstName+" ")
	ends := must.Have(time.Parse(time.DateOnly, day))(t)
	require.WithinDuration(t, time.Now().AddDate(0, 0, 90), ends, 25*time.Hour)
	require.Equal(t, fault.Conflict, fault.ReasonOf(w.create(whole(), none)))
	require.ErrorContains(t, w.create(whole(), none), "the cluster does not have it yet")
	output((*accounts.Site).Create) // what was printed is lost
	arrives()
	require.NoError(t, w.create(whole(), none))
	w.operator(4)

	require.ErrorContains(t, w.rotate(whole(), none), "Flux writes it, and would undo the change")
	w.vcs[0].passwords[firstName] = "new"
	was := w.login()
	err := w.create(whole(), accounts.Login{Username: firstName, Password: "new"})
	require.ErrorContains(t, err, "Flux writes it, and would undo the change")
	require.Equal(t, was, w.login())
	w.vcs[0].passwords[firstName] = was.Password
	output((*accounts.Site).Rotate)
	require.Equal(t, firstName, w.login().Username)
	require.True(t, w.works(w.login()), "the drivers run with the account before")
	require.Equal(t, fault.Conflict, fault.ReasonOf(w.rotate(whole(), none)))
	arrives()
	require.Equal(t, nextName, w.login().Username)
	w.operator(4)
	require.NoError(t, w.rotate(whole(), none))
	w.complete(nextName)
	for _, o := range controllerWith("nobody", "") {
		require.NoError(t, w.api.Delete(t.Context(), o))
	}
	w.gone(before, 0)
}

func TestAnImmutableSecretIsRefused(t *testing.T) {
	w, s := newWorld(t, newVC("west", nil)), &corev1.Secret{}
	require.NoError(t, w.create(whole(), none))
	require.True(t, w.get("vc", s))
	s.Immutable = ptr.To(true)
	require.NoError(t, w.api.Update(t.Context(), s))
	before := w.state()
	require.ErrorContains(t, w.rotate(whole(), none), "it is immutable")
	require.Equal(t, before, w.state())
}

// What was printed and has been put into the cluster by hand is vdoctl's from then on.
func TestASecretThatWasPrintedOnceIsRotated(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newWorld(t, newVC("west", nil))
		s := w.site(whole())
		s.Output = func(x *corev1.Secret) error {
			x.UID = "u" // as the API server gives it
			return w.api.Create(t.Context(), x)
		}
		require.NoError(t, s.Create(t.Context(), none))
		if again {
			require.NoError(t, w.create(whole(), none))
			require.NotContains(t, w.recorded(), "printed")
		}
		require.NoError(t, w.rotate(whole(), none))
		w.complete(nextName)
	}
}

// A role that was set on each VM goes when its folder has it, and no VM is without it.
func TestPermissionsOfVMsMoveToTheirFolder(t *testing.T) {
	for on, c := range map[string]struct {
		folders, stays bool
	}{
		"/dc/vm/k8s":   {folders: true},
		"/dc/vm/k":     {folders: true, stays: true},
		"/dc/vm/k8s/b": {stays: true}, // a node is missing
	} {
		v := newVC("west", nil)
		w := newWorld(t, v)
		before := w.state()
		require.NoError(t, w.create(whole(), none))
		v.gone, v.folders = []privileges.Object{v.objects[2]}, c.folders
		v.objects[2] = privileges.Object{Kind: privileges.VM, Path: on, ID: "Folder-or-VM"}
		require.NoError(t, w.create(whole(), none))
		has, _ := v.Permissions(t.Context(), firstName)
		require.Equal(t, c.stays, has["VirtualMachine-a"].Role != "", on)
		require.Equal(t, "vdo-csi-vm", has["Folder-or-VM"].Role)
		w.gone(before, 0)
	}
}

// vCenters answer with a domain's alias, and people write what they like. The plan converges, rotate
// sees who uses the account, delete takes its permissions, and no one's own account is cut down.
func TestAnAccountHasSeveralNames(t *testing.T) {
	const alias = `CORP\k8s`
	v := newVC("west", nil)
	v.passwords[alias] = corpLogin.Password
	w := newWorld(t, v)
	before := w.state()
	require.NoError(t, w.create(whole(), corpLogin))
	for _, name := range []string{corp, alias, `corp.example\K8S`} {
		v.passwords[name] = corpLogin.Password
		require.NoError(t, w.create(whole(), accounts.Login{Username: name, Password: corpLogin.Password}), name)
		require.NotContains(t, v.changes, "set vdo-csi-search on "+root, name)
	}
	for _, configured := range []string{corp, alias} {
		for _, o := range controllerWith(configured, "x") {
			require.NoError(t, w.api.Create(t.Context(), o))
		}
		require.ErrorContains(t, w.remove(whole()), "vsphere-csi-controller uses it", configured)
		for _, o := range controllerWith(configured, "x") {
			require.NoError(t, w.api.Delete(t.Context(), o))
		}
	}
	w.user = alias
	require.ErrorContains(t, w.remove(whole()), "it is the account that you are logged in with")
	require.ErrorContains(t, w.create(whole(), corpLogin), "it is the account that you are logged in with")
	w.user = adminName
	require.ErrorContains(t, w.rotate(whole(), accounts.Login{Username: alias, Password: "x"}), "is its account already")
	require.NoError(t, w.remove(whole()))
	require.Equal(t, before, w.state())
}

// Linked vCenters replicate accounts with a delay: to make one at each would be a conflict. They
// register at one lookup service by their UUIDs: govmomi v0.56.0, lookup/simulator/registration_info.go.
func TestALinkedVCenterIsWaitedFor(t *testing.T) {
	west := newVC("west", nil)
	east := newVC("east", west.directory)
	w := newWorld(t, west)
	w.vcs = []*vc{west, east}
	before := w.state()
	east.looks, east.unseen = 3, 6 // at its first looks, and while it is waited for
	s := w.site(whole())
	s.Wait, s.DryRun = time.Minute, true
	require.NoError(t, s.Create(t.Context(), none))
	s.DryRun = false
	require.NoError(t, s.Create(t.Context(), none))
	w.complete(firstName)
	require.NotContains(t, east.changes, "make account "+firstName)
	require.NotContains(t, strings.Join(east.changes, "\n"), "make role")
	east.give(firstName, "Datastore-new", "site", true) // which leaves before the account that both share
	require.NoError(t, w.remove(whole()))
	require.Contains(t, w.left("vdo-csi-vm"), "linked vCenters share it")
	maps.DeleteFunc(west.roles, func(name string, _ []string) bool { return privileges.IsDriverRole(name) })
	w.gone(before, 0)

	east.looks = 1000
	must.Fail(t, w.create(whole(), none), fault.Incomplete, "is not visible at vc.example yet")
	west.at[firstName], west.looks, east.looks = east, 2, 0 // a run after it, which sees it at the second alone
	s = w.site(whole())
	s.Wait = time.Minute
	require.NoError(t, s.Create(t.Context(), none))
	w.complete(firstName)

	west.at[firstName] = west
	for _, c := range []struct { // a password that is reset, too
		late, looks int
		reason      fault.Reason
	}{{1, 0, ""}, {1, 1, ""}, {2, 0, fault.Incomplete}} {
		w.api, east.late, east.looks = newWorld(t, west).api, c.late, c.looks
		err := w.create(whole(), none)
		require.Equal(t, c.reason, fault.ReasonOf(err), "%v: %v", c, err)
		require.Contains(t, west.changes, "set password of "+firstName)
		require.NotContains(t, east.changes, "set password of "+firstName)
		require.Zero(t, east.late)
	}

	w.vcs = []*vc{newVC("west", nil), newVC("east", nil)} // two that are not linked
	w.api = newWorld(t, west).api
	require.NoError(t, w.create(whole(), none))
	require.Contains(t, w.vcs[1].changes, "make account "+firstName)
}

// Roles are shared by all clusters of a vCenter: none loses what another one needs.
func TestARoleThatOthersHaveLosesNothing(t *testing.T) {
	v := newVC("west", nil)
	v.roles["vdo-csi-vm"] = []string{encrypts, addDisk, attach} // another cluster has encryption
	w := newWorld(t, v)
	require.NoError(t, w.create(whole(), none))
	require.Contains(t, w.left("vdo-csi-vm"), encrypts)
	require.Equal(t, []string{encrypts, addDisk, attach}, v.roles["vdo-csi-vm"])

	// What is lacking is added to what there is, and stays.
	v = newVC("west", nil)
	v.roles["vdo-csi-vm"] = []string{encrypts, addDisk}
	w = newWorld(t, v)
	require.NoError(t, w.create(whole(), none))
	all := []string{encrypts, addDisk, attach}
	require.Equal(t, all, v.roles["vdo-csi-vm"])
	v.used["vdo-csi-search"] = true
	require.NoError(t, w.remove(whole()))
	require.Equal(t, all, v.roles["vdo-csi-vm"])
	require.Contains(t, w.left("vdo-csi-vm"), "it was there before")
	require.Equal(t, "permissions of others have it", w.left("vdo-csi-search"))
	require.False(t, slices.ContainsFunc(w.changes, func(c accounts.Change) bool {
		return c.Do == accounts.Remove && c.Kind == "role" && c.Name == "vdo-csi-search"
	}), "it stays")
	require.NotContains(t, v.roles, "vdo-csi-datastore", "it was made here, and nobody else has it")
}

// Whoever may write ConfigMaps of the namespace, and nothing in the vCenter, gets nothing
// there by the hand of the administrator who takes the account away.
func TestARecordThatIsForgedGrantsNothing(t *testing.T) {
	const mallory = "mallory@corp.example"
	const before, gone = `{"role":"Admin","propagate":true}`, "remove the permission of mallory@corp.example on " + root
	for name, c := range map[string]struct {
		roles, before, now string
		want               []string
		named              string
	}{
		"what it had":           {"{}", before, "ReadOnly", []string{gone}, "had Admin, propagating there before"},
		"what it has is Admin":  {`{"Admin":null}`, "null", "Admin", nil, "another person has set it"},
		"more for a role":       {`{"vdo-csi-vm":{"privileges":["Authorization.ModifyPermissions"]}}`, "null", "ReadOnly", []string{gone}, ""},
		"another role was made": {`{"site":null}`, "null", "ReadOnly", []string{gone}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVC("west", nil)
			v.roles["vdo-csi-vm"] = []string{addDisk, attach}
			v.give(mallory, root, c.now, false)
			w := newWorld(t, v, record(`{"account":"`+mallory+`","places":{"west":{"roles":`+c.roles+`,"permissions":{"`+mallory+`":{"`+root+`":`+c.before+`}}}}}`))
			require.NoError(t, w.remove(whole()))
			require.Equal(t, c.want, v.changes)
			isNamed := func(x accounts.Change) bool { return x.Kind == "permission" && strings.Contains(x.Note, c.named) }
			require.True(t, slices.ContainsFunc(w.changes, isNamed), "%v", w.changes)
		})
	}
}

func TestAnAccountOfAnotherClusterStays(t *testing.T) {
	v := newVC("west", nil)
	v.accounts[firstName] = "vSphere drivers of Kubernetes cluster other"
	w := newWorld(t, v, record(`{"account":"`+firstName+`","made":true}`))
	require.NoError(t, w.remove(whole()))
	require.Empty(t, v.changes)
	require.True(t, slices.ContainsFunc(w.changes, func(c accounts.Change) bool {
		return strings.Contains(c.Note, "it was not made for this Secret")
	}), "%v", w.changes)
}

// The drivers' roles take the place of what an account has. Refused are an account that has more, whoever
// it is and wherever it has that from; one that no one named in this run; and who is logged in.
func TestAnAccountIsSpared(t *testing.T) {
	admin := accounts.Login{Username: adminName, Password: "admin"}
	const own = "name an account for the drivers alone: --principal NAME@DOMAIN"
	const mallory = "mallory@corp.example"
	const another = "give the drivers an account of their own: vdoctl users rotate --username ADMIN --principal NAME@DOMAIN"
	for name, c := range map[string]struct {
		arrange   func(*vc)
		objects   []client.Object
		login     accounts.Login
		rotates   bool
		why, hint string
	}{
		"who is logged in":           {login: admin, why: "it is the account that you are logged in with", hint: own},
		"who is, by the other name":  {login: accounts.Login{Username: `VSPHERE.LOCAL\Administrator`, Password: "admin"}, why: "it is the account that you are logged in with", hint: own},
		"who is, in the Secret":      {objects: []client.Object{secretWith(adminName, "admin")}, why: "it is the account that you are logged in with", hint: another},
		"an administrator by group":  {arrange: func(v *vc) { v.byGroup = []string{"Authorization.ModifyPermissions"} }, login: corpLogin, why: "Authorization.ModifyPermissions on /", hint: own},
		"a role of its own":          {arrange: func(v *vc) { v.give(corp, root, "site", true) }, login: corpLogin, why: "VirtualMachine.Interact.PowerOff of its role site on /", hint: own},
		"an administrator":           {arrange: func(v *vc) { v.give(corp, root, "Admin", true) }, login: corpLogin, why: "of its role Admin on /", hint: own},
		"named by the Secret alone":  {objects: []client.Object{secretWith(mallory, "p")}, why: "it was not made here", hint: "if it is the drivers' account, name it: --principal " + mallory},
		"and by the record":          {objects: []client.Object{secretWith(mallory, "p"), record(`{"account":"` + mallory + `"}`)}, why: "it was not made here", hint: "name it: --principal " + mallory},
		"a rotation that was forged": {objects: []client.Object{secretWith(firstName, "p"), record(`{"account":"` + firstName + `","made":true,"next":"` + mallory + `"}`)}, login: accounts.Login{Password: "p"}, rotates: true, why: "it was not made here"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVC("west", nil)
			v.passwords[mallory], v.passwords[`VSPHERE.LOCAL\Administrator`] = "p", "admin"
			if c.arrange != nil {
				c.arrange(v)
			}
			w := newWorld(t, v, c.objects...)
			before, noted := w.state(), w.recorded()
			do := w.create
			if c.rotates {
				do = w.rotate
			}
			must.Fail(t, do(whole(), c.login), fault.Refused, c.why, c.hint)
			require.Equal(t, before, w.state())
			require.Equal(t, noted, w.recorded(), "nothing is noted of what is refused")
		})
	}

	// What sees everything and may do nothing has no more than it gets; who is named gets it.
	v := newVC("west", nil)
	v.give(corp, root, "seeing", true)
	w := newWorld(t, v, secretWith(corp, string(corpLogin.Password)))
	require.NoError(t, w.create(whole(), accounts.Login{Username: corp}))
	require.Contains(t, w.changes, accounts.Change{VCenter: "west", Do: accounts.Set, Kind: "permission", Name: "vdo-csi-search", Account: corp, On: "/", Note: "instead of seeing, propagating"})
}

// Drivers that run as the administrator get an account of their own; the administrator's
// keeps all that it has. Who logs in with an account does not take it from itself.
func TestTheAdministratorsAccountIsRotatedAwayFrom(t *testing.T) {
	v := newVC("west", nil)
	w := newWorld(t, v, secretWith(adminName, "admin"))
	before := w.state()
	require.NoError(t, w.rotate(whole(), none))
	w.complete(firstName)
	require.Subset(t, w.state(), before)

	w.user = firstName
	before = w.state()
	for name, do := range map[string]func() error{
		"delete": func() error { return w.remove(whole()) },
		"rotate": func() error { return w.rotate(whole(), none) },
		"create": func() error { return w.create(whole(), none) },
	} {
		require.ErrorContains(t, do(), "it is the account that you are logged in with", name)
		require.Equal(t, before, w.state(), name)
	}
}

// The record is lost with the operator's namespace. The description still says what was made here.
func TestAnAccountOfALostRecordIsRemoved(t *testing.T) {
	for name, first := range map[string]func(*world) error{
		"rotate": func(*world) error { return nil },
		"create": func(w *world) error { return w.create(whole(), none) },
	} {
		w := newWorld(t, newVC("west", nil))
		require.NoError(t, w.create(whole(), none))
		require.NoError(t, w.api.Delete(t.Context(), record("")))
		require.NoError(t, first(w), name)
		require.NoError(t, w.rotate(whole(), none), name)
		w.complete(nextName)
		require.NotContains(t, w.vcs[0].accounts, firstName, name)
	}
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
		w := newWorld(t, newVC("west", nil), objects...)
		for _, do := range []func() error{func() error { return w.create(whole(), none) }, func() error { return w.rotate(whole(), none) }, func() error { return w.remove(whole()) }} {
			if err := do(); err != nil {
				require.NotContains(t, err.Error()+fault.HintOf(err), "\x1b", name)
			}
			for _, x := range w.changes {
				require.NotContains(t, x.Name+x.Account+x.Note, "\x1b", name)
			}
		}
	}
	for name, c := range map[string]struct {
		login accounts.Login
		hint  string
	}{
		"no domain": {accounts.Login{Username: "vdo"}, "write NAME@DOMAIN"}, "blanks": {accounts.Login{Username: "v d o@x"}, "write NAME@DOMAIN"},
		"no name": {accounts.Login{Password: "x"}, "--principal NAME@DOMAIN"},
	} {
		err := newWorld(t, newVC("west", nil), secretWith(firstName, "p"), record(`{"account":"`+firstName+`","made":true}`)).rotate(whole(), c.login)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), name)
		require.Contains(t, fault.HintOf(err), c.hint, name)
		err = newWorld(t, newVC("west", nil)).create(whole(), c.login)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), name)
	}
}

// The Secret is gone, and drivers run with their copy of it: their password stays.
func TestAPasswordThatIsInUseIsNotReset(t *testing.T) {
	v := newVC("west", nil)
	v.accounts[firstName], v.passwords[firstName] = made, "old"
	w := newWorld(t, v, controllerWith(firstName, "old")...)
	err := w.create(whole(), none)
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	require.ErrorContains(t, err, "vmware-system-csi/vsphere-csi-controller runs with it")
	require.Contains(t, fault.HintOf(err), "put that account and its password back into the Secret")
	require.Empty(t, v.changes)

	for recorded, then := range map[string]string{
		`{"account":"vdo-b@x"}`:                "users create --username ADMIN --secret",
		`{"account":"vdo-b@x","next":"vdo@x"}`: "users delete ",
	} {
		require.NoError(t, w.api.Create(t.Context(), record(recorded)))
		for _, err := range []error{w.rotate(whole(), none), w.create(whole(), corpLogin)} {
			require.Equal(t, fault.NotFound, fault.ReasonOf(err), err)
			require.ErrorContains(t, err, "vdo-b@x")
			require.Contains(t, fault.HintOf(err), "put that account and its password back into the Secret")
			require.Contains(t, fault.HintOf(err), then)
		}
		require.NoError(t, w.api.Delete(t.Context(), record(recorded)))
	}

	w = newWorld(t, v) // no driver has it, and yet someone is logged in
	v.sessions = []vcenter.Session{{Agent: "backup", Address: "10.0.0.9", Idle: time.Hour}}
	require.ErrorContains(t, w.create(whole(), none), `by "backup" from "10.0.0.9"`)
	require.Empty(t, v.changes)
	v.sessions = nil
	require.NoError(t, w.create(whole(), none))
	require.Contains(t, v.changes, "set password of "+firstName)
	w.complete(firstName)
}

// Of two runs at once one sets its password. One that is refused is set by none: another account comes after it.
func TestTwoRunsAtOnceEndWithAPasswordThatWorks(t *testing.T) {
	v := newVC("west", nil)
	v.accounts[firstName], v.accounts[nextName] = made, made
	rec := record(`{"account":"` + firstName + `","made":true,"next":"` + nextName + `","nextMade":true,"places":{}}`)
	w := newWorld(t, v, append(controllerWith(firstName, "p"), secretWith(firstName, "p"), rec)...)
	var other error
	v.looking = func() { other = w.rotate(whole(), none) }
	err := w.rotate(whole(), none)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(other), "it waits for the operator: %v", other)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "the record was changed: %v", err)
	require.Contains(t, fault.HintOf(err), "run the same command again")
	w.complete(nextName)

	v = newVC("west", nil)
	v.accounts[firstName], v.passwords[firstName] = made, "of somebody"
	rec = record(`{"account":"` + firstName + `","made":true,"places":{}}`)
	w = newWorld(t, v, secretWith(firstName, "refused"), rec)
	err = w.create(whole(), none)
	require.ErrorIs(t, err, errKilled, "the refusal")
	require.Contains(t, fault.HintOf(err), "vdoctl users rotate --username ADMIN --secret vc")
	require.Equal(t, vcenter.Password("of somebody"), v.passwords[firstName])
	require.NoError(t, w.rotate(whole(), none))
	w.complete(nextName)

	// A rotation whose next account is refused goes on once the one before is in the Secret again.
	v.accounts[firstName], v.passwords[firstName], v.passwords[nextName] = made, "p", "of a third run"
	rec = record(`{"account":"` + firstName + `","made":true,"next":"` + nextName + `","nextMade":true,"places":{}}`)
	w = newWorld(t, v, append(controllerWith(firstName, "p"), secretWith(nextName, "refused"), rec)...)
	require.ErrorContains(t, w.rotate(whole(), none), "the operator has not logged in with it to west")
	s := secretWith(firstName, "p")
	require.NoError(t, w.api.Update(t.Context(), s))
	require.ErrorContains(t, w.rotate(whole(), none), "the operator has not logged in with it to west")
	w.complete(nextName)
}

// A driver that has another Secret's account is not waited for; one that has it is, also where it was
// installed meanwhile, and by any name.
func TestARotationWaitsForTheDriversOfItsAccountAlone(t *testing.T) {
	for account, why := range map[string]string{"storage@vsphere.local": "", firstName: "has another account", `VSPHERE.LOCAL\vdo-3f2a9c1b`: "has another account"} {
		v := newVC("west", nil)
		v.accounts[firstName], v.accounts[nextName], v.passwords[nextName] = made, made, "p"
		w := newWorld(t, v, append(controllerWith(account, "x"), secretWith(nextName, "p"),
			record(`{"account":"`+firstName+`","made":true,"next":"`+nextName+`","nextMade":true,"places":{}}`))...)
		require.ErrorContains(t, w.rotate(whole(), none), "the operator has not logged in")
		w.operator(1)
		err := w.rotate(whole(), none)
		_, exists := v.accounts[firstName]
		require.Equal(t, why != "", exists, account)
		if why != "" {
			require.ErrorContains(t, err, why)
			continue
		}
		require.NoError(t, err)
	}
}

// A vCenter in which nothing was made, such as one under a second name, is none of the record's.
func TestAPlaceWhereNothingIsMadeIsNotRecorded(t *testing.T) {
	west := newVC("west", nil)
	w := newWorld(t, west)
	require.NoError(t, w.create(whole(), none))
	before, second := w.recorded(), *west
	second.name = "typo"
	w.vcs = append(w.vcs, &second)
	require.NoError(t, w.create(whole(), none))
	require.Equal(t, before, w.recorded())
}

// The record follows a vCenter whose VsphereCloudConfig gets another name, be it the former one of another vCenter.
func TestTheRecordFollowsARenamedVCenter(t *testing.T) {
	west, east := newVC("west", nil), newVC("east", nil)
	w := newWorld(t, west)
	w.vcs = []*vc{west, east}
	before := w.state()
	require.NoError(t, w.create(whole(), none))
	for _, names := range [][2]string{{"east", "west"}, {"north", "east"}} {
		west.name, east.name = names[0], names[1]
		require.NoError(t, w.create(whole(), none))
		require.Empty(t, w.changes)
	}
	west.give(firstName, "Datastore-new", "site", true) // the record is older
	require.NoError(t, w.remove(whole()))
	west.name, east.name = "west", "east"
	w.gone(before, 0)
}

// What a vCenter has whose VsphereCloudConfig is gone is named before it is left, and stays on record; it keeps
// nothing else back, be it the only one.
func TestAVCenterThatIsGoneKeepsNothingBack(t *testing.T) {
	west, east := newVC("west", nil), newVC("east", nil)
	w := newWorld(t, west)
	w.vcs = []*vc{west, east}
	require.NoError(t, w.create(whole(), none))
	left := func() {
		require.Contains(t, w.left(firstName)+w.left(nextName), "no VsphereCloudConfig of this name has the Secret any more")
	}
	w.vcs = []*vc{west}
	s := w.site(whole())
	s.DryRun = true
	require.NoError(t, s.Rotate(t.Context(), none))
	left()
	require.Contains(t, w.recorded(), "east")
	require.NoError(t, w.rotate(whole(), none))
	left()
	w.complete(nextName)
	require.Contains(t, w.recorded(), "east")

	w.vcs = nil
	require.Equal(t, fault.Conflict, fault.ReasonOf(w.rotate(whole(), none)))
	must.Fail(t, w.remove(whole()), fault.Incomplete,
		`for ["east" "west"] any more`, "vdoctl users delete --username ADMIN --forget --secret vc")
	require.Contains(t, w.recorded(), "east")
	s = w.site(whole())
	s.Forget = true
	require.NoError(t, s.Delete(t.Context()))
	left()
	require.Empty(t, w.recorded())
	require.Empty(t, w.login())
}

func TestWhatAnAPIServerThatGoesAwayLeavesIsSaid(t *testing.T) {
	for kind, want := range map[string]string{
		"Secret": "(the account is ready, and not yet in it)", "ConfigMap": "nothing is made before it is written",
	} {
		w := newWorld(t, newVC("west", nil))
		w.api = interceptor.NewClient(w.api, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if strings.HasSuffix(fmt.Sprintf("%T", o), "."+kind) {
					return errors.New("dial tcp: connection refused")
				}
				return c.Create(ctx, o, opts...)
			}})
		err := w.create(whole(), none)
		require.Contains(t, fault.Text(err), want)
		require.Contains(t, fault.HintOf(err), "`kubectl cluster-info`")
	}
}

// A session of someone else counts while it is open; those that this cluster's drivers have
// left behind do not.
func TestAnAccountWithSomebodyElsesSessionStays(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}}}
	for name, c := range map[string]struct {
		agent, address string
		idle           time.Duration
		stays          bool
	}{
		"another cluster's, idle":    {"csi", "10.0.0.2", time.Hour, true},
		"of no known address":        {"csi", "", time.Hour, true},
		"a node's, in use":           {"csi", "10.0.0.1", time.Second, true},
		"a node's, left behind":      {"csi", "10.0.0.1", time.Hour, false},
		"of a vdoctl that is killed": {"vdoctl", "10.0.0.3", time.Second, false},
	} {
		v := newVC("west", nil)
		v.accounts[firstName] = made
		v.sessions = []vcenter.Session{{Agent: c.agent, Address: c.address, Idle: c.idle}}
		err := newWorld(t, v, node, record(`{"account":"`+firstName+`","made":true,"places":{}}`)).remove(whole())
		_, exists := v.accounts[firstName]
		require.Equal(t, c.stays, exists, name)
		require.Equal(t, c.stays, err != nil, name)
		if c.stays {
			require.ErrorContains(t, err, `by "csi" from "`+c.address+`"`)
		}
	}
}
