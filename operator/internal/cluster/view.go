package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The kinds that a View keeps.
var (
	nodes      = &kind{"nodes", &corev1.Node{}, &corev1.NodeList{}}
	csiNodes   = &kind{"CSINodes", &storagev1.CSINode{}, &storagev1.CSINodeList{}}
	pods       = &kind{"pods", &corev1.Pod{}, &corev1.PodList{}}
	topologies = &kind{"CSINodeTopologies", topology(), topologyList()}
)

// topologyKind is the kind in which the storage driver reports the topology of nodes.
var topologyKind = schema.GroupVersionKind{Group: "cns.vmware.com", Version: "v1alpha1", Kind: "CSINodeTopology"}

// topologyError is the status of a node whose topology the storage driver cannot find.
const topologyError = "Error"

func topology() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(topologyKind)
	return o
}

func topologyList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(topologyKind.GroupVersion().WithKind(topologyKind.Kind + "List"))
	return list
}

// View watches the kinds with one object per node, and keeps the few fields that are judged: Nodes,
// CSINodes, CSINodeTopologies if they are served, and the pods of the workloads that the last
// observation named. A reconcile of a cluster with thousands of nodes then lists nothing.
//
// A View is as old as its last event: a moment, or up to a minute if a connection is silent. Between
// two watches, and where a watch is forbidden or fails, the API server is asked as without a View.
// The operator writes nothing on its word alone but what the next event would have it write too (the
// number of replicas, and the next stage once one is rolled out). It removes nothing on it, and calls
// no revision healthy: it lists before (see [Cluster.ObserveListed]). It reads installed objects,
// inventories and trust policies past it.
type View struct {
	client client.WithWatch

	mu    sync.Mutex
	ctx   context.Context //nolint:containedctx // of Start: feeds start when they are first used
	feeds map[selection]*feed
}

// NewView returns a View that shows nothing before it is started.
func NewView(c client.WithWatch) *View {
	return &View{client: c, feeds: map[selection]*feed{
		{kind: nodes}: newFeed(c, selection{kind: nodes}), {kind: csiNodes}: newFeed(c, selection{kind: csiNodes}),
	}}
}

// Nodes returns the informer of Nodes; they have the fields that are judged.
func (v *View) Nodes() toolscache.SharedIndexInformer { return v.feeds[selection{kind: nodes}] }

// CSINodes returns the informer of CSINodes; of their drivers they have the storage driver.
func (v *View) CSINodes() toolscache.SharedIndexInformer { return v.feeds[selection{kind: csiNodes}] }

// Start watches until ctx ends. A manager calls it.
func (v *View) Start(ctx context.Context) error {
	v.mu.Lock()
	v.ctx = ctx
	for _, f := range v.feeds {
		f.run(ctx)
	}
	v.mu.Unlock()
	<-ctx.Done()
	return nil
}

// feed returns the running feed of a selection, nil if the View does not run.
func (v *View) feed(of selection) *feed {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ctx == nil || v.ctx.Err() != nil {
		return nil
	}
	f := v.feeds[of]
	if f == nil {
		f = newFeed(v.client, of)
		f.run(v.ctx)
		v.feeds[of] = f
	}
	f.used = true
	return f
}

// prune stops the feeds of pods and topologies that nobody used since it was called last.
func (v *View) prune() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for of, f := range v.feeds {
		if !f.used && (of.kind == pods || of.kind == topologies) {
			f.stop()
			delete(v.feeds, of)
		}
		f.used = false
	}
}

// all returns the objects of a selection, trimmed and sorted by name; what names them in errors. A
// listed object that the View keeps too is the same pointer. The caller must not change any.
func all[T client.Object](ctx context.Context, c *Cluster, of selection, what string) (out []T, err error) {
	f := c.View.feed(of)
	keep := func(o runtime.Object) error {
		out = append(out, f.same(o).(T)) //nolint:forcetypeassert // of the kind
		return nil
	}
	if f == nil || c.listed || !f.current(ctx) {
		_, err = of.each(ctx, c.Reader, keep)
		return out, listFault(what, err)
	}
	for _, o := range f.GetStore().List() {
		out = append(out, o.(T)) //nolint:forcetypeassert // of the kind
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out, nil
}
