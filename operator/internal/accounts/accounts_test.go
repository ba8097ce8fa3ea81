package accounts_test

import (
	"context"
	"errors"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

func TestMain(m *testing.M) { cluster.Main(m) }

const (
	clusterID = "3f2a9c1b-0000-4000-8000-000000000001"
	firstName = "vdo-3f2a9c1b@vsphere.local"
	nextName  = "vdo-3f2a9c1b-b@vsphere.local"
)

// world is a vCenter and a namespace of a cluster.
type world struct {
	t       *testing.T
	v       *vcsim.VCenter
	api     client.WithWatch
	ns      string
	uuid    string // of the node's VM
	target  vcenter.Target
	objects []privileges.Object
	changes []accounts.Change
}

var features = privileges.Features{CPI: true, Block: true}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := cluster.Config(t)
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	require.NoError(t, v1alpha1.AddToScheme(s))
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: s})
	require.NoError(t, err)
	v := vcsim.Start(t, vcsim.Options{Machines: 1})
	w := &world{t: t, v: v, api: c, ns: cluster.Namespace(t, cfg), target: vcenter.Target{
		Host: v.Host, Port: v.Port, Username: vcsim.Administrator.Username, Password: vcenter.Password(vcsim.Administrator.Password), Trust: vcenter.Trust{CA: v.CA}, Datacenters: []string{"site/west"}}}
	vms, err := v.VMs(t.Context(), "/site/west")
	require.NoError(t, err)
	found, access := vcenter.InspectAccess(t.Context(), w.target, vcenter.Ask{Nodes: []preflight.Node{{Name: "node-0", UUID: vms[0].UUID}}, Features: features}, firstName)
	require.NoError(t, found.Err)
	w.uuid = vms[0].UUID
	seen := map[privileges.Kind]bool{}
	for _, o := range access.Objects {
		if !seen[o.Kind] && o.Kind != privileges.Ancestor { // one of each kind is enough, and every call costs time
			seen[o.Kind] = true
			w.objects = append(w.objects, o)
		}
	}
	require.NoError(t, c.Create(t.Context(), &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "west"},
		Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: v.Host, Port: int32(v.Port), Credentials: "vc", Thumbprint: v.SHA256}}))
	return w
}

var errKilled = errors.New("killed")

// fuse lets so many changes happen, in the vCenter and in the cluster together, and then
// nothing any more: what follows is as in a program that was killed.
type fuse struct{ left, changes int }

func (f *fuse) use(change bool) error {
	if f.left == 0 {
		return errKilled
	}
	if change {
		f.left--
		f.changes++
	}
	return nil
}

const forever = 1 << 30

// killable is a session of a program that may be killed.
type killable struct {
	*vcenter.Admin

	f *fuse
}

func (k killable) MakeAccount(ctx context.Context, n, d string, p vcenter.Password) error {
	return k.do(func() error { return k.Admin.MakeAccount(ctx, n, d, p) })
}

func (k killable) SetPassword(ctx context.Context, n string, p vcenter.Password) error {
	return k.do(func() error { return k.Admin.SetPassword(ctx, n, p) })
}

func (k killable) RemoveAccount(ctx context.Context, n string) error {
	return k.do(func() error { return k.Admin.RemoveAccount(ctx, n) })
}

func (k killable) MakeRole(ctx context.Context, n string, p []string) error {
	return k.do(func() error { return k.Admin.MakeRole(ctx, n, p) })
}

func (k killable) ChangeRole(ctx context.Context, r vcenter.Role, p []string) error {
	return k.do(func() error { return k.Admin.ChangeRole(ctx, r, p) })
}

func (k killable) RemoveRole(ctx context.Context, r vcenter.Role) error {
	return k.do(func() error { return k.Admin.RemoveRole(ctx, r) })
}

func (k killable) SetPermission(ctx context.Context, id, n string, r vcenter.Role, p bool) error {
	return k.do(func() error { return k.Admin.SetPermission(ctx, id, n, r, p) })
}

