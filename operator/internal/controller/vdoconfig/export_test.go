package vdoconfig

import "slices"

// Inherit takes the matrices over that another has read: under the race detector reading them
// takes longer than the rest of a pass, each test has an operator of its own, and some kill it in each pass.
func (r *Reconciler) Inherit(from *Reconciler) { r.matrices.kept = slices.Clone(from.matrices.kept) }
