package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// An operator that is killed after any of its writes, while it creates, grows, shrinks,
// replaces or deletes, leaves what the next one makes whole: no host is held that is not
// wanted, none is labelled twice, and after a deletion nothing is left.
func TestKilledAfterEveryWrite(t *testing.T) {
	const spec = `
nodes:
  ControlPlane: {FLAVOR, topologyKey: rack, count: {active: CP}}
  Worker: {FLAVOR, topologyKey: rack, count: {active: WORKERS, standby: 1}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`
	of := func(cp, workers string) string { return replace(replace(spec, "CP", cp), "WORKERS", workers) }
	for name, c := range map[string]struct {
		before, after   string
		break1          string // a host that fails
		controlPlane, n int    // held in the end
	}{
		"create":  {after: of("1", "1"), controlPlane: 1, n: 3},
		"grow":    {before: of("1", "1"), after: of("2", "2"), controlPlane: 2, n: 5},
		"shrink":  {before: of("2", "2"), after: of("1", "0"), controlPlane: 1, n: 2},
		"replace": {before: of("1", "1"), after: of("1", "1"), break1: "b", controlPlane: 1, n: 3},
		"delete":  {before: of("1", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.hosts("a", "b", "c", "d", "e", "f")
			for n := 1; ; n++ {
				if w.killOnce(n, c.before, c.after, c.break1) {
					require.Greater(t, n, 3, "it was never killed")
					return
				}
				if c.after != "" {
					role := w.labelled("t")
					require.Len(t, role, c.n, "killed after write %d", n)
					require.Equal(t, role, w.claimed("t"), "killed after write %d", n)
					require.Equal(t, c.controlPlane, count(role, string(airship.RoleControlPlane)))
					require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
				}
				w.clear()
			}
		})
	}
}

func count(roles map[string]string, role string) int {
	n := 0
	for _, r := range roles {
		if r == role {
			n++
		}
	}
	return n
}

// killOnce brings a SIPCluster from one spec to the other by an operator that is killed
// after its nth write and by one that goes on, and tells whether the first lived to the end.
func (w *world) killOnce(n int, before, after, broken string) (lived bool) {
	w.Helper()
	whole := w.operator(w)
	if before == "" {
		w.sip("t", after)
	} else {
		s := w.sip("t", before)
		w.settle(whole, "t")
		if after == "" {
			require.NoError(w, w.Delete(w.Context(), s))
		} else {
			w.change("t", after)
		}
	}
	if broken != "" {
		w.breaks(broken)
	}
	c, alive := w.killed(n)
	mortal := w.operator(c)
	for range 12 {
		err := w.pass(mortal, "t")
		require.True(w, err == nil || errors.Is(err, errKilled), "%v", err)
		w.play()
		if !alive() {
			break
		}
	}
	lived = alive()
	w.settle(whole, "t")
	if after == "" {
		w.gone("t")
	}
	return lived
}

// clear makes the hosts free and fit again.
func (w *world) clear() {
	w.Helper()
	s := w.find("t")
	if s != nil {
		require.NoError(w, w.Delete(w.Context(), s))
		w.settle(w.operator(w), "t")
	}
	w.gone("t")
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		w.mends(name)
	}
}

// counting notes each write of an operator.
func (w *world) counting(c client.WithWatch) client.WithWatch {
	wrote := func(err error) error {
		if err == nil {
			w.writes.Add(1)
		}
		return err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return wrote(c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			err := c.Update(ctx, o, opts...)
			if triedUpdate(opts) {
				return err
			}
			return wrote(err)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return wrote(c.Delete(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return wrote(c.Patch(ctx, o, p, opts...))
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			err := c.Apply(ctx, o, opts...)
			if triedApply(opts) {
				return err
			}
			return wrote(err)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return wrote(c.SubResource(sub).Patch(ctx, o, p, opts...))
		},
	})
}

func triedApply(opts []client.ApplyOption) bool {
	var all client.ApplyOptions
	all.ApplyOptions(opts)
	return len(all.DryRun) > 0
}

func triedUpdate(opts []client.UpdateOption) bool {
	var all client.UpdateOptions
	all.ApplyOptions(opts)
	return len(all.DryRun) > 0
}

// errKilled is all that a killed operator gets to see.
var errKilled = errors.New("killed")

// killed lets n writes through and then nothing, as if the process had been killed after
// the nth. Reads after it fail too.
func (w *world) killed(n int) (c client.WithWatch, done func() bool) {
	writes := 0
	alive := func() error {
		if writes >= n {
			return errKilled
		}
		return nil
	}
	write := func(do func() error) error {
		if err := alive(); err != nil {
			return err
		}
		err := do()
		if err == nil {
			writes++
		}
		return err
	}
	return interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := alive(); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := alive(); err != nil {
				return err
			}
			return c.List(ctx, l, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if triedUpdate(opts) {
				if err := alive(); err != nil {
					return err
				}
				return c.Update(ctx, o, opts...)
			}
			return write(func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if triedApply(opts) {
				if err := alive(); err != nil {
					return err
				}
				return c.Apply(ctx, o, opts...)
			}
			return write(func() error { return c.Apply(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	}), func() bool { return writes < n }
}

// However many SIPClusters are made at once, and however many operators believe that they
// lead, no host has two holders, and together they get what there is.
func TestManyAtOnceNeverShareAHost(t *testing.T) {
	w := start(t)
	var hosts []string
	for i := range 20 {
		hosts = append(hosts, fmt.Sprintf("h%02d", i))
	}
	w.hosts(hosts...)
	const clusters, each = 8, 3
	for i := range clusters {
		w.sip(fmt.Sprintf("t%d", i), `nodes: {Worker: {FLAVOR, count: {active: 3}}}`)
	}
	watch := w.watchHolders()
	var group sync.WaitGroup
	for range 3 { // three operators, each over all of them
		r := w.operator(w)
		for i := range clusters {
			group.Go(func() {
				for range 15 {
					if err := w.pass(r, fmt.Sprintf("t%d", i)); err != nil && fault.ReasonOf(err) != fault.Conflict {
						t.Errorf("pass: %v", err)
					}
				}
			})
		}
	}
	group.Wait()
	watch()
	held := 0
	for i := range clusters {
		name := fmt.Sprintf("t%d", i)
		w.settle(w.operator(w), name)
		claimed := w.claimed(name)
		require.LessOrEqual(t, len(claimed), each)
		require.Equal(t, claimed, w.labelled(name))
		held += len(claimed)
	}
	require.Equal(t, len(hosts), held, "24 are wanted, and 20 are there")
}

// watchHolders sees that no host goes from one holder to another, which only a second claim
// could do: nobody gives any back.
func (w *world) watchHolders() (end func()) {
	w.Helper()
	events, err := w.Watch(w.Context(), hostList(), client.InNamespace(w.system))
	require.NoError(w, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		holder := map[string]string{}
		for e := range events.ResultChan() {
			o, isHost := e.Object.(*unstructured.Unstructured)
			if !isHost {
				continue
			}
			claim := o.GetAnnotations()[airship.AnnotationClaim]
			if was := holder[o.GetName()]; was != "" && claim != was {
				w.Errorf("%s went from %q to %q", o.GetName(), was, claim)
			}
			holder[o.GetName()] = claim
		}
	}()
	return func() { events.Stop(); <-done }
}
