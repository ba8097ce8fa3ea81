package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// A status lists at most maxListed results, each of some 1.5 kB at most: what the checks
// find does not let a resource outgrow what the API server stores.
const (
	maxListed = 24
	maxText   = 384 // bytes of what was found, and of the remedy
	maxWhy    = 160
	maxObject = 120 // bytes of an object's name
)

// Status writes results as a VDOConfig's status has them: those that did not pass or were
// turned down, the gravest first. When they were found, and to which question, is left to
// the caller.
func Status(results []Result) *v1alpha1.PreflightStatus {
	out := limited{v1alpha1.PreflightStatus{Verdict: Worst(results).String()}}
	out.add(results)
	out.Passed = len(results) - len(out.Results)
	out.limit()
	return &out.PreflightStatus
}

// Merged is a status with what the checks of the bundle ([CheckImages]) find now in the place
// of what they found before. Those that pass are not counted. A nil status is none.
func Merged(was *v1alpha1.PreflightStatus, now []Result) *v1alpha1.PreflightStatus {
	if was == nil {
		return nil
	}
	out := limited{*was.DeepCopy()}
	out.Results = slices.DeleteFunc(out.Results, func(r v1alpha1.PreflightResult) bool { return ID(r.ID).OfBundle() })
	out.add(now)
	out.limit()
	out.Verdict = Worst(Listed(&out.PreflightStatus)).String()
	return &out.PreflightStatus
}

// limited is a status that lists no more than it may.
type limited struct{ v1alpha1.PreflightStatus }

// add lists results but for those that pass.
func (l *limited) add(results []Result) {
	for _, r := range results {
		if r.Action != Pass || r.Override != nil {
			l.Results = append(l.Results, r.status())
		}
	}
}

// limit puts the gravest results first, and counts those that are too many. What each driver is
// blocked for is listed however much else there is: a status blocks the same as all results do. Next
// comes what the bundle lacks, which is found and would be counted at each reconcile.
func (l *limited) limit() {
	type item struct {
		status v1alpha1.PreflightResult
		Result
		at   int // in the order of gravity
		rank int // 0 has to be listed, 1 goes before 2
	}
	var items []item
	for i, r := range Listed(&l.PreflightStatus) {
		items = append(items, item{status: l.Results[i], Result: r})
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(b.gravity(), a.gravity()) })
	seen := map[string]bool{}
	for i := range items {
		n := &items[i]
		if n.at, n.rank = i, 2; n.ID.OfBundle() {
			n.rank = 1
		}
		for _, d := range n.Drivers {
			key := fmt.Sprint(d, n.gravity())
			if n.Action >= BlockUpgrade && !seen[key] {
				n.rank, seen[key] = 0, true
			}
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.rank, b.rank) })
	l.Omitted += max(len(items)-maxListed, 0)
	items = items[:min(len(items), maxListed)]
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(min(a.rank, 1), min(b.rank, 1)), cmp.Compare(a.at, b.at))
	})
	l.Results = nil
	for _, n := range items {
		l.Results = append(l.Results, n.status)
	}
}

func (r Result) status() v1alpha1.PreflightResult {
	out := v1alpha1.PreflightResult{
		ID: string(r.ID), Action: r.Action.String(), VCenter: r.On, Count: r.Count, StopsDriver: r.Stops,
		Found: cut(r.Found, maxText), Why: cut(r.Why, maxWhy), Remedy: cut(r.Remedy, maxText),
	}
	for _, d := range r.Drivers {
		out.Drivers = append(out.Drivers, string(d))
	}
	for _, o := range r.Objects {
		out.Objects = append(out.Objects, cut(o, maxObject))
	}
	if o := r.Override; o != nil {
		out.Override = &v1alpha1.PreflightOverride{Was: o.Was.String(), Reason: o.Reason}
		if o.To == v1alpha1.PreflightDisabled {
			out.Action = string(v1alpha1.PreflightDisabled)
		}
	}
	return out
}

// Listed reads results back from a status. An action that is not known, such as Disabled, keeps
// nothing back.
func Listed(st *v1alpha1.PreflightStatus) []Result {
	if st == nil {
		return nil
	}
	out := make([]Result, 0, len(st.Results))
	for i := range st.Results {
		s := &st.Results[i]
		r := Result{ID: ID(s.ID), On: s.VCenter, Objects: s.Objects, Count: s.Count, Stops: s.StopsDriver, Found: s.Found, Why: s.Why, Remedy: s.Remedy}
		if r.Action.UnmarshalText([]byte(s.Action)) != nil {
			r.Action = Pass
		}
		r.Severity = severity(r.Action)
		for _, d := range s.Drivers {
			r.Drivers = append(r.Drivers, matrix.Driver(d))
		}
		out = append(out, r)
	}
	return out
}

// oneLine puts a text on one line. What a vCenter says is shown on terminals: it moves no
// cursor there and turns no direction of writing.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if fault.Control(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ReplaceAll(s, "\n", "; "))
}

// cut cuts a text to some bytes at a character's border, saying so, and puts it on one line.
func cut(s string, limit int) string {
	s = oneLine(s)
	if len(s) <= limit {
		return s
	}
	const mark = "…"
	n := limit - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
