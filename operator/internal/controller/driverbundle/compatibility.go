package driverbundle

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// compatibilityRetry is how often a watch of CompatibilityConfigs is tried.
const compatibilityRetry = time.Minute

// compatibility is a source of requests: it watches the CompatibilityConfigs of a
// namespace, from when the cluster has the kind and the operator may watch it. CRDs and
// RBAC of an earlier release have neither, and may be replaced at any time, one before
// the other; an informer would wait for both, and with it all controllers of the manager.
type compatibility struct {
	client    client.WithWatch
	namespace string
	retry     time.Duration // between the beginnings of two watches, at least
}

func newCompatibility(mgr manager.Manager, namespace string, retry time.Duration) (compatibility, error) {
	c, err := client.NewWithWatch(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	return compatibility{client: c, namespace: namespace, retry: retry}, err
}

// String names the source in logs.
func (c compatibility) String() string { return "watch of " + kindCompatibility + "s" }

// Start watches until ctx is over, and returns at once.
func (c compatibility) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go c.run(ctx, queue)
	return nil
}

func (c compatibility) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	last := ""
	for ctx.Err() == nil {
		next := time.After(c.retry)
		text := ""
		if err := c.watch(ctx, queue); err != nil && ctx.Err() == nil {
			text = err.Error()
			if text != last {
				log.FromContext(ctx).Info("CompatibilityConfigs of the earlier operator are not watched: apply the manifests of this release", "error", text)
			}
		}
		last = text
		select {
		case <-ctx.Done():
		case <-next:
		}
	}
}

// watch asks for a pass at its beginning, since things may have changed while nobody
// watched, and at each change. The API server ends it in its own time.
func (c compatibility) watch(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kindCompatibility + "List"))
	w, err := c.client.Watch(ctx, list, client.InNamespace(c.namespace))
	if err != nil {
		return err
	}
	defer w.Stop()
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: c.namespace, Name: v1alpha1.LegacyMatrixName}}
	queue.Add(request)
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return nil
		}
		queue.Add(request)
	}
	return nil
}
