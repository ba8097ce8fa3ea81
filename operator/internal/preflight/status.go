package preflight

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// A status lists at most maxListed results of about 1.5 kB each, so that findings keep a resource below the API
// server's size limit.
const (
	maxListed = 24
	maxText   = 384 // bytes of the finding, and of the remedy
	maxWhy    = 160
	maxObject = 120 // bytes of an object's name
)

// Status returns results for a VDOConfig's status: failed and overridden ones, the gravest first. The caller sets
// their time and question.
func Status(results []Result) *v1alpha1.PreflightStatus {
	out := &v1alpha1.PreflightStatus{Verdict: Worst(results).String(), Results: written(results)}
	out.Passed = len(results) - len(out.Results)
	limit(out)
	return out
}

// Merged replaces a status' findings of the bundle checks ([CheckImages]) by current ones. It does not count passed
// checks. It returns nil for a nil status.
func Merged(was *v1alpha1.PreflightStatus, now []Result) *v1alpha1.PreflightStatus {
	if was == nil {
		return nil
	}
	out := was.DeepCopy()
	out.Results = slices.DeleteFunc(out.Results, func(r v1alpha1.PreflightResult) bool { return ID(r.ID).OfBundle() })
	out.Results = append(out.Results, written(now)...)
	limit(out)
	out.Verdict = Worst(Listed(out)).String()
	return out
}

func written(results []Result) (out []v1alpha1.PreflightResult) {
	for _, r := range results {
		if r.Action != Pass || r.Override != nil {
			out = append(out, r.status())
		}
	}
	return out
}

// limit sorts the gravest results first, and counts those above the limit. It keeps each driver's blocking results
// first, so that a status blocks the same as all results. Bundle findings come next, since each reconcile finds and
// would count them again.
func limit(st *v1alpha1.PreflightStatus) {
	slices.SortStableFunc(st.Results, func(a, b v1alpha1.PreflightResult) int {
		return cmp.Compare(read(b).gravity(), read(a).gravity())
	})
	var first, bundle, others []v1alpha1.PreflightResult
	seen := map[matrix.Driver]bool{}
	for _, s := range st.Results {
		r, decides := read(s), false
		for _, d := range r.Drivers {
			decides = decides || r.Action == BlockInstall && !seen[d]
			seen[d] = true
		}
		switch {
		case decides:
			first = append(first, s)
		case r.ID.OfBundle():
			bundle = append(bundle, s)
		default:
			others = append(others, s)
		}
	}
	all := slices.Concat(first, bundle, others)
	st.Omitted += max(len(all)-maxListed, 0)
	st.Results = all[:min(len(all), maxListed)]
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

// Listed reads results back from a status.
func Listed(st *v1alpha1.PreflightStatus) (out []Result) {
	if st == nil {
		return nil
	}
	for _, s := range st.Results {
		out = append(out, read(s))
	}
	return out
}

// read reads a result back. An unknown action, such as Disabled, blocks nothing.
func read(s v1alpha1.PreflightResult) Result {
	r := Result{ID: ID(s.ID), On: s.VCenter, Objects: s.Objects, Count: s.Count, Stops: s.StopsDriver, Found: s.Found, Why: s.Why, Remedy: s.Remedy}
	_ = r.Action.UnmarshalText([]byte(s.Action))
	r.Severity = severity(r.Action)
	for _, d := range s.Drivers {
		r.Drivers = append(r.Drivers, matrix.Driver(d))
	}
	return r
}

// oneLine puts a text on one line, without control characters: a vCenter's text must not move the cursor or the
// writing direction of a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if fault.Control(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ReplaceAll(s, "\n", "; "))
}

// cut shortens a text to a number of bytes, marks the cut, and puts it on one line. It cuts no character, and drops a
// command in backticks that it would cut.
func cut(s string, limit int) string {
	s = oneLine(s)
	if len(s) <= limit {
		return s
	}
	const mark = "…"
	s = strings.ToValidUTF8(s[:limit-len(mark)], "")
	if strings.Count(s, "`")%2 == 1 {
		s = s[:strings.LastIndex(s, "`")]
	}
	return s + mark
}

// Hold is what the checks block for one driver. The zero value blocks nothing.
type Hold struct {
	Configuration bool  // blocks any configuration other than the current one
	Err           error // the findings that block releases, each with its remedy; nil for none
}

// maxGateFor is how many findings a Hold names, the gravest first; status.preflight has the others.
const maxGateFor = 3

// Gate returns what results block, by driver. The caller has applied [Turned] before.
func Gate(results []Result) map[matrix.Driver]Hold {
	results = slices.Clone(results)
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(b.gravity(), a.gravity()) })
	all := map[matrix.Driver]Hold{}
	for _, d := range matrix.Drivers() {
		var h Hold
		var errs []error
		for _, r := range results {
			if r.Action == BlockInstall && slices.Contains(r.Drivers, d) {
				h.Configuration = h.Configuration || r.Stops
				errs = append(errs, r.fault())
			}
		}
		if len(errs) > 0 {
			h.Err = fault.Join(errs[:min(len(errs), maxGateFor)]...)
			all[d] = h
		}
	}
	return all
}

// gravity orders results: by action, and results that stop a driver first.
func (r Result) gravity() int {
	g := 2 * int(r.Action)
	if r.Stops {
		g++
	}
	return g
}

func (r Result) fault() error {
	what := oneLine(r.Found)
	if named := r.Named(); named != "" {
		what += ": " + oneLine(named)
	}
	subject := string(r.ID)
	if r.On != "" {
		subject += " in vCenter " + r.On
	}
	reason := fault.Refused
	if r.ID == connection { // it may pass
		reason = fault.Unreachable
	}
	return &fault.Error{Reason: reason, Op: "check", Subject: subject, Err: errors.New(what), Hint: r.Remedy}
}

// Override says that the configuration sets a check to Warn or Disabled.
type Override struct {
	To     v1alpha1.PreflightAction `json:"to"`
	Was    Action                   `json:"was"` // the gravest action without the override
	Reason string                   `json:"reason"`
}

// Turned applies a policy's overrides. A check set to Warn keeps its findings, with the action Warn; a Disabled one is
// reduced to one result that says so. A passed check does not change. A nil policy changes nothing.
func Turned(results []Result, policy *v1alpha1.PreflightPolicy) []Result {
	if policy == nil {
		return results
	}
	was, turned := map[ID]Action{}, map[ID]v1alpha1.PreflightCheck{}
	for _, r := range results {
		was[r.ID] = max(was[r.ID], r.Action)
	}
	for _, c := range policy.Checks {
		turned[ID(c.ID)] = c
	}
	var out []Result
	for _, r := range results {
		c := turned[r.ID]
		override := &Override{To: c.Action, Was: r.Action, Reason: c.Reason}
		switch {
		case c.Action == v1alpha1.PreflightWarn && r.Action > Warn:
			r.Override, r.Action, r.Severity, r.Stops = override, Warn, Warning, false
		case c.Action == v1alpha1.PreflightDisabled && slices.ContainsFunc(out, func(o Result) bool { return o.ID == r.ID }):
			continue
		case c.Action == v1alpha1.PreflightDisabled:
			override.Was = was[r.ID]
			r = Result{ID: r.ID, Severity: Info, Found: "disabled: " + c.Reason, Override: override}
		}
		out = append(out, r)
	}
	return out
}
