package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// The kinds in a View.
var (
	nodes      = &kind{"nodes", &corev1.Node{}, &corev1.NodeList{}}
	csiNodes   = &kind{"CSINodes", &storagev1.CSINode{}, &storagev1.CSINodeList{}}
	pods       = &kind{"pods", &corev1.Pod{}, &corev1.PodList{}}
	topologies = &kind{"CSINodeTopologies", topology(), pages.Empty(topologyKind)}
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

// View caches the kinds with one object per node, so that no reconcile lists a cluster with thousands of nodes. Its
// kinds are Nodes, CSINodes, served CSINodeTopologies, and the pods of the last observed workloads. See the package
// comment for its limits.
type View struct {
	client client.WithWatch

	mu    sync.Mutex
	ctx   context.Context //nolint:containedctx // of Start: feeds start when they are first used
	feeds map[selection]*feed
}

// NewView returns a View that is empty before Start.
func NewView(c client.WithWatch) *View {
	return &View{client: c, feeds: map[selection]*feed{
		{kind: nodes}: newFeed(c, selection{kind: nodes}), {kind: csiNodes}: newFeed(c, selection{kind: csiNodes}),
	}}
}

// Nodes returns the informer of Nodes, trimmed to the judged fields.
func (v *View) Nodes() toolscache.SharedIndexInformer { return v.feeds[selection{kind: nodes}] }

// CSINodes returns the informer of CSINodes, trimmed to the storage driver.
func (v *View) CSINodes() toolscache.SharedIndexInformer { return v.feeds[selection{kind: csiNodes}] }

// Start watches until ctx ends, as a manager's runnable.
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

// prune stops the feeds of pods and topologies that were not used since its last call.
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

// all returns the objects of a selection, trimmed and sorted by name; errors contain what. A listed object is the
// same pointer as in the View. The caller must not change the objects.
func all[T client.Object](ctx context.Context, c *Cluster, of selection, what string) (out []T, err error) {
	f := c.View.feed(of)
	if f == nil || c.listed || !f.current(ctx) {
		_, err = of.each(ctx, c.Reader, func(o client.Object) {
			out = append(out, f.same(o).(T)) //nolint:forcetypeassert // of the kind
		})
		return out, listFault(what, err)
	}
	for _, o := range f.GetStore().List() {
		out = append(out, o.(T)) //nolint:forcetypeassert // of the kind
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// syncTimeout bounds a reconcile's wait for an informer; after it, the reconcile lists.
const syncTimeout = 20 * time.Second

// kind is a kind with one object per node.
type kind struct {
	plural  string
	example client.Object
	list    client.ObjectList // empty
}

// selection names objects of a kind: all, or those that a selector matches in a namespace.
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
	ctx context.Context, c client.Reader, keep func(client.Object), opts ...client.ListOption,
) (version string, err error) {
	list := s.empty()
	err = pages.Each(ctx, c, list, keep, append(opts, s.options(), client.Limit(pages.PerNode))...)
	return list.GetResourceVersion(), err
}

// feed is an informer that keeps the objects of a selection as [trimmed] leaves them.
type feed struct {
	toolscache.SharedIndexInformer

	client client.WithWatch
	of     selection
	stop   context.CancelFunc
	used   bool // since the last prune
	state  atomic.Int32
}

// The states of a feed.
const (
	pending   int32 = iota // waits for the API server's answer
	following              // a watch is open
	refused                // the API server answered with an error, or not at all
)

// newFeed returns a feed that does not run yet.
func newFeed(c client.WithWatch, of selection) *feed {
	f := &feed{client: c, of: of}
	lw := &toolscache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}
	f.SharedIndexInformer = toolscache.NewSharedIndexInformer(
		toolscache.ToListWatcherWithWatchListSemantics(lw, f), of.example, 0, toolscache.Indexers{})
	trim := func(o any) (any, error) { return trimmed(o.(client.Object)), nil } //nolint:forcetypeassert // of the kind
	_ = f.SetTransform(trim)                                                    //nolint:errcheck // it does not run yet
	return f
}

// IsWatchListSemanticsUnSupported makes the informer list, whatever the API server supports, so that the end of a
// list is known.
func (f *feed) IsWatchListSemanticsUnSupported() bool { return true }

func (f *feed) run(ctx context.Context) {
	ctx, f.stop = context.WithCancel(ctx)
	go f.RunWithContext(ctx)
}

// list trims each page before it reads the next one: an informer decodes a whole list first.
func (f *feed) list(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
	raw.ResourceVersion, raw.ResourceVersionMatch = "", ""
	all := &metav1.List{}
	version, err := f.of.each(ctx, f.client, func(o client.Object) {
		all.Items = append(all.Items, runtime.RawExtension{Object: trimmed(o)})
	}, &client.ListOptions{Raw: &raw})
	all.SetResourceVersion(version)
	return all, f.note(err, pending)
}

func (f *feed) watch(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
	opts := f.of.options()
	opts.Raw = &raw
	w, err := f.client.Watch(ctx, f.of.empty(), opts)
	if f.note(err, following) != nil {
		return nil, err
	}
	return watched{w, &f.state}, nil
}

// same returns the feed's copy of o, or else a trimmed o.
func (f *feed) same(o client.Object) client.Object {
	if f != nil && f.state.Load() == following {
		stored, _, _ := f.GetStore().Get(o) //nolint:errcheck // o has a name
		if k, ok := stored.(client.Object); ok && k.GetResourceVersion() == o.GetResourceVersion() {
			return k
		}
	}
	return trimmed(o)
}

func (f *feed) note(err error, otherwise int32) error {
	if err != nil {
		otherwise = refused
	}
	f.state.Store(otherwise)
	return err
}

// watched records the end of a watch: an informer stops each one.
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

// Objects per node are trimmed on arrival, listed or watched, so that both have the same fields. A field that is
// judged must be kept here. A node of 20 KiB shrinks to 1 KiB, a pod of 15 KiB to 0.5 KiB.

// trimmed returns the kept part of an object. An object without managed fields, which the API server adds, is
// trimmed already.
func trimmed(o client.Object) client.Object {
	if len(o.GetManagedFields()) == 0 {
		return o
	}
	switch o := o.(type) {
	case *corev1.Node:
		return trimNode(o)
	case *storagev1.CSINode:
		return trimCSINode(o)
	case *corev1.Pod:
		return trimPod(o)
	case *unstructured.Unstructured:
		return trimTopology(o)
	}
	return o
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: intern(m.Namespace), Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: internLabels(m.Labels),
	}
}

func trimNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: trimMeta(n.ObjectMeta)}
	out.Spec.ProviderID, out.Spec.Unschedulable, out.Spec.Taints = n.Spec.ProviderID, n.Spec.Unschedulable, n.Spec.Taints
	out.Status.NodeInfo.KubeletVersion = intern(n.Status.NodeInfo.KubeletVersion)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status := intern(c.Status)
			stored := corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: c.LastTransitionTime}
			out.Status.Conditions = []corev1.NodeCondition{stored}
		}
	}
	return out
}

func trimCSINode(n *storagev1.CSINode) *storagev1.CSINode {
	out := &storagev1.CSINode{ObjectMeta: trimMeta(n.ObjectMeta)}
	for _, d := range n.Spec.Drivers {
		if d.Name == drivers.CSIDriver {
			d.Name, d.Allocatable = drivers.CSIDriver, nil
			out.Spec.Drivers = []storagev1.CSINodeDriver{d}
		}
	}
	return out
}

// trimPod keeps only waiting containers, with the reason and their last end, and the affinity of a pod without a
// node.
func trimPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: trimMeta(p.ObjectMeta)}
	out.Labels = shareLabels(out.Labels) // equal for all pods of a workload
	if out.Spec.NodeName = p.Spec.NodeName; out.Spec.NodeName == "" {
		out.Spec.Affinity = p.Spec.Affinity
	}
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady:
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: intern(c.Status)})
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			out.Status.Conditions = append(out.Status.Conditions, c)
		}
	}
	out.Status.InitContainerStatuses = waiting(p.Status.InitContainerStatuses)
	out.Status.ContainerStatuses = waiting(p.Status.ContainerStatuses)
	return out
}

func waiting(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var stored []corev1.ContainerStatus
	for _, c := range all {
		if c.State.Waiting == nil {
			continue
		}
		is := corev1.ContainerStatus{Name: c.Name, State: corev1.ContainerState{Waiting: c.State.Waiting}}
		is.LastTerminationState.Terminated = c.LastTerminationState.Terminated
		stored = append(stored, is)
	}
	return stored
}

// trimTopology keeps the status of a CSINodeTopology if it is an error.
func trimTopology(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(o.GroupVersionKind())
	out.SetName(o.GetName())
	out.SetUID(o.GetUID())
	out.SetResourceVersion(o.GetResourceVersion())
	if state, _, _ := unstructured.NestedString(o.Object, "status", "status"); state == topologyError {
		message, _, _ := unstructured.NestedString(o.Object, "status", "errorMessage")
		out.Object["status"] = map[string]any{"status": state, "errorMessage": message}
	}
	return out
}

// shared has the labels of pods by their text, since all pods of a workload have the same.
var shared sync.Map

// shareLabels returns shared labels equal to m; the caller must not change them.
func shareLabels(m map[string]string) map[string]string {
	is, _ := shared.LoadOrStore(labels.FormatLabels(m), m)
	return is.(map[string]string) //nolint:forcetypeassert // nothing else is stored
}

// internLabels returns m with shared texts, since thousands of nodes have few different ones.
func internLabels(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[intern(k)] = intern(v)
	}
	return out
}

// intern returns the single copy of a text.
func intern[T ~string](s T) T { return unique.Make(s).Value() }
