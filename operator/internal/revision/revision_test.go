package revision_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

var t0 = time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC)

func rev(n int, releases ...string) revision.Revision {
	return revision.Revision{Bundle: fmt.Sprintf("mirror/vdo@sha256:%064d", n), Source: "site", Releases: releases}
}

func start(h revision.History, r revision.Revision, n int) revision.History {
	return h.Start(r, revision.Beginning{Now: t0.Add(time.Duration(n) * time.Hour)})
}

func TestTheNameIsOfTheBundleAndTheReleases(t *testing.T) {
	a := rev(1, "cpi@1.33.1", "csi@3.5.1")
	require.Regexp(t, `^r-[0-9a-f]{32}$`, a.Name())
	for name, is := range map[string]bool{
		a.Name(): true, "r12-" + a.Hash()[:8]: true, "r12-" + a.Hash()[:7]: false, "r12-00000000": false,
		"r-" + a.Hash()[:8]: false, "rx-" + a.Hash()[:8]: false, "": false, "r1": false,
	} {
		require.Equal(t, is, a.Called(name), name)
	}
	require.NotEqual(t, a.Hash(), rev(2, "cpi@1.33.1", "csi@3.5.1").Hash())
	require.NotEqual(t, a.Hash(), rev(1, "cpi@1.33.1", "csi@3.5.2").Hash())
	require.Equal(t, "3.5.1", a.Version("csi").String())
	require.Zero(t, a.Version("cni"))
}

func TestNumbersGrowAndARevisionThatWasBegunBeforeKeepsItsNumber(t *testing.T) {
	h := start(revision.History{}, rev(1, "csi@3.5.1"), 1).Succeed(t0)
	h = start(h, rev(2, "csi@3.6.0"), 2)
	first := rev(1, "csi@3.5.1")
	h = start(h, first, 3)
	cur, ok := h.InForce()
	require.True(t, ok)
	require.Equal(t, 1, cur.Number)
	second, _ := h.Find(rev(2, "csi@3.6.0"))
	require.Equal(t, revision.Superseded, second.Outcome)
	earlier, _ := start(h, rev(2, "csi@3.6.0"), 4).Find(first)
	require.Equal(t, revision.Healthy, earlier.Outcome, "it was begun again, and not seen healthy since")
	require.Equal(t, 3, start(h, rev(3, "csi@3.7.0"), 4).Current, "numbers are not given twice")
}

func TestARollbackGoesToTheLastHealthyOneWithAllDrivers(t *testing.T) {
	h := start(revision.History{}, rev(1, "cpi@1.33.1", "csi@3.5.1"), 1).Succeed(t0.Add(1 * time.Hour))
	h = start(h, rev(2, "cpi@1.33.1", "csi@3.6.0"), 2).Succeed(t0.Add(2 * time.Hour))
	h = h.Start(rev(2, "cpi@1.33.1", "csi@3.6.0"), revision.Beginning{Now: t0, Canary: true}) // again, for canary nodes
	h = start(h, rev(3, "csi@3.6.1"), 3).Succeed(t0.Add(3 * time.Hour))                       // lacks a driver
	h = start(h, rev(4, "cpi@1.33.1", "csi@3.6.2"), 4)                                        // never healthy
	h = start(h, rev(5, "cpi@1.33.1", "csi@3.7.0"), 5).Fail("why", revision.Attempt{}, t0.Add(5*time.Hour))
	var got []int
	for _, r := range h.Targets() {
		got = append(got, r.Number)
	}
	require.Equal(t, []int{2, 1}, got)
	h = h.RollBack(h.Targets()[0].Name(), t0.Add(6*time.Hour))
	cur, _ := h.InForce()
	require.Equal(t, 2, cur.Number)
	require.True(t, cur.Returned)
	require.Nil(t, cur.Canary, "all nodes go back")
	next, _ := start(h, rev(6, "cpi@1.33.1", "csi@3.7.1"), 7).InForce()
	require.Equal(t, 6, next.Number, "another one may follow")
	failed, _ := h.Find(rev(5, "cpi@1.33.1", "csi@3.7.0"))
	require.Equal(t, revision.RolledBack, failed.Outcome)
	require.Equal(t, "why", failed.Reason)
}

func TestTheHistoryIsBoundedAndForgetsNoRecentFailure(t *testing.T) {
	h := revision.History{}
	for i := 1; i <= 100; i++ {
		h = start(h, rev(i, "csi@3.5.1"), i)
		if i%2 == 0 {
			h = h.Fail("why", revision.Attempt{}, t0.Add(time.Duration(i)*time.Hour))
		} else {
			h = h.Succeed(t0.Add(time.Duration(i) * time.Hour))
		}
		h = h.Bounded(3)
		require.LessOrEqual(t, len(h.Records), 1+3+10)
		_, ok := h.InForce()
		require.True(t, ok)
	}
	_, ok := h.Find(rev(84, "csi@3.5.1"))
	require.True(t, ok, "one of the last ten failures")
	require.Len(t, h.Retained(3), 4)
	require.Len(t, h.Retained(0), 1)
}

