package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
)

// act makes a HostAction and has the operator reconcile it.
func (w *world) act(r *Reconciler, name, host string, what airship.PowerAction) action {
	w.Helper()
	o := &airship.HostAction{ObjectMeta: w.requested(name), Spec: airship.HostActionSpec{
		Cluster: "t", Host: airship.HostReference{Namespace: w.metal, Name: host}, Action: what,
	}}
	require.NoError(w, w.Create(w.Context(), o))
	w.actOn(r, o)
	return o
}

// requested is the metadata of a HostAction of the test.
func (w *world) requested(name string) metav1.ObjectMeta {
	by := map[string]string{airship.AnnotationRequestedBy: "admin"}
	return metav1.ObjectMeta{Namespace: w.ns, Name: name, Annotations: by}
}

func (w *world) actOn(r *Reconciler, o action) string {
	w.Helper()
	key := client.ObjectKeyFromObject(o)
	act := reconcile.AsReconciler(r.Client, &actions{r})
	_, err := act.Reconcile(w.Context(), reconcile.Request{NamespacedName: key})
	require.NoError(w, err)
	require.NoError(w, w.Get(w.Context(), key, o))
	ready := meta.FindStatusCondition(o.Status.Conditions, "Ready")
	require.NotNil(w, ready)
	return ready.Reason + ": " + ready.Message
}

func (w *world) powered(name string, on bool) {
	w.Helper()
	w.reports(name, fmt.Sprintf(`{"poweredOn":%t}`, on))
}

func (w *world) provisioning(state string, hosts ...string) {
	w.Helper()
	for _, name := range hosts {
		w.reports(name, fmt.Sprintf(`{"provisioning":{"state":%q}}`, state))
	}
}

// reports changes a host's status as Metal3 does.
func (w *world) reports(name, status string) {
	w.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))
	require.NoError(w, w.Status().Patch(w.Context(), w.bare(name), patch))
}

// rebooted plays Metal3, which reboots provisioned hosts only: it powers them off first.
func (w *world) rebooted(name string) {
	w.Helper()
	require.True(w, w.bare(name).Provisioned())
	w.powered(name, false)
	w.edit(name, func(o *choose.BareMetalHost) { delete(o.Annotations, annotationReboot) })
}

// Metal3 gets what is requested of a host that the SIPCluster holds, and the status and the events
// say what happened, and by whom.
func TestHostActionsGoThroughMetal3(t *testing.T) {
	w, r := start(t)
	w.settled(r, replace(workers, "standby: 1", "standby: 0"), "a", "b", "c")
	told(r, "")

	require.Contains(t, w.actOn(r, w.act(r, "early", "a", airship.Reboot)), "only (request PowerOff, then PowerOn)")
	require.NotContains(t, w.bare("a").Annotations, annotationReboot)
	w.provisioning("provisioned", "a", "b")
	reboot := w.act(r, "reboot", "a", airship.Reboot)
	require.JSONEq(t, `{"mode":"soft"}`, w.bare("a").Annotations[annotationReboot])
	require.NotNil(t, reboot.Status.RequestedAt)
	require.Equal(t, 2, strings.Count(told(r, "PowerRequested"), "PowerRequested Requested Reboot of host "+w.metal+"/a for SIPCluster "+
		w.ns+`/t, by HostAction reboot, requested by "admin"`), "of the SIPCluster and of the host")
	require.Contains(t, w.actOn(r, reboot), "Requested: waiting for Metal3")
	w.rebooted("a")
	require.Contains(t, w.actOn(r, reboot), "Requested: ", "it is off")
	w.powered("a", true)
	require.Contains(t, w.actOn(r, reboot), "Completed: ")
	require.NotNil(t, reboot.Status.CompletedAt)
	w.actOn(r, reboot)
	require.NotContains(t, w.bare("a").Annotations, annotationReboot, "it is requested once")

	off := w.act(r, "off", "b", airship.PowerOff)
	require.False(t, w.bare("b").Spec.Online)
	require.Contains(t, w.actOn(r, off), "Requested: ")
	w.powered("b", false)
	require.Contains(t, w.actOn(r, off), "Completed: ")
	require.Contains(t, w.actOn(r, w.act(r, "cycle", "b", airship.Reboot)), "b: the host is powered off")
	on := w.act(r, "on", "b", airship.PowerOn)
	require.True(t, w.bare("b").Spec.Online)
	w.edit("b", func(o *choose.BareMetalHost) { o.Spec.Online = false })
	require.Contains(t, w.actOn(r, on), "Refused: PowerOn host "+w.metal+"/b: spec.online of the host was changed")

	forced := w.act(r, "soft", "a", airship.Reboot).DeepCopy()
	forced.ObjectMeta, forced.Spec.Force = w.requested("hard"), true
	require.NoError(t, w.Create(t.Context(), forced))
	w.actOn(r, forced)
	w.act(r, "soft-again", "a", airship.Reboot)
	require.JSONEq(t, `{"mode":"hard"}`, w.bare("a").Annotations[annotationReboot], "a forced reboot stays forced")

	written := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"cluster": "t", "host": map[string]any{"namespace": w.metal, "name": "b"}, "action": "PowerOff", "force": false,
	}}}
	written.SetGroupVersionKind(airship.GroupVersion.WithKind("HostAction"))
	written.SetNamespace(w.ns)
	written.SetName("not-forced")
	written.SetAnnotations(reboot.Annotations)
	require.NoError(t, w.Create(t.Context(), written))

	off.Spec.Action = airship.PowerOn
	require.True(t, apierrors.IsInvalid(w.Update(t.Context(), off)))
	reboot.Annotations[airship.AnnotationRequestedBy] = "bob"
	require.ErrorContains(t, w.Update(t.Context(), reboot), "has to be your own user name")
}

