package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/rollout"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

var t0 = time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC) // a Saturday

func rev(bundle string, releases ...string) *revision.Revision {
	return &revision.Revision{Bundle: "mirror/vdo@sha256:" + bundle, Source: "site", Releases: releases,
		Contents: map[revision.Group]string{"csi": bundle}}
}

func version(t *testing.T, s string) matrix.Version {
	v := must.Have(matrix.ParseVersion(s))(t)
	return v
}

// healthy is a history with one revision that is healthy.
func healthy(r *revision.Revision) revision.History {
	return revision.History{}.Start(*r, revision.Beginning{Now: t0}).Succeed(t0)
}

func window(t *testing.T, schedule string, lasts time.Duration, zone string) decide.Window {
	w := must.Have(decide.ParseWindow(v1alpha1.UpgradeWindow{Schedule: schedule,
		Duration: metav1.Duration{Duration: lasts}, TimeZone: zone}))(t)
	return w
}

func TestDecide(t *testing.T) {
	old, next := rev("a", "csi@3.5.1"), rev("b", "csi@3.7.3")
	failed := healthy(old).Start(*next, revision.Beginning{Now: t0}).Fail("it crashed", revision.Attempt{}, t0)
	back := failed.RollBack(old.Name(), t0)
	rolling := healthy(old).Start(*next, revision.Beginning{Now: t0})
	edited := revision.Attempt{Generation: 2, Retry: next.Name()} // since the start
	failed2 := rollout.Judge(rolling, rollout.Facts{Now: t0.Add(time.Minute), Deadline: time.Minute, Attempt: edited})
	both, alone := rev("a", "snapshot-controller@8.2.0", "csi@3.5.1"), rev("a", "csi@3.5.1")
	leftOut := healthy(both).Start(*alone, revision.Beginning{Now: t0}).Fail("it crashed", revision.Attempt{}, t0)
	first := revision.History{}.Start(*next, revision.Beginning{Now: t0})
	approval := decide.Policy{Manual: true, Approved: next.Name()}
	oneWay := []decide.OneWay{{ReleaseID: matrix.ReleaseID{Driver: matrix.CSI, Version: version(t, "3.7.0")},
		Why: "it migrates volumes"}}
	csi := func(v string) map[matrix.Driver]matrix.Version {
		return map[matrix.Driver]matrix.Version{matrix.CSI: version(t, v)}
	}
	for name, c := range map[string]struct {
		facts  decide.Facts
		action decide.Action
		reason decide.Reason
		starts bool
		to     string
		says   string
	}{
		"it runs, and is newer, with consent and a mark":      {facts: decide.Facts{Candidate: old, Running: csi("3.7.3"), OneWay: oneWay, Policy: decide.Policy{AllowDowngrade: []string{"csi@3.5.1"}}}, action: decide.Gated, reason: decide.DowngradeRefused},
		"one is added that runs in a newer one, with consent": {facts: decide.Facts{History: healthy(rev("a", "snapshot-controller@8.2.0")), Candidate: rev("a", "snapshot-controller@8.2.0", "csi@3.5.1"), Running: csi("3.7.3"), Policy: decide.Policy{AllowDowngrade: []string{"csi@3.5.1"}}}, action: decide.Proceed, starts: true},
		"one is added that runs in the same":                  {facts: decide.Facts{History: healthy(rev("a", "snapshot-controller@8.2.0")), Candidate: rev("a", "snapshot-controller@8.2.0", "csi@3.5.1"), Running: csi("3.5.1"), Policy: decide.Policy{Manual: true}}, action: decide.Proceed, starts: true},
		"what is in force runs in another version":            {facts: decide.Facts{History: healthy(old), Candidate: rev("a", "snapshot-controller@8.2.0", "csi@3.5.1"), Running: csi("3.3.1"), Policy: decide.Policy{Manual: true}}, action: decide.Proceed, starts: true},
		"an approval that was seen, and another choice": {facts: decide.Facts{History: healthy(old).Consented("it", *next, *next).Consented(next.Name(), *next, *next), Candidate: rev("b", "csi@3.7.2"),
			Whole: next, Policy: approval}, action: decide.Wait, reason: decide.NotApproved},
		"approved, and then made again": {facts: decide.Facts{
			History:   healthy(old).Consented(next.Name(), *next, *next),
			Candidate: &revision.Revision{Bundle: "x@sha256:c", Releases: next.Releases, Contents: next.Contents},
			Policy:    approval}, action: decide.Proceed, starts: true},
		"another was approved": {facts: decide.Facts{History: healthy(old), Candidate: next,
			Policy: decide.Policy{Manual: true, Approved: old.Name()}}, action: decide.Wait, reason: decide.NotApproved,
			says: old.Name() + " is of another revision"},
		"not approved, of two drivers": {facts: decide.Facts{History: healthy(rev("a", "snapshot-controller@8.2.0", "csi@3.5.1")),
			Candidate: rev("b", "snapshot-controller@8.2.0", "csi@3.7.3"), Policy: decide.Policy{Manual: true}},
			action: decide.Wait, reason: decide.NotApproved, says: "^csi@3.7.3 waits for approval"}, // the other stays as it is
		"within the window": {facts: decide.Facts{Now: t0.Add(90 * time.Minute), History: healthy(old), Candidate: next, Policy: decide.Policy{Windows: []decide.Window{window(t, "0 2 * * 6", time.Hour, "")}}}, action: decide.Proceed, starts: true},
		"a downgrade of what was installed by hand, with consent to another": {
			facts:  decide.Facts{History: healthy(old), Candidate: rev("b", "csi@3.6.0"), Running: map[matrix.Driver]matrix.Version{matrix.CSI: version(t, "3.7.3")}, Policy: decide.Policy{AllowDowngrade: []string{"csi@3.5.0"}}},
			action: decide.Gated, reason: decide.DowngradeRefused},
		"a downgrade with consent, and a one-way mark": {facts: decide.Facts{History: healthy(next), Candidate: old, OneWay: oneWay, Policy: decide.Policy{AllowDowngrade: []string{"csi@3.5.1"}}}, action: decide.Gated, reason: decide.DowngradeRefused},
		"failed, and never rolled back":                {facts: decide.Facts{History: failed, Candidate: next, Policy: decide.Policy{NeverRollBack: true}}, action: decide.Stay},
		"failed, and it is being deleted":              {facts: decide.Facts{History: failed, Candidate: next, Frozen: "the VDOConfig is being deleted"}, action: decide.Stay},
		"failed, and a one-way mark":                   {facts: decide.Facts{History: failed, Candidate: next, OneWay: oneWay}, action: decide.Stay},
		"failed, and the one before is revoked":        {facts: decide.Facts{History: failed, Candidate: next, Unusable: map[string]string{old.Name(): "revoked"}}, action: decide.Stay},
		"failed, and what runs cannot be gone back from": {facts: decide.Facts{History: failed, Candidate: next, Running: map[matrix.Driver]matrix.Version{matrix.CSI: version(t, "3.8.0")},
			OneWay: []decide.OneWay{{ReleaseID: matrix.ReleaseID{Driver: matrix.CSI, Version: version(t, "3.8.0")}, Why: "it migrates volumes"}}}, action: decide.Stay},
		"failed, and a better one is there": {facts: decide.Facts{History: failed, Candidate: rev("c", "csi@3.7.4")}, action: decide.Proceed, starts: true},
		"failed, and a better one waits": {facts: decide.Facts{History: failed,
			Candidate: rev("c", "csi@3.7.4"), Interlock: "x"}, action: decide.RollBack, to: old.Name()},
		"failed, and the VDOConfig was changed before that": {
			facts: decide.Facts{History: failed2, Candidate: next, Attempt: edited}, action: decide.RollBack, to: old.Name()},
		"failed, and the VDOConfig was changed since": {
			facts:  decide.Facts{History: failed2, Candidate: next, Attempt: revision.Attempt{Generation: 3}},
			action: decide.Proceed, starts: true},
		"rolled back, and it leaves a driver out":              {facts: decide.Facts{History: leftOut.RollBack(both.Name(), t0), Candidate: alone}, action: decide.Gated, reason: decide.Failed},
		"rolled back, asked again for another":                 {facts: decide.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Retry: old.Name()}}, action: decide.Gated, reason: decide.Failed},
		"rolled back, and the operator was upgraded":           {facts: decide.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Program: "p"}}, action: decide.Proceed, starts: true},
		"rolled back, approved, and the VDOConfig was changed": {facts: decide.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Generation: 2}, Policy: approval}, action: decide.Gated, reason: decide.Failed},
		"rolled back, approved, and asked for again":           {facts: decide.Facts{History: back, Candidate: next, Attempt: revision.Attempt{Retry: next.Name() + " at noon"}, Policy: approval}, action: decide.Proceed, starts: true},
		"revoked, and there is nothing to go back to": {
			facts:  decide.Facts{History: first, Untrusted: "revoked"},
			action: decide.Stay, reason: decide.Failed,
		},
		"revoked while it is put back":                 {facts: decide.Facts{History: back, Untrusted: "revoked"}, action: decide.Stay},
		"rolled back to lower than runs: no downgrade": {facts: decide.Facts{History: back, Candidate: old, Running: map[matrix.Driver]matrix.Version{matrix.CSI: version(t, "3.7.3")}}, action: decide.Proceed},
	} {
		t.Run(name, func(t *testing.T) {
			if c.facts.Now.IsZero() {
				c.facts.Now = t0
			}
			if c.facts.Candidate != nil {
				of := *c.facts.Candidate
				c.facts.History = c.facts.History.Consented(c.facts.Policy.Approved, of, of)
			}
			v := decide.Decide(c.facts)
			require.Equal(t, c.action, v.Action, "%+v", v)
			require.Equal(t, c.starts, v.Starts, "%+v", v)
			if c.reason != "" {
				require.Equal(t, c.reason, v.Reason)
			}
			require.Equal(t, c.to, v.To)
			require.Regexp(t, c.says, v.Message)
			if v.IsGated() {
				require.NotEmpty(t, v.Message)
			}
		})
	}
}

