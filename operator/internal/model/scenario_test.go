package model

import (
	"cmp"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// A scenario is one thing after another that happens in a world, and what must hold then beside the invariants,
// which hold after each pass, and beside that the operator asks for nothing that it has no right to.
type scenario struct {
	*world
	t *testing.T
	v *v1alpha1.VDOConfig // as it was when it was looked at last
}

type asked = v1alpha1.VDOConfigSpec

// How scenarios begin. The VDOConfig consents to no loss of Nodes.
const (
	nothing   = "with nothing installed"
	installed = "with all installed"
)

const (
	ccm           = "vsphere-cloud-controller-manager"
	csiController = "vsphere-csi-controller"
	csiNode       = "vsphere-csi-node"
)

// How long what other processes do is waited for.
const (
	patience = 5 * time.Minute
	poll     = 20 * time.Millisecond
)

func scene(t *testing.T, begins string, happens func(s *scenario)) {
	t.Helper()
	w, err := enact(t.Context(), newSite(t), func(w *world) {
		s := &scenario{world: w, t: t}
		s.configure(func(spec *asked) { spec.CloudProvider.AcceptNodeDeletion = nil })
		done := false
		defer func() {
			if !done {
				v := s.vdoConfig("m-site")
				_ = s.Get(w.ctx, client.ObjectKeyFromObject(v), v) //nolint:errcheck // it may be gone
				t.Logf("%s\nevents:\n%s\n%s", describe(v.Status.Conditions), w.events, strings.Join(w.trace, "\n"))
			}
		}()
		w.beginEvent(begins)
		s.reread()
		happens(s)
		done = true
	})
	require.NoError(t, err)
	for _, denied := range w.denied {
		denied.None(t)
	}
}

func (s *scenario) reread() *v1alpha1.VDOConfig {
	s.v = get(s, &v1alpha1.VDOConfig{}, namespace, "m-site")
	return s.v
}

// configure edits what is requested.
func (s *scenario) configure(edit func(spec *asked)) {
	s.t.Helper()
	s.v = &v1alpha1.VDOConfig{ObjectMeta: named("m-site")}
	s.change(s.v, func() { edit(&s.v.Spec) })
}

// change edits an object as it is now, where it is there.
func (s *scenario) change(o client.Object, edit func()) {
	for {
		if err := s.Get(s.ctx, client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) {
			return
		}
		edit()
		if err := s.Update(s.ctx, o); !apierrors.IsConflict(err) {
			require.NoError(s.t, err)
			return
		}
	}
}

// look is one pass over the VDOConfig, with nothing else happening.
func (s *scenario) look() *v1alpha1.VDOConfig {
	s.pass(passDrivers)
	require.NoError(s.t, s.failed)
	return s.reread()
}

// until looks at everything, and has time go by in which pods start, until something holds. A step takes as long
// whatever an operator's life is.
func (s *scenario) until(what string, holds func() bool) {
	tries := 60
	if s.wire.life > 0 {
		tries = 400
	}
	s.pass(passBundle, passVCenter)
	for range tries {
		did := s.play()
		_, before := s.wire.written(0)
		s.pass(passDrivers)
		now := &v1alpha1.VDOConfig{}
		if s.Get(s.ctx, client.ObjectKeyFromObject(s.v), now) == nil {
			s.v = now
		}
		if holds() {
			return
		}
		if did || len(s.since(before)) > 0 {
			s.now = s.now.Add(cmp.Or(time.Duration(s.wire.life)*4*time.Second, time.Minute))
			continue
		}
		s.pass(passBundle, passVCenter) // where the drivers' has nothing to do
		s.now = s.now.Add(time.Minute)
	}
	require.Fail(s.t, "waited for: "+what)
}

func (s *scenario) ready() *v1alpha1.VDOConfig {
	s.t.Helper()
	s.until("Ready", func() bool { return s.isTrue("Ready") && s.v.Status.ObservedGeneration == s.v.Generation })
	return s.v
}

// current is the storage driver's current revision.
func current(v *v1alpha1.VDOConfig) v1alpha1.RevisionStatus {
	return first(v.Status.Revisions, func(r v1alpha1.RevisionStatus) bool { return r.Current && r.Group == "csi" })
}

func (s *scenario) isHealthy(name string) bool {
	now := current(s.v)
	return now.Name == name && now.Outcome == string(revision.Healthy)
}

// healthy waits until the storage driver's current revision is, and returns its name.
func (s *scenario) healthy() string {
	s.t.Helper()
	s.until("healthy", func() bool { return s.isHealthy(current(s.v).Name) })
	return current(s.v).Name
}

// deleted deletes the VDOConfig and waits until it is gone.
func (s *scenario) deleted() {
	s.t.Helper()
	s.drop(s.v)
	s.until("the VDOConfig is gone", func() bool { return s.gone(&v1alpha1.VDOConfig{}, namespace, s.v.Name) })
}

// removed requires that nothing that runs, and none of the essentials, is left.
func (s *scenario) removed() {
	require.Empty(s.t, s.workloads())
	require.Empty(s.t, s.left())
}

// templates are what pods are made from.
func (s *scenario) templates() map[string]bool {
	all := map[string]bool{}
	for _, x := range s.workloads() {
		all[text(x.template)] = true
	}
	return all
}

func (s *scenario) isTrue(typ string) bool {
	return meta.IsStatusConditionTrue(s.v.Status.Conditions, typ)
}

func (s *scenario) cond(typ string) metav1.Condition {
	c := meta.FindStatusCondition(s.v.Status.Conditions, typ)
	require.NotNil(s.t, c, typ)
	return *c
}

// first returns the first one for which something holds, or none.
func first[T any](all []T, holds func(T) bool) (none T) {
	if i := slices.IndexFunc(all, holds); i >= 0 {
		return all[i]
	}
	return none
}

func (s *scenario) driver(name string) v1alpha1.DriverStatus {
	return first(s.v.Status.Drivers, func(d v1alpha1.DriverStatus) bool { return d.Driver == name })
}

// planned are the steps of status.plan, as "action kind/name".
func (s *scenario) planned() (all []string) {
	if s.v.Status.Plan != nil {
		for _, step := range s.v.Status.Plan.Steps {
			all = append(all, step.Action+" "+step.Kind+"/"+step.Name)
		}
	}
	return all
}

// get reads an object that has to be there.
func get[T client.Object](s *scenario, o T, ns, name string) T {
	require.NoError(s.t, s.Get(s.ctx, types.NamespacedName{Namespace: ns, Name: name}, o))
	return o
}

func (s *scenario) gone(o client.Object, ns, name string) bool {
	return apierrors.IsNotFound(s.Get(s.ctx, types.NamespacedName{Namespace: ns, Name: name}, o))
}

func (s *scenario) daemonSet(ns, name string) *appsv1.DaemonSet {
	s.t.Helper()
	return get(s, &appsv1.DaemonSet{}, ns, name)
}

func (s *scenario) controller() *appsv1.Deployment {
	s.t.Helper()
	return get(s, &appsv1.Deployment{}, csiNamespace, csiController)
}

// byHand deletes an essential object of a driver.
func (s *scenario) byHand(driver string, all ...int) {
	for _, i := range all {
		s.handDeletes(essentials[driver][i].Key.String())
	}
}

func (s *scenario) inventory() inventory.Inventory {
	cm := get(s, &corev1.ConfigMap{}, namespace, record.Name)
	inv, err := inventory.Parse("x", []byte(cm.Data[inventory.DataKey]))
	require.NoError(s.t, err)
	return inv
}

// writes are those of a pass over the VDOConfig, but for its own status.
func (s *scenario) writes() (all []string) {
	s.t.Helper()
	_, from := s.wire.written(0)
	s.look()
	writes, _ := s.wire.written(from)
	for _, x := range writes {
		if !strings.Contains(x.path, "/vdo.vmware.com/") {
			all = append(all, x.String())
		}
	}
	return all
}

// meets has a function see what the operator asks the cluster to write or try, by the names of objects, and tell by
// which status it is refused, 0 for not at all; nil ends it.
func (s *scenario) meets(see func(req *http.Request, name string) (status int)) {
	s.wire.refuses(func(req *http.Request) *http.Response {
		if see == nil || req.Method == http.MethodGet || strings.Contains(req.URL.Path, "/vdo.vmware.com/") {
			return nil
		}
		name := path.Base(req.URL.Path)
		if status := see(req, name); status != 0 {
			return answer(req, status, name+" is refused by the test")
		}
		return nil
	})
}

func (s *scenario) told(text string) {
	require.Contains(s.t, s.events.String(), text)
}
