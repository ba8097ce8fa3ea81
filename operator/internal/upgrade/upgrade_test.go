package upgrade_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

var (
	t0 = time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC) // a Saturday
)

func rev(bundle string, releases ...string) *revision.Revision {
	return &revision.Revision{Bundle: "mirror/vdo@sha256:" + bundle, Source: "site", Releases: releases, Contents: map[string]string{"csi": bundle}}
}

func version(t *testing.T, s string) matrix.Version {
	t.Helper()
	v, err := matrix.ParseVersion(s)
	require.NoError(t, err)
	return v
}

// healthy is a history with one revision that is healthy.
func healthy(r *revision.Revision) revision.History {
	return revision.History{}.Begin(*r, revision.Beginning{Now: t0}).Succeed(t0)
}

func window(t *testing.T, schedule string, lasts time.Duration, zone string) upgrade.Window {
	t.Helper()
	w, err := upgrade.ParseWindow(v1alpha1.UpgradeWindow{Schedule: schedule, Duration: metav1.Duration{Duration: lasts}, TimeZone: zone})
	require.NoError(t, err)
	return w
}

func TestDecide(t *testing.T) {
	old, next := rev("a", "csi@3.5.1"), rev("b", "csi@3.7.3")
	failed := healthy(old).Begin(*next, revision.Beginning{Now: t0}).Fail("it crashed", t0)
	back := failed.RollBack(old.Name(), t0)
	rolling := healthy(old).Begin(*next, revision.Beginning{Now: t0})
	revoked := upgrade.Facts{History: rolling, Untrusted: "a key is revoked"}
	revokedBeside := revoked
	revokedBeside.Candidate = rev("c", "csi@3.7.4")
	first := revision.History{}.Begin(*next, revision.Beginning{Now: t0})
	consent := upgrade.Policy{Manual: true, Approved: next.Name()}
	oneWay := []upgrade.OneWay{{ReleaseID: matrix.ReleaseID{Driver: matrix.CSI, Version: version(t, "3.7.0")}, Why: "it migrates volumes"}}
	anew := rev("b", "csi@3.5.1")
	held := *rev("b", "csi@3.5.1")
	held.Contents, held.Bundles = old.Contents, map[string]string{"csi": old.Bundle}
	holding := healthy(old).Begin(held, revision.Beginning{Now: t0}).Succeed(t0)
	over := holding.Begin(*anew, revision.Beginning{Now: t0})
	csi := func(v string) map[matrix.Driver]matrix.Version {
		return map[matrix.Driver]matrix.Version{matrix.CSI: version(t, v)}
	}
	for name, c := range map[string]struct {
		facts  upgrade.Facts
		action upgrade.Action
		reason upgrade.Reason
		begins bool
		to     string
	}{
		"first installation": {facts: upgrade.Facts{Candidate: old}, action: upgrade.Proceed, begins: true},
		"first installation outside of a window, under Manual": {
			facts:  upgrade.Facts{Candidate: old, Policy: upgrade.Policy{Manual: true, Windows: []upgrade.Window{{}}}},
			action: upgrade.Proceed, begins: true},
		"it runs, and is newer than what runs": {facts: upgrade.Facts{Candidate: next, Running: csi("3.5.1")}, action: upgrade.Proceed, begins: true},
		"likewise, outside of the window":      {facts: upgrade.Facts{Candidate: next, Running: csi("3.5.1"), Policy: upgrade.Policy{Windows: []upgrade.Window{window(t, "0 2 * * 6", time.Hour, "")}}}, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"likewise, not approved":               {facts: upgrade.Facts{Candidate: next, Running: csi("3.5.1"), Policy: upgrade.Policy{Manual: true}}, action: upgrade.Wait, reason: upgrade.NotApproved},
		"likewise, approved":                   {facts: upgrade.Facts{Candidate: next, Running: csi("3.5.1"), Policy: upgrade.Policy{Manual: true, Approved: next.Name()}}, action: upgrade.Proceed, begins: true},
		"likewise, something else changes": {facts: upgrade.Facts{Candidate: next,
			Running: csi("3.5.1"), Interlocks: map[matrix.Driver]string{matrix.CSI: "x"}}, action: upgrade.Wait, reason: upgrade.Interlocked},
		"it runs in the same version, Manual": {facts: upgrade.Facts{Candidate: old, Running: csi("3.5.1"),
			Interlocks: map[matrix.Driver]string{matrix.CSI: "x"}, Policy: upgrade.Policy{Manual: true, Windows: []upgrade.Window{{}}}}, action: upgrade.Proceed, begins: true},
		"it runs, and is older than what runs": {facts: upgrade.Facts{Candidate: old, Running: csi("3.7.3")}, action: upgrade.Hold, reason: upgrade.DowngradeRefused},
		"likewise, with consent":               {facts: upgrade.Facts{Candidate: old, Running: csi("3.7.3"), Policy: upgrade.Policy{AllowDowngrade: []string{"csi@3.5.1"}}}, action: upgrade.Proceed, begins: true},
		"likewise, with consent and a mark":    {facts: upgrade.Facts{Candidate: old, Running: csi("3.7.3"), OneWay: oneWay, Policy: upgrade.Policy{AllowDowngrade: []string{"csi@3.5.1"}}}, action: upgrade.Hold, reason: upgrade.DowngradeRefused},
		"it runs, and nothing was chosen":      {facts: upgrade.Facts{Running: csi("3.7.3")}, action: upgrade.Proceed},
		"nothing was chosen":                   {facts: upgrade.Facts{History: healthy(old)}, action: upgrade.Stay},
		"the same":                             {facts: upgrade.Facts{History: healthy(old), Candidate: old}, action: upgrade.Proceed},
		"an upgrade":                           {facts: upgrade.Facts{History: healthy(old), Candidate: next}, action: upgrade.Proceed, begins: true},
		"another bundle, same of":              {facts: upgrade.Facts{History: healthy(old), Candidate: &revision.Revision{Bundle: "x@sha256:c", Releases: old.Releases, Contents: old.Contents}, Policy: upgrade.Policy{Manual: true}}, action: upgrade.Proceed, begins: true},
		"another bundle rebuilt":               {facts: upgrade.Facts{History: healthy(old), Candidate: rev("c", "csi@3.5.1"), Policy: upgrade.Policy{Manual: true}}, action: upgrade.Wait, reason: upgrade.NotApproved},
		"rebuilt, and held":                    {facts: upgrade.Facts{History: healthy(old), Candidate: &held, Policy: upgrade.Policy{Manual: true}}, action: upgrade.Proceed, begins: true},
		"held still":                           {facts: upgrade.Facts{History: holding, Candidate: &held, Policy: upgrade.Policy{Manual: true}}, action: upgrade.Proceed},
		"held no more":                         {facts: upgrade.Facts{History: holding, Candidate: anew}, action: upgrade.Proceed, begins: true},
		"what was held went over":              {facts: upgrade.Facts{History: over, Candidate: anew}, action: upgrade.Proceed},
		"it went over, and failed": {facts: upgrade.Facts{History: over.Fail("it crashed", t0),
			Candidate: anew}, action: upgrade.RollBack, to: held.Name()},
		"it went over, and the next one has failed": {facts: upgrade.Facts{History: over.Begin(*next,
			revision.Beginning{Now: t0}).Fail("it crashed", t0), Candidate: next},
			action: upgrade.RollBack, to: held.Name()},
		"the one after what is held has failed": {facts: upgrade.Facts{History: holding.Begin(*next,
			revision.Beginning{Now: t0}).Fail("it crashed", t0), Candidate: next},
			action: upgrade.RollBack, to: held.Name()},
		"a driver is added":                         {facts: upgrade.Facts{History: healthy(old), Candidate: rev("a", "cpi@1.33.1", "csi@3.5.1"), Policy: upgrade.Policy{Manual: true}}, action: upgrade.Proceed, begins: true},
		"one is added that runs in another version": {facts: upgrade.Facts{History: healthy(rev("a", "cpi@1.33.1")), Candidate: rev("a", "cpi@1.33.1", "csi@3.5.1"), Running: csi("3.7.3")}, action: upgrade.Hold, reason: upgrade.DowngradeRefused},
		"likewise, with consent to the downgrade":   {facts: upgrade.Facts{History: healthy(rev("a", "cpi@1.33.1")), Candidate: rev("a", "cpi@1.33.1", "csi@3.5.1"), Running: csi("3.7.3"), Policy: upgrade.Policy{AllowDowngrade: []string{"csi@3.5.1"}}}, action: upgrade.Proceed, begins: true},
		"one is added that runs in an older one":    {facts: upgrade.Facts{History: healthy(rev("a", "cpi@1.33.1")), Candidate: rev("a", "cpi@1.33.1", "csi@3.5.1"), Running: csi("3.3.1"), Policy: upgrade.Policy{Manual: true}}, action: upgrade.Wait, reason: upgrade.NotApproved},
		"one is added that runs in the same":        {facts: upgrade.Facts{History: healthy(rev("a", "cpi@1.33.1")), Candidate: rev("a", "cpi@1.33.1", "csi@3.5.1"), Running: csi("3.5.1"), Policy: upgrade.Policy{Manual: true}}, action: upgrade.Proceed, begins: true},
		"what is in force runs in another version":  {facts: upgrade.Facts{History: healthy(old), Candidate: rev("a", "cpi@1.33.1", "csi@3.5.1"), Running: csi("3.3.1"), Policy: upgrade.Policy{Manual: true}}, action: upgrade.Proceed, begins: true},
		"not approved": {facts: upgrade.Facts{History: healthy(old), Candidate: next, Policy: upgrade.Policy{Manual: true}}, action: upgrade.Wait, reason: upgrade.NotApproved},
		"another was approved": {facts: upgrade.Facts{History: healthy(old), Candidate: next,
			Policy: upgrade.Policy{Manual: true, Approved: old.Name()}}, action: upgrade.Wait, reason: upgrade.NotApproved},
		"approved": {facts: upgrade.Facts{History: healthy(old), Candidate: next,
			Policy: upgrade.Policy{Manual: true, Approved: next.Name()}}, action: upgrade.Proceed, begins: true},
		"outside of the window": {facts: upgrade.Facts{History: healthy(old), Candidate: next, Policy: upgrade.Policy{Windows: []upgrade.Window{window(t, "0 2 * * 6", time.Hour, "")}}}, action: upgrade.Wait, reason: upgrade.WindowClosed},
		"within the window":     {facts: upgrade.Facts{Now: t0.Add(90 * time.Minute), History: healthy(old), Candidate: next, Policy: upgrade.Policy{Windows: []upgrade.Window{window(t, "0 2 * * 6", time.Hour, "")}}}, action: upgrade.Proceed, begins: true},
		"interlocked": {facts: upgrade.Facts{History: healthy(old),
			Candidate: next, Interlocks: map[matrix.Driver]string{matrix.CSI: "API servers"}}, action: upgrade.Wait, reason: upgrade.Interlocked},
		"a downgrade": {facts: upgrade.Facts{History: healthy(next), Candidate: old}, action: upgrade.Hold, reason: upgrade.DowngradeRefused},
		"a downgrade of what was installed by hand": {
			facts:  upgrade.Facts{History: healthy(old), Candidate: rev("b", "csi@3.6.0"), Running: map[matrix.Driver]matrix.Version{matrix.CSI: version(t, "3.7.3")}},
			action: upgrade.Hold, reason: upgrade.DowngradeRefused},
		"a downgrade with consent":                     {facts: upgrade.Facts{History: healthy(next), Candidate: old, Policy: upgrade.Policy{AllowDowngrade: []string{"csi@3.5.1"}}}, action: upgrade.Proceed, begins: true},
		"a downgrade with consent to another":          {facts: upgrade.Facts{History: healthy(next), Candidate: old, Policy: upgrade.Policy{AllowDowngrade: []string{"csi@3.5.0"}}}, action: upgrade.Hold, reason: upgrade.DowngradeRefused},
		"a downgrade with consent, and a one-way mark": {facts: upgrade.Facts{History: healthy(next), Candidate: old, OneWay: oneWay, Policy: upgrade.Policy{AllowDowngrade: []string{"csi@3.5.1"}}}, action: upgrade.Hold, reason: upgrade.DowngradeRefused},
		"failed":                                {facts: upgrade.Facts{History: failed, Candidate: next}, action: upgrade.RollBack, to: old.Name()},
		"failed, whatever the window":           {facts: upgrade.Facts{History: failed, Policy: upgrade.Policy{Windows: []upgrade.Window{{}}}}, action: upgrade.RollBack, to: old.Name()},
		"failed, and never rolled back":         {facts: upgrade.Facts{History: failed, Candidate: next, Policy: upgrade.Policy{NeverRollBack: true}}, action: upgrade.Stay},
		"failed, and it is being deleted":       {facts: upgrade.Facts{History: failed, Candidate: next, Frozen: "the VDOConfig is being deleted"}, action: upgrade.Stay},
		"failed, and a one-way mark":            {facts: upgrade.Facts{History: failed, Candidate: next, OneWay: oneWay}, action: upgrade.Stay},
		"failed, and the one before is revoked": {facts: upgrade.Facts{History: failed, Candidate: next, Unusable: map[string]string{old.Name(): "revoked"}}, action: upgrade.Stay},
		"failed, and what runs cannot be gone back from": {facts: upgrade.Facts{History: failed, Candidate: next, Running: map[matrix.Driver]matrix.Version{matrix.CSI: version(t, "3.8.0")},
			OneWay: []upgrade.OneWay{{ReleaseID: matrix.ReleaseID{Driver: matrix.CSI, Version: version(t, "3.8.0")}, Why: "it migrates volumes"}}}, action: upgrade.Stay},
		"failed, and a better one is there": {facts: upgrade.Facts{History: failed, Candidate: rev("c", "csi@3.7.4")}, action: upgrade.Proceed, begins: true},
		"failed, and a better one waits": {facts: upgrade.Facts{History: failed,
			Candidate: rev("c", "csi@3.7.4"), Interlocks: map[matrix.Driver]string{matrix.CSI: "x"}}, action: upgrade.RollBack, to: old.Name()},
		"rolled back":                                          {facts: upgrade.Facts{History: back, Candidate: next}, action: upgrade.Hold, reason: upgrade.Failed},
		"rolled back, asked again":                             {facts: upgrade.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Retry: next.Name()}}, action: upgrade.Proceed, begins: true},
		"rolled back, asked again for another":                 {facts: upgrade.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Retry: old.Name()}}, action: upgrade.Hold, reason: upgrade.Failed},
		"rolled back, and the VDOConfig was changed":           {facts: upgrade.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Generation: 2}}, action: upgrade.Proceed, begins: true},
		"rolled back, and the operator was upgraded":           {facts: upgrade.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Program: "p"}}, action: upgrade.Proceed, begins: true},
		"rolled back, approved, and the VDOConfig was changed": {facts: upgrade.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Generation: 2}, Policy: consent}, action: upgrade.Hold, reason: upgrade.Failed},
		"rolled back, approved, and asked for again":           {facts: upgrade.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Retry: next.Name()}, Policy: consent}, action: upgrade.Proceed, begins: true},
		"revoked while it is rolled out":                       {facts: revoked, action: upgrade.RollBack, to: old.Name()},
		"likewise, and a better one is there":                  {facts: revokedBeside, action: upgrade.Proceed, begins: true},
		"revoked, and there is nothing to go back to": {
			facts:  upgrade.Facts{History: first, Untrusted: "revoked"},
			action: upgrade.Stay, reason: upgrade.Failed,
		},
		"revoked once it was healthy":                   {facts: upgrade.Facts{History: healthy(next), Untrusted: "revoked"}, action: upgrade.Stay},
		"revoked while it is put back":                  {facts: upgrade.Facts{History: back, Untrusted: "revoked"}, action: upgrade.Stay},
		"rolled back, and the bundle is the old again":  {facts: upgrade.Facts{History: back, Candidate: old}, action: upgrade.Proceed},
		"rolled back to lower than runs: no downgrade":  {facts: upgrade.Facts{History: back, Candidate: old, Running: map[matrix.Driver]matrix.Version{matrix.CSI: version(t, "3.7.3")}}, action: upgrade.Proceed},
		"rolled back, the failed one is chosen without": {facts: upgrade.Facts{History: back}, action: upgrade.Stay},
	} {
		t.Run(name, func(t *testing.T) {
			if c.facts.Now.IsZero() {
				c.facts.Now = t0
			}
			v := upgrade.Decide(c.facts)
			require.Equal(t, c.action, v.Action, "%+v", v)
			require.Equal(t, c.begins, v.Begins, "%+v", v)
			if c.reason != "" {
				require.Equal(t, c.reason, v.Reason)
			}
			require.Equal(t, c.to, v.To)
			if v.Holds() {
				require.NotEmpty(t, v.Message)
			}
		})
	}
}

