package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// lists counts the lists that a cluster's Reader is asked for.
type lists struct {
	client.Reader
	n atomic.Int64
}

func (l *lists) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	l.n.Add(1)
	return l.Reader.List(ctx, list, opts...)
}

// viewed makes a cluster with a View that runs until the test ends.
func viewed(t *testing.T, c *edge.Cluster, watching client.WithWatch) (with *edge.Cluster, asked *lists) {
	t.Helper()
	asked = &lists{Reader: c.Reader}
	with = &edge.Cluster{Client: c.Client, Reader: asked, Versions: c.Versions, View: edge.NewView(watching)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = with.View.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return with, asked
}

// populate makes nodes, and a driver's pods on them: one runs, one falls over.
func populate(t *testing.T, k client.Client) {
	t.Helper()
	labels := map[string]string{"name": "vsphere-cloud-controller-manager"}
	made := []client.Object{&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x.example/cpi/manager:v1.33.1"}}}}}}}
	for i := range 3 {
		name := fmt.Sprintf("view-%d", i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}, Annotations: map[string]string{"a": "b"}},
			Spec: corev1.NodeSpec{ProviderID: "vsphere://" + name, Taints: []corev1.Taint{{Key: assess.TaintUninitialized, Effect: corev1.TaintEffectNoSchedule}}}}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: labels},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "x"}, {Name: "d", Image: "x"}}}}
		c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "other.example", NodeID: name}, {Name: drivers.CSIDriver, NodeID: name, TopologyKeys: []string{"zone"}}}}}
		made = append(made, n, p, c)
	}
	for _, o := range made {
		require.NoError(t, k.Create(ctx, o))
		t.Cleanup(func() { _ = k.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
		switch o := o.(type) {
		case *corev1.Node:
			o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "posting"}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}
			o.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}}
			require.NoError(t, k.Status().Update(ctx, o))
		case *corev1.Pod:
			o.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
					{Name: "d", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
						LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "x509: no"}}}}}
			require.NoError(t, k.Status().Update(ctx, o))
		}
	}
}

// What is watched shows what listing shows, follows it, and lists nothing.
func TestTheViewShowsWhatListingShows(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	with, asked := viewed(t, c, k)
	same := func() {
		t.Helper()
		until(t, "the same", func() bool {
			want, err := c.Observe(ctx)
			require.NoError(t, err)
			got, err := with.Observe(ctx)
			require.NoError(t, err)
			got.Events, want.Events = nil, nil
			return asJSON(t, want) == asJSON(t, got)
		})
	}
	same()
	o, err := with.Observe(ctx)
	require.NoError(t, err)
	require.Len(t, o.Nodes, 3)
	require.Len(t, o.Pods, 3)
	require.Equal(t, []string{"zone"}, o.CSINodes[0].Spec.Drivers[0].TopologyKeys)
	require.Equal(t, "x509: no", o.Pods[0].Status.ContainerStatuses[0].LastTerminationState.Terminated.Message)
	before := asked.n.Load()
	_, err = with.Observe(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(1), asked.n.Load()-before, "events of a workload that is not rolled out, and nothing else")

	var n corev1.Node
	require.NoError(t, k.Get(ctx, client.ObjectKey{Name: "view-1"}, &n))
	n.Spec.Taints = nil
	require.NoError(t, k.Update(ctx, &n))
	require.NoError(t, k.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "view-2"}}, client.GracePeriodSeconds(0)))
	require.NoError(t, k.Delete(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "view-0"}}))
	same()
}

// until waits for a condition. Unlike those of require.Eventually it is called by the test.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		require.True(t, time.Now().Before(end), what)
	}
}

