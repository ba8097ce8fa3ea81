package vdoconfig

import (
	"cmp"
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// inForce returns the VDOConfig that is in force instead of this one, or nil, and whether
// this one is the only one.
//
// Who has installed something stays in force: the inventories say so, which are
// written before anything else is and read past every cache, and passes are made one
// at a time. One that is sealed counts before one that anybody could have written. Of several, or of none, it is who has the finalizer, then the oldest,
// then the first by name: creation times have seconds.
func (r *Reconciler) inForce(ctx context.Context, config *v1alpha1.VDOConfig) (other *v1alpha1.VDOConfig, alone bool, err error) {
	var all v1alpha1.VDOConfigList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, false, fmt.Errorf("list VDOConfigs: %w", err)
	}
	if len(all.Items) < 2 {
		return nil, true, nil
	}
	first, err := r.claim(ctx, config)
	if err != nil {
		return nil, false, err
	}
	for i := range all.Items {
		o := &all.Items[i]
		if client.ObjectKeyFromObject(o) == client.ObjectKeyFromObject(config) {
			continue
		}
		other, err := r.claim(ctx, o)
		if err != nil {
			return nil, false, err
		}
		if other.before(first) {
			first = other
		}
	}
	if first.config == config {
		return nil, false, nil
	}
	return first.config, false, nil
}

// claim is what a VDOConfig's right to be in force rests on.
type claim struct {
	config    *v1alpha1.VDOConfig
	proven    bool // the operator itself has written that it has installed
	installed bool // an inventory that makes no sense, or is not believed, counts as one
	holds     bool
}

// claim fails where the inventory cannot be read now: who has installed is not guessed.
func (r *Reconciler) claim(ctx context.Context, o *v1alpha1.VDOConfig) (claim, error) {
	kept, err := r.load(ctx, o)
	if reason := fault.ReasonOf(err); err != nil && reason != fault.Corrupt && reason != fault.Untrusted {
		return claim{}, err
	}
	lost := err == nil && !kept.Found && o.Status.Inventory != nil // what the status knows of was installed
	installed := err != nil || kept.Len() > 0 || lost || len(kept.Memory().Revisions.Records) > 0
	return claim{config: o, proven: installed && (kept.Sealed || lost || (err != nil && o.Status.Inventory != nil)),
		installed: installed, holds: controllerutil.ContainsFinalizer(o, v1alpha1.FinalizerDrivers)}, nil //nolint:nilerr // one that is not believed is an answer
}

func (c claim) before(o claim) bool {
	if c.proven != o.proven {
		return c.proven
	}
	if c.installed != o.installed {
		return c.installed
	}
	if c.holds != o.holds {
		return c.holds
	}
	a, b := c.config, o.config
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}

func notInForce(other *v1alpha1.VDOConfig) error {
	return &fault.Error{
		Reason: fault.Refused, Op: "install", Subject: "drivers", Hint: "delete this one; what is installed stays",
		Err: fmt.Errorf("VDOConfig %s is in force, and a cluster has one only", client.ObjectKeyFromObject(other)),
	}
}