func TestAnApprovalOfAnotherRevisionIsTold(t *testing.T) {
	next := rev("b", "cpi@1.33.1", "csi@3.7.3", "snapshot-controller@8.2.0")
	v := upgrade.Decide(upgrade.Facts{Now: t0, History: healthy(rev("a", "cpi@1.33.1", "csi@3.5.1")), Candidate: next, Policy: upgrade.Policy{Manual: true, Approved: "r9-00000000"}})
	require.Contains(t, v.Message, "r9-00000000 is of another revision")
	require.Contains(t, v.Message, next.Name())
	require.Regexp(t, "^csi@3.7.3, snapshot-controller@8.2.0 waits for approval", v.Message, "what stays as it is waits for nothing")
}

func TestWindows(t *testing.T) {
	at := func(s string) time.Time {
		tm, err := time.Parse(time.RFC3339, s)
		require.NoError(t, err)
		return tm
	}
	for _, c := range []struct {
		schedule string
		lasts    time.Duration
		zone     string
		now      string
		open     bool
		next     string
	}{
		{"0 2 * * 6", 4 * time.Hour, "", "2026-01-03T01:59:59Z", false, "2026-01-03T02:00:00Z"},
		{"0 2 * * 6", 4 * time.Hour, "", "2026-01-03T02:00:00Z", true, "2026-01-10T02:00:00Z"},
		{"0 2 * * 6", 4 * time.Hour, "", "2026-01-03T05:59:59Z", true, "2026-01-10T02:00:00Z"},
		{"0 2 * * 6", 4 * time.Hour, "", "2026-01-03T06:00:00Z", false, "2026-01-10T02:00:00Z"},
		{"0 2 * * 6", 4 * time.Hour, "America/New_York", "2026-01-03T07:30:00Z", true, "2026-01-10T07:00:00Z"},
		{"0 22 * * *", 4 * time.Hour, "", "2026-01-04T01:00:00Z", true, "2026-01-04T22:00:00Z"},           // over midnight
		{"30 2 * * *", time.Hour, "Europe/Berlin", "2026-03-29T00:45:00Z", false, "2026-03-30T00:30:00Z"}, // no half past two that night
		{"0 0 * * 1-5", 2 * time.Hour, "Asia/Kolkata", "2026-01-04T19:00:00Z", true, "2026-01-05T18:30:00Z"},
	} {
		w := window(t, c.schedule, c.lasts, c.zone)
		require.Equal(t, c.open, w.Open(at(c.now)), "%+v", c)
		require.Equal(t, c.next, w.Next(at(c.now)).UTC().Format(time.RFC3339), "%+v", c)
	}
	never := window(t, "0 0 30 2 *", time.Hour, "")
	require.False(t, never.Open(t0))
	require.True(t, never.Next(t0).IsZero())
	for _, bad := range []v1alpha1.UpgradeWindow{
		{Schedule: "0 2 * *", Duration: metav1.Duration{Duration: time.Hour}},
		{Schedule: "99 2 * * 6", Duration: metav1.Duration{Duration: time.Hour}},
		{Schedule: "0 2 * * 6"},
		{Schedule: "0 2 * * 6", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "Europe/Atlantis"},
	} {
		_, err := upgrade.ParseWindow(bad)
		require.ErrorContains(t, err, "windows", "%+v", bad)
	}
}

