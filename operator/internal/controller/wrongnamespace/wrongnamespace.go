// Package wrongnamespace reports objects of the operator's kinds in namespaces that it does not
// work in.
//
// The predecessor worked on its kinds in every namespace; this operator reads those
// of its own namespace alone, since whoever may write them has the drivers run with
// settings of his. What lies in another one has no effect, and an event on it says so and
// where it has to be: once, and again each hour, since events do not stay. Nothing
// of such an object is read but its name, and it is never changed.
package wrongnamespace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

const (
	interval = time.Minute
	again    = time.Hour // events are kept for as long by default
	// maxListed and maxReported bound what a cluster full of such objects costs.
	maxListed   = 500
	maxReported = 50
)

// kinds that are looked for.
var kinds = []string{"VDOConfig", "VsphereCloudConfig", "DriverBundle", "CompatibilityConfig"}

// Reporter looks for objects in other namespaces, and reports them. It is a Runnable
// of a manager. Reader, Recorder and Namespace are required.
type Reporter struct {
	Reader    client.Reader // past the cache, which has the operator's namespace alone
	Recorder  condition.Recorder
	Namespace string           // the operator's
	Now       func() time.Time // default time.Now

	reported map[types.UID]time.Time
}

// NeedLeaderElection says that one replica tells.
func (*Reporter) NeedLeaderElection() bool { return true }

// Start looks each minute until ctx is over. That it cannot look, because the account
// has older rights, is no reason to stop the operator.
func (t *Reporter) Start(ctx context.Context) error {
	last := ""
	for {
		text := ""
		if err := t.Look(ctx); err != nil && ctx.Err() == nil {
			text = err.Error()
			if text != last {
				log.FromContext(ctx).Info("objects in other namespaces are not reported of", "why", text)
			}
		}
		last = text
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// Look is one look at the cluster.
func (t *Reporter) Look(ctx context.Context) error {
	now := time.Now
	if t.Now != nil {
		now = t.Now
	}
	seen := map[types.UID]time.Time{}
	left := maxReported
	for _, kind := range kinds {
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		err := t.Reader.List(ctx, all, client.Limit(maxListed))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		for i := range all.Items {
			o := &all.Items[i]
			if o.Namespace == t.Namespace || !o.DeletionTimestamp.IsZero() {
				continue
			}
			at, reported := t.reported[o.UID]
			if (!reported || now().Sub(at) >= again) && left > 0 {
				t.report(o, kind)
				at, reported = now(), true
				left--
			}
			if reported {
				seen[o.UID] = at
			}
		}
	}
	t.reported = seen
	return nil
}

func (t *Reporter) report(o *metav1.PartialObjectMetadata, kind string) {
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	with := ""
	if kind == "VsphereCloudConfig" {
		with = ", with the Secret and the CA that it names, unless they are in kube-system"
	}
	t.Recorder.Eventf(o, nil, corev1.EventTypeWarning, "WrongNamespace", "Ignore",
		"it has no effect here: the operator reads its resources in namespace %[1]s alone; create %[2]s %[3]s there%[4]s, then delete this one",
		t.Namespace, kind, o.Name, with)
}
