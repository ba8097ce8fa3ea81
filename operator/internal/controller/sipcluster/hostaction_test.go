package sipcluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
)

// act makes a HostAction and has the operator reconcile it.
func (w *world) act(r *Reconciler, name, host string, what airship.PowerAction) action {
	w.Helper()
	o := &airship.HostAction{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: airship.HostActionSpec{
		Cluster: "t", Host: airship.HostReference{Namespace: w.metal, Name: host}, Action: what,
	}}
	require.NoError(w, w.Create(w.Context(), o, client.FieldOwner("test-portal")))
	w.actOn(r, o)
	return o
}

// actOn reconciles a HostAction, and reads it.
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
	o := w.bare(name)
	patch := client.MergeFrom(o.DeepCopy())
	require.NoError(w, unstructured.SetNestedField(o.Object, on, "status", "poweredOn"))
	require.NoError(w, w.Status().Patch(w.Context(), o, patch))
}

// Metal3 gets what is requested of a host that the SIPCluster holds, and the status and the events
// say what happened, and by whom.
func TestHostActionsGoThroughMetal3(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c")
	w.sip("t", replace(workers, "standby: 1", "standby: 0"))
	r := w.operator(w.own)
	w.settle(r, "t")
	recorder := events.NewFakeRecorder(100)
	r.Writer.Recorder = recorder

	reboot := w.act(r, "reboot", "a", airship.Reboot)
	require.JSONEq(t, `{"mode":"soft"}`, w.bare("a").GetAnnotations()[annotationReboot])
	require.NotNil(t, reboot.Status.RequestedAt)
	for range 2 { // of the SIPCluster and of the host
		require.Contains(t, <-recorder.Events, "PowerRequested Reboot of host "+w.metal+"/a for SIPCluster "+w.ns+
			`/t, by HostAction reboot, written by field manager "test-portal"`)
	}
	require.Contains(t, w.actOn(r, reboot), "Requested: waiting for Metal3")
	w.edit("a", func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{airship.AnnotationClaim: o.GetAnnotations()[airship.AnnotationClaim]})
	})
	require.Contains(t, w.actOn(r, reboot), "Completed: ")
	require.NotNil(t, reboot.Status.CompletedAt)
	w.actOn(r, reboot)
	require.NotContains(t, w.bare("a").GetAnnotations(), annotationReboot, "it is requested once")

	off := w.act(r, "off", "b", airship.PowerOff)
	require.False(t, isOnline(w.bare("b")))
	require.Contains(t, w.actOn(r, off), "Requested: ")
	w.powered("b", false)
	require.Contains(t, w.actOn(r, off), "Completed: ")
	require.Contains(t, w.actOn(r, w.act(r, "cycle", "b", airship.Reboot)), "b: the host is powered off")
	on := w.act(r, "on", "b", airship.PowerOn)
	require.True(t, isOnline(w.bare("b")))
	w.edit("b", func(o *unstructured.Unstructured) {
		require.NoError(t, unstructured.SetNestedField(o.Object, false, "spec", "online"))
	})
	require.Contains(t, w.actOn(r, on), "Refused: PowerOn host "+w.metal+"/b: spec.online of the host was changed")

	off.Spec.Action = airship.PowerOn
	require.True(t, apierrors.IsInvalid(w.Update(t.Context(), off)))
}

// A request that the API server refuses to pass on is reported, and repeated.
func TestAHostActionThatCannotBePassedOn(t *testing.T) {
	w := start(t)
	w.hosts("a")
	w.sip("t", `nodes: {Worker: {FLAVOR, count: {active: 1}}}`)
	r := w.operator(w.own)
	w.settle(r, "t")
	refused := w.operator(interceptor.NewClient(w.own, interceptor.Funcs{
		Patch: func(
			_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption,
		) error {
			kind := schema.GroupResource{Resource: "baremetalhosts"}
			return apierrors.NewForbidden(kind, o.GetName(), errors.New("policy"))
		},
	}))
	o := w.act(refused, "off", "a", airship.PowerOff)
	require.Contains(t, w.actOn(refused, o), "Requested: change BareMetalHost "+w.metal+"/a: ")
	require.Nil(t, o.Status.RequestedAt)
	w.actOn(r, o)
	require.NotNil(t, o.Status.RequestedAt)
	require.False(t, isOnline(w.bare("a")))
}

