package preflight

import (
	"slices"
	"strings"
)

// allAnswered says whether each vCenter let the account in.
func allAnswered(s *Snapshot) bool {
	return !slices.ContainsFunc(s.VCenters, func(v VCenter) bool { return v.Err != nil })
}

// Only returns the results of the checks that are wanted, and why those could not be made.
func (s *Snapshot) Only(all []Result, wanted func(ID) bool) []Result {
	return slices.DeleteFunc(slices.Clone(all), func(r Result) bool { return !wanted(r.ID) && !s.blind(r) })
}

// blind tells whether a result is why other checks could not be made: a cluster or a vCenter
// that was not seen.
func (s *Snapshot) blind(r Result) bool {
	if r.Action == Pass {
		return false
	}
	return (r.ID == "cluster" && s.Cluster.Err != nil) || slices.ContainsFunc(s.VCenters, func(v VCenter) bool {
		return r.On == v.Name && strings.HasPrefix(string(r.ID), "vcenter-") && r.Action >= BlockUpgrade && (v.Err != nil || v.Failed[Inventory] != nil)
	})
}