func TestWindows(t *testing.T) {
	at := func(s string) time.Time {
		tm := must.Have(time.Parse(time.RFC3339, s))(t)
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
		require.ErrorContains(t, must.Err(decide.ParseWindow(bad)), "windows", "%+v", bad)
	}
}

func TestTheNextWindowIsToldAndIsWhenToLookAgain(t *testing.T) {
	v := decide.Decide(decide.Facts{Now: t0, History: healthy(rev("a", "csi@3.5.1")), Candidate: rev("b", "csi@3.7.3"),
		Policy: decide.Policy{Windows: []decide.Window{window(t, "0 4 * * *", time.Hour, ""), window(t, "0 3 * * *", time.Hour, "")}}})
	require.Equal(t, t0.Add(2*time.Hour), v.Until.UTC())
	require.Contains(t, v.Message, "2026-01-03T03:00:00Z")
}

// Which upgrades come to canary nodes first.
func TestCanaries(t *testing.T) {
	from := revision.Record{Revision: *rev("a", "snapshot-controller@8.2.0", "csi@3.5.1")}
	open := from
	open.Canary = &revision.Canary{}
	passed := from
	passed.Canary = &revision.Canary{Passed: true}
	gated := revision.Record{Revision: *rev("b", "csi@3.5.1")}
	gated.Contents = from.Contents
	for name, c := range map[string]struct {
		from revision.Record
		to   *revision.Revision
		want bool
	}{
		"another version":                        {from, rev("a", "cpi@1.33.1", "csi@3.7.3"), true},
		"a rebuilt one":                          {from, rev("b", "snapshot-controller@8.2.0", "csi@3.5.1"), true},
		"another driver's":                       {from, rev("a", "cpi@1.33.2", "csi@3.5.1"), false},
		"it comes":                               {revision.Record{Revision: *rev("a", "snapshot-controller@8.2.0")}, rev("b", "snapshot-controller@8.2.0", "csi@3.5.1"), false},
		"it goes":                                {from, rev("b", "cpi@1.33.1"), false},
		"it goes, and is at the chosen ones":     {open, rev("b", "cpi@1.33.1"), false},
		"another's, and it is at the chosen":     {open, rev("a", "cpi@1.33.2", "csi@3.5.1"), true},
		"another's, and it is everywhere":        {passed, rev("a", "cpi@1.33.2", "csi@3.5.1"), false},
		"what was held":                          {gated, rev("b", "csi@3.5.1"), true},
		"the same again":                         {from, rev("a", "snapshot-controller@8.2.0", "csi@3.5.1"), false},
		"the same again, which was there first ": {open, rev("a", "snapshot-controller@8.2.0", "csi@3.5.1"), true},
	} {
		require.Equal(t, c.want, decide.Canaries(c.from, *c.to), name)
	}
}

