package scale

import (
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// Where nothing happens but kubelets' heartbeats, passes are made once an interval, write
// nothing and list nothing that grows with the cluster; the mirror is asked with one HEAD and the
// vCenter once an interval. The benchmark holds larger clusters to the same counts.
func TestNothingIsWrittenOrListedWhereNothingHappens(t *testing.T) {
	tier.Later(t, tier.Peers)
	mirror, key := deliver(t, "")
	s := newSite(t, 10, mirror, key)
	s.settle(t)
	mirror.ForgetRequests() // passes that the last change led to may follow each other at once, and events are written beside them
	s.until(t, "the mirror's look of the next interval", func() bool { return len(mirror.Requests()) > 0 })
	s.passes(t, 2)
	q, still := s.quiet(), s.beating(t)
	s.passes(t, 3)
	t.Logf("%d heartbeats", still())
	q.holds(t)
	if !s.ready(t) {
		t.Error("not ready")
	}
}

// events tells of the events of late: what writes them shows.
func (s *site) events(t testing.TB, begun time.Time) {
	var events eventsv1.EventList
	if err := s.List(t.Context(), &events); err != nil {
		return
	}
	for _, e := range events.Items {
		if e.EventTime.After(begun.Add(-30 * time.Second)) {
			t.Logf("%s %s %s: %s", begun.Sub(e.EventTime.Time), e.Regarding.Name, e.Reason, e.Note)
		}
	}
}

// passes waits until so many more have been made over the VDOConfig.
func (s *site) passes(t testing.TB, n float64) {
	t.Helper()
	from := s.op.seen().Passes
	s.until(t, "passes", func() bool { return s.op.seen().Passes >= from+n })
}
