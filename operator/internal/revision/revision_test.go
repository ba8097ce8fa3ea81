package revision_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

var (
	t0 = time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC)
)

func rev(n int, releases ...string) revision.Revision {
	return revision.Revision{Bundle: fmt.Sprintf("mirror/vdo@sha256:%064d", n), Source: "site", Releases: releases}
}

func begin(h revision.History, r revision.Revision, n int) revision.History {
	return h.Begin(r, revision.Beginning{Now: t0.Add(time.Duration(n) * time.Hour)})
}

func TestTheNameIsOfTheBundleAndTheReleases(t *testing.T) {
	a := rev(1, "cpi@1.33.1", "csi@3.5.1")
	require.Regexp(t, `^r-[0-9a-f]{32}$`, a.Name())
	require.Equal(t, a.Name(), rev(1, "cpi@1.33.1", "csi@3.5.1").Name())
	for name, is := range map[string]bool{
		a.Name(): true, "r12-" + a.Hash()[:8]: true, "r12-" + a.Hash()[:7]: false, "r12-00000000": false,
		"r-" + a.Hash()[:8]: false, "rx-" + a.Hash()[:8]: false, "": false, "r1": false,
	} {
		require.Equal(t, is, a.Called(name), name)
	}
	require.NotEqual(t, a.Hash(), rev(2, "cpi@1.33.1", "csi@3.5.1").Hash())
	require.NotEqual(t, a.Hash(), rev(1, "cpi@1.33.1", "csi@3.5.2").Hash())
	require.Equal(t, "3.5.1", a.Version("csi"))
	require.Empty(t, a.Version("cni"))
}

func TestNumbersGrowAndARevisionThatWasBegunBeforeKeepsItsNumber(t *testing.T) {
	h := begin(revision.History{}, rev(1, "csi@3.5.1"), 1).Succeed(t0)
	h = begin(h, rev(2, "csi@3.6.0"), 2)
	first := rev(1, "csi@3.5.1")
	h = begin(h, first, 3)
	cur, ok := h.InForce()
	require.True(t, ok)
	require.Equal(t, 1, cur.Number)
	second, _ := h.Find(rev(2, "csi@3.6.0"))
	require.Equal(t, revision.Superseded, second.Outcome)
	require.Equal(t, 3, begin(h, rev(3, "csi@3.7.0"), 4).Current, "numbers are not given twice")
}

func TestARollbackGoesToTheLastHealthyOneWithAllDrivers(t *testing.T) {
	h := begin(revision.History{}, rev(1, "cpi@1.33.1", "csi@3.5.1"), 1).Succeed(t0.Add(1 * time.Hour))
	h = begin(h, rev(2, "cpi@1.33.1", "csi@3.6.0"), 2).Succeed(t0.Add(2 * time.Hour))
	h = begin(h, rev(3, "csi@3.6.1"), 3).Succeed(t0.Add(3 * time.Hour)) // lacks a driver
	h = begin(h, rev(4, "cpi@1.33.1", "csi@3.6.2"), 4)                  // never healthy
	h = begin(h, rev(5, "cpi@1.33.1", "csi@3.7.0"), 5).Fail("why", t0.Add(5*time.Hour))
	var got []int
	for _, r := range h.Targets() {
		got = append(got, r.Number)
	}
	require.Equal(t, []int{2, 1}, got)
	h = h.RollBack(h.Targets()[0].Name(), t0.Add(6*time.Hour))
	cur, _ := h.InForce()
	require.Equal(t, 2, cur.Number)
	require.True(t, cur.Returned)
	failed, _ := h.Find(rev(5, "cpi@1.33.1", "csi@3.7.0"))
	require.Equal(t, revision.RolledBack, failed.Outcome)
	require.Equal(t, "why", failed.Reason)
}

