// Package rollout judges how a group's current revision fares, look by look: whether it is healthy, has failed or
// goes on, and whether the nodes that have it first let the others follow. It is pure, and knows no clock but the
// time that it is given.
//
// A rollout has failed once it made no progress for its deadline. It is not held against it what was amiss before
// it was begun, nor the time in which something else is known to be at fault or the operator did not run.
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
	// look is what the time between two looks counts as at most: a pass is made each
	// minute while something is waited for, so what is longer is time without an operator.
	look = 2 * time.Minute
	// settle is how long all has to be healthy before it counts as that.
	settle = time.Minute
	// written is how much time is counted before it is written down: what a kill loses.
	written = 30 * time.Second
)

// Facts is what is seen of a rollout at one time.
type Facts struct {
	Now      time.Time
	Deadline time.Duration // 0: DefaultDeadline
	// Complete tells whether all drivers are rolled out, and nothing is left to be done.
	Complete bool
	// Findings are the findings that there are, as short names that stay the same.
	Findings []string
	// Why says them in words.
	Why string
	// Progress is a number of pods that grows while the rollout gets on.
	Progress int64
	// Desired is how many pods there shall be; 0 where that is not known.
	Desired int64
	// ClockPaused is set while something else is known to be at fault, or is waited for:
	// then time does not count.
	ClockPaused bool
	// Canary is how the nodes fare that have the revision first, nil where all may have it.
	Canary *Canary
}

// Canary is how the nodes fare that have a revision first.
type Canary struct {
	// Healthy is set where all of them have the new pods, and nothing is waited for there.
	Healthy bool
	// Soak is how long they have to be healthy; 0: DefaultSoak.
	Soak time.Duration
	// Why says in words what they lack.
	Why string
	// Gated is why the other nodes may not follow now though they were healthy for long enough: that is
	// a start as any other.
	Gated string
}

// New are the findings that there were not when the rollout was begun.
func (l Facts) New(before []string) []string {
	return slices.DeleteFunc(slices.Clone(l.Findings), func(a string) bool { return slices.Contains(before, a) })
}

// desired is the progress with the pods that there shall be now: what nodes that have left had is no progress lost.
func (l Facts) desired(g revision.Progress) revision.Progress {
	if l.Desired < g.Desired {
		g.Mark = min(g.Mark, l.Progress)
	}
	g.Desired = l.Desired
	return g
}

// Judge returns the history after a look at the revision in force. It is the same one where
// there is nothing to note.
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
		return h // it is what was gone back to, or has failed: nothing else is tried
	}
	if c := l.Canary; c != nil && cur.Canary.Open() {
		if c.Healthy && len(l.New(g.Before)) == 0 {
			return soak(h, g, l)
		}
		h = h.WithCanary(revision.Canary{})
	}
	return count(h, g, l)
}

// soak counts for how long the nodes that have the revision first are healthy, and lets the
// others follow once that is enough. Meanwhile no progress is expected.
func soak(h revision.History, g revision.Progress, l Facts) revision.History {
	cur, _ := h.InForce()
	c, starts := *cur.Canary, cur.Canary.Good.IsZero() || l.Now.Before(cur.Canary.Good)
	if starts {
		c = revision.Canary{Good: l.Now}
	} else if !l.ClockPaused {
		c.Soaked += int64(min(max(l.Now.Sub(g.Seen), 0), look) / time.Second)
	}
	enough := cmp.Or(l.Canary.Soak, DefaultSoak)
	c.Passed = !l.ClockPaused && l.Canary.Gated == "" && time.Duration(c.Soaked)*time.Second >= enough
	if !starts && !c.Passed && recent(g.Seen, l.Now) {
		return h
	}
	g = l.desired(g)
	g.Seen, g.Mark = l.Now, max(g.Mark, l.Progress)
	if c.Passed {
		g.Spent = 0 // else it stays: what falls over again and again is healthy in between
	}
	return h.WithCanary(c).WithProgress(g)
}

// settled notes that all is healthy, once it is for long enough.
func settled(h revision.History, g revision.Progress, now time.Time) revision.History {
	if cur, _ := h.InForce(); cur.Returned || len(h.Targets()) == 0 {
		return h.Succeed(now) // it was healthy before, or there is nothing else to go to
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

// Outlook says why the revision in force does not count as healthy yet. The text changes with what is waited for, and
// not with the time.
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

// count counts time without progress, and fails the revision once there is too much.
func count(h revision.History, g revision.Progress, l Facts) revision.History {
	was := g
	g = l.desired(g)
	g.Spent += int64(min(max(l.Now.Sub(g.Seen), 0), look) / time.Second)
	g.Seen = l.Now
	if l.ClockPaused && l.Progress <= g.Mark {
		if recent(was.Seen, l.Now) {
			return h
		}
		was.Seen = l.Now // else this time would count with the next look
		return h.WithProgress(was)
	}
	if l.Progress > g.Mark {
		g.Mark, g.Spent = l.Progress, 0
	}
	deadline := cmp.Or(l.Deadline, DefaultDeadline)
	if time.Duration(g.Spent)*time.Second >= deadline {
		return h.Fail(fmt.Sprintf("it was not healthy after %s without progress: %s", deadline, why(l)), l.Now)
	}
	if cur, _ := h.InForce(); cur.Progress != nil && cur.Progress.Good.Equal(g.Good) && g.Mark == was.Mark && g.Desired == was.Desired && recent(was.Seen, l.Now) {
		return h
	}
	return h.WithProgress(g)
}

// recent tells whether there is no need yet to write the time down again.
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
