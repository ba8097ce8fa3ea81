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
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
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

func viewed(t *testing.T, c *edge.Cluster, watching client.WithWatch) (with *edge.Cluster, requested *lists) {
	t.Helper()
	requested = &lists{Reader: c.Reader}
	with = &edge.Cluster{Client: c.Client, Reader: requested, Versions: c.Versions, View: edge.NewView(watching)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = with.View.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return with, requested
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

func TestTheViewShowsWhatListingShows(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	with, requested := viewed(t, c, k)
	same := func() {
		t.Helper()
		until(t, "the same", func() bool {
			want := must.Have(c.Observe(ctx))(t)
			got := must.Have(with.Observe(ctx))(t)
			got.Events, want.Events = nil, nil
			return asJSON(t, want) == asJSON(t, got)
		})
	}
	same()
	o := must.Have(with.Observe(ctx))(t)
	require.Len(t, o.Nodes, 3)
	require.Len(t, o.Pods, 3)
	require.Equal(t, []string{"zone"}, o.CSINodes[0].Spec.Drivers[0].TopologyKeys)
	require.Equal(t, "x509: no", o.Pods[0].Status.ContainerStatuses[0].LastTerminationState.Terminated.Message)
	before := requested.n.Load()
	must.Have(with.Observe(ctx))(t)
	require.Equal(t, int64(1), requested.n.Load()-before, "events of a workload that is not rolled out, and nothing else")
	listed := must.Have(with.ObserveListed(ctx))(t)
	require.Greater(t, requested.n.Load()-before, int64(4), "nodes, CSINodes, pods and events are listed")
	require.Same(t, o.Nodes[0], listed.Nodes[0], "an unchanged object is kept once")

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

// wire is between a View and the API server: it can break, slow down and replace watches of nodes.
type wire struct {
	mu     sync.Mutex
	broken error           // the answer to every list and watch, nil for the API server's
	pause  time.Duration   // before a list of nodes
	next   watch.Interface // the next watch of nodes, nil for the API server's
	lists  int             // of nodes
	last   watch.Interface // of nodes
}

func (w *wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *wire) listed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lists
}

func (w *wire) client(k client.WithWatch) client.WithWatch {
	return interceptor.NewClient(k, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			_, nodes := list.(*corev1.NodeList)
			w.mu.Lock()
			broken, pause := w.broken, w.pause
			if nodes {
				w.lists++
			}
			w.mu.Unlock()
			if broken != nil {
				return broken
			}
			if nodes {
				time.Sleep(pause)
			}
			return c.List(ctx, list, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			_, nodes := list.(*corev1.NodeList)
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.broken != nil {
				return nil, w.broken
			}
			if !nodes {
				return c.Watch(ctx, list, opts...)
			}
			var err error
			if w.last, w.next = w.next, nil; w.last == nil {
				w.last, err = c.Watch(ctx, list, opts...)
			}
			return w.last, err
		},
	})
}

// listless tells whether a look listed nothing but events.
func listless(t *testing.T, with *edge.Cluster, requested *lists) bool {
	t.Helper()
	before := requested.n.Load()
	must.Have(with.Observe(ctx))(t)
	return requested.n.Load() == before+1
}

func TestASlowListIsWaitedFor(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	first := watch.NewFake()
	w := &wire{pause: time.Second, next: first}
	with, requested := viewed(t, c, w.client(k))
	until(t, "it is asked", func() bool { return w.listed() > 0 })
	require.True(t, listless(t, with, requested))
	require.Len(t, nodesOf(t, with), 3)

	require.NoError(t, k.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-2"}}))
	expired := apierrors.NewResourceExpired("too old").ErrStatus
	first.Error(&expired)
	until(t, "the watch's end is known", first.IsStopped)
	require.True(t, listless(t, with, requested))
	require.Len(t, nodesOf(t, with), 2)
}

func TestWhatCannotBeWatchedIsListed(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	w := &wire{broken: apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))}
	with, requested := viewed(t, c, w.client(k))
	o := must.Have(with.Observe(ctx))(t)
	require.Len(t, o.Nodes, 3, "listed")
	require.Len(t, o.Pods, 3)
	require.False(t, listless(t, with, requested))
	w.set(func() { w.broken = nil })
	until(t, "the right was given", func() bool { return listless(t, with, requested) })

	w.set(func() { w.broken = syscall.ECONNREFUSED; w.last.Stop() })
	require.NoError(t, k.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-2"}}))
	begun := time.Now()
	require.Len(t, nodesOf(t, with), 2, "between two watches")
	require.Less(t, time.Since(begun), 10*time.Second, "it does not wait for the watch")
	require.False(t, listless(t, with, requested))
	w.set(func() { w.broken = nil })
	until(t, "it is watched again", func() bool { return listless(t, with, requested) })
	require.Len(t, nodesOf(t, with), 2)
}

func nodesOf(t *testing.T, c *edge.Cluster) []*corev1.Node {
	t.Helper()
	o := must.Have(c.Observe(ctx))(t)
	return o.Nodes
}

func asJSON(t *testing.T, o assess.Observed) string {
	t.Helper()
	data := must.Have(json.Marshal(o))(t)
	return string(data)
}
