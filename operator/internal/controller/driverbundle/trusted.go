package driverbundle

import (
	"context"
	"errors"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Trusted holds the bundle that status.digest names, which was accepted at
// status.acceptedAt, against the trust policies of now, by the signatures that are copied
// in the cluster. It fails with Untrusted where they do not accept it, and with whatever
// keeps it from being known.
func (r *Reconciler) Trusted(ctx context.Context, b *v1alpha1.DriverBundle) error {
	p, err := r.policies(ctx, b)
	if err != nil {
		return err
	}
	h := r.reverify(ctx, b, p)
	switch {
	case h.untrusted != nil:
		return &fault.Error{Reason: fault.Untrusted, Op: "trust", Subject: b.Status.Repository + "@" + b.Status.Digest, Err: h.untrusted}
	case h.lost != nil:
		return h.lost
	case !h.good():
		return &fault.Error{Reason: fault.Untrusted, Op: "trust", Subject: b.Status.Repository + "@" + b.Status.Digest, Err: errors.New("nobody's signature counts")}
	}
	return nil
}
