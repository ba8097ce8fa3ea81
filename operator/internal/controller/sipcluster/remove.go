package sipcluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// Remove is one pass over a SIPCluster that is being deleted. While a host is in use nothing
// goes, unless an annotation forces it. Else its services go, and their pods, then its hosts are
// given back, then the record of it goes.
func (r *Reconciler) Remove(ctx context.Context, sip object) (reconciler.Outcome[object], error) {
	p := &pass{Reconciler: r, sip: sip, key: client.ObjectKeyFromObject(sip), cluster: clusterOf(sip)}
	waits, err := p.decommission(ctx)
	if err != nil {
		if mustRepeat(err) {
			return nil, err
		}
		return removing{err: because(airship.ReasonUnableToDecommission, err)}, nil
	}
	if waits != "" {
		return removing{waits: waits, now: r.Now()}, nil
	}
	return reconciler.Release[object]{Note: "services and labels are removed"}, nil
}

// decommission returns what is waited for, "" where all is done.
func (p *pass) decommission(ctx context.Context) (waits string, err error) {
	if err := p.records.load(ctx, p); err != nil {
		return "", err
	}
	if err := p.stillThis(ctx); err != nil {
		return "", err
	}
	if err := p.notInUse(ctx); err != nil {
		return "", err
	}
	live := plan.Live{}
	for key, o := range p.records.live {
		if o != nil {
			live[key] = o
		}
	}
	planned := plan.Removal(p.records.inventory, live, p.records.refused, nil)
	ends, err := p.namespaceEnds(ctx)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, s := range planned.Steps {
		switch s.Action { //nolint:exhaustive // a removal has no others
		case plan.Gone, plan.Forget:
			p.forget(s)
		case plan.Keep:
			if ends { // it goes with the namespace, and so did the right to read it
				p.records.inventory = p.records.inventory.Without(s.Key)
				continue
			}
			errs = append(errs, fmt.Errorf("remove %s: %s", s.Key, s.Reason))
		}
	}
	errs = append(errs, p.remove(ctx, planned.NextWave()), p.records.save(ctx, p))
	if err := errors.Join(errs...); err != nil || p.records.inventory.Len() > 0 {
		return p.left(), err
	}
	switch leads, err := p.whoLeads(ctx); {
	case err != nil:
		return "", err
	case leads != "":
		return "services are removed, hosts are not given back yet: " + leads, nil
	}
	if err := p.giveBack(ctx); err != nil {
		return "", err
	}
	if err := p.stillThis(ctx); err != nil {
		return "", err
	}
	return "", p.Cluster.DeleteInventory(ctx, p.owner(p.sip))
}

// namespaceEnds reports whether the SIPCluster's namespace is being deleted.
func (p *pass) namespaceEnds(ctx context.Context) (bool, error) {
	var ns corev1.Namespace
	if err := p.Reader.Get(ctx, types.NamespacedName{Name: p.key.Namespace}, &ns); err != nil {
		subject := "namespace " + p.key.Namespace
		return false, &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: subject, Err: err}
	}
	return !ns.DeletionTimestamp.IsZero(), nil
}

// left says what is recorded still.
func (p *pass) left() string {
	var all []string
	for _, e := range p.records.inventory.Entries() {
		all = append(all, e.Key.String())
	}
	objects := "1 object is left"
	if len(all) != 1 {
		objects = fmt.Sprintf("%d objects are left", len(all))
	}
	return "removing services: " + objects + ": " + few(all)
}

// stillThis fails where it is another SIPCluster, or none, that is being deleted by now: an operator that
// was paused would take what the next of the name has. It comes after what is taken was read, so that what
// the next one has is either seen here, or has another UID or resource version than what was read.
func (p *pass) stillThis(ctx context.Context) error { return p.exists(ctx, "remove what is of") }

// notInUse fails while a host of the SIPCluster is in use.
func (p *pass) notInUse(ctx context.Context) error {
	s, err := p.live(ctx)
	if err != nil {
		return err
	}
	var used []string
	for _, h := range choose.Sorted(s.list()) {
		if p.cluster.Holds(h) && !p.mayRelease(h) {
			used = append(used, h.Key().String()+": "+h.InUse())
		}
	}
	return inUseFault(used)
}

func (p *pass) mayRelease(h choose.Host) bool { return p.cluster.ReleaseInUse || h.InUse() == "" }

func (p *pass) giveBack(ctx context.Context) error {
	s, err := p.live(ctx)
	if err != nil {
		return err
	}
	if err := p.stillThis(ctx); err != nil {
		return err
	}
	var errs []error
	var used []string
	for _, h := range s.hosts {
		errs = append(errs, p.editHost(ctx, h, func(now *host) map[string]any {
			if !p.cluster.Holds(now.Host) {
				return nil
			}
			if !p.mayRelease(now.Host) { // since a moment ago
				used = append(used, now.Key().String()+": "+now.InUse())
				return nil
			}
			return released()
		}))
	}
	return errors.Join(append(errs, inUseFault(used))...)
}
