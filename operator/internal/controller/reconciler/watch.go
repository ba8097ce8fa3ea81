package reconciler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Watch is a source of changes of a kind's metadata. Unlike source.Kind, it does not make the controller wait for the
// informer: without the permission to list there are no events, and [Refusals] reports it.
func Watch(
	c cache.Cache, kind schema.GroupVersionKind, h handler.EventHandler, p ...predicate.Predicate,
) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(kind)
		informer, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		return (&source.Informer{Informer: informer, Handler: h, Predicates: p}).Start(ctx, q)
	})
}

// ForWatches returns a configuration for clients that watch: the timeout of other requests ends no watch.
func ForWatches(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0
	return cfg
}

// Cache adds a cache to a manager, and notes the watches of it that are refused. No controller waits for it.
func (r *Refusals) Cache(mgr manager.Manager, o cache.Options) (cache.Cache, error) {
	o.Scheme, o.Mapper, o.DefaultWatchErrorHandler = mgr.GetScheme(), mgr.GetRESTMapper(), r.Handle
	watched, err := cache.New(ForWatches(mgr.GetConfig()), o)
	if err != nil {
		return nil, err
	}
	return watched, mgr.Add(watched)
}

// refusalLasts is longer than an informer waits before it retries.
const refusalLasts = 2 * time.Minute

// Refusals has the watches that the API server refuses.
type Refusals struct {
	mu       sync.Mutex
	last     map[string]refusal // by the API server's message
	reported chan event.GenericEvent
}

// refusal is of a watch that had come to a version. It ends with the next version: an API server refuses everything
// for a moment after its start.
type refusal struct {
	at      time.Time
	version string
	current func() string
}

// NewRefusals returns empty Refusals.
func NewRefusals() *Refusals {
	return &Refusals{last: map[string]refusal{}, reported: make(chan event.GenericEvent, 1)}
}

// Reported returns a channel with an event for each new refusal.
func (r *Refusals) Reported() <-chan event.GenericEvent { return r.reported }

// Handle is the WatchErrorHandlerWithContext of a cache.
func (r *Refusals) Handle(ctx context.Context, f *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, f, err)
	r.note(err, time.Now(), f.LastSyncResourceVersion)
}

func (r *Refusals) note(err error, now time.Time, current func() string) {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	text := status.Status().Message
	if now.Sub(r.last[text].at) > refusalLasts {
		select {
		case r.reported <- event.GenericEvent{}:
		default: // an event is already waiting
		}
	}
	r.last[text] = refusal{now, current(), current}
}

// Err returns a fault that names each missing permission, or nil.
func (r *Refusals) Err(now time.Time) error {
	if r == nil { // in a preview, which watches nothing
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ string, f refusal) bool {
		return now.Sub(f.at) > refusalLasts || f.version != f.current()
	})
	if len(r.last) == 0 {
		return nil
	}
	return fault.Errorf(fault.Forbidden, "watch what is installed", "",
		"apply the RBAC manifests of this version of the operator", "%s",
		strings.Join(slices.Sorted(maps.Keys(r.last)), "; "))
}
