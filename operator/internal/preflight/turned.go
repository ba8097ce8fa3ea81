package preflight

import (
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Override says that a check was turned down by the configuration.
type Override struct {
	To     v1alpha1.PreflightAction `json:"to"`
	Was    Action                   `json:"was"` // the gravest action that it would have had
	Reason string                   `json:"reason"`
}

// Turned turns single checks down as a policy says. A check turned to Warn keeps what it
// found, with the action Warn; of one that is Disabled nothing is left but one result that
// says so. A check that passed stays as it is. A nil policy turns nothing.
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
