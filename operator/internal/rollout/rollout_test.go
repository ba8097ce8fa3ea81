package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/rollout"
)

var t0 = time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC) // a Saturday

func rev(bundle string, releases ...string) *revision.Revision {
	return &revision.Revision{Bundle: "mirror/vdo@sha256:" + bundle, Source: "site", Releases: releases, Contents: map[revision.Group]string{"csi": bundle}}
}

// healthy is a history with one revision that is healthy.
func healthy(r *revision.Revision) revision.History {
	return revision.History{}.Start(*r, revision.Beginning{Now: t0}).Succeed(t0)
}

func TestJudge(t *testing.T) {
	begin := healthy(rev("a", "csi@3.5.1")).Start(*rev("b", "csi@3.7.3"), revision.Beginning{Now: t0, Before: []string{"csi/Forbidden"}})
	outcome := func(h revision.History) revision.Outcome {
		cur, _ := h.InForce()
		return cur.Outcome
	}
	look := func(h revision.History, each time.Duration, looks int, l rollout.Facts) revision.History {
		cur, _ := h.InForce()
		l.Now = cur.Since
		if cur.Progress != nil {
			l.Now = cur.Progress.Seen
		}
		for range looks {
			l.Now = l.Now.Add(each)
			h = rollout.Judge(h, l)
		}
		return h
	}
	require.Equal(t, revision.Progressing, outcome(look(begin, time.Minute, 14, rollout.Facts{})))
	// A finding that came during a rollout is no earlier one for the next.
	next := begin.Start(*rev("c", "csi@3.7.4"), revision.Beginning{Now: t0, Before: []string{"csi/Incomplete"}})
	next = look(next, time.Minute, 2, rollout.Facts{Complete: true, Findings: []string{"csi/Incomplete"}})
	require.Equal(t, revision.Progressing, outcome(next))
	require.Equal(t, revision.Failed, outcome(look(begin, time.Minute, 3, rollout.Facts{Deadline: 3 * time.Minute})))
	require.Equal(t, revision.Progressing, outcome(look(begin, 6*time.Hour, 7, rollout.Facts{})), "nobody looked")
	require.Equal(t, revision.Progressing, outcome(look(begin, time.Minute, 600, rollout.Facts{ClockPaused: true})))
	paused := look(begin, time.Minute, 1, rollout.Facts{ClockPaused: true})
	later := rollout.Facts{Now: t0.Add(time.Hour), ClockPaused: true}
	require.Equal(t, paused, rollout.Judge(paused, later), "it is written once")
	between, at := begin, t0
	for range 10 { // one look after half an hour in which something else was at fault
		for range 30 {
			at = at.Add(time.Minute)
			between = rollout.Judge(between, rollout.Facts{Now: at, ClockPaused: true})
		}
		at = at.Add(10 * time.Second)
		between = rollout.Judge(between, rollout.Facts{Now: at})
	}
	require.Equal(t, revision.Progressing, outcome(between))
	require.Equal(t, revision.Progressing, outcome(look(begin, time.Minute, 1, rollout.Facts{Complete: true})), "it has to stay so for a minute")
	require.Equal(t, revision.Healthy, outcome(look(begin, time.Minute, 2, rollout.Facts{Complete: true, Findings: []string{"csi/Forbidden"}})), "it was so before")
	require.Equal(t, revision.Failed, outcome(look(begin, time.Minute, 15, rollout.Facts{Complete: true, Findings: []string{"csi/Incomplete"}})))

	require.Equal(t, revision.Healthy, outcome(rollout.Judge(healthy(rev("a", "csi@3.5.1")), rollout.Facts{Now: t0})))
	back := begin.Fail("it crashed", revision.Attempt{}, t0).RollBack(rev("a", "csi@3.5.1").Name(), t0)
	require.Equal(t, revision.Healthy, outcome(rollout.Judge(back, rollout.Facts{Now: t0, Complete: true})))

	h := begin
	for i := range 100 {
		h = look(h, time.Minute, 10, rollout.Facts{Progress: int64(i + 1)})
	}
	require.Equal(t, revision.Progressing, outcome(h), "it gets on")

	// Five of ten nodes leave: what they had is no progress lost.
	h = look(begin, time.Minute, 10, rollout.Facts{Desired: 10, Progress: 6})
	h = look(h, time.Minute, 1, rollout.Facts{Desired: 5, Progress: 3})
	require.Equal(t, revision.Progressing, outcome(look(h, time.Minute, 14, rollout.Facts{Desired: 5, Progress: 4})), "one pod more is progress")
	require.Equal(t, revision.Failed, outcome(look(h, time.Minute, 5, rollout.Facts{Desired: 5, Progress: 3})), "it is none that nodes have left")
	h = look(begin, time.Minute, 10, rollout.Facts{Desired: 10, Progress: 6})
	h = look(h, time.Minute, 1, rollout.Facts{Desired: 9, Progress: 4})
	require.Equal(t, revision.Failed, outcome(look(h, time.Minute, 5, rollout.Facts{Desired: 9, Progress: 5})),
		"it is none that a crashed pod is ready again, though a node has left")
	h = look(begin, time.Minute, 10, rollout.Facts{Desired: 10, Progress: 6})
	h = look(h, time.Minute, 1, rollout.Facts{Desired: 20, Progress: 13})
	require.Equal(t, revision.Failed, outcome(look(h, time.Minute, 5, rollout.Facts{Desired: 20, Progress: 13})),
		"it is none that a new node has its pods")
	require.Equal(t, revision.Progressing, outcome(look(h, time.Minute, 14, rollout.Facts{Desired: 20, Progress: 14})), "one pod more")

	// One pod crashes; every six minutes a node leaves that has its new pod, and returns, with its pod or before it.
	for _, returns := range []int64{1, 2} {
		h = begin
		for range 10 {
			h = look(h, time.Minute, 3, rollout.Facts{Desired: 3, Progress: 2})
			h = look(h, time.Minute, 3, rollout.Facts{Desired: 2, Progress: 1})
			h = look(h, time.Minute, 1, rollout.Facts{Desired: 3, Progress: returns})
		}
		require.Equal(t, revision.Failed, outcome(h), returns)
	}

	// Healthy at both ends of a minute is not healthy for a minute.
	h = look(begin, time.Minute, 1, rollout.Facts{Complete: true})
	h = look(h, 20*time.Second, 1, rollout.Facts{ClockPaused: true, Findings: []string{"csi/Incomplete"}})
	require.Equal(t, revision.Progressing, outcome(look(h, 41*time.Second, 1, rollout.Facts{Complete: true})))

	cur, _ := look(begin, time.Minute, 15, rollout.Facts{Why: "csi: it crashes"}).InForce()
	require.Equal(t, "it was not healthy after 15m0s without progress: csi: it crashes", cur.Reason)

	a, b := look(begin, time.Minute, 1, rollout.Facts{}), look(begin, time.Minute, 1, rollout.Facts{})
	require.Equal(t, a, rollout.Judge(b, rollout.Facts{Now: t0.Add(time.Minute + 5*time.Second)}), "looks in quick succession are not written down")
}

