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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

const (
	clusterID = "3f2a9c1b-0000-4000-8000-000000000001"
	firstName = "vdo-3f2a9c1b@vsphere.local"
	nextName  = "vdo-3f2a9c1b-b@vsphere.local"
	adminName = "administrator@vsphere.local"
	corp      = "k8s@corp.example"
	made      = "vSphere drivers of Kubernetes cluster " + clusterID + ", Secret ns/vc; made by vdoctl"
	root      = "Folder-group-d1"
	addDisk   = "VirtualMachine.Config.AddExistingDisk"
	attach    = "VirtualMachine.Config.AddRemoveDevice"
	encrypts  = "Cryptographer.AddDisk"
)

var (
	features  = privileges.Features{CPI: true, Block: true}
	corpLogin = accounts.Login{Username: corp, Password: "Corp-Pass word#1"}
	errKilled = errors.New("killed")
	refused   = &fault.Error{Reason: fault.Unauthorized, Op: "log in to", Subject: "vc.example", Err: errKilled}
)

// fuse lets so many changes happen, in vCenters and cluster together; what follows is as in a
// program that was killed.
type fuse struct{ left, changes int }

func whole() *fuse { return &fuse{left: 1 << 30} }

func (f *fuse) killed() error {
	if f.left == 0 {
		return errKilled
	}
	return nil
}

func (f *fuse) change(do func() error) error {
	if err := f.killed(); err != nil {
		return err
	}
	f.left--
	f.changes++
	return do()
}

// directory is the single sign-on of linked vCenters, with their roles. An account or a role that is made at one of
// them is visible at another one after some looks.
type directory struct {
	ids       []string            // of the vCenters
	roles     map[string][]string // privileges
	accounts  map[string]string   // descriptions
	passwords map[string]vcenter.Password
	at        map[string]*vc // that it was made at, by the name of an account or role
}

// vc is a vCenter in memory. It names accounts of the directory corp.example by its alias, CORP.
type vc struct {
	*directory

	name        string
	permissions map[string]map[string]privileges.Permission // by canonical name and object
	used        map[string]bool                             // roles that permissions of others have
	byGroup     []string                                    // what each account may do on the root
	sessions    []vcenter.Session
	objects     []privileges.Object
	gone        []privileges.Object // that the plan lacks
	folders     bool                // objects of VMs are their folders
	looks       int                 // until what is made at a linked one is visible
	unseen      int                 // looks at roles, likewise
	late        int                 // logins until a password that was set at a linked one is accepted
	changes     []string
	days        int    // until passwords end
	looking     func() // once, when it is asked when passwords expire
	f           *fuse
}

func newVC(name string, d *directory) *vc {
	if d == nil {
		passwords := map[string]vcenter.Password{adminName: "admin", corp: corpLogin.Password}
		roles := map[string][]string{
			"ReadOnly": {"System.Anonymous", "System.Read", "System.View"}, "seeing": {"System.Read", "System.View"},
			"Admin": {"Authorization.ModifyPermissions"}, "site": {"Datastore.FileManagement", "VirtualMachine.Interact.PowerOff"},
		}
		d = &directory{nil, roles, map[string]string{}, passwords, map[string]*vc{}}
	}
	v := &vc{directory: d, name: name, f: whole(), used: map[string]bool{},
		permissions: map[string]map[string]privileges.Permission{},
		objects: []privileges.Object{
			{Kind: privileges.Root, Path: "/", ID: root},
			{Kind: privileges.Compute, Path: "/dc/c", ID: "ClusterComputeResource-c"},
			{Kind: privileges.VM, Path: "/dc/vm/k8s/a", ID: "VirtualMachine-a"},
			{Kind: privileges.Datastore, Path: "/dc/datastore/ds", ID: "Datastore-ds"},
		}}
	d.ids = append(d.ids, fmt.Sprintf("%p", v))
	v.give(adminName, root, "Admin", true)
	return v
}

func (v *vc) change(do func(), format string, a ...any) error {
	return v.f.change(func() error {
		v.changes = append(v.changes, fmt.Sprintf(format, a...))
		do()
		return nil
	})
}

func (*vc) Domain(context.Context) (string, error) { return "vsphere.local", nil }

