package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// View keeps, by watching, the few fields that are judged of what there is one of for
// each node: Nodes, CSINodes, CSINodeTopologies where they are served, and the pods of
// the workloads that were asked about last. So a look at a cluster of thousands of nodes
// lists nothing.
//
// What it shows is as old as what a watch brought last: a moment, and where a connection
// goes silent without an end, until the client's pings notice, within a minute. From the end
// of a watch until the next one has brought what came in between, nothing is shown (see
// [feed]). Nothing is written on its word alone but what the
// next event would have written too (the number of replicas by the nodes that there are,
// and that a stage goes on where the one before is rolled out). Nothing is removed on it, and
// no revision is called healthy: all of it is listed before (see [Cluster.ObserveListed]).
// What is installed, inventories and trust policies are always read past it. Where a watch
// is broken or forbidden, the API server is asked as without a View.
type View struct {
	client client.WithWatch
	nodes  *feed
	csi    *feed

	mu         sync.Mutex
	ctx        context.Context //nolint:containedctx // of Start: feeds are begun as they are asked for
	topologies *feed           // nil while the kind is not served
	pods       map[selection]*feed
}

// selection names the pods of a workload.
type selection struct{ namespace, selector string }

// NewView returns a View that shows nothing before it is started.
func NewView(c client.WithWatch) *View {
	return &View{
		client: c, pods: map[selection]*feed{},
		nodes: newFeed(c, &corev1.Node{}, func() client.ObjectList { return &corev1.NodeList{} }, client.ListOptions{}),
		csi:   newFeed(c, &storagev1.CSINode{}, func() client.ObjectList { return &storagev1.CSINodeList{} }, client.ListOptions{}),
	}
}

// Nodes tells of Nodes; of their fields it has those that are judged.
func (v *View) Nodes() toolscache.SharedIndexInformer { return v.nodes.informer }

// CSINodes tells of CSINodes likewise: of their drivers it has the storage driver.
func (v *View) CSINodes() toolscache.SharedIndexInformer { return v.csi.informer }

// Start watches until ctx is over. A manager calls it.
func (v *View) Start(ctx context.Context) error {
	v.mu.Lock()
	v.ctx = ctx
	v.mu.Unlock()
	v.nodes.run(ctx)
	v.csi.run(ctx)
	<-ctx.Done()
	return nil
}

func (v *View) nodeFeed() *feed {
	if v.ended() {
		return nil
	}
	return v.nodes
}

func (v *View) csiFeed() *feed {
	if v.ended() {
		return nil
	}
	return v.csi
}

// ended tells whether it does not run: before Start, and after its end.
func (v *View) ended() bool {
	if v == nil {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ctx == nil || v.ctx.Err() != nil
}

// running returns a feed, which is begun where it is not there.
func (v *View) running(there *feed, begin func() *feed) *feed {
	if there != nil {
		return there
	}
	f := begin()
	f.run(v.ctx)
	return f
}

// topology returns the feed of CSINodeTopologies, or nil where their kind is not served.
func (v *View) topology(served bool) *feed {
	if v.ended() {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !served {
		if v.topologies != nil {
			v.topologies.stop()
		}
		v.topologies = nil
		return nil
	}
	v.topologies = v.running(v.topologies, func() *feed {
		example := &unstructured.Unstructured{}
		example.SetGroupVersionKind(topologyKind)
		return newFeed(v.client, example, func() client.ObjectList { return topologyList() }, client.ListOptions{})
	})
	return v.topologies
}

// podsOf returns the feed of the pods that a selector selects in a namespace, or nil.
func (v *View) podsOf(namespace string, selector labels.Selector) *feed {
	if v.ended() {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	key := selection{namespace, selector.String()}
	f := v.running(v.pods[key], func() *feed {
		return newFeed(v.client, &corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }, within(namespace, selector))
	})
	v.pods[key] = f
	return f
}

// keep ends the feeds of pods that were not asked for.
func (v *View) keep(asked map[selection]bool) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, f := range v.pods {
		if !asked[key] {
			f.stop()
			delete(v.pods, key)
		}
	}
}

// shown returns all objects of a feed, sorted by name, and whether it could. Nothing of them
// may be changed.
func shown[T client.Object](ctx context.Context, f *feed) (all []T, ok bool) {
	if f == nil || f.see(ctx) != nil {
		return nil, false
	}
	for _, o := range f.informer.GetStore().List() {
		if t, is := o.(T); is {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all, true
}

// topologyKind is what the storage driver says of nodes in.
var topologyKind = schema.GroupVersionKind{Group: "cns.vmware.com", Version: "v1alpha1", Kind: "CSINodeTopology"}

// topologyError is the status of one whose topology cannot be found out.
const topologyError = "Error"

func topologyList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(topologyKind.GroupVersion().WithKind(topologyKind.Kind + "List"))
	return list
}