// wire is between a View and the API server: it can be cut, and hold back what comes over
// watches of nodes.
type wire struct {
	mu      sync.Mutex
	broken  error
	anew    bool          // what is watched begins with everything there is, as the API server does from 1.34 on
	held    chan struct{} // what a watch brings waits for its end; nil where nothing waits
	pause   time.Duration // before each object that a watch begins with
	slow    bool          // what is held, is of watches that are to stay alone; and their bookmarks do not come
	watches []chan watch.Event
	opened  int // watches of nodes that were asked for
	begun   int // of those that begin with everything, how many have brought something
}

func (w *wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *wire) fails() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

func (w *wire) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened
}

// each sends an event over the watches of nodes, and ends them where it says so.
func (w *wire) each(e watch.Event, end bool) {
	w.set(func() {
		for _, events := range w.watches {
			events <- e
			if end {
				close(events)
			}
		}
		if end {
			w.watches = nil
		}
	})
}

// client is one over the wire.
func (w *wire) client(k client.WithWatch) client.WithWatch {
	return interceptor.NewClient(k, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := w.fails(); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			_, nodes := list.(*corev1.NodeList)
			if nodes {
				w.set(func() { w.opened++ })
			}
			if err := w.fails(); err != nil {
				return nil, err
			}
			if nodes {
				return w.nodes(ctx, c, opts)
			}
			return c.Watch(ctx, list, opts...)
		},
	})
}

func (w *wire) nodes(ctx context.Context, c client.WithWatch, opts []client.ListOption) (watch.Interface, error) {
	raw := *(&client.ListOptions{}).ApplyOptions(opts).Raw
	w.mu.Lock()
	anew, held, pause, slow := w.anew, w.held, w.pause, w.slow
	if second := raw.TimeoutSeconds != nil && *raw.TimeoutSeconds < 60; slow && second {
		held, slow = nil, false
	}
	w.mu.Unlock()
	var first []watch.Event
	if raw.SendInitialEvents != nil {
		if !anew {
			return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "", nil)
		}
		var all corev1.NodeList
		if err := c.List(ctx, &all); err != nil {
			return nil, err
		}
		for i := range all.Items {
			first = append(first, watch.Event{Type: watch.Added, Object: &all.Items[i]})
		}
		first = append(first, bookmark(all.ResourceVersion, true))
		raw = metav1.ListOptions{ResourceVersion: all.ResourceVersion, AllowWatchBookmarks: true}
	}
	from, err := c.Watch(ctx, &corev1.NodeList{}, &client.ListOptions{Raw: &raw})
	if err != nil {
		return nil, err
	}
	to, more := make(chan watch.Event), make(chan watch.Event, 8) // one that ended takes them too
	proxy := watch.NewProxyWatcher(to)
	w.set(func() { w.watches = append(w.watches, more) })
	go func() {
		defer close(to)
		defer from.Stop()
		relay(proxy, relayed{begun: func() { w.set(func() { w.begun++ }) }, first: first, held: held, pause: pause, unmarked: slow, from: from.ResultChan(), more: more, to: to})
	}()
	return proxy, nil
}

type relayed struct {
	begun    func()
	first    []watch.Event
	held     <-chan struct{}
	pause    time.Duration
	unmarked bool
	from     <-chan watch.Event
	more     <-chan watch.Event
	to       chan<- watch.Event
}

// relay hands on what comes first, then what comes from the API server and from the test.
func relay(proxy *watch.ProxyWatcher, r relayed) {
	send := func(e watch.Event) bool {
		select {
		case r.to <- e:
			return true
		case <-proxy.StopChan():
			return false
		}
	}
	if r.held != nil {
		select {
		case <-r.held:
		case <-proxy.StopChan():
			return
		}
	}
	for i, e := range r.first {
		time.Sleep(r.pause)
		if !send(e) {
			return
		}
		if i == 0 {
			r.begun()
		}
	}
	for {
		var e watch.Event
		var more bool
		select {
		case e, more = <-r.from:
		case e, more = <-r.more:
		case <-proxy.StopChan():
			return
		}
		if r.unmarked && e.Type == watch.Bookmark {
			continue
		}
		if !more || (e.Type != "" && !send(e)) {
			return
		}
	}
}

