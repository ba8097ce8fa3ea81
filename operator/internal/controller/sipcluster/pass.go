package sipcluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// pass is one pass over one SIPCluster.
type pass struct {
	*Reconciler
	sip object
	key types.NamespacedName
	// cluster is who chooses hosts.
	cluster choose.Cluster

	extracted map[types.NamespacedName]*extracted
	snapshot  snapshot
	choice    choose.Choice
	rendered  services.Set
	records   records
	states    []state       // of the services, in the order rendered
	unusable  error         // why the bundle cannot be used; services keep their images
	again     bool          // something is to be done at once
	leading   string        // the pod that may still lead to hosts that leave, and why
	graceEnds time.Duration // until a host in error is replaced; 0 for none
	applied   bool          // what is on the cluster is known, and the services were applied, or failed one by one
}

// Pass is one pass over a SIPCluster that is not being deleted.
func (r *Reconciler) Pass(ctx context.Context, sip object) (reconciler.Outcome[object], error) {
	if !slices.Contains(sip.Finalizers, airship.Finalizer) {
		return reconciler.Hold[object]{}, nil
	}
	p := &pass{
		Reconciler: r, sip: sip, key: client.ObjectKeyFromObject(sip), cluster: clusterOf(sip),
		extracted: map[types.NamespacedName]*extracted{},
	}
	err := p.run(ctx)
	if err != nil && mustRepeat(err) {
		return nil, err
	}
	return p.outcome(err), nil
}

// mustRepeat tells of errors that say nothing about the SIPCluster: it was decided on what
// is no longer so.
func mustRepeat(err error) bool { return condition.Outdated(err) && !isPlanned(err) }

func (p *pass) run(ctx context.Context) error {
	if err := p.gather(ctx); err != nil {
		return err
	}
	infra := p.deploy(ctx)
	if errors.Is(infra, fault.ErrOutdated) {
		return infra
	}
	labels := p.label(ctx)
	return errors.Join(labels, infra)
}

// cause is an error with the reason that it gives the condition Ready.
type cause struct {
	reason string
	err    error
}

func because(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &cause{reason: reason, err: err}
}

func (c *cause) Error() string { return c.err.Error() }
func (c *cause) Unwrap() error { return c.err }

// few names some of many.
func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + ", …"
}
