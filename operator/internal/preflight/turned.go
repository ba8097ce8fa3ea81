package preflight

import (
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

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
			r.Override, r.Action, r.Severity = override, Warn, Warning
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
