package cluster

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// syncTimeout bounds how long a reconcile waits for an informer before it lists past it.
const syncTimeout = 20 * time.Second

// kind is a kind with one object per node.
type kind struct {
	plural  string
	example client.Object
	list    client.ObjectList // empty
}

// selection names objects of a kind: all, or those in a namespace that a selector selects.
type selection struct {
	*kind
	namespace, selector string
}

func (s selection) empty() client.ObjectList {
	return s.list.DeepCopyObject().(client.ObjectList) //nolint:forcetypeassert // a copy
}

func (s selection) options() *client.ListOptions {
	selector, _ := labels.Parse(s.selector) //nolint:errcheck // it was a selector
	return &client.ListOptions{Namespace: s.namespace, LabelSelector: selector}
}

// each lists page by page and calls keep with every object.
func (s selection) each(
	ctx context.Context, c client.Reader, keep func(runtime.Object) error, opts ...client.ListOption,
) (version string, err error) {
	list := s.empty()
	err = pages.Each(ctx, c, list, func() { _ = meta.EachListItem(list, keep) }, //nolint:errcheck // keep returns none
		append(opts, s.options(), client.Limit(pages.PerNode))...)
	return list.GetResourceVersion(), err
}

// feed is an informer that keeps the objects of a selection as [trimmed] leaves them.
type feed struct {
	toolscache.SharedIndexInformer

	client client.WithWatch
	of     selection
	stop   context.CancelFunc
	used   bool // since the View was pruned
	state  atomic.Int32
}

// The states of a feed.
const (
	pending   int32 = iota // for the API server's answer
	following              // a watch is open
	refused                // the API server answered with an error, or not at all
)

// newFeed returns a feed that does not run yet.
func newFeed(c client.WithWatch, of selection) *feed {
	f := &feed{client: c, of: of}
	lw := &toolscache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}
	f.SharedIndexInformer = toolscache.NewSharedIndexInformer(
		toolscache.ToListWatcherWithWatchListSemantics(lw, f), of.example, 0, toolscache.Indexers{})
	_ = f.SetTransform(func(o any) (any, error) { return trimmed(o), nil }) //nolint:errcheck // it does not run yet
	return f
}

// IsWatchListSemanticsUnSupported has the informer list, whatever the API server can do: the end of
// a list is known.
func (f *feed) IsWatchListSemanticsUnSupported() bool { return true }

// run runs the informer until ctx ends.
func (f *feed) run(ctx context.Context) {
	ctx, f.stop = context.WithCancel(ctx)
	go f.RunWithContext(ctx)
}

// list trims each page before it reads the next one: an informer decodes a whole list first.
func (f *feed) list(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
	raw.ResourceVersion, raw.ResourceVersionMatch = "", ""
	all := &metav1.List{}
	version, err := f.of.each(ctx, f.client, func(o runtime.Object) error {
		all.Items = append(all.Items, runtime.RawExtension{Object: trimmed(o).(runtime.Object)}) //nolint:forcetypeassert // as it was
		return nil
	}, &client.ListOptions{Raw: &raw})
	all.SetResourceVersion(version)
	return all, f.note(err, pending)
}

// watch has everything listed again if the API server is behind: after a restore of etcd its watches
// are silent until it reaches the resource version that they start from.
func (f *feed) watch(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
	one, opts := f.of.empty(), f.of.options()
	err := f.client.List(ctx, one, opts, client.Limit(1))
	is, unknown := resourceversion.CompareResourceVersion(one.GetResourceVersion(), raw.ResourceVersion)
	if err == nil && unknown == nil && is < 0 {
		err = apierrors.NewResourceExpired("the API server is behind resource version " + raw.ResourceVersion)
	}
	if err != nil {
		return nil, f.note(err, refused)
	}
	opts.Raw = &raw
	w, err := f.client.Watch(ctx, f.of.empty(), opts)
	if f.note(err, following) != nil {
		return nil, err
	}
	return watched{w, &f.state}, nil
}

// same returns the object that the feed keeps if it is o, or else what a feed would keep of o. A
// restore of etcd repeats resource versions, so a feed whose watch ended is not asked.
func (f *feed) same(o runtime.Object) runtime.Object {
	if f != nil && f.state.Load() == following {
		kept, _, _ := f.GetStore().Get(o) //nolint:errcheck // o has a name
		k, ok := kept.(client.Object)
		if ok && k.GetResourceVersion() == o.(client.Object).GetResourceVersion() { //nolint:forcetypeassert // of the same kind
			return k
		}
	}
	return trimmed(o).(runtime.Object) //nolint:forcetypeassert // as it was
}

func (f *feed) note(err error, otherwise int32) error {
	if err != nil {
		otherwise = refused
	}
	f.state.Store(otherwise)
	return err
}

// watched notes the end of a watch: an informer stops each one.
type watched struct {
	watch.Interface
	state *atomic.Int32
}

func (w watched) Stop() {
	w.state.Store(pending)
	w.Interface.Stop()
}

// current waits for the informer, and reports whether it follows the API server.
func (f *feed) current(ctx context.Context) bool {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, syncTimeout, true, func(context.Context) (bool, error) {
		if f.state.Load() == refused {
			return false, context.Canceled
		}
		return f.state.Load() == following && f.HasSynced(), nil
	})
	return err == nil
}