// A host of another SIPCluster, of none, or one that does not exist are refused alike, and nothing
// is changed.
func TestHostActionsAreForHostsThatTheClusterHolds(t *testing.T) {
	w := start(t)
	w.hosts("a", "b", "c")
	r := w.operator(w.own)
	w.host(metal3.Host{Name: "free", State: "provisioned"})
	w.act(r, "early", "a", airship.PowerOff)
	w.sip("other", `nodes: {Worker: {FLAVOR, count: {active: 1}}}`)
	w.settle(r, "other")
	w.sip("t", `nodes: {Worker: {FLAVOR, count: {active: 1}}}`)
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("other")))
	for _, name := range []string{"a", "free", "missing"} {
		o := w.act(r, name, name, airship.PowerOff)
		require.Contains(t, w.actOn(r, o), "/"+name+": SIPCluster "+w.ns+"/t does not hold this host")
	}
	for _, name := range []string{"a", "free"} {
		require.True(t, isOnline(w.bare(name)), name)
	}
	w.note("b", annotationPaused, "")
	require.Contains(t, w.actOn(r, w.act(r, "paused", "b", airship.PowerOff)), "Refused: ")
	require.True(t, isOnline(w.bare("b")))
}

// No Secret beside the SIPCluster has BMC credentials, not even one that an earlier version made. Events
// report the fields that have no effect any more.
func TestBMCCredentialsStayInTheHostsNamespace(t *testing.T) {
	w := start(t)
	w.hosts("a")
	w.sip("t", `
nodes: {Worker: {FLAVOR, count: {active: 1}}}
services:
  jumpHost: [{nodePort: PORT1, nodeInterfaceId: oam, bmc: {proxy: true, caSecret: missing}, nodeSSHPrivateKeys: missing}]
`)
	r := w.whole()
	name := services.Name("t", services.JumpHost, 0)
	r.Render = func(in services.Input) services.Set { // as the earlier version did
		set := services.Render(in)
		for _, o := range set.Services[0].Objects {
			if o.GetKind() == "ConfigMap" {
				o.Object["data"] = map[string]any{"config.json": "{}"}
			}
		}
		secret := set.Services[0].Objects[0].DeepCopy()
		secret.SetKind("Secret")
		secret.SetName(name + "-bmc")
		secret.Object["data"] = map[string]any{"bmc.json": b64([]byte("bmc-password-of-a"))}
		set.Services[0].Objects = slices.Insert(set.Services[0].Objects, 0, secret)
		return set
	}
	w.settle(r, "t")
	require.NotEmpty(t, read[corev1.Secret](w, name+"-bmc").Data)
	told(r, "")

	r.Render = services.Render
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	events := told(r, "FieldIgnored")
	require.Contains(t, events, "spec.services.jumpHost[0].bmc has no effect; create a HostAction")
	require.Contains(t, events, "spec.services.jumpHost[0].nodeSSHPrivateKeys has no effect; reach hosts with `ssh -J`")
	var secrets corev1.SecretList
	require.NoError(t, w.List(t.Context(), &secrets, client.InNamespace(w.ns)))
	for _, s := range secrets.Items {
		for v := range maps.Values(s.Data) {
			require.NotContains(t, string(v), "bmc-password", s.Name)
		}
	}
	err := w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: name + "-bmc"}, &corev1.Secret{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.NoError(t, w.pass(r, "t"))
	require.Empty(t, strings.TrimSpace(told(r, "FieldIgnored")), "nothing changed")
}
