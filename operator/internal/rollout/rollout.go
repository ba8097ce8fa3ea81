// Package rollout judges the current revision of a group once per pass. It reports whether the revision is healthy,
// has failed or is in progress, and whether it may leave its canary nodes. It is pure: it knows no clock but the
// time that it is given.
//
// A rollout fails after its deadline without progress. Earlier findings do not count against it, nor does the time in
// which another cause is known or the operator did not run.
package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

const (
	// DefaultDeadline is how long a rollout may go without progress.
	DefaultDeadline = 15 * time.Minute
	// DefaultSoak is how long canary nodes have to be healthy before the others follow.
	DefaultSoak = 5 * time.Minute
	// look is the longest time that counts between two passes. The operator makes a pass each minute while
	// it waits, so a longer time is one without an operator.
	look = 2 * time.Minute
	// settle is how long everything must be healthy before the revision counts as healthy.
	settle = time.Minute
	// written is how much time is counted before it is recorded. A killed operator loses at most as much.
	written = 30 * time.Second
)

// Facts are what a pass observes of a rollout.
type Facts struct {
	Now      time.Time
	Deadline time.Duration // 0: DefaultDeadline
	// Attempt are the current circumstances: a failed revision is not tried again until they change.
	Attempt revision.Attempt
	// Complete reports whether all drivers are rolled out and no work remains.
	Complete bool
	// Findings are the current findings, as short stable names.
	Findings []string
	// Why describes the findings.
	Why string
	// Progress is the number of pods that are done; it grows as the rollout proceeds.
	Progress int64
	// Desired is the desired number of pods; 0 if unknown.
	Desired int64
	// ClockPaused is set if another cause is known, or the rollout waits for something: then time does not count.
	ClockPaused bool
	// Canary is the state of the canary nodes, nil if all nodes may have the revision.
	Canary *Canary
}

// Canary is the state of the canary nodes of a revision.
type Canary struct {
	// Idle is set if no canary node shows how the revision does, as none is ready: then time does not count.
	Idle bool
	// Soak is how long they must be healthy.
	Soak time.Duration
	// Why describes what they lack, "" if all have the new pods and none has to be waited for.
	Why string
	// Gated is why the other nodes may not follow though the soak is over: this is a start like any other.
	Gated string
}

// New returns the findings that did not exist when the rollout started.
func (l Facts) New(before []string) []string {
	return slices.DeleteFunc(slices.Clone(l.Findings), func(a string) bool { return slices.Contains(before, a) })
}

// desired returns the progress against the current desired number of pods. Nodes that left do not count as lost
// progress. Those that come with their pods, or return, do not count as progress.
func (l Facts) desired(g revision.Progress) revision.Progress {
	if more := l.Desired - g.Desired; more < 0 {
		g.Mark = max(g.Mark+more, min(g.Mark, l.Progress))
	} else if g.Desired > 0 {
		g.Mark = min(g.Mark+more, max(g.Peak, l.Progress))
	}
	g.Desired, g.Peak = l.Desired, max(g.Peak, l.Progress)
	return g
}

// Judge returns the history after a pass over the current revision, unchanged if there is nothing to record.
func Judge(h revision.History, l Facts) revision.History {
	cur, ok := h.InForce()
	if !ok || cur.Outcome == revision.Healthy {
		return h
	}
	g := revision.Progress{Seen: l.Now}
	if cur.Progress != nil {
		g = *cur.Progress
	}
	if l.Complete && len(l.New(g.Before)) == 0 {
		return settled(h, g, l.Now)
	}
	g.Good = time.Time{}
	if cur.Returned || cur.Outcome != revision.Progressing {
		return h // rolled back to or failed: nothing else is tried
	}
	if c := l.Canary; c != nil && cur.Canary.Open() {
		switch {
		case c.Why == "" && len(l.New(g.Before)) == 0:
			return soak(h, g, l)
		case c.Idle && len(l.New(g.Before)) == 0:
			l.ClockPaused = true
		default:
			h = h.WithCanary(revision.Canary{})
		}
	}
	return count(h, g, l)
}