func (k killable) RemovePermission(ctx context.Context, id, n string) error {
	return k.do(func() error { return k.Admin.RemovePermission(ctx, id, n) })
}

func (k killable) do(change func() error) error {
	if err := k.f.use(true); err != nil {
		return err
	}
	return change()
}

// site is what a run of the program has.
func (w *world) site(f *fuse) (*accounts.Site, func()) {
	w.t.Helper()
	admin, err := vcenter.Open(w.t.Context(), w.target)
	require.NoError(w.t, err)
	api := interceptor.NewClient(w.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(f.use(false), c.Get(ctx, key, o, opts...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := f.use(true); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := f.use(true); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := f.use(true); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	return &accounts.Site{
		API: api, Namespace: w.ns, Secret: "vc", Cluster: clusterID, Wait: 2 * time.Minute, Poll: 10 * time.Millisecond,
		Progress: func(c accounts.Change) { w.changes = append(w.changes, c) },
		Places: []accounts.Place{{
			Name: "west", Server: w.target.Address(), User: admin.User, VCenter: killable{admin, f},
			Plan: func(ctx context.Context, principal string) (privileges.Plan, error) {
				plan, err := w.plan(ctx, admin, principal)
				return plan, errors.Join(f.use(false), err)
			},
			Verify: func(ctx context.Context, l accounts.Login) ([]string, error) {
				return nil, errors.Join(f.use(false), w.works(l))
			},
		}},
	}, admin.Close
}

// run runs the program once.
func (w *world) run(f *fuse, do func(*accounts.Site) error) error {
	w.t.Helper()
	s, stop := w.site(f)
	defer stop()
	w.changes = nil
	return do(s)
}

func create(s *accounts.Site) error { return s.Create(context.Background(), accounts.Login{}) }
func rotate(s *accounts.Site) error { return s.Rotate(context.Background(), accounts.Login{}) }
func remove(s *accounts.Site) error { return s.Delete(context.Background()) }

// plan is what an account needs on the objects.
func (w *world) plan(ctx context.Context, a *vcenter.Admin, principal string) (privileges.Plan, error) {
	roles, err := a.Roles(ctx)
	permissions, err2 := a.Permissions(ctx, principal)
	has := privileges.Existing{Roles: map[string][]string{}, Permissions: map[string]privileges.Permission{}}
	for n, r := range roles {
		has.Roles[n] = r.Privileges
	}
	for _, o := range w.objects {
		if p, ok := permissions[o.ID]; ok {
			has.Permissions[o.Path] = p
		}
	}
	return privileges.NewPlan(features, principal, w.objects, false, has), errors.Join(err, err2)
}

// works says whether an account can log in: one without any permission cannot.
func (w *world) works(l accounts.Login) error {
	as := w.target
	as.Username, as.Password = l.Username, l.Password
	a, err := vcenter.Open(w.t.Context(), as)
	if err == nil {
		a.Close()
	}
	return err
}

// privileges are what an account that logs in lacks, and what it has beyond its need, by
// what the vCenter has of its permissions.
func (w *world) privileges(l accounts.Login) (missing, more []string, err error) {
	as := w.target
	as.Username, as.Password = l.Username, l.Password
	a, err := vcenter.Open(w.t.Context(), as)
	if err != nil {
		return nil, nil, err
	}
	defer a.Close()
	plan, err := w.plan(w.t.Context(), a, l.Username)
	for _, r := range plan.Roles {
		missing, more = append(missing, r.Add...), append(more, r.TooMuch...)
	}
	for _, p := range plan.Permissions {
		if p.State != privileges.Keep {
			missing = append(missing, p.Role+" on "+p.Path)
		}
	}
	return missing, more, err
}

// vcenterState is all that is to be seen of accounts, roles and permissions.
func (w *world) vcenterState() map[string]string {
	w.t.Helper()
	a, err := vcenter.Open(w.t.Context(), w.target)
	require.NoError(w.t, err)
	defer a.Close()
	out := map[string]string{}
	roles, err := a.Roles(w.t.Context())
	require.NoError(w.t, err)
	for n, r := range roles {
		out["role "+n] = strings.Join(slices.Sorted(slices.Values(r.Privileges)), " ")
	}
	for _, n := range []string{firstName, nextName, "other@vsphere.local"} {
		found, err := a.Account(w.t.Context(), n)
		require.NoError(w.t, err)
		if found.Exists {
			out["account "+n] = found.Description
		}
		permissions, err := a.Permissions(w.t.Context(), n)
		require.NoError(w.t, err)
		for id, p := range permissions {
			out["permission "+n+" "+id] = fmt.Sprint(p)
		}
	}
	return out
}

func (w *world) login() accounts.Login {
	w.t.Helper()
	var s corev1.Secret
	require.NoError(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: "vc"}, &s))
	return accounts.Login{Username: string(s.Data["username"]), Password: vcenter.Password(s.Data["password"])}
}

// complete demands that the Secret's account has what it needs, and no more.
func (w *world) complete(account string) {
	w.t.Helper()
	l := w.login()
	require.Equal(w.t, account, l.Username)
	missing, more, err := w.privileges(l)
	require.NoError(w.t, err)
	require.Empty(w.t, missing)
	require.Empty(w.t, more)
}

func (w *world) nothingLeft(before map[string]string) {
	w.t.Helper()
	require.Equal(w.t, before, w.vcenterState())
	for name, o := range map[string]client.Object{"vc": &corev1.Secret{}, "vdo-account-vc": &corev1.ConfigMap{}} {
		require.True(w.t, apierrors.IsNotFound(w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, o)), "%s is still there", name)
	}
}