func TestWhyARevisionIsNotHealthyYet(t *testing.T) {
	next := revision.Beginning{Now: t0}
	begun := healthy(rev("a", "csi@3.5.1")).Start(*rev("b", "csi@3.7.3"), next)
	next.Canary = true
	chosen := healthy(rev("a", "csi@3.5.1")).Start(*rev("b", "csi@3.7.3"), next)
	back := begun.Fail("it crashed", revision.Attempt{}, t0).RollBack(rev("a", "csi@3.5.1").Name(), t0)
	for want, h := range map[string]revision.History{
		"it is being rolled out, and counts as failed after 15m0s without progress": begun,
		"it is on the canary nodes first":                                           chosen,
		"it was gone back to, and nothing else is tried":                            back,
	} {
		cur, _ := h.InForce()
		require.Equal(t, "revision "+cur.Name()+" is not healthy yet: "+want, rollout.Outlook(h, 0))
	}
	require.Contains(t, rollout.Outlook(begun, time.Hour), "counts as failed after 1h0m0s without progress")
}

// An upgrade that canary nodes have first comes to the others once those were healthy for a
// while, in looks, and fails where they are not.
func TestJudgeOfChosenNodes(t *testing.T) {
	begin := healthy(rev("a", "csi@3.5.1")).Start(*rev("b", "csi@3.7.3"), revision.Beginning{Now: t0, Canary: true})
	well := rollout.Facts{Canary: &rollout.Canary{Soak: 10 * time.Minute}}
	ill := rollout.Facts{Canary: &rollout.Canary{Soak: 10 * time.Minute, Why: "n1 has no pod of it"}}
	now := t0
	look := func(h revision.History, each time.Duration, looks int, l rollout.Facts) revision.Record {
		for range looks {
			now = now.Add(each)
			l.Now = now
			h = rollout.Judge(h, l)
		}
		cur, _ := h.InForce()
		now = t0
		return cur
	}
	after := func(h revision.History, cur revision.Record) revision.History {
		now = cur.Progress.Seen
		return h.WithCanary(*cur.Canary).WithProgress(*cur.Progress)
	}
	require.True(t, look(begin, time.Minute, 10, well).Canary.Open())
	require.False(t, look(begin, time.Minute, 11, well).Canary.Open())
	require.False(t, look(begin, 10*time.Second, 90, well).Canary.Open())
	require.True(t, look(begin, time.Hour, 5, well).Canary.Open(), "nobody looked")
	require.False(t, look(begin, time.Hour, 6, well).Canary.Open(), "two minutes each")
	require.Equal(t, revision.Progressing, look(begin, time.Minute, 20, well).Outcome, "it is not healthy before all nodes have it")
	clockPaused := well
	clockPaused.ClockPaused = true
	require.True(t, look(begin, time.Minute, 100, clockPaused).Canary.Open(), "something else is at fault")

	gated := rollout.Facts{Canary: &rollout.Canary{Soak: 10 * time.Minute, Gated: "no window is open"}}
	cur := look(begin, time.Minute, 100, gated)
	require.True(t, cur.Canary.Open(), "to follow is a start as any other")
	cur = look(after(begin, cur), time.Minute, 1, well)
	require.False(t, cur.Canary.Open(), "it was healthy for long enough before")

	idle := rollout.Facts{Canary: &rollout.Canary{Idle: true, Why: "no chosen node is ready"}}
	cur = look(begin, time.Minute, 100, idle)
	require.Equal(t, revision.Progressing, cur.Outcome)
	crashes := rollout.Facts{Canary: idle.Canary, Findings: []string{"csi/Unreachable"}}
	require.Equal(t, revision.Failed, look(begin, time.Minute, 15, crashes).Outcome, "the controller crashes")
	waits := after(begin, look(begin, time.Minute, 11, gated))
	cur = look(waits, time.Minute, 100, idle)
	require.True(t, cur.Canary.Soaked >= 600 && cur.Outcome == revision.Progressing, "what was healthy for long enough stays so")

	cur = look(begin, time.Minute, 15, ill)
	require.Equal(t, revision.Failed, cur.Outcome)
	require.True(t, cur.Canary.Open(), "the other nodes do not get it")
	require.Equal(t, "it was not healthy after 15m0s without progress: on the nodes that have it first: n1 has no pod of it; it is not rolled out", cur.Reason)

	h := after(begin, look(begin, time.Minute, 9, well))
	fell := look(h, time.Minute, 1, ill)
	require.Zero(t, fell.Canary.Soaked)
	h = after(h, fell)
	require.True(t, look(h, time.Minute, 10, well).Canary.Open(), "it begins anew")

	h = begin
	for range 8 {
		h = after(h, look(h, time.Minute, 1, well))
		cur = look(h, 2*time.Minute, 1, ill)
		h = h.WithCanary(*cur.Canary)
		if cur.Progress != nil {
			h = after(h, cur)
		}
	}
	require.Equal(t, revision.Failed, cur.Outcome, "it falls over again and again")

	known := well
	known.Findings = []string{"csi/Incomplete"}
	require.Equal(t, revision.Failed, look(begin, time.Minute, 15, known).Outcome, "something new is amiss")
	require.Nil(t, begin.Succeed(t0).Records[1].Canary, "a healthy one is for no canary nodes any more")
}