func TestTheNextWindowIsToldAndIsWhenToLookAgain(t *testing.T) {
	v := upgrade.Decide(upgrade.Facts{Now: t0, History: healthy(rev("a", "csi@3.5.1")), Candidate: rev("b", "csi@3.7.3"),
		Policy: upgrade.Policy{Windows: []upgrade.Window{window(t, "0 4 * * *", time.Hour, ""), window(t, "0 3 * * *", time.Hour, "")}}})
	require.Equal(t, t0.Add(2*time.Hour), v.Until.UTC())
	require.Contains(t, v.Message, "2026-01-03T03:00:00Z")
}

func TestJudge(t *testing.T) {
	begin := healthy(rev("a", "csi@3.5.1")).Begin(*rev("b", "csi@3.7.3"), revision.Beginning{Now: t0, Before: []string{"csi/Forbidden"}})
	outcome := func(h revision.History) revision.Outcome {
		cur, _ := h.InForce()
		return cur.Outcome
	}
	look := func(h revision.History, each time.Duration, looks int, l upgrade.Look) revision.History {
		cur, _ := h.InForce()
		l.Now = cur.Since
		if cur.Gate != nil {
			l.Now = cur.Gate.Seen
		}
		for range looks {
			l.Now = l.Now.Add(each)
			h = upgrade.Judge(h, l)
		}
		return h
	}
	require.Equal(t, revision.Progressing, outcome(look(begin, time.Minute, 14, upgrade.Look{})))
	require.Equal(t, revision.Failed, outcome(look(begin, time.Minute, 15, upgrade.Look{Why: "csi: it crashes"})))
	require.Equal(t, revision.Failed, outcome(look(begin, time.Minute, 3, upgrade.Look{Deadline: 3 * time.Minute})))
	require.Equal(t, revision.Progressing, outcome(look(begin, 6*time.Hour, 7, upgrade.Look{})), "nobody looked")
	require.Equal(t, revision.Progressing, outcome(look(begin, time.Minute, 600, upgrade.Look{Elsewhere: true})))
	between, at := begin, t0
	for range 10 { // one look after half an hour in which something else was at fault
		for range 30 {
			at = at.Add(time.Minute)
			between = upgrade.Judge(between, upgrade.Look{Now: at, Elsewhere: true})
		}
		at = at.Add(10 * time.Second)
		between = upgrade.Judge(between, upgrade.Look{Now: at})
	}
	require.Equal(t, revision.Progressing, outcome(between))
	require.Equal(t, revision.Progressing, outcome(look(begin, time.Minute, 1, upgrade.Look{Complete: true})), "it has to stay so for a minute")
	require.Equal(t, revision.Healthy, outcome(look(begin, time.Minute, 2, upgrade.Look{Complete: true})))
	require.Equal(t, revision.Healthy, outcome(look(begin, time.Minute, 2, upgrade.Look{Complete: true, Amiss: []string{"csi/Forbidden"}})), "it was so before")
	require.Equal(t, revision.Failed, outcome(look(begin, time.Minute, 15, upgrade.Look{Complete: true, Amiss: []string{"csi/Incomplete"}})))

	taken := healthy(rev("a", "csi@3.5.1")).Adopt(*rev("b", "csi@3.7.3"), false, revision.Beginning{Now: t0})
	require.Equal(t, revision.Superseded, outcome(look(taken, time.Minute, 100, upgrade.Look{})), "it does not fail")
	require.Equal(t, revision.Superseded, outcome(look(taken, time.Minute, 3, upgrade.Look{Complete: true, Amiss: []string{"csi/Incomplete"}})))
	taken = look(taken, time.Minute, 1, upgrade.Look{Complete: true})
	require.Equal(t, revision.Healthy, outcome(taken))
	next := taken.Begin(*rev("c", "csi@3.7.4"), revision.Beginning{Now: t0})
	require.Equal(t, "csi@3.7.3", next.Targets()[0].Releases[0], "it can be gone back to")

	h := begin
	for i := range 100 {
		h = look(h, time.Minute, 10, upgrade.Look{Progress: int64(i + 1)})
	}
	require.Equal(t, revision.Progressing, outcome(h), "it gets on")
	h = look(h, time.Minute, 15, upgrade.Look{Progress: 50})
	require.Equal(t, revision.Failed, outcome(h))

	// Five of ten nodes leave: what they had is no progress lost, nor is it won again when they come back.
	h = look(begin, time.Minute, 10, upgrade.Look{Wanted: 10, Progress: 12})
	h = look(h, time.Minute, 1, upgrade.Look{Wanted: 5, Progress: 6})
	require.Equal(t, revision.Progressing, outcome(look(h, time.Minute, 14, upgrade.Look{Wanted: 5, Progress: 7})), "one pod more is progress")
	require.Equal(t, revision.Failed, outcome(look(h, time.Minute, 5, upgrade.Look{Wanted: 5, Progress: 6})), "it is none that nodes have left")
	for range 3 {
		h = look(h, time.Minute, 1, upgrade.Look{Wanted: 10, Progress: 12})
		h = look(h, time.Minute, 1, upgrade.Look{Wanted: 5, Progress: 6})
	}
	require.Equal(t, revision.Failed, outcome(h), "nor that nodes come and go")
	h = look(begin, time.Minute, 10, upgrade.Look{Wanted: 10, Progress: 12})
	h = look(h, time.Minute, 1, upgrade.Look{Wanted: 5, Progress: 6})
	h = look(h, time.Minute, 1, upgrade.Look{Wanted: 20, Progress: 13})
	require.Equal(t, revision.Progressing, outcome(look(h, time.Minute, 14, upgrade.Look{Wanted: 20, Progress: 13})), "a new node has its pods")

	cur, _ := look(begin, time.Minute, 15, upgrade.Look{Why: "csi: it crashes"}).InForce()
	require.Equal(t, "it was not healthy after 15m0s without progress: csi: it crashes", cur.Reason)

	a, b := look(begin, time.Minute, 1, upgrade.Look{}), look(begin, time.Minute, 1, upgrade.Look{})
	require.Equal(t, a, upgrade.Judge(b, upgrade.Look{Now: t0.Add(time.Minute + 5*time.Second)}), "looks in quick succession are not written down")
}

