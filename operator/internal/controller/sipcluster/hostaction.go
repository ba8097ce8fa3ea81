package sipcluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// annotationReboot makes Metal3 power-cycle a host once. Metal3 removes it when the host is off.
const annotationReboot = "reboot.metal3.io"

// annotationRebootedFor has the UIDs of the last HostActions that rebooted a host, newest first. It is written with
// annotationReboot: if the operator misses the answer, or crashes before it writes the status, it does not reboot the
// host again.
const annotationRebootedFor = "sip.airshipit.org/rebooted-for"

const maxRebootedFor = 10

// actions reconciles HostActions: it passes each request to Metal3, and reports when Metal3
// has carried it out.
type actions struct{ *Reconciler }

type action = *airship.HostAction

func (a *actions) Reconcile(ctx context.Context, o action) (reconcile.Result, error) {
	frame := reconciler.Reconciler[action]{Controller: a, Writer: a.Writer, Now: a.Now}
	return frame.Reconcile(ctx, o)
}

// Pass requests the action, or checks whether Metal3 has carried it out.
func (a *actions) Pass(ctx context.Context, o action) (reconciler.Outcome[action], error) {
	ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && (ready.Reason == airship.ReasonCompleted || ready.Reason == airship.ReasonRefused) {
		return nil, nil
	}
	sip, h, err := a.held(ctx, o)
	if err == nil {
		err = possible(o, h)
	}
	waits := judgement{airship.ReasonRequested, "waiting for Metal3 to carry it out", metav1.ConditionUnknown, false}
	out := actionOutcome{now: a.Now(), ready: waits}
	switch {
	case fault.ReasonOf(err) == fault.Refused:
		out.ready = judgement{airship.ReasonRefused, fault.Text(err), metav1.ConditionFalse, true}
	case err != nil:
		return nil, err
	case o.Status.RequestedAt == nil:
		err := a.request(ctx, o, sip, h)
		if fault.ReasonOf(err) == fault.Conflict {
			return nil, err // the next reconcile decides again
		}
		if err != nil {
			out.ready.status, out.ready.message = metav1.ConditionFalse, fault.Text(err)
		}
	case isDone(o, h.BareMetalHost):
		out.ready = judgement{airship.ReasonCompleted, "Metal3 has carried it out", metav1.ConditionTrue, false}
	}
	return out, nil
}

func isDone(o action, live *choose.BareMetalHost) bool {
	switch _, pending := live.Annotations[annotationReboot]; o.Spec.Action {
	case airship.Reboot:
		return !pending && live.Status.PoweredOn
	case airship.PowerOn:
		return live.Status.PoweredOn
	}
	return !live.Status.PoweredOn
}

// held reads the SIPCluster and the host, and refuses a host that the SIPCluster does not hold. The refusal gives no
// details: a tenant must not learn which hosts exist.
func (a *actions) held(ctx context.Context, o action) (object, *choose.Host, error) {
	sip, live := &airship.SIPCluster{}, &choose.BareMetalHost{}
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.Cluster}
	err := a.Reader.Get(ctx, key, sip)
	if apierrors.IsNotFound(err) {
		const hint = "create another HostAction, for a SIPCluster of this namespace"
		return nil, nil, refuse(o, "SIPCluster "+key.String()+" not found", hint)
	}
	if err == nil {
		err = a.Reader.Get(ctx, types.NamespacedName{Namespace: o.Spec.Host.Namespace, Name: o.Spec.Host.Name}, live)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, asked("read", o.Spec.Host.String(), err)
	}
	h := &choose.Host{BareMetalHost: live}
	if err != nil || !clusterOf(sip).Holds(h) {
		why := "SIPCluster " + key.String() + " does not hold this host"
		return nil, nil, refuse(o, why, "create another HostAction, for a host of its status.hosts")
	}
	return sip, h, nil
}

