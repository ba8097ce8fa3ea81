package sipcluster

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// oldCache has the hosts as they were at one time.
type oldCache struct {
	client.Reader
	hosts *unstructured.UnstructuredList
}

func (c oldCache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.hosts.DeepCopyInto(list.(*unstructured.UnstructuredList)) //nolint:forcetypeassert,errcheck // of hosts
	return nil
}

// cacheOfNow is a cache that gets nothing more from now on.
func (w *world) cacheOfNow() client.Reader {
	w.Helper()
	c := oldCache{w, hostList()}
	require.NoError(w, w.List(w.Context(), c.hosts, client.InNamespace(w.metal)))
	return c
}

// A host that was given back, and that another tenant has by now, gets no service of the one
// before, however old the cache is that says that it is held.
func TestAnOldCacheLeadsNowhere(t *testing.T) {
	w := start(t)
	w.hosts("a", "b")
	const spec = `
nodes: {Worker: {FLAVOR, count: {active: N}}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`
	w.sip("t", replace(spec, "N", "2"))
	r := w.operator(w.own)
	w.settle(r, "t")
	old := w.operator(w.own)
	old.Hosts = w.cacheOfNow()

	w.change("t", replace(spec, "N", "1"))
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("t")))
	w.sip("other", `nodes: {Worker: {FLAVOR, count: {active: 1}}}`)
	w.settle(r, "other")
	require.Equal(t, []string{"b"}, names(w.claimed("other")))

	w.change("t", replace(spec, "N", "2")) // which the old cache says it has
	before := w.writes.Load()
	for range 3 {
		require.NoError(t, w.pass(old, "t"))
	}
	require.Equal(t, before, w.writes.Load())
	require.Equal(t, []string{"a=10.1.1.97"}, w.backends("t", services.LoadBalancerWorker))
	w.settle(r, "t")
	require.Equal(t, airship.ReasonUnschedulable, w.ready("t").Reason)
	require.Equal(t, []string{"b"}, names(w.claimed("other")))
}

// No host is claimed for a SIPCluster that is gone, or is another one of the same name: nobody
// would give it back.
func TestNothingIsClaimedForWhatIsGone(t *testing.T) {
	w := start(t)
	w.hosts("a")
	const spec = `nodes: {Worker: {FLAVOR, count: {active: 1}}}`
	s := w.sip("t", spec)
	r := w.operator(w.own)
	require.NoError(t, w.pass(r, "t")) // the finalizer
	seen := w.get("t")
	require.NoError(t, w.Delete(t.Context(), s))
	for _, then := range []func(){
		func() {}, // it is being deleted
		func() { w.settle(r, "t") },
		func() { w.sip("t", spec) },
	} {
		then()
		_, err := r.Pass(t.Context(), seen.DeepCopy())
		require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
		require.Empty(t, w.bare("a").GetAnnotations()[airship.AnnotationClaim])
	}
	w.settle(r, "t")
	claim := w.bare("a").GetAnnotations()[airship.AnnotationClaim]
	require.Equal(t, clusterOf(w.get("t")).Claim(airship.RoleWorker), claim)
}

// An operator that was paused while it removed a SIPCluster leaves what the next one of the name
// has.
func TestNothingIsTakenFromTheNextOfTheName(t *testing.T) {
	w := start(t)
	s, r := w.served()
	require.NoError(t, w.Delete(t.Context(), s))
	seen := w.get("t")
	w.settle(r, "t")
	w.gone("t")
	w.sip("t", balanced)
	w.settle(r, "t")
	state, hosts := w.state(), names(w.claimed("t"))
	require.NotEmpty(t, hosts)
	writes := w.writes.Load()
	_, err := r.Remove(t.Context(), seen)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
	require.Equal(t, writes, w.writes.Load())
	require.Equal(t, state, w.state())
	require.Equal(t, hosts, names(w.claimed("t")))
}

// Where an operator is paused that gives hosts back.
const (
	afterPods    = "after it listed pods" // services lead to what leaves no more, but for them
	beforeRecord = "before it reads the record"
	beforeHosts  = "before it lists hosts" // in a removal
	beforePatch  = "before it patches the first host"
)

// pausedGivingBack is an operator that is paused once at a place, until something was done.
func (w *world) pausedGivingBack(at string, meanwhile func()) (r *Reconciler, done func() bool) {
	was := false
	pause := func(here string, is bool) {
		if is && here == at && !was {
			was = true
			meanwhile()
		}
	}
	return w.wholeBy(interceptor.NewClient(w.own, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			_, isRecord := o.(*corev1.ConfigMap)
			pause(beforeRecord, isRecord)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			_, isPods := list.(*corev1.PodList)
			defer pause(afterPods, isPods)
			pause(beforeHosts, list.GetObjectKind().GroupVersionKind().Kind == HostKind.Kind+"List")
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			pause(beforePatch, o.GetObjectKind().GroupVersionKind() == HostKind)
			return c.Patch(ctx, o, p, opts...)
		},
	})), func() bool { return was }
}

// An operator that was paused before it gave hosts back leaves those that are wanted by now: by the
// same SIPCluster, which the services lead there again for, or by the next of the name.
func TestAnOperatorThatWasPausedGivesNothingBack(t *testing.T) {
	remove := func(w *world) { require.NoError(w, w.Delete(w.Context(), w.get("t"))) }
	fewer := func(w *world) { w.change("t", replace(balanced, "active: 2", "active: 1")) }
	again := func(w *world, r *Reconciler) {
		w.settle(r, "t")
		w.gone("t")
		w.sip("t", balanced)
	}
	for _, c := range []struct {
		name      string
		leave     func(*world)
		at        string
		meanwhile func(*world, *Reconciler)
	}{
		{"more are wanted", fewer, afterPods, func(w *world, _ *Reconciler) { w.change("t", balanced) }},
		{"another leaves instead", fewer, afterPods, func(w *world, _ *Reconciler) { w.breaks("a") }},
		{"the next has the name", fewer, afterPods, func(w *world, r *Reconciler) { remove(w); again(w, r) }},
		{"it is gone, and the next has the name", remove, beforeRecord, again},
		{"it is gone, and the next has the name", remove, beforeHosts, again},
		{"it is gone, and the next has the name", remove, beforePatch, again},
	} {
		t.Run(c.name+", "+c.at, func(t *testing.T) {
			w := start(t)
			_, r := w.served()
			c.leave(w)
			var state string
			paused, was := w.pausedGivingBack(c.at, func() {
				c.meanwhile(w, r)
				w.settle(r, "t")
				state = w.state()
			})
			for n := 0; !was(); n++ {
				require.Less(t, n, 20)
				require.NoError(t, w.pass(paused, "t"))
				if !was() {
					w.play()
				}
			}
			require.Contains(t, names(w.claimed("t")), "b")
			require.Equal(t, state, w.state())
		})
	}
}