// An upgrade that chosen nodes have first comes to the others once those were healthy for a
// while, in looks, and fails where they are not.
// A revision that is not healthy yet is told with why, and until when that is waited for.
func TestWhyARevisionIsNotHealthyYet(t *testing.T) {
	next := revision.Beginning{Now: t0}
	begun := healthy(rev("a", "csi@3.5.1")).Begin(*rev("b", "csi@3.7.3"), next)
	next.Canary = true
	chosen := healthy(rev("a", "csi@3.5.1")).Begin(*rev("b", "csi@3.7.3"), next)
	well := upgrade.Judge(begun, upgrade.Look{Now: t0.Add(time.Minute), Complete: true})
	back := begun.Fail("it crashed", t0).RollBack(rev("a", "csi@3.5.1").Name(), t0)
	for want, h := range map[string]revision.History{
		"it is being rolled out, and counts as failed after 15m0s without progress": begun,
		"it is on the chosen nodes first":                                           chosen,
		"it was gone back to, and nothing else is tried":                            back,
		"all is well since " + t0.Add(time.Minute).UTC().Format(time.RFC3339) + ", and it counts as healthy where that stays so until " + t0.Add(2*time.Minute).UTC().Format(time.RFC3339): well,
	} {
		cur, _ := h.InForce()
		require.Equal(t, "revision "+cur.Name()+" is not healthy yet: "+want, upgrade.Outlook(h, 0))
	}
	require.Contains(t, upgrade.Outlook(begun, time.Hour), "counts as failed after 1h0m0s without progress")
	require.Equal(t, revision.Healthy, upgrade.Judge(well, upgrade.Look{Now: t0.Add(2 * time.Minute), Complete: true}).Records[1].Outcome, "as it was told")
}

