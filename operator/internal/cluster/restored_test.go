package cluster_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// tellsEnd closes a channel at the end of a watch.
type tellsEnd struct {
	watch.Interface
	ended chan struct{}
}

func (w tellsEnd) ResultChan() <-chan watch.Event {
	out := make(chan watch.Event)
	go func() {
		defer close(w.ended)
		defer close(out)
		for e := range w.Interface.ResultChan() {
			out <- e
		}
	}()
	return out
}

// Of an API server whose etcd was put back to a backup no look shows what there is no more: its
// silence about what is older than the last that was seen does not mean that nothing is new.
func TestABackupThatIsPutBackIsSeen(t *testing.T) {
	cl := cluster.New(t, cluster.Options{})
	k, err := client.NewWithWatch(cl.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	versions, err := discovery.NewDiscoveryClientForConfig(cl.Config())
	require.NoError(t, err)
	seconds := make(chan chan struct{}, 100)
	watching := interceptor.NewClient(k, interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
		w, err := c.Watch(ctx, list, opts...)
		asked := (&client.ListOptions{}).ApplyOptions(opts)
		if _, nodes := list.(*corev1.NodeList); !nodes || err != nil || asked.Raw == nil || asked.Raw.TimeoutSeconds == nil || *asked.Raw.TimeoutSeconds > 10 {
			return w, err
		}
		second := tellsEnd{w, make(chan struct{})}
		seconds <- second.ended
		return second, nil
	}})
	c := &edge.Cluster{Client: k, Reader: k, Versions: versions}
	populate(t, k)
	require.NoError(t, cl.Keep(ctx))

	with, asked := viewed(t, c, watching)
	until(t, "it is watched", func() bool { return listless(t, with, asked) })
	for i := range 300 {
		require.NoError(t, k.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("a-%d", i)}}))
	}
	require.NoError(t, k.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "since-backup"}}))
	until(t, "it is seen", func() bool { return len(nodesOf(t, with)) == 4 })
	for len(seconds) > 0 {
		<-seconds
	}
	require.NoError(t, cl.Restore(ctx))
	require.NoError(t, k.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-1"}}))

	var ended chan struct{}
	for after := 0; after < 5; {
		require.Equal(t, []string{"view-0", "view-2"}, nodesOf(t, with))
		select {
		case ended = <-seconds:
		default:
		}
		select {
		case <-ended:
			after++ // looks since the second watch was silent
		default:
		}
	}
}

func nodesOf(t *testing.T, c *edge.Cluster) (names []string) {
	t.Helper()
	o, err := c.Observe(ctx)
	require.NoError(t, err)
	for i := range o.Nodes {
		names = append(names, o.Nodes[i].Name)
	}
	return names
}
