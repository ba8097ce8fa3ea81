package vdoconfig

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

// assess judges how the drivers fare that are asked for and installed, after what
// this pass changed. Where that cannot be seen nothing is judged.
func (p *pass) assess(ctx context.Context) error {
	if !p.site.looked {
		return nil // observe has said why
	}
	if p.outcome.changed > 0 {
		fresh, err := p.Cluster.Observe(ctx)
		if err != nil {
			return err
		}
		p.site.observed = fresh
	}
	certificate, err := p.servedCertificate(ctx)
	if err != nil {
		return err
	}
	report := assess.Assess(assess.Input{
		Observed: p.site.observed, Now: p.now, Wanted: p.judged(),
		Topology:           p.spec.StorageProvider != nil && len(p.spec.StorageProvider.TopologyCategories) > 0,
		WebhookCertificate: certificate, Missing: p.missing(),
	})
	p.outcome.report = &report
	return p.noteComplete(ctx)
}

// judged are the drivers to judge: those decided for, and those that are asked for, or
// that have to stay, and are there or were installed. A snapshot-controller that the
// site cares for is not ours to judge.
func (p *pass) judged() []matrix.Driver {
	rules, _, _ := policies(p.config.Spec) //nolint:errcheck // what is wrong with pins was reported by deciding
	there := installed(&p.site.observed, p.site.inventory)
	var all []matrix.Driver
	for _, d := range inOrder {
		if !slices.Contains(asked(rules), d) && !slices.Contains(p.site.retained, d) {
			continue
		}
		_, is := there[d]
		wanted := p.decision.version(d) != "" && (d != matrix.SnapshotController || p.plansFor(d))
		if is || wanted {
			all = append(all, d)
		}
	}
	return all
}

// missing are the workloads that the inventory has and the cluster has not, but for
// those that shall not be there any more.
func (p *pass) missing() []assess.Missing {
	there := map[inventory.Key]bool{}
	for _, w := range p.site.observed.All() {
		there[inventory.Key{Group: "apps", Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}] = true
	}
	steps := map[inventory.Key]plan.Step{}
	if p.outcome.plan != nil {
		for _, s := range p.outcome.plan.Steps {
			steps[s.Key] = s
		}
	}
	var all []assess.Missing
	for _, e := range p.site.inventory.Entries() {
		s := steps[e.Key]
		if p.site.observed.Unread[e.Driver] != nil {
			continue // nobody knows
		}
		if !isWorkload(e.Key) || e.Release == "" || there[e.Key] || slices.Contains([]plan.Action{plan.Prune, plan.Gone, plan.Forget}, s.Action) {
			continue
		}
		all = append(all, assess.Missing{Driver: e.Driver, Workload: e.Key.String(), BeingMade: s.Writes() && !p.config.Spec.Suspend})
	}
	return all
}

func isWorkload(k inventory.Key) bool {
	return k.Group == "apps" && (k.Kind == "DaemonSet" || k.Kind == "Deployment")
}

func (p *pass) plansFor(d matrix.Driver) bool {
	return p.outcome.plan != nil && slices.ContainsFunc(p.outcome.plan.Steps, func(s plan.Step) bool { return s.Driver == d && s.Object != nil })
}

// servedCertificate returns the webhook's certificate as it is on the cluster.
func (p *pass) servedCertificate(ctx context.Context) ([]byte, error) {
	if sp := p.spec.StorageProvider; sp == nil || !sp.Webhook {
		return nil, nil
	}
	data, err := p.Cluster.Secret(ctx, types.NamespacedName{Namespace: render.CSINamespace, Name: render.WebhookSecret})
	if err := p.at(matrix.CSI, err); err != nil {
		return nil, err
	}
	return data[webhookcert.KeyCert], nil
}

// noteComplete keeps which versions were seen rolled out, and tells of new ones.
func (p *pass) noteComplete(ctx context.Context) error {
	inv := p.site.inventory
	var done []matrix.ReleaseID
	for _, d := range p.judged() {
		h := p.outcome.report.Drivers[d]
		if !h.Complete || h.Version == "" || !inv.Has(d) || inv.Complete(d) == h.Version {
			continue
		}
		inv = inv.WithComplete(d, h.Version)
		if v, err := matrix.ParseVersion(h.Version); err == nil {
			done = append(done, matrix.ReleaseID{Driver: d, Version: v})
		}
	}
	if p.config.Spec.Suspend || len(done) == 0 {
		return nil
	}
	if err := p.record(ctx, inv); err != nil {
		return err
	}
	for _, id := range done {
		p.Recorder.Eventf(p.config, nil, "Normal", "RolledOut", "Assess", "%s is rolled out", id)
	}
	return nil
}