// possible refuses actions that Metal3 would ignore, and a PowerOff that Cluster API would undo.
func possible(o action, h *choose.Host) error {
	online := h.Spec.Online
	switch {
	case h.Ignored():
		return refuse(o, "Metal3 ignores the host: it is paused or detached",
			"have an administrator resume it, then create another HostAction")
	case o.Spec.Action == airship.PowerOff && h.Spec.ConsumerRef.Kind == "Metal3Machine":
		return refuse(o, "Cluster API powers its machines on again", "delete its Machine, or request Reboot")
	case o.Spec.Action == airship.Reboot && !online:
		return refuse(o, "the host is powered off", "request PowerOn")
	case o.Spec.Action == airship.Reboot && o.Status.RequestedAt == nil && !h.Provisioned():
		return refuse(o, "Metal3 reboots provisioned hosts only", "request PowerOff, then PowerOn")
	case o.Status.RequestedAt != nil && o.Spec.Action != airship.Reboot && online != (o.Spec.Action == airship.PowerOn):
		return refuse(o, "spec.online of the host was changed since",
			"see `kubectl get hostactions`, and who else controls its power; create another HostAction if you still want it")
	}
	return nil
}

func refuse(o action, why, hint string) error {
	return fault.Errorf(fault.Refused, string(o.Spec.Action), o.Spec.Host.String(), hint, "%s", why)
}

// request passes the action to Metal3, and emits events on the SIPCluster and the host.
func (a *actions) request(ctx context.Context, o action, sip object, h *choose.Host) error {
	metadata, spec := map[string]any{}, map[string]any(nil)
	rebooted := strings.Fields(h.Annotations[annotationRebootedFor])
	if o.Spec.Action != airship.Reboot {
		spec = map[string]any{"online": o.Spec.Action == airship.PowerOn}
	} else if uid := string(o.UID); !slices.Contains(rebooted, uid) {
		mode := `{"mode":"soft"}`
		if o.Spec.Force || strings.Contains(h.Annotations[annotationReboot], `"hard"`) { // one that waits stays forced
			mode = `{"mode":"hard"}`
		}
		rebooted = append([]string{uid}, rebooted[:min(len(rebooted), maxRebootedFor-1)]...)
		metadata["annotations"] = map[string]any{
			annotationReboot: mode, annotationRebootedFor: strings.Join(rebooted, " "),
		}
	}
	if err := a.patch(ctx, h, metadata, spec); err != nil {
		return err
	}
	note := fmt.Sprintf("Requested %s of %s for SIPCluster %s/%s, by HostAction %s", o.Spec.Action, o.Spec.Host, sip.Namespace,
		sip.Name, o.Name)
	if by := o.Annotations[airship.AnnotationRequestedBy]; by != "" {
		note += fmt.Sprintf(", requested by %q", by)
	}
	note = condition.Cut(note, condition.MaxNote)
	for _, about := range []client.Object{sip, h.BareMetalHost} {
		a.Writer.Recorder.Eventf(about, nil, corev1.EventTypeNormal, "PowerRequested", string(o.Spec.Action), "%s", note)
	}
	return nil
}

// hasOurs reports whether a field or annotation of a host is as this operator wrote it. The host has to be from the
// API server: a cache has no managed fields.
func hasOurs(h *choose.Host, name string) bool {
	return slices.ContainsFunc(h.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == cluster.FieldManager && f.FieldsV1 != nil &&
			strings.Contains(f.FieldsV1.GetRawString(), `"f:`+name+`"`)
	})
}

type actionOutcome struct {
	ready judgement
	now   time.Time
}

func (r actionOutcome) Record(o action) {
	o.Status.ObservedGeneration = o.Generation
	at := metav1.NewTime(r.now)
	if r.ready.status != metav1.ConditionFalse && o.Status.RequestedAt == nil {
		o.Status.RequestedAt = &at
	}
	if r.ready.reason == airship.ReasonCompleted {
		o.Status.CompletedAt = &at
	}
	r.ready.set(&o.Status.Conditions, o.Generation)
}

// Next is soon while Metal3 works on the action.
func (r actionOutcome) Next(o action) reconciler.Next {
	if r.ready.reason != airship.ReasonRequested {
		return reconciler.Next{}
	}
	return reconciler.Next{AtMost: wait(o.Status.Conditions, r.now, reconciler.Soon, maxSoon)}
}