// What goes back is told before what stays, and that before what waits; what waits for the same is told together.
func TestWhatIsToldFirst(t *testing.T) {
	v := func(a decide.Action, r decide.Reason, text string) decide.Verdict {
		return decide.Verdict{Action: a, Reason: r, Message: text}
	}
	partial, window := v(decide.Proceed, "", ""), v(decide.Wait, decide.WindowClosed, "at two")
	older, back := v(decide.Gated, decide.DowngradeRefused, "older"), v(decide.RollBack, decide.Failed, "it crashed")
	approval := v(decide.Wait, decide.NotApproved, "cpi")
	both := approval
	both.Message = "cpi; csi"
	for want, all := range map[decide.Verdict][]decide.Verdict{
		{}:     {partial, v(decide.Stay, "", "")},
		window: {partial, window, window}, older: {window, older, approval}, back: {older, back},
		both: {approval, window, v(decide.Wait, decide.NotApproved, "csi")},
	} {
		first, ok := decide.First(all)
		require.Equal(t, want, first)
		require.Equal(t, want.Message != "", ok)
	}
}

func TestWhatAGateAsksOfAPerson(t *testing.T) {
	at := time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)
	for reason, want := range map[decide.Reason]struct {
		waits, approvable bool
		toDo              string
	}{
		decide.Failed:           {false, true, "then try it once more: vdoctl upgrade approve r-1"},
		decide.DowngradeRefused: {false, true, "vdoctl upgrade approve r-1 --allow-downgrade"},
		decide.NotApproved:      {true, true, "vdoctl upgrade approve r-1"},
		decide.Interlocked:      {true, false, "correct or end what it names"},
		decide.WindowClosed:     {true, false, "correct spec.upgradePolicy.windows"},
		"OfAnotherVersion":      {false, true, "nothing: it goes on by itself"},
	} {
		require.Equal(t, want.waits, reason.Waits(), reason)
		require.Equal(t, want.approvable, reason.Approvable(), reason)
		require.Contains(t, reason.ToDo(time.Time{}, "r-1"), want.toDo)
		require.Equal(t, "nothing: it begins at 2026-07-01T02:00:00Z", reason.ToDo(at, "r-1"))
	}
}

