package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// reacting is how long OpenShift's Machine Config Operator is given to make a configuration of nodes
// of a mirror set that was written: before that all pools say that they are up to date. It takes
// some seconds where nothing is amiss.
const reacting = 5 * time.Minute

// Pool is what an upgrade looks at of a MachineConfigPool of OpenShift's.
type Pool struct {
	Name string
	// Target is the configuration that its nodes are to have, and Has what all of them had last.
	Target, Has string
	// Updated tells whether all nodes are ready with what they are to have, and Updates and Nodes
	// are how many have it, of how many.
	Updated        bool
	Updates, Nodes int64
	Paused         bool   // its nodes get nothing new
	Degraded       bool   // something is amiss with what they are to have
	Why            string // it is degraded
}

func (p Pool) taken() bool { return p.Updated && !p.Degraded && p.Target == p.Has }

// String says what a pool waits for.
func (p Pool) String() string {
	text := "MachineConfigPool " + p.Name
	switch {
	case p.Paused:
		return text + " (paused: its nodes take nothing up)"
	case p.Degraded && p.Why != "":
		const most = 160
		return text + " (degraded: " + strings.ToValidUTF8(p.Why[:min(len(p.Why), most)], "") + ")"
	case p.Degraded:
		return text + " (degraded)"
	}
	return fmt.Sprintf("%s (%d of %d nodes updated)", text, p.Updates, p.Nodes)
}

// PoolsChange says that nodes have not taken up a mirror set that was written at a time, "" where
// all have.
func PoolsChange(set string, written time.Time, pools []Pool, now time.Time) string {
	if reacts(written, now) {
		return fmt.Sprintf("%s was written at %s, and OpenShift is given until %s to begin with it", set, clock(written), clock(written.Add(reacting)))
	}
	var all []string
	for _, p := range pools {
		if !p.taken() {
			all = append(all, p.String())
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return "not all nodes have taken up " + set + ": " + few(all)
}

// PoolsRoll tells whether nodes get another configuration just now, or may after a set was written.
// What somebody has to see to does not count.
func PoolsRoll(written time.Time, pools []Pool, now time.Time) bool {
	return reacts(written, now) || slices.ContainsFunc(pools, func(p Pool) bool { return p.Target != p.Has && !p.Paused && !p.Degraded })
}

// reacts is bounded both ways: clocks differ.
func reacts(written, now time.Time) bool {
	since := now.Sub(written)
	return since > -reacting && since < reacting
}
