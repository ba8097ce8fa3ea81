package vcenter

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/pbm"
	pbmmethods "github.com/vmware/govmomi/pbm/methods"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/performance"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vapi/esx/settings/clusters"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// tasks reads the recent tasks, as the drivers do.
func (i *inspection) tasks(ctx context.Context) error {
	manager := i.c.ServiceContent.TaskManager
	if manager == nil {
		return nil
	}
	var m mo.TaskManager
	return property.DefaultCollector(i.c).RetrieveOne(ctx, *manager, []string{"recentTask"}, &m)
}

// cns queries at most one volume, as the drivers' library does, in the version that the service names: it refuses
// another one. [cns.NewClient] reads that version without ctx.
func (i *inspection) cns(ctx context.Context) (err error) {
	sc := i.serviceOf(cns.Path, cns.Namespace)
	if sc.Version, err = apiVersion(ctx, sc, cns.Namespace, sc.Namespace); err != nil {
		return err
	}
	one := &cnstypes.CnsQueryFilter{Cursor: &cnstypes.CnsCursor{Limit: 1}}
	_, err = (&cns.Client{Client: sc, RoundTripper: sc}).QueryVolume(ctx, one)
	return err
}

// privileges reads which needed privileges the account has, in one call for each kind of object and page.
func (i *inspection) privileges(ctx context.Context) error {
	for _, k := range []privileges.Kind{
		privileges.Root, privileges.Ancestor, privileges.VM, privileges.Datastore, privileges.Cluster, privileges.Host,
	} {
		needed := privileges.Needed(i.ask.Features, k)
		if len(needed) == 0 {
			continue
		}
		for page := range slices.Chunk(i.entities(k), pageSize) {
			if err := i.has(ctx, k, page, needed); err != nil {
				return err
			}
		}
	}
	return nil
}

func (i *inspection) has(ctx context.Context, k privileges.Kind, page []types.ManagedObjectReference, needed []string) error {
	list, err := i.authorization().HasUserPrivilegeOnEntities(ctx, page, i.User, needed)
	if err != nil {
		return err
	}
	for _, e := range list {
		var lacks []string
		for _, p := range e.PrivAvailability {
			if !p.IsGranted {
				lacks = append(lacks, p.PrivId)
			}
		}
		switch k {
		case privileges.Datastore: // a datastore without the privilege is not for volumes
			i.mayHold(ref(e.Entity), len(lacks) == 0)
			continue
		case privileges.Cluster: // a cluster without it is not for file shares
			i.found.Shares = append(i.found.Shares, preflight.Share{Cluster: i.nameOf(ref(e.Entity)), May: len(lacks) == 0})
			continue
		}
		if len(lacks) > 0 {
			slices.Sort(lacks)
			i.found.Lacking = append(i.found.Lacking, preflight.Lack{Object: i.nameOf(ref(e.Entity)), Kind: k, Privileges: lacks})
		}
	}
	return nil
}

func (i *inspection) mayHold(r preflight.Ref, may bool) {
	for n := range i.found.Datastores {
		if i.found.Datastores[n].Ref == r {
			i.found.Datastores[n].MayHold = may
		}
	}
}

func (i *inspection) nameOf(r preflight.Ref) string {
	if r == ref(i.c.ServiceContent.RootFolder) {
		return "/"
	}
	if r.Type == "VirtualMachine" {
		for n := range i.found.Machines {
			if i.found.Machines[n].Ref == r {
				return i.found.MachinePath(&i.found.Machines[n])
			}
		}
	}
	if p := i.found.Path(r); p != "" {
		return p
	}
	return r.Type + ":" + r.Value
}

// entities returns the objects of a kind that privileges are needed on.
func (i *inspection) entities(k privileges.Kind) []types.ManagedObjectReference {
	root := ref(i.c.ServiceContent.RootFolder)
	var refs []preflight.Ref
	switch k {
	case privileges.Root:
		refs = []preflight.Ref{root}
	case privileges.VM:
		for n := range i.found.Machines {
			refs = append(refs, i.found.Machines[n].Ref)
		}
	case privileges.Datastore:
		for n := range i.found.Datastores {
			refs = append(refs, i.found.Datastores[n].Ref)
		}
	case privileges.Ancestor:
		refs = i.ancestors(root)
	case privileges.Compute:
		refs = slices.DeleteFunc(i.ancestors(root), func(r preflight.Ref) bool { return !isCompute(r) })
	case privileges.Host:
		refs = i.hosts(i.ancestors(root))
	case privileges.Cluster:
		refs = i.vsanClusters()
	}
	out := make([]types.ManagedObjectReference, len(refs))
	for n, r := range refs {
		out[n] = unref(r)
	}
	return out
}

func isCompute(r preflight.Ref) bool {
	return r.Type == "ClusterComputeResource" || r.Type == "ComputeResource"
}

func (i *inspection) hosts(of []preflight.Ref) (out []preflight.Ref) {
	for r, o := range i.found.Objects {
		if r.Type == "HostSystem" && isCompute(o.Parent) && slices.Contains(of, o.Parent) {
			out = append(out, r)
		}
	}
	return out
}