func TestJudgeOfChosenNodes(t *testing.T) {
	begin := healthy(rev("a", "csi@3.5.1")).Begin(*rev("b", "csi@3.7.3"), revision.Beginning{Now: t0, Canary: true})
	well := upgrade.Look{Canary: &upgrade.Canary{Healthy: true, Soak: 10 * time.Minute}}
	ill := upgrade.Look{Canary: &upgrade.Canary{Soak: 10 * time.Minute, Why: "n1 has no pod of it"}}
	now := t0
	look := func(h revision.History, each time.Duration, looks int, l upgrade.Look) revision.Record {
		for range looks {
			now = now.Add(each)
			l.Now = now
			h = upgrade.Judge(h, l)
		}
		cur, _ := h.InForce()
		now = t0
		return cur
	}
	after := func(h revision.History, cur revision.Record) revision.History {
		now = cur.Gate.Seen
		return h.WithCanary(*cur.Canary).WithGate(*cur.Gate)
	}
	require.True(t, look(begin, time.Minute, 10, well).Canary.Open())
	require.False(t, look(begin, time.Minute, 11, well).Canary.Open())
	require.False(t, look(begin, 10*time.Second, 90, well).Canary.Open())
	require.True(t, look(begin, time.Hour, 5, well).Canary.Open(), "nobody looked")
	require.False(t, look(begin, time.Hour, 6, well).Canary.Open(), "two minutes each")
	require.Equal(t, revision.Progressing, look(begin, time.Minute, 20, well).Outcome, "it is not healthy before all nodes have it")
	elsewhere := well
	elsewhere.Elsewhere = true
	require.True(t, look(begin, time.Minute, 100, elsewhere).Canary.Open(), "something else is at fault")

	gated := upgrade.Look{Canary: &upgrade.Canary{Healthy: true, Soak: 10 * time.Minute, Held: "no window is open"}}
	cur := look(begin, time.Minute, 100, gated)
	require.True(t, cur.Canary.Open(), "to follow is a start as any other")
	cur = look(after(begin, cur), time.Minute, 1, well)
	require.False(t, cur.Canary.Open(), "it was healthy for long enough before")

	cur = look(begin, time.Minute, 15, ill)
	require.Equal(t, revision.Failed, cur.Outcome)
	require.True(t, cur.Canary.Open(), "the other nodes do not get it")
	require.Equal(t, "it was not healthy after 15m0s without progress: on the nodes that have it first: n1 has no pod of it; it is not rolled out", cur.Reason)

	h := after(begin, look(begin, time.Minute, 9, well))
	fell := look(h, time.Minute, 1, ill)
	require.Zero(t, fell.Canary.Soaked)
	require.Equal(t, revision.Progressing, fell.Outcome)
	h = after(h, fell)
	require.True(t, look(h, time.Minute, 10, well).Canary.Open(), "it begins anew")

	h = begin
	for range 8 {
		h = after(h, look(h, time.Minute, 1, well))
		cur = look(h, 2*time.Minute, 1, ill)
		h = h.WithCanary(*cur.Canary)
		if cur.Gate != nil {
			h = after(h, cur)
		}
	}
	require.Equal(t, revision.Failed, cur.Outcome, "it falls over again and again")

	known := well
	known.Amiss = []string{"csi/Incomplete"}
	require.Equal(t, revision.Failed, look(begin, time.Minute, 15, known).Outcome, "something new is amiss")
	require.Nil(t, begin.Fail("x", t0).RollBack(rev("a", "csi@3.5.1").Name(), t0).Records[0].Canary)
}

