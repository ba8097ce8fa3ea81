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

// inForce returns the VDOConfig that is in force instead of this one, or nil.
//
// Who has installed something stays in force: the inventories say so, which are written before
// anything else is and read past every cache, and passes are made one at a time. Of several, or of
// none, it is who has the finalizer, then the oldest, then the first by name: creation times have seconds.
func (r *Reconciler) inForce(ctx context.Context, config *v1alpha1.VDOConfig) (*v1alpha1.VDOConfig, error) {
	var all v1alpha1.VDOConfigList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list VDOConfigs: %w", err)
	}
	if len(all.Items) < 2 {
		return nil, nil
	}
	first, err := r.claim(ctx, config)
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		o := &all.Items[i]
		if client.ObjectKeyFromObject(o) == client.ObjectKeyFromObject(config) {
			continue
		}
		other, err := r.claim(ctx, o)
		if err != nil {
			return nil, err
		}
		if other.before(first) {
			first = other
		}
	}
	if first.config == config {
		return nil, nil
	}
	return first.config, nil
}

// claim is what a VDOConfig's right to be in force rests on.
type claim struct {
	config    *v1alpha1.VDOConfig
	installed bool // an inventory that makes no sense counts as one
	holds     bool
}

// claim fails where the inventory cannot be read now: who has installed is not guessed.
func (r *Reconciler) claim(ctx context.Context, o *v1alpha1.VDOConfig) (claim, error) {
	kept, err := r.load(ctx, o)
	if err != nil && fault.ReasonOf(err) != fault.Corrupt {
		return claim{}, err
	}
	holds := controllerutil.ContainsFinalizer(o, v1alpha1.FinalizerDrivers)
	return claim{config: o, installed: err != nil || kept.Len() > 0, holds: holds}, nil //nolint:nilerr // it is an answer
}

func (c claim) before(o claim) bool {
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
		Err: fmt.Errorf("VDOConfig %s is active, and a cluster has only one", client.ObjectKeyFromObject(other)),
	}
}
