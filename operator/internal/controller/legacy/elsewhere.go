package legacy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

// Elsewhere reports resources in other namespaces, where the earlier operator worked on them too. This
// one reads those of its own namespace alone, since whoever may write them has the drivers run with
// settings of his. Such a resource gets an event that says where it has to be, when the operator starts
// and once an hour, since events do not stay. Nothing of it is read but its name, and it is never changed.
//
// Elsewhere is a Runnable of a manager. Its fields are required.
type Elsewhere struct {
	Reader    client.Reader // past the cache, which has the operator's namespace alone
	Recorder  condition.Recorder
	Namespace string // the operator's
}

// NeedLeaderElection says that one replica reports.
func (*Elsewhere) NeedLeaderElection() bool { return true }

// Start reports until ctx is over. That it cannot look, because the account has older rights, is no
// reason to stop the operator.
func (e *Elsewhere) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := e.report(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("objects in other namespaces are not reported of", "why", err.Error())
		}
	}, time.Hour)
	return nil
}

func (e *Elsewhere) report(ctx context.Context) error {
	// Bounds on what a cluster full of such resources costs.
	const maxListed, maxReported = 500, 50
	left := maxReported
	for _, kind := range []string{"VDOConfig", "VsphereCloudConfig", "DriverBundle", compatibility.Kind} {
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		err := e.Reader.List(ctx, all, client.Limit(maxListed))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list %ss: %w", kind, err)
		}
		for i := range all.Items {
			o := &all.Items[i]
			if o.Namespace == e.Namespace || !o.DeletionTimestamp.IsZero() || left == 0 {
				continue
			}
			left--
			o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
			e.Recorder.Eventf(o, nil, corev1.EventTypeWarning, "WrongNamespace", "Ignore",
				"it has no effect here: the operator reads its resources in namespace %[1]s alone; "+
					"create %[2]s %[3]s there, then delete this one", e.Namespace, kind, o.Name)
		}
	}
	return nil
}