// Canonical is as vcenter.Admin.Canonical answers with the aliases of single sign-on.
func (*vc) Canonical(_ context.Context, name string) string {
	domain, user, ok := strings.Cut(privileges.DomainUser(name), `\`)
	if !ok {
		return name
	}
	if domain = strings.ToUpper(domain); domain == "CORP" {
		domain = "CORP.EXAMPLE"
	}
	return domain + `\` + strings.ToLower(user)
}

func (v *vc) Linked(context.Context) (string, error) { return strings.Join(v.ids, " "), nil }

func (v *vc) Account(_ context.Context, n string) (vcenter.Account, error) {
	d, ok := v.accounts[n]
	if at := v.at[n]; at != nil && at != v && v.looks > 0 {
		v.looks--
		return vcenter.Account{}, nil
	}
	return vcenter.Account{Exists: ok, Description: d}, nil
}

func (v *vc) PasswordDays(context.Context) (int, error) {
	if look := v.looking; look != nil {
		v.looking = nil
		look()
	}
	return v.days, nil
}

func (v *vc) MakeAccount(_ context.Context, n, d string, p vcenter.Password) error {
	if _, ok := v.accounts[n]; ok {
		return errors.New("it is made twice")
	}
	return v.change(func() { v.accounts[n], v.passwords[n], v.at[n] = d, p, v }, "make account %s", n)
}

func (v *vc) SetPassword(_ context.Context, n string, p vcenter.Password) error {
	return v.change(func() { v.passwords[n] = p }, "set password of %s", n)
}

func (v *vc) RemoveAccount(_ context.Context, n string) error {
	return v.change(func() { delete(v.accounts, n); delete(v.passwords, n) }, "remove account %s", n)
}

func (v *vc) Roles(context.Context) (map[string]vcenter.Role, error) {
	out := map[string]vcenter.Role{}
	for n, p := range v.roles {
		if at := v.at[n]; at == nil || at == v || v.unseen == 0 {
			out[n] = vcenter.Role{Name: n, Privileges: p}
		}
	}
	v.unseen = max(v.unseen-1, 0)
	return out, v.f.killed()
}

func (v *vc) MakeRole(_ context.Context, n string, p []string) error {
	if _, ok := v.roles[n]; ok {
		return nil
	}
	return v.change(func() { v.roles[n], v.at[n] = p, v }, "make role %s", n)
}

func (v *vc) ChangeRole(_ context.Context, r vcenter.Role, p []string) error {
	return v.change(func() { v.roles[r.Name] = p }, "change role %s", r.Name)
}

func (v *vc) RemoveRole(_ context.Context, r vcenter.Role) (bool, error) {
	used := v.used[r.Name]
	for _, list := range v.permissions {
		for _, p := range list {
			used = used || p.Role == r.Name
		}
	}
	if used {
		return true, v.f.killed()
	}
	return false, v.change(func() { delete(v.roles, r.Name) }, "remove role %s", r.Name)
}

func (v *vc) Permissions(ctx context.Context, n string) (map[string]privileges.Permission, error) {
	return maps.Clone(v.permissions[v.Canonical(ctx, n)]), nil
}

func (v *vc) give(n, id, role string, propagate bool) {
	n = v.Canonical(context.Background(), n)
	if v.permissions[n] == nil {
		v.permissions[n] = map[string]privileges.Permission{}
	}
	v.permissions[n][id] = privileges.Permission{Role: role, Propagate: propagate}
}

func (v *vc) SetPermission(_ context.Context, id, n string, r vcenter.Role, propagate bool) error {
	give := func() { v.give(n, id, r.Name, propagate) }
	return v.change(give, "set %s on %s for %s, propagating: %t", r.Name, id, n, propagate)
}

func (v *vc) RemovePermission(ctx context.Context, id, n string) error {
	list := v.permissions[v.Canonical(ctx, n)]
	return v.change(func() { delete(list, id) }, "remove the permission of %s on %s", n, id)
}

func (v *vc) PathOf(_ context.Context, id string) string {
	if at := slices.IndexFunc(v.objects, func(o privileges.Object) bool { return o.ID == id }); at >= 0 {
		return v.objects[at].Path
	}
	return id
}

func (v *vc) Sessions(context.Context, string) ([]vcenter.Session, error) { return v.sessions, nil }

func (v *vc) plan(ctx context.Context, principal string) (privileges.Plan, error) {
	principal = v.Canonical(ctx, principal)
	has := privileges.Existing{Roles: v.roles}
	has.Permissions, has.IDs = map[string]privileges.Permission{}, map[string]string{}
	has.Effective = map[string][]string{"/": v.byGroup}
	for _, o := range slices.Concat(v.objects, v.gone) {
		if p, ok := v.permissions[principal][o.ID]; ok {
			has.Permissions[o.Path], has.IDs[o.Path] = p, o.ID
		}
	}
	return privileges.NewPlan(features, principal, v.objects, v.folders, has), v.f.killed()
}

// verify lets no one in whose password is another one, or who has no role.
func (v *vc) verify(ctx context.Context, l accounts.Login) ([]string, error) {
	if v.late > 0 {
		v.late--
		return nil, refused
	}
	if p, ok := v.passwords[l.Username]; l.Username != "" && (!ok || p != l.Password) {
		return nil, errors.Join(v.f.killed(), refused)
	}
	var missing []string
	plan, err := v.plan(ctx, l.Username)
	for _, p := range plan.Permissions {
		if p.State != privileges.Keep {
			missing = append(missing, p.Role+" on "+p.Path)
		}
	}
	return missing, err
}

// world is some vCenters and a cluster.
type world struct {
	t       *testing.T
	vcs     []*vc
	api     client.WithWatch
	user    string // who is logged in
	secrets string // the namespace of the Secret and of its record
	changes []accounts.Change
	tried   []accounts.Login // that the drivers' configuration had
}

func newWorld(t *testing.T, v *vc, objects ...client.Object) *world {
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	require.NoError(t, v1alpha1.AddToScheme(s))
	objects = append(objects, &v1alpha1.VsphereCloudConfig{ObjectMeta: in("ns", v.name)})
	api := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build()
	return &world{t: t, vcs: []*vc{v}, user: adminName, secrets: "ns", api: api}
}

// killable is the cluster of a program that may be killed.
type killable struct {
	client.WithWatch

	f *fuse
}

func (k killable) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return errors.Join(k.f.killed(), k.WithWatch.Get(ctx, key, o))
}

func (k killable) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	o.SetUID("made")
	return k.f.change(func() error { return k.WithWatch.Create(ctx, o, opts...) })
}

func (k killable) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return k.f.change(func() error { return k.WithWatch.Update(ctx, o, opts...) })
}

func (k killable) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return k.f.change(func() error { return k.WithWatch.Delete(ctx, o, opts...) })
}

// site is what a run has; what waits, waits no time.
func (w *world) site(f *fuse) *accounts.Site {
	w.changes = nil
	s := &accounts.Site{API: killable{w.api, f}, Namespace: w.secrets, Secret: "vc", Cluster: clusterID,
		Wait: time.Nanosecond, Poll: time.Millisecond, Progress: func(c accounts.Change) { w.changes = append(w.changes, c) }}
	for _, v := range w.vcs {
		v.f, v.changes = f, nil
		p := &accounts.Place{Name: v.name, Config: "ns", Server: "vc.example", User: w.user, VCenter: v, Plan: v.plan}
		p.Verify, p.ID = v.verify, fmt.Sprintf("%p", v.permissions)
		s.Places = append(s.Places, p)
	}
	return s
}

func (w *world) create(f *fuse, l accounts.Login) error { return w.site(f).Create(w.t.Context(), l) }
func (w *world) rotate(f *fuse, l accounts.Login) error { return w.site(f).Rotate(w.t.Context(), l) }
func (w *world) remove(f *fuse) error                   { return w.site(f).Delete(w.t.Context()) }

var none accounts.Login

// state is all of accounts, roles and permissions.
func (w *world) state() map[string]string {
	out := map[string]string{}
	for _, v := range w.vcs {
		for n, p := range v.roles {
			out["role "+n+" "+v.name] = strings.Join(slices.Sorted(slices.Values(p)), " ")
		}
		for n, d := range v.accounts {
			out["account "+n] = d
		}
		for n, list := range v.permissions {
			for id, p := range list {
				out["permission "+n+" "+id+" "+v.name] = fmt.Sprint(p)
			}
		}
	}
	return out
}

// get reads an object of the namespace; it reports whether it exists.
func (w *world) get(name string, o client.Object) bool {
	err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.secrets, Name: name}, o)
	require.NoError(w.t, client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

func (w *world) login() accounts.Login {
	var s corev1.Secret
	w.get("vc", &s)
	return accounts.Login{Username: string(s.Data["username"]), Password: vcenter.Password(s.Data["password"])}
}

func (w *world) recorded() string {
	var m corev1.ConfigMap
	w.get("vdo-account-vc", &m)
	return m.Data["record.json"]
}

// complete demands that the Secret's account has what it needs.
func (w *world) complete(account string) {
	require.Equal(w.t, account, w.login().Username)
	for _, v := range w.vcs {
		missing, err := v.verify(w.t.Context(), w.login())
		require.NoError(w.t, err)
		require.Empty(w.t, missing)
	}
}

// gone takes away what is there, and demands that nothing is left.
func (w *world) gone(before map[string]string, n int) {
	if w.recorded() != "" {
		require.NoError(w.t, w.remove(whole()), n)
	}
	require.Equal(w.t, before, w.state(), n)
	require.Empty(w.t, w.recorded(), n)
	require.Equal(w.t, none, w.login(), n)
}

func in(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}
}

func record(json string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: in("ns", "vdo-account-vc"), Data: map[string]string{"record.json": json}}
}

func secretWith(account, password string) *corev1.Secret {
	data := map[string][]byte{"username": []byte(account), "password": []byte(password)}
	return &corev1.Secret{ObjectMeta: in("ns", "vc"), Data: data}
}

// controllerWith is a driver that runs, and its configuration.
func controllerWith(account, password string) []client.Object {
	d := &appsv1.Deployment{ObjectMeta: in(drivers.CSINamespace, drivers.Controller)}
	d.Spec.Template.Annotations = map[string]string{render.AnnotationConfigHash: "h"}
	d.Status.UpdatedReplicas, d.Status.Replicas = 1, 1
	secret := &corev1.Secret{ObjectMeta: in(drivers.CSINamespace, render.CSISecret), Data: config(account, password)}
	return []client.Object{d, secret}
}

func config(account, password string) map[string][]byte {
	return map[string][]byte{render.CSIConfigKey: fmt.Appendf(nil, "user = %q\npassword = %q\n", account, password)}
}

// operator does the steps of a reconcile: it logs in with the Secret, gives the drivers the
// configuration, and their pods are restarted.
func (w *world) operator(steps int) {
	var s, has corev1.Secret
	var vcc v1alpha1.VsphereCloudConfig
	var d appsv1.Deployment
	w.get("vc", &s)
	key := func(name string) client.ObjectKey {
		return client.ObjectKey{Namespace: drivers.CSINamespace, Name: name}
	}
	require.NoError(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, &vcc))
	require.NoError(w.t, w.api.Get(w.t.Context(), key(render.CSISecret), &has))
	require.NoError(w.t, w.api.Get(w.t.Context(), key(drivers.Controller), &d))
	for i, step := range []func() client.Object{
		func() client.Object {
			vcc.Status.ObservedGeneration, vcc.Status.VerifiedCredentials = 1, string(s.UID)+"/"+s.ResourceVersion+" 0f"
			return &vcc
		},
		func() client.Object {
			l := w.login()
			w.tried = append(w.tried, l)
			has.Data = config(l.Username, string(l.Password))
			return &has
		},
		func() client.Object {
			d.Spec.Template.Annotations = map[string]string{render.AnnotationConfigHash: "of " + s.ResourceVersion}
			return &d
		},
		func() client.Object { return &d },
	} {
		if i < steps {
			o := step()
			require.NoError(w.t, w.api.Update(w.t.Context(), o))
			if o == client.Object(&d) { // whose status has an endpoint of its own
				d.Status.UpdatedReplicas = int32(min(i-2, 1))
				require.NoError(w.t, w.api.Status().Update(w.t.Context(), &d))
			}
		}
	}
}

func (w *world) works(l accounts.Login) bool { return w.vcs[0].passwords[l.Username] == l.Password }

func (w *world) left(name string) (note string) {
	for _, c := range w.changes {
		if c.Do == accounts.Leave && c.Name == name {
			note = c.Note
		}
	}
	return note
}
