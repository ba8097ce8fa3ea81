package sipcluster

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
)

// Remove is one pass over a SIPCluster that is being deleted: one whose spec has neither hosts nor services any
// more. While a host is in use nothing goes, unless an annotation forces it. Else the services' namespace goes,
// with all pods, and then the hosts are released.
func (r *Reconciler) Remove(ctx context.Context, sip object) (reconciler.Outcome[object], error) {
	empty := sip.DeepCopy()
	empty.Spec = airship.SIPClusterSpec{}
	p := r.begin(empty)
	p.live = true
	err := p.decommission(ctx)
	waits := p.unfinished()
	switch {
	case condition.Outdated(err):
		return nil, err
	case err != nil:
		failure := failed(because(airship.ReasonUnableToDecommission, err))
		return outcome{
			status: sip.Status, ready: failure, degraded: p.degraded(), next: reconciler.Next{Interval: interval},
		}, nil
	case waits != "":
		return outcome{
			status: sip.Status, degraded: p.degraded(),
			ready: judgement{reason: airship.ReasonProgressing, message: waits, status: metav1.ConditionUnknown},
			next:  reconciler.Next{AtMost: soon(sip.Status.Conditions, p.Now())},
		}, nil
	}
	return reconciler.Release[object]{Note: "services and labels are removed"}, nil
}

func (p *pass) decommission(ctx context.Context) error {
	if err := p.exists(ctx, "remove what is of"); err != nil {
		return err
	}
	all, err := p.readHosts(ctx, true)
	if err == nil {
		err = p.choose(ctx, all)
	}
	if err == nil {
		err = p.inUse()
	}
	if err == nil {
		err = errors.Join(p.deploy(ctx), p.label(ctx))
	}
	return err
}
