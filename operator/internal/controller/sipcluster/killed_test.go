package sipcluster

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// step is one change of a SIPCluster, and what holds when it is carried out.
type step struct {
	name, spec string   // "": it is deleted
	breaks     string   // a host that fails
	roles      []string // of the hosts held in the end
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
	const cp, worker = "ControlPlane", "Worker"
	steps := []step{
		{name: "create", spec: of("1", "1"), roles: []string{cp, worker, worker}},
		{name: "replace", spec: of("1", "1"), breaks: "b", roles: []string{cp, worker, worker}},
		{name: "grow", spec: of("2", "2"), roles: []string{cp, cp, worker, worker, worker}},
		{name: "shrink", spec: of("1", "0"), roles: []string{cp, worker}},
		{name: "delete"},
	}
	w, _ := start(t)
	w.hosts("a", "b", "c", "d", "e", "f")
	lived := map[string]int{} // the write after which a step was no more cut short
	for n := 1; len(lived) < len(steps); n += tier.Pick(11, 1) {
		for _, s := range steps {
			switch now := w.find("t"); {
			case now == nil:
				w.sip("t", s.spec)
			case s.spec == "":
				require.NoError(w, w.Delete(w.Context(), now))
			default:
				w.change("t", s.spec)
			}
			if s.breaks != "" {
				w.fails(s.breaks, true)
			}
			if lived[s.name] == 0 && w.killOnce(n) {
				lived[s.name] = n
			}
			w.settle(w.operator(w.own), "t")
			if s.spec == "" {
				w.gone("t")
				continue
			}
			require.Equal(t, s.roles, slices.Sorted(maps.Values(w.labelled("t"))), "%s, killed after write %d", s.name, n)
			require.Equal(t, w.labelled("t"), w.claimed("t"), "%s, killed after write %d", s.name, n)
			require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason)
		}
		w.fails("b", false)
	}
	for name, n := range lived {
		require.Greater(t, n, 3, "%s was never killed", name)
	}
}

// killOnce carries out what was begun by an operator that is killed after its nth write, and tells whether it
// lived to the end.
func (w *world) killOnce(n int) (lived bool) {
	w.Helper()
	c, alive := w.killed(n)
	mortal := w.operator(c)
	for range 12 {
		before := w.writes.Load()
		err := w.pass(mortal, "t")
		require.True(w, err == nil || errors.Is(err, errKilled), "%v", err)
		if !w.play("t") && w.writes.Load() == before || !alive() {
			break
		}
	}
	return alive()
}

// errKilled is all that a killed operator gets to see.
var errKilled = errors.New("killed")

// killed lets n writes through and then nothing, as if the process had been killed after
// the nth. Reads after it fail too.
func (w *world) killed(n int) (c client.WithWatch, alive func() bool) {
	last := w.writes.Load() + int64(n)
	alive = func() bool { return w.writes.Load() < last }
	return w.through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !alive() {
			return nil, errKilled
		}
		return w.counting(r, next)
	}), alive
}

// However many SIPClusters are made at once, and however many operators believe that they
// lead, no host has two holders, and together they get what there is.
func TestManyAtOnceNeverShareAHost(t *testing.T) {
	w, _ := start(t)
	const each = 3
	clusters := tier.Pick(4, 8)
	var hosts []string
	for i := range clusters*each - 2 {
		hosts = append(hosts, fmt.Sprintf("h%02d", i))
	}
	w.hosts(hosts...)
	for i := range clusters {
		w.sip(fmt.Sprintf("t%d", i), replace(alone, "active: 1", "active: 3"))
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
	require.Equal(t, len(hosts), held, "two more are wanted than are there")
}

// watchHolders sees that no host goes from one holder to another, which only a second claim
// could do: nobody gives any back.
func (w *world) watchHolders() (end func()) {
	w.Helper()
	events, err := w.Watch(w.Context(), &choose.BareMetalHostList{}, client.InNamespace(w.metal))
	require.NoError(w, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		holder := map[string]string{}
		for e := range events.ResultChan() {
			if o, isHost := e.Object.(*choose.BareMetalHost); isHost {
				claim, was := o.Annotations[airship.AnnotationClaim], holder[o.Name]
				if was != "" && claim != was {
					w.Errorf("%s went from %q to %q", o.Name, was, claim)
				}
				holder[o.Name] = claim
			}
		}
	}()
	return func() { events.Stop(); <-done }
}