// Which upgrades come to chosen nodes first.
func TestCanaries(t *testing.T) {
	from := revision.Record{Revision: *rev("a", "cpi@1.33.1", "csi@3.5.1")}
	open := from
	open.Canary = &revision.Canary{}
	passed := from
	passed.Canary = &revision.Canary{Passed: true}
	held := revision.Record{Revision: *rev("b", "csi@3.5.1")}
	held.Contents = from.Contents
	for name, c := range map[string]struct {
		from revision.Record
		to   *revision.Revision
		want bool
	}{
		"another version":                        {from, rev("a", "cpi@1.33.1", "csi@3.7.3"), true},
		"a rebuilt one":                          {from, rev("b", "cpi@1.33.1", "csi@3.5.1"), true},
		"another driver's":                       {from, rev("a", "cpi@1.33.2", "csi@3.5.1"), false},
		"it comes":                               {revision.Record{Revision: *rev("a", "cpi@1.33.1")}, rev("b", "cpi@1.33.1", "csi@3.5.1"), false},
		"it goes":                                {from, rev("b", "cpi@1.33.1"), false},
		"it goes, and is at the chosen ones":     {open, rev("b", "cpi@1.33.1"), false},
		"another's, and it is at the chosen":     {open, rev("a", "cpi@1.33.2", "csi@3.5.1"), true},
		"another's, and it is everywhere":        {passed, rev("a", "cpi@1.33.2", "csi@3.5.1"), false},
		"what was held":                          {held, rev("b", "csi@3.5.1"), true},
		"the same again":                         {from, rev("a", "cpi@1.33.1", "csi@3.5.1"), false},
		"the same again, which was there first ": {open, rev("a", "cpi@1.33.1", "csi@3.5.1"), true},
	} {
		require.Equal(t, c.want, upgrade.Canaries(c.from, *c.to), name)
	}
}

