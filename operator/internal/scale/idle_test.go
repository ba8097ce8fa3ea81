package scale

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// Where nothing happens, passes write nothing and list nothing that grows with the cluster, the
// mirror is asked with one HEAD and the vCenter once an interval. What that costs, the benchmark
// measures; here are the counts, which are the same for 10 nodes as for 5,000.
func TestNothingIsWrittenOrListedWhereNothingHappens(t *testing.T) {
	mirror, key := deliver(t)
	s := newSite(t, 10, mirror, key)
	mirror.ForgetRequests() // passes that the last change led to may follow each other at once, and events are written beside them
	s.until(t, "the mirror's look of the next interval", func() bool { return len(mirror.Requests()) > 0 })
	s.passes(t, 2)
	before, logins, begun := s.op.seen(), s.vc.Logins(vcsim.Admin.Username), time.Now()
	mirror.ForgetRequests()
	s.passes(t, 3)
	after, asked := s.op.seen(), mirror.Requests()
	logins = s.vc.Logins(vcsim.Admin.Username) - logins
	looks := int(time.Since(begun)/interval) + 1
	require.True(t, s.ready(t))

	for what, n := range after.Requests {
		n -= before.Requests[what]
		verb, of, _ := strings.Cut(what, " ")
		switch {
		case n == 0 || verb == "get" || verb == "discovery":
		case verb == "list" && strings.HasSuffix(of, "configs"), what == "list driverbundles": // the operator's own few
		case what == "write vspherecloudconfigs/status": // before and after the vCenter is asked
			require.LessOrEqual(t, n, 2*looks)
		default:
			t.Errorf("%s ×%d", what, n)
			var events eventsv1.EventList
			if err := s.List(t.Context(), &events); err == nil {
				for _, e := range events.Items {
					if e.EventTime.After(begun.Add(-30 * time.Second)) {
						t.Logf("%s %s %s: %s", begun.Sub(e.EventTime.Time), e.Regarding.Name, e.Reason, e.Note)
					}
				}
			}
		}
	}
	heads := 0
	for _, r := range asked {
		if r.Path == "/v2/" {
			continue // whether it wants a login, before it is given one
		}
		require.Equal(t, http.MethodHead, r.Method, r)
		heads++
	}
	require.NotZero(t, heads)
	require.LessOrEqual(t, heads, looks)
	require.LessOrEqual(t, len(asked), 2*looks)
	require.LessOrEqual(t, logins, looks)
}

// passes waits until so many more have been made over the VDOConfig.
func (s *site) passes(t *testing.T, n float64) {
	t.Helper()
	from := s.op.seen().Passes
	s.until(t, "passes", func() bool { return s.op.seen().Passes >= from+n })
}
