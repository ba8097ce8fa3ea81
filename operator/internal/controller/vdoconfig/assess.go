package vdoconfig

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

// assess judges the drivers that are asked for and installed, after what
// this pass changed. Where that cannot be seen nothing is judged.
func (p *pass) assess(ctx context.Context) error {
	if p.observed == nil {
		return nil // why is known
	}
	if p.outcome.changed > 0 {
		if err := p.observe(ctx, p.Cluster.Observe); err != nil {
			return err
		}
	}
	return p.assessed(ctx)
}

// observe looks at the drivers: as watching shows them or, before what is not taken back, a removal and that a
// revision is healthy, as they are listed.
func (p *pass) observe(ctx context.Context, look func(context.Context) (assess.Observed, error)) error {
	observed, err := look(ctx)
	if err != nil {
		return err
	}
	observed.Nodes = p.onVSphere(observed.Nodes)
	p.observed = &observed
	return nil
}

func (p *pass) assessed(ctx context.Context) error {
	if err := p.knowPasswords(ctx); err != nil {
		return err
	}
	cloud, storage := p.outcome.spec.CloudProvider, p.outcome.spec.StorageProvider
	report := assess.Assess(assess.Input{
		Observed: *p.observed, Now: p.now, Wanted: p.judged(),
		Topology:       storage != nil && len(storage.TopologyCategories) > 0,
		CloudAddresses: cloud != nil && (cloud.NodeAddresses != nil || len(cloud.IPFamilies) > 0),
		CloudZones:     cloud != nil && cloud.Topology != nil && cloud.Topology.Zone != "",
		Missing:        p.missing(), Secrets: p.site.secrets(), Replicas: p.replicas(),
	})
	p.outcome.report = &report
	return nil
}

// knowPasswords reads what drivers are configured with, and pull with: what pods write is shown without it.
func (p *pass) knowPasswords(ctx context.Context) error {
	var all []inventory.ID
	for _, key := range slices.Concat(configured, copies) {
		if e, ok := p.inventory.Get(key); ok {
			all = append(all, e.ID)
		}
	}
	live, _, err := p.Cluster.Read(ctx, all)
	if err != nil {
		return err
	}
	p.site.notePasswords(live)
	return nil
}

// judged are the drivers to judge: those decided for, and those that are asked for, or
// that have to stay, and are there or were installed. A snapshot-controller that the
// site cares for is not ours to judge.
func (p *result) judged() []matrix.Driver {
	there := installed(p.observed, p.inventory)
	planned := p.outcome.plan != nil && slices.ContainsFunc(p.outcome.plan.Steps, func(s plan.Step) bool {
		return s.Driver == matrix.SnapshotController && s.Object != nil
	})
	asked := p.site.wanted()
	return slices.DeleteFunc(slices.Clone(inOrder), func(d matrix.Driver) bool {
		_, is := there[d]
		wanted := p.decision.version(d) != "" && (d != matrix.SnapshotController || planned)
		return (!is && !wanted) || (!slices.Contains(asked, d) && p.site.retained[d] == "")
	})
}

// missing are the workloads that the inventory has and the cluster has not, but for
// those that shall not be there any more.
func (p *result) missing() []assess.Missing {
	there := map[inventory.Key]bool{}
	for _, w := range p.observed.All() {
		there[inventory.Key{Group: "apps", Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}] = true
	}
	steps := map[inventory.Key]plan.Step{}
	if p.outcome.plan != nil {
		for _, s := range p.outcome.plan.Steps {
			steps[s.Key] = s
		}
	}
	var all []assess.Missing
	for _, e := range p.inventory.Entries() {
		s := steps[e.Key]
		if p.observed.Unread[e.Driver] != nil {
			continue // nobody knows
		}
		if !isWorkload(e.Key) || e.Release == "" || there[e.Key] || slices.Contains([]plan.Action{plan.Prune, plan.Gone, plan.Forget}, s.Action) {
			continue
		}
		all = append(all, assess.Missing{Driver: e.Driver, Workload: e.Key.String(), BeingMade: s.Writes() && !stopped(&p.config.Spec)})
	}
	return all
}

// replicas are those that Deployments were last applied with. Of what was not applied yet as
// it is rendered now, and of replicas that are left to others, nothing is said.
func (p *result) replicas() map[string]int32 {
	all := map[string]int32{}
	if p.outcome.plan == nil {
		return all
	}
	for _, s := range p.outcome.plan.Steps {
		if s.Object == nil || s.Kind != "Deployment" || s.Cause != plan.Drift {
			continue
		}
		if n, found, err := unstructured.NestedInt64(s.Object.Object, "spec", "replicas"); found && err == nil {
			all[s.Key.String()] = int32(min(n, math.MaxInt32)) //nolint:gosec // bounded
		}
	}
	return all
}

func isWorkload(k inventory.Key) bool {
	return k.Group == "apps" && (k.Kind == "DaemonSet" || k.Kind == "Deployment")
}

func message(h assess.Health) string {
	if err := h.Err(); err != nil {
		return fault.Text(err)
	}
	return cmp.Or(h.Waits(), h.Note)
}

func nodes(rep *assess.Report) []v1alpha1.NodeStatus {
	var all []v1alpha1.NodeStatus
	for _, f := range rep.Nodes[:min(len(rep.Nodes), maxNodes)] {
		all = append(all, v1alpha1.NodeStatus{
			Name: f.Node, Driver: string(f.Driver), Reason: string(f.Reason), Message: condition.Cut(strings.TrimSpace(f.Message+": "+f.Remedy), maxText)})
	}
	return all
}

// unseen tells whether it is not known what became of what this pass changed. An API that did
// not answer before anything was changed has its grace.
func (p *result) unseen() bool { return p.outcome.report == nil && p.outcome.changed > 0 }
