package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// step is one change of a SIPCluster, and what holds when it is carried out.
type step struct {
	name, spec      string // "": it is deleted
	breaks          string // a host that fails
	controlPlane, n int    // held in the end
}

// An operator that is killed after any of its writes, while it creates, replaces, grows,
// shrinks or deletes, leaves what the next one makes whole: no host is held that is not
// wanted, none is labelled twice, and after a deletion nothing is left. In the nth round each
// change is made by an operator that is killed after its nth write, until one was made whole:
// each change begins where the one before ended. The first tier leaves out most writes.
func TestKilledAfterEveryWrite(t *testing.T) {
	const spec = `
nodes:
  ControlPlane: {FLAVOR, topologyKey: rack, count: {active: CP}}
  Worker: {FLAVOR, topologyKey: rack, count: {active: WORKERS, standby: 1}}
services: {loadBalancerWorker: [{nodePortRange: {start: PORT1, end: PORT1}, nodeInterfaceId: oam}]}
`
	of := func(cp, workers string) string { return replace(replace(spec, "CP", cp), "WORKERS", workers) }
	steps := []step{
		{name: "create", spec: of("1", "1"), controlPlane: 1, n: 3},
		{name: "replace", spec: of("1", "1"), breaks: "b", controlPlane: 1, n: 3},
		{name: "grow", spec: of("2", "2"), controlPlane: 2, n: 5},
		{name: "shrink", spec: of("1", "0"), controlPlane: 1, n: 2},
		{name: "delete"},
	}
	w := start(t)
	w.hosts("a", "b", "c", "d", "e", "f")
	lived := map[string]int{} // the write after which a step was no more cut short
	for n := 1; len(lived) < len(steps); n += tier.Pick(7, 1) {
		for _, s := range steps {
			w.begin(s)
			switch {
			case lived[s.name] > 0:
				w.settle(w.operator(w.own), "t")
			case w.killOnce(n):
				lived[s.name] = n
			}
			w.holdsAfter(s, n)
		}
		w.mends("b")
	}
	for name, n := range lived {
		require.Greater(t, n, 3, "%s was never killed", name)
	}
}

// begin has a step asked for.
func (w *world) begin(s step) {
	w.Helper()
	switch now := w.find("t"); {
	case now == nil:
		w.sip("t", s.spec)
	case s.spec == "":
		require.NoError(w, w.Delete(w.Context(), now))
	default:
		w.change("t", s.spec)
	}
	if s.breaks != "" {
		w.breaks(s.breaks)
	}
}

// holdsAfter sees that a step is carried out.
func (w *world) holdsAfter(s step, n int) {
	w.Helper()
	if s.spec == "" {
		w.gone("t")
		return
	}
	role := w.labelled("t")
	require.Len(w, role, s.n, "%s, killed after write %d", s.name, n)
	require.Equal(w, role, w.claimed("t"), "%s, killed after write %d", s.name, n)
	require.Equal(w, s.controlPlane, count(role, string(airship.RoleControlPlane)))
	require.Equal(w, airship.ReasonSucceeded, w.ready("t").Reason)
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

// killOnce carries out what was begun by an operator that is killed after its nth write and by
// one that goes on, and tells whether the first lived to the end.
func (w *world) killOnce(n int) (lived bool) {
	w.Helper()
	c, alive := w.killed(n)
	mortal := w.operator(c)
	for range 12 {
		before := w.writes.Load()
		err := w.pass(mortal, "t")
		require.True(w, err == nil || errors.Is(err, errKilled), "%v", err)
		if !w.play() && w.writes.Load() == before || !alive() {
			break
		}
	}
	lived = alive()
	w.settle(w.operator(w.own), "t")
	return lived
}

// What an operator makes anew, and does not live to record, goes with the SIPCluster.
func TestWhatWasMadeAnewByAnOperatorThatWasKilledGoes(t *testing.T) {
	for name, before := range map[string]func(*world, *corev1.ConfigMap){
		"somebody made it immutable": func(w *world, config *corev1.ConfigMap) {
			config.Immutable = new(true)
			require.NoError(w, w.Update(w.Context(), config))
		},
		"somebody deleted it": func(w *world, config *corev1.ConfigMap) { require.NoError(w, w.Delete(w.Context(), config)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.hosts("a", "b")
			for n, made := 1, false; !made; n++ {
				w.sip("t", balanced)
				w.settle(w.whole(), "t")
				config := read[corev1.ConfigMap](w, services.Name("t", services.LoadBalancerWorker, 0)+"-config")
				was := config.UID
				before(w, config)
				w.change("t", replace(balanced, "active: 2", "active: 1"))
				c, alive := w.killed(n)
				err := w.pass(w.wholeBy(c), "t")
				require.True(t, err == nil || errors.Is(err, errKilled), "%v", err)
				require.False(t, alive(), "it was not killed, and made nothing")
				made = w.Get(t.Context(), client.ObjectKeyFromObject(config), config) == nil && config.UID != was
				require.NoError(t, w.Delete(t.Context(), w.get("t")))
				r := w.whole()
				w.settle(r, "t")
				require.Empty(t, told(r, "LeftBehind"), "killed after write %d", n)
				w.gone("t")
			}
		})
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
	return interceptor.NewClient(w.own, interceptor.Funcs{
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
		r := w.operator(w.own)
		for i := range clusters {
			group.Go(func() {
				for range tier.Pick(4, 15) {
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
		w.settle(w.operator(w.own), name)
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
	events, err := w.Watch(w.Context(), hostList(), client.InNamespace(w.metal))
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