func bookmark(version string, end bool) watch.Event {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	if end {
		n.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return watch.Event{Type: watch.Bookmark, Object: n}
}

// listless tells whether a look listed nothing but events.
func listless(t *testing.T, with *edge.Cluster, asked *lists) bool {
	t.Helper()
	before := asked.n.Load()
	_, err := with.Observe(ctx)
	require.NoError(t, err)
	return asked.n.Load() == before+1
}

// A watch that goes on where the one before ended is not known to have brought everything until
// its first bookmark, which comes after a minute: another one, of a few seconds, tells sooner.
func TestASecondWatchTellsWhatTheFirstHasToBring(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	// Nodes report, as everywhere: an API server that has nothing newer sends no bookmark.
	beats, ended := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for beats.Err() == nil {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"beat":"%d"}}}`, time.Now().UnixNano()))
			_ = k.Patch(beats, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-0"}}, patch) //nolint:errcheck // the next one does
			time.Sleep(100 * time.Millisecond)
		}
	})
	defer done.Wait()
	defer ended()
	w := &wire{slow: true}
	viewed, asked := viewed(t, c, w.client(k))
	until(t, "it is watched", func() bool { return listless(t, viewed, asked) })
	var list corev1.NodeList
	require.NoError(t, k.List(ctx, &list))
	held := make(chan struct{})
	w.set(func() { w.broken, w.held = syscall.ECONNREFUSED, held })
	before := w.asked()
	w.each(watch.Event{Type: watch.Modified, Object: &list.Items[0]}, true)
	until(t, "its end is known", func() bool { return w.asked() > before })
	require.NoError(t, k.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-2"}}))
	w.set(func() { w.broken = nil })
	until(t, "it is open again", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.watches) > 1
	})
	for range 3 {
		require.False(t, listless(t, viewed, asked), "it brought nothing yet")
	}
	close(held)
	until(t, "it brought what the second one did", func() bool { return listless(t, viewed, asked) })
	o, err := viewed.Observe(ctx)
	require.NoError(t, err)
	require.Len(t, o.Nodes, 2)

	// Where nothing came in between, there is nothing to wait for.
	require.NoError(t, k.List(ctx, &list))
	before = w.asked()
	w.each(watch.Event{Type: watch.Modified, Object: &list.Items[0]}, true)
	until(t, "it is opened again", func() bool { return w.asked() > before })
	until(t, "it is seen", func() bool { return listless(t, viewed, asked) })
}

// A list that took long is shown once the watch that goes on from it has nothing to bring: where
// nothing has changed, its bookmark comes after a minute, and a second one ends without a word.
func TestAListThatTookLongIsNotListedBeside(t *testing.T) {
	tier.Later(t, tier.All)
	c, k, _ := start(t)
	populate(t, k)
	w := &wire{slow: true}
	with := w.client(k)
	long := interceptor.NewClient(with, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if _, nodes := list.(*corev1.NodeList); nodes {
			time.Sleep(6 * time.Second) // longer than a list may be old
		}
		return err
	}})
	viewed, asked := viewed(t, c, long)
	until(t, "it is shown", func() bool { return listless(t, viewed, asked) })
	o, err := viewed.Observe(ctx)
	require.NoError(t, err)
	require.Len(t, o.Nodes, 3)
}

// Of an API server that takes longer than a look may wait, but brings one thing after the
// other, nothing is listed beside.
func TestWhatComesSlowlyIsWaitedFor(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	for i := range 20 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slow-%02d", i)}}
		require.NoError(t, k.Create(ctx, n))
		t.Cleanup(func() { _ = k.Delete(ctx, n) }) //nolint:errcheck // the control plane ends
	}
	w := &wire{anew: true}
	viewed, asked := viewed(t, c, w.client(k))
	until(t, "it is watched", func() bool { return listless(t, viewed, asked) })
	w.set(func() { w.pause, w.begun = 200*time.Millisecond, 0 })
	expired := apierrors.NewResourceExpired("too old").ErrStatus
	w.each(watch.Event{Type: watch.Error, Object: &expired}, true)
	until(t, "it begins anew", func() bool { // the watch is open: something of it was taken
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.begun > 0
	})
	require.True(t, listless(t, viewed, asked), "what comes is waited for")
	o, err := viewed.Observe(ctx)
	require.NoError(t, err)
	require.Len(t, o.Nodes, 23)
}

// A watch that comes back brings what came in between later than it is open: until then no
// look shows what there was before, be it that it goes on or that it begins anew.
func TestAWatchThatComesBackShowsNothingOld(t *testing.T) {
	tier.Later(t, tier.Peers)
	expired := apierrors.NewResourceExpired("too old").ErrStatus
	for name, with := range map[string]struct {
		end  watch.Event // what the watch ends with; without one it can go on where it ended
		anew bool
	}{
		"it goes on":                      {},
		"it begins anew":                  {watch.Event{Type: watch.Error, Object: &expired}, true},
		"it is listed, and goes on again": {watch.Event{Type: watch.Error, Object: &expired}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, k, _ := start(t)
			populate(t, k)
			w := &wire{anew: with.anew}
			viewed, asked := viewed(t, c, w.client(k))
			until(t, "it is watched", func() bool { return listless(t, viewed, asked) })
			nodes := func() []*corev1.Node {
				o, err := viewed.Observe(ctx)
				require.NoError(t, err)
				return o.Nodes
			}
			require.Len(t, nodes(), 3)

			var list corev1.NodeList
			require.NoError(t, k.List(ctx, &list))
			held, end := make(chan struct{}), with.end
			if end.Type == "" {
				end = bookmark(list.ResourceVersion, false)
			}
			w.set(func() { w.broken, w.held = syscall.ECONNREFUSED, held })
			before := w.asked()
			w.each(end, true)
			until(t, "its end is known", func() bool { return w.asked() > before })
			require.NoError(t, k.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-2"}}))
			require.Len(t, nodes(), 2, "between two watches")
			w.set(func() { w.broken = nil })
			until(t, "it is open again", func() bool {
				require.Len(t, nodes(), 2)
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.watches) > 0
			})
			for range 2 {
				require.Len(t, nodes(), 2, "it is open, and brought nothing yet")
			}
			close(held)
			for range 20 {
				require.Len(t, nodes(), 2, "it brings what it has")
			}
			require.NoError(t, k.List(ctx, &list))
			w.each(bookmark(list.ResourceVersion, false), false)
			until(t, "it is shown again", func() bool { return listless(t, viewed, asked) })
			require.Len(t, nodes(), 2)
		})
	}
}

// Where a watch is forbidden, or breaks, what it would show is listed, and that may be
// forbidden too.
func TestWhatCannotBeWatchedIsListed(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	w := &wire{broken: apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))}
	with, asked := viewed(t, c, w.client(k))
	o, err := with.Observe(ctx)
	require.NoError(t, err)
	require.Len(t, o.Nodes, 3, "listed")
	require.Len(t, o.Pods, 3)
	require.False(t, listless(t, with, asked))
	w.set(func() { w.broken = nil })
	until(t, "the right was given", func() bool { return listless(t, with, asked) })

	w.set(func() { w.broken = errors.New("connection refused") })
	before := w.asked()
	w.each(watch.Event{}, true)
	until(t, "its end is known", func() bool { return w.asked() > before })
	require.NoError(t, k.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-2"}}))
	o, err = with.Observe(ctx)
	require.NoError(t, err)
	require.Len(t, o.Nodes, 2, "what may be old is not shown")
}

func asJSON(t *testing.T, o assess.Observed) string {
	t.Helper()
	data, err := json.Marshal(o)
	require.NoError(t, err)
	return string(data)
}