func TestTheHistoryIsBoundedAndForgetsNoRecentFailure(t *testing.T) {
	h := revision.History{}
	for i := 1; i <= 100; i++ {
		h = begin(h, rev(i, "csi@3.5.1"), i)
		if i%2 == 0 {
			h = h.Fail("why", t0.Add(time.Duration(i)*time.Hour))
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
	data, err := json.Marshal(h)
	require.NoError(t, err)
	var again revision.History
	require.NoError(t, json.Unmarshal(data, &again))
	require.Equal(t, h, again)
}

func TestAManifestReadsBack(t *testing.T) {
	h := begin(revision.History{}, rev(1, "csi@3.5.1"), 1)
	cur, _ := h.InForce()
	m := revision.ManifestOf(cur.Revision)
	again, err := revision.ParseManifest(string(m.Marshal()))
	require.NoError(t, err)
	require.Equal(t, m, again)
	_, err = revision.ParseManifest("{}")
	require.ErrorContains(t, err, "apiVersion")
	require.LessOrEqual(t, len(revision.ConfigMapName(strings.Repeat("x", 253), cur.Name())), 253)
	require.Equal(t, strings.Repeat("0", 62)+"0", revision.DigestLabel(cur.Bundle)[:63])
	require.Empty(t, revision.DigestLabel("mirror/vdo"))
}

// with returns a revision whose csi is made of something, of its own bundle or of another.
func with(n int, csi, from string) revision.Revision {
	r := rev(n, "cpi@1.33.1", "csi@3.5.1")
	r.Contents = map[string]string{"cpi": fmt.Sprint(n), "csi": csi}
	if from != "" {
		r.Bundles = map[string]string{"csi": from}
	}
	return r
}

// A revision with a gated driver is another one than that without: what was healthy stays a target.
func TestARevisionWithADriverOfAnotherBundle(t *testing.T) {
	first, second := with(1, "old", ""), with(2, "new", "")
	held := with(2, "old", first.Bundle)
	require.Equal(t, first.Bundle, held.BundleOf("csi"))
	require.Equal(t, second.Bundle, held.BundleOf("cpi"))

	h := begin(begin(revision.History{}, first, 1).Succeed(t0), held, 2).Succeed(t0)
	was, _ := h.InForce()
	require.Equal(t, []string{"cpi"}, was.Changed)
	h = begin(h, second, 3)
	cur, _ := h.InForce()
	require.NotEqual(t, was.Name(), cur.Name())
	require.Equal(t, []string{"csi"}, cur.Changed)
	require.Equal(t, was.Name(), h.Targets()[0].Name())

	h = begin(h.WithGate(revision.Gate{Before: []string{"csi/Crashing"}}), held, 4)
	cur, _ = h.InForce()
	require.Equal(t, []string{"csi/Crashing"}, cur.Gate.Before, "what came since is not said to have been there")
}

// The bundle that a driver comes from is retained, whatever the limit, as long as it does; as earlier
// programs wrote it too.
func TestTheBundleThatADriverComesFromIsRetained(t *testing.T) {
	first := with(1, "old", "")
	h := begin(revision.History{}, first, 1).Succeed(t0.Add(time.Hour))
	before := h
	for n := 2; n <= 6; n++ {
		h = begin(h, with(n, "old", first.Bundle), n).Succeed(t0.Add(time.Duration(n) * time.Hour)).Bounded(1)
		written := with(n, "old", "")
		written.Contents["csi/bundle"] = "new"
		before = begin(before, written, n).Succeed(t0.Add(time.Duration(n) * time.Hour))
	}
	numbers := func() (all []int) {
		for _, r := range h.Retained(1) {
			all = append(all, r.Number)
		}
		return all
	}
	require.Equal(t, []int{6, 5, 1}, numbers())
	require.Len(t, h.Records, 3)
	require.Equal(t, h, before.Imported().Bounded(1))
	h = begin(h, with(6, "new6", ""), 7).Bounded(0)
	require.Equal(t, []int{7}, numbers(), "it has gone over")
}