// A revision that failed is tried again each time that the wish for it changes, and once each
// time.
func TestAWishCountsEachTimeThatItChanges(t *testing.T) {
	next := rev("b", "csi@3.7.3")
	h := healthy(rev("a", "csi@3.5.1")).Begin(*next, revision.Beginning{Now: t0}).Fail("it crashed", t0).RollBack(rev("a", "csi@3.5.1").Name(), t0)
	name := next.Name()
	for i, c := range []struct {
		wish   string
		closed bool // no window is open
		begins bool
	}{
		{wish: "r9-00000000"}, {wish: name, closed: true}, {wish: name, begins: true}, {wish: name},
		{wish: name + " at noon", begins: true}, {wish: name + " at noon"},
		{wish: name, begins: true}, {wish: ""}, {wish: name, begins: true}, {wish: name}, {wish: name + "0"}, {wish: name, begins: true},
	} {
		attempt := revision.Attempt{Retry: c.wish}
		h = h.Wished(c.wish)
		f := upgrade.Facts{Now: t0, History: h, Candidate: next, Attempt: attempt}
		if c.closed {
			f.Interlocks = map[matrix.Driver]string{matrix.CSI: "something changes"}
		}
		v := upgrade.Decide(f)
		require.Equal(t, c.begins, v.Begins, "%d: %+v", i, v)
		if v.Begins {
			h = h.Begin(*next, revision.Beginning{Now: t0, Attempt: attempt}).Fail("it crashed", t0).RollBack(rev("a", "csi@3.5.1").Name(), t0)
		}
	}
}

// Whatever happens, in whatever order: a revision that always fails is begun once for each
// time that something was changed for it, and what is gone back to was healthy.
func TestAFailingRevisionNeverLoops(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
		bad, now := map[string]bool{}, t0
		h := revision.History{}
		candidate := rev("0", "csi@3.5.0")
		attempt := revision.Attempt{}
		reasons, begun := 0, 0
		changed := func() { reasons += 1 }
		for step := range 400 {
			now = now.Add(time.Duration(r.IntN(120)) * time.Second)
			switch r.IntN(40) {
			case 0:
				candidate = rev(fmt.Sprint(r.IntN(6)), fmt.Sprintf("csi@3.%d.0", 5+r.IntN(3)))
				if step > 20 && r.IntN(2) == 0 {
					bad[candidate.Hash()] = true
				}
				changed()
			case 1:
				attempt.Generation++
				changed()
			case 2:
				attempt.Retry = fmt.Sprintf("%s %d", candidate.Name(), step)
				changed()
			}
			h = h.Wished(attempt.Retry)
			v := upgrade.Decide(upgrade.Facts{Now: now, History: h, Candidate: candidate, Attempt: attempt,
				Policy: upgrade.Policy{AllowDowngrade: []string{"csi@3.5.0", "csi@3.6.0"}}})
			switch {
			case v.Action == upgrade.RollBack:
				target, ok := h.Named(v.To)
				require.True(t, ok && !target.Healthy.IsZero() && !target.Failed(), "seed %d: %+v", seed, target)
				h = h.RollBack(v.To, now)
			case v.Begins:
				h = h.Begin(*candidate, revision.Beginning{Now: now, Attempt: attempt})
				begun++
			}
			h = h.Bounded(3)
			cur, ok := h.InForce()
			require.True(t, ok)
			h = upgrade.Judge(h, upgrade.Look{Now: now, Complete: !bad[cur.Hash()], Deadline: 3 * time.Minute})
		}
		require.LessOrEqual(t, begun, reasons+1, "seed %d", seed)
	}
}

