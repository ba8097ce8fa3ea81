package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
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

// Valid refuses a policy that the API server would not take, for configurations that come
// from a file.
func Valid(policy *v1alpha1.PreflightPolicy) error {
	if policy == nil {
		return nil
	}
	var errs []error
	refuse := func(field, hint, format string, args ...any) {
		errs = append(errs, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: "spec.preflight.checks" + field, Err: fmt.Errorf(format, args...), Hint: hint})
	}
	seen := map[string]bool{}
	for i, c := range policy.Checks {
		at := fmt.Sprintf("[%d]", i)
		if !slices.Contains(IDs(), ID(c.ID)) {
			refuse(at+".id", "the checks are "+Names(), "no check is called %q", c.ID)
		}
		if seen[c.ID] {
			refuse(at+".id", "name each check once", "check %q is named twice", c.ID)
		}
		seen[c.ID] = true
		if c.Action != v1alpha1.PreflightWarn && c.Action != v1alpha1.PreflightDisabled {
			refuse(at+".action", "write Warn or Disabled", "%q is neither Warn nor Disabled", c.Action)
		}
		if strings.TrimSpace(c.Reason) == "" {
			refuse(at+".reason", "say why the check does not count here", "the reason is empty")
		}
	}
	return fault.Join(errs...)
}

// Names are the ids of all checks, for people.
func Names() string {
	var names []string
	for _, id := range IDs() {
		names = append(names, string(id))
	}
	return strings.Join(names, ", ")
}
