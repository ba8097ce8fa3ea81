package preflight

import (
	"cmp"
	"errors"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
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

// fault returns a finding as an error with its remedy.
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