// A program that is killed after any change converges when it is run again: what was to be
// made is made once, what was made is taken away, and nothing else is touched.
func TestKilledAfterAnyChangeItConverges(t *testing.T) {
	w := newWorld(t)
	before := w.vcenterState()
	whole := &fuse{left: forever}
	require.NoError(t, w.run(whole, create))
	w.complete(firstName)
	made := w.vcenterState()
	require.NoError(t, w.run(&fuse{left: forever}, create))
	require.Empty(t, w.changes, "nothing is left to do")
	away := &fuse{left: forever}
	require.NoError(t, w.run(away, remove))
	w.nothingLeft(before)

	for n := range max(whole.changes, away.changes) {
		require.ErrorIs(t, w.run(&fuse{left: min(n, whole.changes-1)}, create), errKilled, n)
		require.NoError(t, w.run(&fuse{left: forever}, create), n)
		w.complete(firstName)
		require.Equal(t, made, w.vcenterState(), n)
		require.ErrorIs(t, w.run(&fuse{left: min(n, away.changes-1)}, remove), errKilled, n)
		require.NoError(t, w.run(&fuse{left: forever}, remove), n)
		w.nothingLeft(before)
	}
}

// operator does what the operator does with a Secret: it logs in, and gives the drivers the
// configuration; then their pods are restarted.
type operator struct {
	w     *world
	tried []accounts.Login // that the drivers' configuration had
}

func (o *operator) install() {
	w, ctx := o.w, o.w.t.Context()
	require.NoError(w.t, client.IgnoreAlreadyExists(w.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: drivers.CSINamespace}})))
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "csi"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "csi"}}
	for _, x := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: drivers.CSINamespace, Name: render.CSISecret}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: drivers.CSINamespace, Name: drivers.Controller}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}},
	} {
		require.NoError(w.t, w.api.Create(ctx, x))
		w.t.Cleanup(func() { require.NoError(w.t, w.api.Delete(context.Background(), x)) })
	}
	o.pass(10)
}