// soak counts how long the canary nodes are healthy, and lets the others follow once that is enough. No
// progress is expected meanwhile.
func soak(h revision.History, g revision.Progress, l Facts) revision.History {
	cur, _ := h.InForce()
	c, starts := *cur.Canary, cur.Canary.Good.IsZero() || l.Now.Before(cur.Canary.Good)
	if starts {
		c = revision.Canary{Good: l.Now}
	} else if !l.ClockPaused {
		c.Soaked += l.since(g.Seen)
	}
	isEnough := time.Duration(c.Soaked)*time.Second >= l.Canary.Soak
	c.Passed = !l.ClockPaused && l.Canary.Gated == "" && isEnough
	if !starts && !c.Passed && !l.ClockPaused && recent(g.Seen, l.Now) {
		return h
	}
	g = l.desired(g)
	g.Seen, g.Mark = l.Now, max(g.Mark, l.Progress)
	if l.ClockPaused {
		g.Seen = time.Time{}
	}
	if isEnough {
		g.Spent = 0 // otherwise it stays: a pod that crashes repeatedly is healthy in between
	}
	return h.WithCanary(c).WithProgress(g)
}

// settled records the revision as healthy once everything has been so for long enough.
func settled(h revision.History, g revision.Progress, now time.Time) revision.History {
	if cur, _ := h.InForce(); cur.Returned || len(h.Targets()) == 0 {
		return h.Succeed(now) // it was healthy before, or a rollback has no target
	}
	if g.Good.IsZero() || now.Before(g.Good) {
		g.Good, g.Seen = now, now
		return h.WithProgress(g)
	}
	if now.Sub(g.Good) < settle {
		return h
	}
	return h.Succeed(now)
}

// Outlook returns why the current revision does not count as healthy yet. The text changes with what it
// waits for, not with the time.
func Outlook(h revision.History, deadline time.Duration) string {
	cur, _ := h.InForce()
	text := fmt.Sprintf("revision %s is not healthy yet: ", cur.Name())
	switch {
	case cur.Returned:
		return text + "it was gone back to, and nothing else is tried"
	case cur.Canary.Open():
		return text + "it is on the canary nodes first"
	}
	return text + fmt.Sprintf("it is being rolled out, and counts as failed after %s without progress",
		cmp.Or(deadline, DefaultDeadline))
}

// count counts time without progress, and fails the revision at the deadline.
func count(h revision.History, g revision.Progress, l Facts) revision.History {
	was := g
	cur, _ := h.InForce()
	isWritten := cur.Progress != nil && cur.Progress.Good.Equal(g.Good) && recent(was.Seen, l.Now)
	g = l.desired(g)
	g.Spent += l.since(g.Seen)
	g.Seen = l.Now
	if l.ClockPaused && l.Progress <= g.Mark {
		was.Seen = time.Time{}
		return h.WithProgress(was)
	}
	if l.Progress > g.Mark {
		g.Mark, g.Spent = l.Progress, 0
	}
	deadline := cmp.Or(l.Deadline, DefaultDeadline)
	if time.Duration(g.Spent)*time.Second >= deadline {
		return h.Fail(fmt.Sprintf("it was not healthy after %s without progress: %s", deadline, why(l)), l.Attempt, l.Now)
	}
	if isWritten && g.Mark == was.Mark && g.Desired == was.Desired {
		return h
	}
	return h.WithProgress(g)
}

// since returns the seconds that count since the last pass. None do if the clock was paused then: Seen is zero, so that
// a pause is written once.
func (l Facts) since(seen time.Time) int64 {
	if seen.IsZero() {
		return 0
	}
	return int64(min(max(l.Now.Sub(seen), 0), look) / time.Second)
}

// recent reports whether the time was recorded so lately that it need not be again.
func recent(seen, now time.Time) bool { return now.Sub(seen) >= 0 && now.Sub(seen) < written }

func why(l Facts) string {
	const most = 512
	text := cmp.Or(l.Why, strings.Join(l.Findings, ", "), "it is not rolled out")
	if l.Canary != nil {
		text = strings.TrimSuffix("on the nodes that have it first: "+l.Canary.Why, ": ") + "; " + text
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}
