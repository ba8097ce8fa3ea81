package vcenter

import (
	"context"
	"slices"
	"time"

	"github.com/vmware/govmomi/performance"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// rules reads whether the nodes' clusters move VMs, and which hosts rules bind VMs to.
func (i *inspection) rules(ctx context.Context) error {
	clusters := slices.DeleteFunc(i.entities(privileges.Compute), func(r preflight.Ref) bool {
		return r.Type != "ClusterComputeResource" // a standalone host has neither
	})
	if len(clusters) == 0 {
		return nil
	}
	var list []mo.ClusterComputeResource
	if err := property.DefaultCollector(i.c).Retrieve(ctx, clusters, []string{"configurationEx"}, &list); err != nil {
		return err
	}
	i.found.Bound = map[preflight.Ref][]preflight.Ref{}
	for n := range list {
		c, ok := list[n].ConfigurationEx.(*types.ClusterConfigInfoEx)
		if !ok {
			continue
		}
		o := i.found.Objects[list[n].Self]
		o.MovesVMs = isOn(c.DrsConfig.Enabled) || isOn(c.DasConfig.Enabled)
		i.found.Objects[list[n].Self] = o
		i.bind(c)
	}
	return nil
}

func isOn(b *bool) bool { return b != nil && *b }

// bind records the hosts of must-run rules for groups of VMs and hosts. All rules of a VM apply.
func (i *inspection) bind(c *types.ClusterConfigInfoEx) {
	vms, hosts := map[string][]preflight.Ref{}, map[string][]preflight.Ref{}
	for _, g := range c.Group {
		switch g := g.(type) {
		case *types.ClusterVmGroup:
			vms[g.Name] = g.Vm
		case *types.ClusterHostGroup:
			hosts[g.Name] = g.Host
		}
	}
	for _, r := range c.Rule {
		rule, ok := r.(*types.ClusterVmHostRuleInfo)
		if !ok || !isOn(rule.Enabled) || !isOn(rule.Mandatory) || rule.AffineHostGroupName == "" {
			continue
		}
		for _, vm := range vms[rule.VmGroupName] {
			on := hosts[rule.AffineHostGroupName]
			if before, ok := i.found.Bound[vm]; ok {
				isNew := func(h preflight.Ref) bool { return !slices.Contains(before, h) }
				on = slices.DeleteFunc(slices.Clone(on), isNew)
			}
			i.found.Bound[vm] = on
		}
	}
}

const (
	latencyCounter = "disk.maxTotalLatency.latest"
	latencyEvery   = 20 // seconds: the only interval of the last hours
	latencySamples = 300
	latencyLeast   = 30 // samples; an average of fewer is unreliable
)

// latency reads the disk latency of the control plane's VMs: vsphere-problem-detector, pkg/check/node_perf.go,
// PerformMetricCheck. A VM that is off has no samples.
func (i *inspection) latency(ctx context.Context) error {
	at := map[preflight.Ref]*preflight.Machine{}
	var vms []preflight.Ref
	for n := range i.found.Machines {
		m := &i.found.Machines[n]
		isNode := func(n preflight.Node) bool { return n.ControlPlane && preflight.SameUUID(n.UUID, m.UUID) }
		if m.On && slices.ContainsFunc(i.ask.Nodes, isNode) {
			vms = append(vms, m.Ref)
			at[m.Ref] = m
		}
	}
	if len(vms) == 0 || i.c.ServiceContent.PerfManager == nil {
		return nil
	}
	spec := types.PerfQuerySpec{MaxSample: latencySamples, IntervalId: latencyEvery}
	list, err := performance.NewManager(i.c).SampleByName(ctx, spec, []string{latencyCounter}, vms)
	for _, e := range list {
		entity, ok := e.(*types.PerfEntityMetric)
		if !ok || at[entity.Entity] == nil {
			continue
		}
		for _, s := range entity.Value {
			series, ok := s.(*types.PerfMetricIntSeries)
			if !ok || len(series.Value) < latencyLeast {
				continue
			}
			sum := int64(0)
			for _, v := range series.Value {
				sum += v
			}
			m, average := at[entity.Entity], time.Duration(sum/int64(len(series.Value)))*time.Millisecond
			m.DiskLatency = max(m.DiskLatency, average)
		}
	}
	return err
}
