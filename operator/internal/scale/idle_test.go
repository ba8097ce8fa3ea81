package scale

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// Where nothing happens but kubelets' heartbeats, passes are made once an interval, write
// nothing and list nothing that grows with the cluster; the mirror is asked with one HEAD and the
// vCenter once an interval. The benchmark holds larger clusters to the same counts.
func TestNothingIsWrittenOrListedWhereNothingHappens(t *testing.T) {
	tier.Later(t, tier.Peers)
	mirror, key := deliver(t, "")
	s := newSite(t, 10, mirror, key)
	s.settle(t)
	// What nodes came to is assessed again an interval later, and events are written beside the
	// passes: of three looks since the last write, two are a whole interval apart, and the third
	// leaves what came of it its time.
	written := -1
	s.until(t, "two whole intervals in which nothing is written", func() bool {
		if now := s.op.trySeen().writes(); now != written {
			written = now
			mirror.ForgetRequests()
		}
		return len(looks(mirror.Requests())) >= 3
	})
	q, still := s.quiet(), s.beating(t)
	s.passes(t, 3)
	t.Logf("%d heartbeats", still())
	q.holds(t)
	if !s.ready(t) {
		t.Error("not ready")
	}
}

// writes counts what was written, but for what every look at a vCenter writes.
func (s seen) writes() (all int) {
	for what, n := range s.Requests {
		if strings.HasPrefix(what, "write ") && what != "write vspherecloudconfigs/status" {
			all += n
		}
	}
	return all
}

// passes waits until so many more have been made over the VDOConfig.
func (s *site) passes(t testing.TB, n float64) {
	t.Helper()
	from := s.op.seen().Passes
	s.until(t, "passes", func() bool { return s.op.seen().Passes >= from+n })
}

// maxShare of a processor is what an operator takes that has nothing to do but to look, or to
// wait. Passes over what nodes do take a tenth of the time.
const maxShare = 0.5

// heartbeat is how often a kubelet writes its node's status where nothing changes.
const heartbeat = 5 * time.Minute

// quiet is a time in which nothing happens that the operator has to do something about.
type quiet struct {
	s      *site
	begun  time.Time
	before seen
	logins int
}

// quiet begins one.
func (s *site) quiet() quiet {
	s.mirror.ForgetRequests()
	return quiet{s: s, begun: time.Now(), before: s.op.seen(), logins: s.vc.Logins(vcsim.Admin.Username)}
}

// holds fails where the operator wrote something in it, listed what grows with the cluster, or
// asked the mirror or the vCenter, or made passes, more often than its intervals say.
func (q quiet) holds(b testing.TB) {
	b.Helper()
	after, asked := q.s.op.seen(), q.s.mirror.Requests()
	logins := q.s.vc.Logins(vcsim.Admin.Username) - q.logins
	intervals := int(time.Since(q.begun)/interval) + 1
	for what, n := range after.Requests {
		n -= q.before.Requests[what]
		verb, of, _ := strings.Cut(what, " ")
		switch {
		case n == 0 || verb == "get" || verb == "discovery":
		case verb == "list" && strings.HasSuffix(of, "configs"), what == "list driverbundles": // the operator's own few
		case what == "write vspherecloudconfigs/status", // before and after the vCenter is asked
			what == "list configmaps": // names of the copies of the bundle, and of what keeps one
			require.LessOrEqual(b, n, 2*intervals)
		default:
			b.Errorf("%s ×%d", what, n)
		}
	}
	heads := looks(asked)
	for _, r := range heads {
		require.Equal(b, http.MethodHead, r.Method, r)
	}
	require.NotEmpty(b, heads)
	require.LessOrEqual(b, len(heads), intervals)
	require.LessOrEqual(b, len(asked), 3*intervals) // two of them about the login
	require.LessOrEqual(b, logins, intervals)
	require.LessOrEqual(b, after.Passes-q.before.Passes, float64(intervals+1), "passes in %s", time.Since(q.begun))
}

// looks are the requests but for those that ask whether the mirror wants a login.
func looks(asked []registry.Request) []registry.Request {
	return slices.DeleteFunc(asked, func(r registry.Request) bool { return r.Path == "/v2/" })
}

// beating has kubelets write their nodes' statuses, one after the other, as often as that many
// do, and once a second at least, until it is ended.
func (s *site) beating(b testing.TB) (end func() (beats int)) {
	ctx, cancel := context.WithCancel(b.Context())
	done, ticks := make(chan error, 1), time.NewTicker(min(time.Second, heartbeat/time.Duration(s.nodes)))
	var beats atomic.Int64
	go func() {
		defer ticks.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-ticks.C:
			}
			if err := s.beat(ctx, i%s.nodes); err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			beats.Add(1)
		}
	}()
	return func() int {
		cancel()
		require.NoError(b, <-done)
		require.Positive(b, beats.Load())
		return int(beats.Load())
	}
}

// beat writes a node's heartbeat as a kubelet does.
func (p *play) beat(ctx context.Context, i int) error {
	n := &corev1.Node{}
	n.Name = nodeName(i)
	at := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, at)
	return p.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
}