// Each driver has its own gates; those that have none may change.
func TestEachDriverHasItsOwnGates(t *testing.T) {
	contents := func(cpi, csi string) map[string]string { return map[string]string{"cpi": cpi, "csi": csi} }
	of := func(bundle, cpi, csi, cpiOf, csiOf string) *revision.Revision {
		r := rev(bundle, "cpi@"+cpi, "csi@"+csi)
		r.Contents = contents(cpiOf, csiOf)
		return r
	}
	old, next := of("a", "1.33.0", "3.5.1", "p", "s"), of("b", "1.33.1", "3.7.3", "p2", "s2")
	half, fixed := of("b", "1.33.0", "3.7.3", "p", "s2"), of("c", "1.33.1", "3.7.4", "p2", "s3")
	back := func(failed *revision.Revision) revision.History {
		return healthy(old).Begin(*failed, revision.Beginning{Now: t0}).Fail("it crashed", t0).RollBack(old.Name(), t0)
	}
	approved := upgrade.Policy{Manual: true, Approved: next.Name()}
	rest := of("b", "1.33.1", "3.5.1", "p2", "s")
	rest.Bundles = map[string]string{"csi": old.Bundle}
	for name, c := range map[string]struct {
		facts upgrade.Facts
		want  map[matrix.Driver]upgrade.Reason
	}{
		"one is older": {upgrade.Facts{History: healthy(old), Candidate: of("b", "1.33.1", "3.3.1", "p2", "s2")},
			map[matrix.Driver]upgrade.Reason{matrix.CSI: upgrade.DowngradeRefused}},
		"nodes change": {upgrade.Facts{History: healthy(old), Candidate: next,
			Interlocks: map[matrix.Driver]string{matrix.CSI: "x", matrix.CNI: "x"}}, map[matrix.Driver]upgrade.Reason{matrix.CSI: upgrade.Interlocked}},
		"one is older, and nothing is approved": {upgrade.Facts{History: healthy(old), Candidate: of("b",
			"1.33.1", "3.3.1", "p2", "s2"), Policy: upgrade.Policy{Manual: true}},
			map[matrix.Driver]upgrade.Reason{matrix.CPI: upgrade.NotApproved, matrix.CSI: upgrade.DowngradeRefused}},
		"one starts of what was approved": {upgrade.Facts{History: healthy(old), Candidate: half,
			Offered: next, Policy: approved}, nil},
		"another one than was approved": {upgrade.Facts{History: healthy(old), Candidate: of("b", "1.33.0",
			"3.7.2", "p", "s4"), Offered: next, Policy: approved},
			map[matrix.Driver]upgrade.Reason{matrix.CSI: upgrade.NotApproved}},
		"one of them failed alone": {upgrade.Facts{History: back(half), Candidate: next},
			map[matrix.Driver]upgrade.Reason{matrix.CSI: upgrade.Failed}},
		"both failed, and one is another": {upgrade.Facts{History: back(next), Candidate: fixed}, nil},
		"both failed": {upgrade.Facts{History: back(next), Candidate: next},
			map[matrix.Driver]upgrade.Reason{matrix.CPI: upgrade.Failed, matrix.CSI: upgrade.Failed}},
		"what is offered is asked for again": {upgrade.Facts{History: back(half), Candidate: next, Offered: next,
			Attempt: revision.Attempt{Retry: next.Name()}}, nil},
		"it failed alone, and the other one has changed since": {upgrade.Facts{History: back(half).Begin(*rest,
			revision.Beginning{Now: t0}), Candidate: next},
			map[matrix.Driver]upgrade.Reason{matrix.CSI: upgrade.Failed}},
	} {
		c.facts.Now = t0
		v := upgrade.Decide(c.facts)
		got := map[matrix.Driver]upgrade.Reason{}
		for _, g := range v.Gates {
			got[g.Driver] = g.Reason
			require.NotEmpty(t, g.Message, name)
		}
		require.Len(t, got, len(c.want), name)
		for d, r := range c.want {
			require.Equal(t, r, got[d], name)
		}
		require.Equal(t, len(c.want) == 0, v.Action == upgrade.Proceed && v.Begins, name)
	}
}

// From a revision that failed is gone back, unless what failed of it changes again. Where there is nothing to
// go back to, what nothing gates goes on.
func TestWhatFailedIsNotKeptForTheSakeOfAnotherDriver(t *testing.T) {
	of := func(bundle, cpi, csi string) *revision.Revision {
		r := rev(bundle, "cpi@"+cpi, "csi@"+csi)
		r.Contents = map[string]string{"cpi": cpi, "csi": csi}
		return r
	}
	old, bad := of("a", "1.33.0", "3.5.1"), of("b", "1.33.0", "3.7.3")
	failed := healthy(old).Begin(*bad, revision.Beginning{Now: t0}).Fail("it crashed", t0)
	alone := revision.History{}.Begin(*old, revision.Beginning{Now: t0}).Fail("it crashed", t0)
	gated := map[matrix.Driver]string{matrix.CSI: "x"}
	for name, c := range map[string]struct {
		facts  upgrade.Facts
		action upgrade.Action
		gates  int
	}{
		"another driver changes": {upgrade.Facts{History: failed, Candidate: of("c", "1.33.1",
			"3.7.3")}, upgrade.RollBack, 0},
		"what failed changes": {upgrade.Facts{History: failed, Candidate: of("c", "1.33.1",
			"3.7.4")}, upgrade.Proceed, 0},
		"it waits, and there is something before": {upgrade.Facts{History: failed, Candidate: of("c", "1.33.1",
			"3.7.4"), Interlocks: gated}, upgrade.RollBack, 0},
		"it waits, and there is nothing before": {upgrade.Facts{History: alone, Candidate: of("c", "1.33.1",
			"3.7.4"), Interlocks: gated}, upgrade.Wait, 1},
		"all waits, and there is nothing before": {upgrade.Facts{History: alone, Candidate: of("c", "1.33.0",
			"3.7.4"), Interlocks: gated}, upgrade.Stay, 0},
	} {
		c.facts.Now = t0
		v := upgrade.Decide(c.facts)
		require.Equal(t, c.action, v.Action, "%s: %+v", name, v)
		require.Len(t, v.Gates, c.gates, name)
	}
}