// pass does the steps of one pass; steps bounds how many.
func (o *operator) pass(steps int) {
	w, ctx := o.w, o.w.t.Context()
	var s, config corev1.Secret
	var vcc v1alpha1.VsphereCloudConfig
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: drivers.CSINamespace, Name: drivers.Controller}
	require.NoError(w.t, w.api.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "vc"}, &s))
	require.NoError(w.t, w.api.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "west"}, &vcc))
	require.NoError(w.t, w.api.Get(ctx, client.ObjectKey{Namespace: drivers.CSINamespace, Name: render.CSISecret}, &config))
	require.NoError(w.t, w.api.Get(ctx, key, &d))
	l := w.login()
	for i, step := range []func() error{
		func() error {
			vcc.Status.ObservedGeneration, vcc.Status.VerifiedCredentials = vcc.Generation, string(s.UID)+"/"+s.ResourceVersion
			return w.api.Status().Update(ctx, &vcc)
		},
		func() error {
			o.tried = append(o.tried, l)
			config.Data = map[string][]byte{render.CSIConfigKey: []byte(fmt.Sprintf("[VirtualCenter \"a\"]\nuser = %q\npassword = %q\n", l.Username, l.Password))}
			return w.api.Update(ctx, &config)
		},
		func() error {
			d.Spec.Template.Annotations = map[string]string{render.AnnotationConfigHash: "of " + s.ResourceVersion}
			return w.api.Update(ctx, &d)
		},
		func() error {
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
			return w.api.Status().Update(ctx, &d)
		},
	} {
		if i < steps {
			require.NoError(w.t, step())
		}
	}
}

// During a rotation what the drivers are configured with is valid at every moment, wherever
// the program is killed; the account before goes when nothing runs with it.
func TestARotationLeavesTheDriversALoginThatWorks(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.run(&fuse{left: forever}, create))
	o := &operator{w: w}
	o.install()
	valid := func() {
		t.Helper()
		require.NoError(t, w.works(o.tried[len(o.tried)-1]))
	}

	// The operator does nothing: the rotation waits, and says for what.
	err := w.run(&fuse{left: forever}, func(s *accounts.Site) error { s.Wait = time.Nanosecond; return s.Rotate(t.Context(), accounts.Login{}) })
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.ErrorContains(t, err, "the operator has not logged in with it to west")
	for steps, why := range []string{1: "the configuration of vmware-system-csi/vsphere-csi-controller has another account", 2: "were started with the configuration before", 3: "of 1 pods of"} {
		if steps == 0 {
			continue
		}
		o.pass(steps)
		valid()
		err := w.run(&fuse{left: forever}, func(s *accounts.Site) error { s.Wait = time.Nanosecond; return s.Rotate(t.Context(), accounts.Login{}) })
		require.ErrorContains(t, err, why)
		require.NoError(t, w.works(o.tried[0]), "the account before is valid until no pod has it")
	}
	o.pass(10)
	require.NoError(t, w.run(&fuse{left: forever}, rotate))
	w.complete(nextName)
	valid()
	require.Equal(t, fault.Unauthorized, fault.ReasonOf(w.works(o.tried[0])))
	require.ErrorContains(t, w.run(&fuse{left: forever}, remove), "vsphere-csi-controller uses it")

	whole := &fuse{left: forever}
	current := nextName
	turn := func(f *fuse) {
		t.Helper()
		err := w.run(f, func(s *accounts.Site) error { s.Wait = time.Nanosecond; return s.Rotate(t.Context(), accounts.Login{}) })
		require.Error(t, err) // killed, or it waits for the operator
		valid()
		current = map[string]string{firstName: nextName, nextName: firstName}[current]
		for range 3 {
			o.pass(10)
			valid()
			if err = w.run(&fuse{left: forever}, func(s *accounts.Site) error { s.Wait = time.Nanosecond; return s.Rotate(t.Context(), accounts.Login{}) }); err == nil {
				break
			}
			require.Equal(t, fault.Incomplete, fault.ReasonOf(err), err)
		}
		require.NoError(t, err)
		w.complete(current)
		valid()
	}
	turn(whole)
	for n := range whole.changes {
		turn(&fuse{left: n})
	}
}