// patching is an operator whose patches go through a hook.
func (w *world) patching(hook func(o client.Object, patch func() error) error) *Reconciler {
	return w.operator(interceptor.NewClient(w.own, interceptor.Funcs{Patch: func(
		ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption,
	) error {
		return hook(o, func() error { return c.Patch(ctx, o, p, opts...) })
	}}))
}

func TestAHostActionThatCannotBePassedOn(t *testing.T) {
	w, r := start(t)
	w.settled(r, alone, "a")
	refused := w.patching(func(client.Object, func() error) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "baremetalhosts"}, "a", errors.New("policy"))
	})
	o := w.act(refused, "off", "a", airship.PowerOff)
	require.Contains(t, w.actOn(refused, o), "Requested: change BareMetalHost "+w.metal+"/a: ")
	require.Nil(t, o.Status.RequestedAt)
	w.actOn(r, o)
	require.NotNil(t, o.Status.RequestedAt)
	require.False(t, w.bare("a").Spec.Online)
}

// The API server carries the request out, and its answer is lost.
func TestAHostActionRebootsOnce(t *testing.T) {
	w, r := start(t)
	w.settled(r, alone, "a")
	w.provisioning("externally provisioned", "a")
	lost := w.patching(func(o client.Object, patch func() error) error {
		err := patch()
		if _, isHost := o.(*choose.BareMetalHost); isHost && err == nil {
			err = apierrors.NewTimeoutError("the answer is lost", 1)
		}
		return err
	})
	o := w.act(lost, "reboot", "a", airship.Reboot)
	require.Contains(t, w.bare("a").Annotations, annotationReboot)
	w.rebooted("a")
	w.act(r, "other", "a", airship.Reboot)
	w.rebooted("a")
	w.powered("a", true)
	told(r, "")
	w.actOn(r, o)
	require.NotContains(t, w.bare("a").Annotations, annotationReboot, "a second reboot")
	require.NotNil(t, o.Status.RequestedAt)
	require.Equal(t, 2, strings.Count(told(r, "PowerRequested"), "PowerRequested Requested Reboot of host"))
	w.provisioning("available", "a")
	require.Contains(t, w.actOn(r, o), "Completed: ")
}

// Neither a reboot that waits nor a PowerOff follows the host to the next tenant. What others requested, or changed,
// stays.
func TestHostActionsEndWithTheHold(t *testing.T) {
	w, r := start(t)
	w.settled(r, replace(alone, "active: 1", "active: 6"), "a", "b", "c", "d", "e", "f")
	w.provisioning("provisioned", "a", "b")
	o := w.act(r, "a", "a", airship.Reboot)
	w.act(r, "b", "b", airship.Reboot)
	w.note("b", annotationReboot, `{"mode":"hard"}`)
	w.note("c", annotationReboot, "")
	w.act(r, "d", "d", airship.PowerOff)
	w.act(r, "e", "e", airship.PowerOff)
	online := func(on bool) func(*choose.BareMetalHost) {
		return func(h *choose.BareMetalHost) { h.Spec.Online = on }
	}
	w.edit("e", online(true))
	w.edit("e", online(false))
	w.edit("f", online(false))
	w.provisioning("available", "a", "b")
	w.settle(r, "t")
	w.change("t", replace(alone, "active: 1", "active: 0"))
	w.stands(r, "t", airship.ReasonSucceeded)
	require.NotContains(t, w.bare("a").Annotations, annotationReboot)
	require.Equal(t, `{"mode":"hard"}`, w.bare("b").Annotations[annotationReboot])
	require.Contains(t, w.bare("c").Annotations, annotationReboot)
	require.True(t, w.bare("d").Spec.Online)
	require.False(t, w.bare("e").Spec.Online)
	require.False(t, w.bare("f").Spec.Online)
	require.Contains(t, w.actOn(r, o), "does not hold this host")
}

// A host of another SIPCluster, of none, or one that does not exist are refused alike, and nothing
// is changed.
func TestHostActionsAreForHostsThatTheClusterHolds(t *testing.T) {
	w, r := start(t)
	w.hosts("a", "b", "c")
	w.host(metal3.Host{Name: "free", State: "provisioned"})
	early := w.act(r, "early", "a", airship.PowerOff)
	w.sip("other", alone)
	w.settle(r, "other")
	w.sip("t", alone)
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("other")))
	require.Contains(t, w.actOn(r, early), "/t not found (create another HostAction, for", "it stays refused")
	for _, name := range []string{"a", "free", "missing"} {
		o := w.act(r, name, name, airship.PowerOff)
		require.Contains(t, w.actOn(r, o), "/"+name+": SIPCluster "+w.ns+"/t does not hold this host")
	}
	for _, name := range []string{"a", "free"} {
		require.True(t, w.bare(name).Spec.Online, name)
	}
	w.note("b", choose.AnnotationPaused, "")
	require.Contains(t, w.actOn(r, w.act(r, "paused", "b", airship.PowerOff)), "Refused: ")
	require.True(t, w.bare("b").Spec.Online)
}