func TestNodesThatChangeAreWaitedFor(t *testing.T) {
	node := func(name, kubelet string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.NodeInfo.KubeletVersion = kubelet
		return n
	}
	cordoned := func(n *corev1.Node, ago time.Duration) *corev1.Node {
		n.Spec.Unschedulable = true
		at := metav1.NewTime(t0.Add(-ago))
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, TimeAdded: &at}}
		return n
	}
	unknown := node("c", "v1.33.1")
	unknown.Spec.Unschedulable = true
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		want  string
	}{
		"none":                         {},
		"all the same":                 {nodes: []*corev1.Node{node("a", "v1.33.1"), node("b", "v1.33.1")}},
		"two minors":                   {nodes: []*corev1.Node{node("a", "v1.33.1"), node("b", "v1.34.0"), node("c", "v1.33.1")}, want: "nodes are being upgraded: kubelets are of v1.33.1, v1.34.0"},
		"pools of two patches":         {nodes: []*corev1.Node{node("a", "v1.33.1"), node("b", "v1.33.4")}},
		"two patches, one is cordoned": {nodes: []*corev1.Node{cordoned(node("a", "v1.33.1"), 9*time.Hour), node("b", "v1.33.4")}, want: "nodes are being upgraded: kubelets are of v1.33.1, v1.33.4"},
		"cordoned lately":              {nodes: []*corev1.Node{cordoned(node("b", "v1.33.1"), time.Minute), cordoned(node("a", "v1.33.1"), time.Minute)}, want: "nodes are being emptied: a, b"},
		"cordoned long ago":            {nodes: []*corev1.Node{cordoned(node("a", "v1.33.1"), 2*time.Hour), node("b", "v1.33.1")}},
		"cordoned just ahead of us":    {nodes: []*corev1.Node{cordoned(node("a", "v1.33.1"), -time.Minute)}, want: "nodes are being emptied: a"},
		"cordoned in a far future":     {nodes: []*corev1.Node{cordoned(node("a", "v1.33.1"), -24*365*time.Hour)}},
		"cordoned, nobody knows when":  {nodes: []*corev1.Node{unknown}},
		"kubelets of no version":       {nodes: []*corev1.Node{node("a", "kwok-v0.7.0"), node("b", "v1.33.1"), node("c", "")}},
	} {
		require.Equal(t, c.want, decide.NodesChange(c.nodes, t0), name)
	}
}