// One history of all drivers, as earlier programs wrote it, is read as one of each group. Revisions of which a
// group has the same are one, and what failed for the sake of another group did not fail.
func TestAHistoryOfAllDriversIsReadAsOneOfEachGroup(t *testing.T) {
	const text = `{"current": 3, "last": 4, "wish": "x", "records": [
		{"number": 1, "bundle": "m@a", "releases": ["cpi@1.33.0", "csi@3.5.1"], "contents": {"cpi": "p", "csi": "s"},
			"outcome": "Healthy", "healthy": "2026-01-01T00:00:00Z"},
		{"number": 2, "bundle": "m@b", "releases": ["cpi@1.33.0", "csi@3.7.3"], "contents": {"cpi": "p", "csi": "s2"},
			"outcome": "RolledBack", "reason": "why"},
		{"number": 3, "bundle": "m@c", "releases": ["cpi@1.33.1", "csi@3.5.1"], "contents": {"cpi": "p3", "csi": "s"%s},
			"outcome": "Progressing"},
		{"number": 4, "bundle": "m@d", "releases": ["cpi@1.33.0", "csi@3.5.1"], "contents": {"cpi": "p4", "csi": "s4"},
			"outcome": "Superseded"}]}`
	for _, from := range []string{`, "csi/bundle": "new"}, "x": {"csi": ""`, `}, "bundles": {"csi": "m@a"`} {
		var h revision.Histories
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, text, from), &h))
		rows := func(g revision.Group) (all []string) {
			for _, r := range h[g].Records {
				all = append(all, fmt.Sprintf("%d %s %v %s", r.Number, r.Bundle, r.Releases, r.Outcome))
			}
			return all
		}
		require.Equal(t, []string{"1 m@a [cpi@1.33.0] Healthy", "3 m@c [cpi@1.33.1] Progressing",
			"4 m@d [cpi@1.33.0] Superseded"}, rows("cpi"))
		require.Equal(t, []string{"1 m@a [csi@3.5.1] Healthy", "2 m@b [csi@3.7.3] RolledBack",
			"4 m@d [csi@3.5.1] Superseded"}, rows("csi"))
		require.Equal(t, []int{3, 1, 4}, []int{h["cpi"].Current, h["csi"].Current, h["csi"].Last})
		require.Len(t, h, 2)
		data, err := json.Marshal(h)
		require.NoError(t, err)
		var again revision.Histories
		require.NoError(t, json.Unmarshal(data, &again))
		require.Equal(t, h, again, "it is read as it was written")
	}
	var none revision.Histories
	require.NoError(t, json.Unmarshal([]byte(`{"wish": "r1 again"}`), &none), "of one that was never installed")
	require.Empty(t, none)
}

// A bundle with the same of a group is where that comes from, and begins nothing.
func TestAnotherBundleWithTheSameOfAGroup(t *testing.T) {
	content := func(n int, of string) revision.Revision {
		r := rev(n, "csi@3.5.1")
		r.Contents = map[revision.Group]string{"csi": of}
		return r
	}
	h := start(revision.History{}, content(2, "other"), 1).Fail("why", revision.Attempt{}, t0)
	h = start(h, content(1, "same"), 2).Succeed(t0)
	require.True(t, content(1, "same").Equal(content(2, "same")))
	require.False(t, content(1, "").Equal(content(2, "")), "nobody knows what it is made of")
	renamed := content(2, "same")
	renamed.Source = "another DriverBundle, which keeps its own copy"
	h = h.Moved(content(2, "same")).Moved(renamed)
	cur, _ := h.InForce()
	require.Equal(t, renamed, cur.Revision)
	require.Equal(t, revision.Healthy, cur.Outcome)
	require.Len(t, h.Records, 1, "names are not given twice")
}

func TestAnApprovalStaysWithWhatItWasGivenFor(t *testing.T) {
	candidate, later := rev(1, "cpi@1.33.1", "csi@3.7.3"), rev(2, "cpi@1.33.2", "csi@3.7.4")
	part, _ := candidate.Of("csi")
	next, _ := later.Of("csi")
	h := revision.History{}.Consented(candidate.Name(), candidate, part)
	require.True(t, h.Consent.Covers(part))
	require.True(t, h.Consented(candidate.Name(), later, next).Consent.Covers(part))
	require.True(t, h.Consented(next.Name(), later, next).Consent.Covers(next), "of a group alone")
	require.Nil(t, h.Consented("", later, next).Consent)

	part.Contents = map[revision.Group]string{"csi": "same"}
	h = revision.History{}.Consented(part.Name(), part, part)
	part.Bundle = next.Bundle
	require.True(t, h.Consent.Covers(part), "a bundle that was made again has the same of the group")
	part.Contents = map[revision.Group]string{"csi": "other"}
	require.False(t, h.Consent.Covers(part))
	require.Nil(t, h.Consented("r-another", later, next).Consent)
}