// vsanClusters returns the clusters with a vSAN datastore in the configured datacenters, even without nodes. The
// storage driver creates file shares on those that the account may use.
func (i *inspection) vsanClusters() (out []preflight.Ref) {
	for _, d := range i.found.Datastores {
		if d.Type != "vsan" || !d.Inside {
			continue
		}
		for h := range d.Hosts {
			if c := i.found.Objects[h].Parent; c.Type == "ClusterComputeResource" && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, preflight.Ref.Compare)
	return out
}

// ancestors returns the ancestors of the nodes' VMs, else the configured datacenters, without the root. Hosts have the
// role of their cluster. A datacenter's own folders, such as vm, always have its permissions: vCenters refuse others.
func (i *inspection) ancestors(root preflight.Ref) []preflight.Ref {
	seen := map[preflight.Ref]bool{}
	for n := range i.found.Machines {
		m := &i.found.Machines[n]
		for _, r := range slices.Concat(i.found.Ancestors(m.Host), i.found.Ancestors(m.Folder)) {
			over := i.found.Objects[r].Parent
			seen[r] = over.Type != "Datacenter" && (r.Type != "HostSystem" || !isCompute(over))
		}
	}
	if len(i.found.Machines) == 0 {
		for r := range i.found.Objects {
			if r.Type == "Datacenter" && i.inside(r) {
				seen[r] = true
			}
		}
	}
	delete(seen, root)
	maps.DeleteFunc(seen, func(_ preflight.Ref, is bool) bool { return !is })
	return slices.SortedFunc(maps.Keys(seen), preflight.Ref.Compare)
}

// tags reads which categories exist, and the objects with their tags, as the storage driver does.
func (i *inspection) tags(ctx context.Context) error {
	rc, err := i.automation(ctx)
	if err != nil {
		return err
	}
	m := tags.NewManager(rc)
	all, err := m.GetCategories(ctx)
	if err != nil {
		return err
	}
	known := map[string]preflight.Category{} // by the ids of the tags
	for _, c := range all {
		if !slices.Contains(i.ask.Categories, c.Name) {
			continue
		}
		list, err := m.GetTagsForCategory(ctx, c.ID)
		if err != nil {
			return err
		}
		found := preflight.TagCategory{Single: c.Cardinality == "SINGLE", Types: c.AssociableTypes}
		for n := range list {
			known[list[n].ID] = preflight.Category{Name: c.Name, Tag: list[n].Name}
			found.Tags = append(found.Tags, list[n].Name)
		}
		i.found.Categories[c.Name] = found
	}
	if len(known) == 0 {
		return nil
	}
	attached, err := m.ListAttachedObjectsOnTags(ctx, slices.Sorted(maps.Keys(known)))
	for _, a := range attached {
		for _, o := range a.ObjectIDs {
			r := ref(o.Reference())
			i.found.Tagged[r] = append(i.found.Tagged[r], known[a.TagID])
		}
	}
	return err
}

// removed reads what vSphere 9 removes. It returns nothing if the account may not read it, or for a vCenter 9.
func (i *inspection) removed(ctx context.Context) error {
	if !preflight.Older(i.report.Version, "9.0.0") {
		return nil
	}
	c, err := i.directory(ctx)
	if err != nil {
		return unlessDenied(err)
	}
	sources, err := c.IdentitySources(ctx)
	if err != nil {
		return unlessDenied(i.directoryFault(err))
	}
	rc, err := i.automation(ctx)
	if err != nil {
		return err
	}
	found := &preflight.Removed{}
	if sources.NativeAD != nil {
		for _, x := range sources.NativeAD.Domains {
			found.WindowsDomains = append(found.WindowsDomains, x.Name)
		}
	}
	for r := range i.found.Objects {
		if r.Type != "ClusterComputeResource" || !i.inside(r) {
			continue
		}
		var image clusters.SoftwareManagementInfo
		request := rc.Resource(fmt.Sprintf(clusters.SoftwareEnablementPath, r.Value)).Request(http.MethodGet)
		switch err := rc.Do(ctx, request, &image); {
		case rest.IsStatusError(err, http.StatusForbidden), rest.IsStatusError(err, http.StatusNotFound): // before 7.0
		case err != nil:
			return err
		case !image.Enabled:
			found.Baselines = append(found.Baselines, i.found.Path(r))
		}
	}
	slices.Sort(found.Baselines)
	i.found.Removed = found
	return nil
}

func unlessDenied(err error) error {
	if r := fault.ReasonOf(err); r == fault.Forbidden || r == fault.Refused {
		return nil
	}
	return err
}

// policies reads the names of the storage policies, and the datastores that fit the requested ones.
func (i *inspection) policies(ctx context.Context) error {
	sc := i.serviceOf(pbm.Path, pbm.Namespace)
	begin := pbmtypes.PbmRetrieveServiceContent{This: pbm.ServiceInstance}
	content, err := pbmmethods.PbmRetrieveServiceContent(ctx, sc, &begin)
	if err != nil {
		return err
	}
	c := &pbm.Client{Client: sc, RoundTripper: sc, ServiceContent: content.Returnval}
	kind := pbmtypes.PbmProfileResourceType{ResourceType: string(pbmtypes.PbmProfileResourceTypeEnumSTORAGE)}
	ids, err := c.QueryProfile(ctx, kind, string(pbmtypes.PbmProfileCategoryEnumREQUIREMENT))
	if err != nil || len(ids) == 0 {
		return err
	}
	profiles, err := c.RetrieveContent(ctx, ids)
	if err != nil {
		return err
	}
	hubs := make([]pbmtypes.PbmPlacementHub, len(i.found.Datastores))
	for n, d := range i.found.Datastores {
		hubs[n] = pbmtypes.PbmPlacementHub{HubType: d.Ref.Type, HubId: d.Ref.Value}
	}
	i.found.Fits = map[string][]preflight.Ref{}
	for _, p := range profiles {
		profile := p.GetPbmProfile()
		i.found.Policies = append(i.found.Policies, profile.Name)
		if !slices.Contains(i.ask.Policies, profile.Name) {
			continue
		}
		res, err := c.CheckRequirements(ctx, hubs, nil, []pbmtypes.BasePbmPlacementRequirement{
			&pbmtypes.PbmPlacementCapabilityProfileRequirement{ProfileId: profile.ProfileId}})
		if err != nil {
			return err
		}
		fits := []preflight.Ref{}
		for _, hub := range res.CompatibleDatastores() {
			fits = append(fits, preflight.Ref{Type: hub.HubType, Value: hub.HubId})
		}
		i.found.Fits[profile.Name] = fits
	}
	slices.Sort(i.found.Policies)
	return nil
}

func (i *inspection) storageDRS(ctx context.Context) error {
	var pods []types.ManagedObjectReference
	for r := range i.found.Objects {
		if r.Type == "StoragePod" {
			pods = append(pods, unref(r))
		}
	}
	if len(pods) == 0 {
		return nil
	}
	var list []mo.StoragePod
	err := property.DefaultCollector(i.c).Retrieve(ctx, pods, []string{"podStorageDrsEntry.storageDrsConfig.podConfig"}, &list)
	for n := range list {
		if e := list[n].PodStorageDrsEntry; e != nil {
			o := i.found.Objects[ref(list[n].Self)]
			o.StorageDRS = e.StorageDrsConfig.PodConfig.Enabled
			i.found.Objects[ref(list[n].Self)] = o
		}
	}
	return err
}

// rules reads whether the nodes' clusters move VMs, and which hosts rules bind VMs to.
func (i *inspection) rules(ctx context.Context) error {
	clusters := slices.DeleteFunc(i.entities(privileges.Compute), func(r types.ManagedObjectReference) bool {
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
		o := i.found.Objects[ref(list[n].Self)]
		o.MovesVMs = isOn(c.DrsConfig.Enabled) || isOn(c.DasConfig.Enabled)
		i.found.Objects[ref(list[n].Self)] = o
		i.bind(c)
	}
	return nil
}

func isOn(b *bool) bool { return b != nil && *b }

// bind records the hosts of must-run rules for groups of VMs and hosts. All rules of a VM apply.
func (i *inspection) bind(c *types.ClusterConfigInfoEx) {
	vms, hosts := map[string][]types.ManagedObjectReference{}, map[string][]preflight.Ref{}
	for _, g := range c.Group {
		switch g := g.(type) {
		case *types.ClusterVmGroup:
			vms[g.Name] = g.Vm
		case *types.ClusterHostGroup:
			for _, h := range g.Host {
				hosts[g.Name] = append(hosts[g.Name], ref(h))
			}
		}
	}
	for _, r := range c.Rule {
		rule, ok := r.(*types.ClusterVmHostRuleInfo)
		if !ok || !isOn(rule.Enabled) || !isOn(rule.Mandatory) || rule.AffineHostGroupName == "" {
			continue
		}
		for _, vm := range vms[rule.VmGroupName] {
			on := hosts[rule.AffineHostGroupName]
			if before, ok := i.found.Bound[ref(vm)]; ok {
				isNew := func(h preflight.Ref) bool { return !slices.Contains(before, h) }
				on = slices.DeleteFunc(slices.Clone(on), isNew)
			}
			i.found.Bound[ref(vm)] = on
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
	at := map[types.ManagedObjectReference]*preflight.Machine{}
	var vms []types.ManagedObjectReference
	for n := range i.found.Machines {
		m := &i.found.Machines[n]
		isNode := func(n preflight.Node) bool { return n.ControlPlane && preflight.SameUUID(n.UUID, m.UUID) }
		if m.On && slices.ContainsFunc(i.ask.Nodes, isNode) {
			vms = append(vms, unref(m.Ref))
			at[unref(m.Ref)] = m
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
