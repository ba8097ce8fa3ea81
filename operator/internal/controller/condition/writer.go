package condition

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// MaxNote is the longest note of an event, as the API server validates it.
const MaxNote = 1 << 10

// Object is a resource with conditions.
type Object interface {
	client.Object
	GetConditions() []metav1.Condition
}

// Recorder records events. The manager's GetEventRecorder returns one.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Writer writes statuses. Its fields are required.
type Writer struct {
	Client   client.StatusClient
	Recorder Recorder
}

// Write patches the status if after differs from before, the object as the pass read it. If Ready differs, it emits
// an event and logs; the message of work in progress does not count. It returns a Conflict fault if the resource has
// changed since: that change starts another pass.
func (w Writer) Write(ctx context.Context, before, after Object) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	ready := meta.FindStatusCondition(after.GetConditions(), v1alpha1.ConditionReady).DeepCopy() // the answer overwrites after
	if err := w.Client.Status().Patch(ctx, after, patch); err != nil {
		key := client.ObjectKeyFromObject(after).String()
		f := fault.Errorf(fault.Internal, "write status of", key, "", "patch: %w", err)
		if apierrors.IsConflict(err) {
			f.Reason = fault.Conflict
		}
		return f
	}
	if reported(meta.FindStatusCondition(before.GetConditions(), v1alpha1.ConditionReady), ready) {
		log.FromContext(ctx).Info("status changed", "ready", ready.Status, "reason", ready.Reason, "message", ready.Message)
		kind := corev1.EventTypeNormal
		if ready.Status == metav1.ConditionFalse {
			kind = corev1.EventTypeWarning
		}
		w.Recorder.Eventf(after, nil, kind, ready.Reason, "Reconcile", "%s", Cut(ready.Message, MaxNote))
	}
	return nil
}

// reported reports whether the change of Ready is worth an event. Progress of work is not: it may cover thousands of
// nodes, one by one.
func reported(before, now *metav1.Condition) bool {
	if now == nil {
		return false
	}
	if before == nil || before.Status != now.Status || before.Reason != now.Reason {
		return true
	}
	return now.Reason != ReasonProgressing && before.Message != now.Message
}
