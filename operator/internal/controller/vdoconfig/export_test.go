package vdoconfig

import "slices"

// Inherit takes the matrices over that another has read: reading them takes longer, under the
// race detector, than the rest of a pass, and a test's operator is killed in each.
func (r *Reconciler) Inherit(from *Reconciler) { r.matrices.kept = slices.Clone(from.matrices.kept) }
