package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
		require.Eventually(t, func() bool {
			want, err := c.Observe(ctx)
			require.NoError(t, err)
			got, err := with.Observe(ctx)
			require.NoError(t, err)
			got.Events, want.Events = nil, nil
			return asJSON(t, want) == asJSON(t, got)
		}, time.Minute, 50*time.Millisecond)
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

// Where a watch is forbidden, or breaks, what it would show is listed, and that may be
// forbidden too.
func TestWhatCannotBeWatchedIsListed(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	var mu sync.Mutex
	var broken error
	fails := func() error {
		mu.Lock()
		defer mu.Unlock()
		return broken
	}
	set := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		broken = err
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	set(forbidden)
	var watches []watch.Interface
	with, asked := viewed(t, c, interceptor.NewClient(k, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := fails(); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			if err := fails(); err != nil {
				return nil, err
			}
			w, err := c.Watch(ctx, list, opts...)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				watches = append(watches, w)
			}
			return w, err
		},
	}))
	o, err := with.Observe(ctx)
	require.NoError(t, err)
	require.Len(t, o.Nodes, 3, "listed")
	require.Len(t, o.Pods, 3)
	listless := func() bool {
		before := asked.n.Load()
		_, err := with.Observe(ctx)
		require.NoError(t, err)
		return asked.n.Load() == before+1 // of events
	}
	require.False(t, listless())
	set(nil)
	require.Eventually(t, listless, 2*time.Minute, 100*time.Millisecond, "the right was given")

	set(errors.New("connection refused"))
	mu.Lock()
	for _, w := range watches {
		w.Stop()
	}
	mu.Unlock()
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