// A vCenter whose version has changed is waited for a while, across restarts; one that is seen
// for the first time, or is away, is not.
func TestVCentersThatChangeAreWaitedFor(t *testing.T) {
	names := []string{"two", "one", "two"}
	seen := decide.SeenVCenters(nil, names, map[string]string{"one": "8.0.2"}, t0)
	require.Equal(t, []revision.VCenter{{Name: "one", Version: "8.0.2"}}, seen)
	require.Empty(t, decide.VCentersChange(seen, t0))
	seen = decide.SeenVCenters(seen, names, map[string]string{"two": "8.0.2"}, t0)
	require.Equal(t, []revision.VCenter{{Name: "one", Version: "8.0.2"}, {Name: "two", Version: "8.0.2"}}, seen, "it is away")
	seen = decide.SeenVCenters(seen, names, map[string]string{"one": "8.0.3", "two": "8.0.2"}, t0)
	require.Equal(t, "vCenter one is of version 8.0.3 since 2026-01-03T01:00:00Z: drivers are upgraded 10m0s after the last change", decide.VCentersChange(seen, t0))
	later := t0.Add(9 * time.Minute)
	seen = decide.SeenVCenters(seen, names, map[string]string{"one": "8.0.3", "two": "8.0.2"}, later)
	require.NotEmpty(t, decide.VCentersChange(seen, later))
	require.Empty(t, decide.VCentersChange(seen, t0.Add(10*time.Minute)))
	require.Empty(t, decide.VCentersChange(seen, t0.Add(-time.Minute)), "a clock that was wrong holds nothing back for ever")
	require.Equal(t, []revision.VCenter{{Name: "two", Version: "8.0.2"}}, decide.SeenVCenters(seen, []string{"two"}, nil, later))
}

// Nodes have taken a mirror set up once the Machine Config Operator had time to see it and each pool
// has what it is to have. The deadline of an upgrade waits for what ends by itself alone.
func TestPoolsThatTakeUpAMirrorSetAreWaitedFor(t *testing.T) {
	const set = "ImageDigestMirrorSet vdo-operator"
	has := decide.Pool{Name: "master", Target: "a", Has: "a", Updated: true, Updates: 3, Nodes: 3}
	with := func(edit func(p *decide.Pool)) decide.Pool {
		p := has
		p.Name = "worker"
		edit(&p)
		return p
	}
	rolls := with(func(p *decide.Pool) { p.Target, p.Updated, p.Updates = "b", false, 1 })
	paused, degraded := rolls, rolls
	paused.Paused, degraded.Degraded = true, true
	const not = "some nodes have not applied " + set + ": MachineConfigPool worker "
	for name, c := range map[string]struct {
		ago   time.Duration
		pools []decide.Pool
		want  string
		rolls bool
	}{
		"there are none":          {ago: time.Hour},
		"all have it":             {ago: 5 * time.Minute, pools: []decide.Pool{has}},
		"it was just written":     {ago: 299 * time.Second, pools: []decide.Pool{has}, want: set + " was written at 2026-01-03T00:55:01Z, and OpenShift is given until 2026-01-03T01:00:01Z to begin with it", rolls: true},
		"a clock is behind":       {ago: -4 * time.Minute, want: set + " was written at 2026-01-03T01:04:00Z, and OpenShift is given until 2026-01-03T01:09:00Z to begin with it", rolls: true},
		"a clock is wrong":        {ago: -time.Hour},
		"one gets it":             {ago: time.Hour, pools: []decide.Pool{has, rolls}, want: not + "(1 of 3 nodes updated)", rolls: true},
		"it is behind of its own": {ago: time.Hour, pools: []decide.Pool{with(func(p *decide.Pool) { p.Updated = false })}, want: not + "(3 of 3 nodes updated)"},
		"it has another one yet":  {ago: time.Hour, pools: []decide.Pool{with(func(p *decide.Pool) { p.Target = "b" })}, want: not + "(3 of 3 nodes updated)", rolls: true},
		"one is paused":           {ago: time.Hour, pools: []decide.Pool{paused}, want: not + "(paused: its nodes take nothing up)"},
		"it is, and has it":       {ago: time.Hour, pools: []decide.Pool{with(func(p *decide.Pool) { p.Paused = true })}},
		"one is degraded":         {ago: time.Hour, pools: []decide.Pool{degraded}, want: not + "(degraded)"},
		"nothing can be rendered": {ago: time.Hour, pools: []decide.Pool{with(func(p *decide.Pool) { p.Degraded = true })}, want: not + "(degraded)"},
	} {
		require.Equal(t, c.want, decide.PoolsChange(set, t0.Add(-c.ago), c.pools, t0), name)
		require.Equal(t, c.rolls, decide.PoolsRoll(t0.Add(-c.ago), c.pools, t0), name)
	}
}
