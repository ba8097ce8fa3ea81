package preflight

import (
	"cmp"
	"errors"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

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
