package vcenter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

const (
	// pageSize is the number of objects a request, of which few properties are read.
	pageSize = 1000
	// machinesPage is the number of VMs a request, with devices and addresses. Each has about ten kB on the wire and
	// several times as much in memory, of which a line is kept.
	machinesPage = 200
)

const inspectTimeout = 5 * time.Minute

// Ask is what an inspection has to read.
type Ask struct {
	Nodes      []preflight.Node
	Paths      []string // of VMs that are no nodes, and of their folders
	Categories []string // tag categories
	Policies   []string // storage policies that StorageClasses name
	Features   privileges.Features
	Access     bool   // reads the permissions of Principal
	Principal  string // "" for the account that logs in
	// Upgrade reads what vSphere 9 removes, for which the account has to be an administrator.
	Upgrade bool
}

// Inspect reads the facts for the checks from a vCenter, in one session. Failures are in the result: of all in Err, of
// a part in Failed.
func Inspect(ctx context.Context, t Target, a Ask) preflight.VCenter {
	i := newInspection(t, a, inspectTimeout)
	i.found.Err = i.run(ctx)
	return i.found
}

type inspection struct {
	*Admin

	ask   Ask
	found preflight.VCenter
}

func newInspection(t Target, a Ask, timeout time.Duration) *inspection {
	return &inspection{Admin: t.session(timeout), ask: a, found: preflight.VCenter{
		Server: t.Server(), Account: preflight.Account{Username: t.Username, Given: t.Given, Ends: t.Ends},
		Insecure: t.Trust.Insecure && t.Trust.Thumbprint == "", Failed: map[preflight.Part]error{},
		Contents: preflight.Contents{Objects: map[preflight.Ref]preflight.Object{},
			Categories: map[string]preflight.TagCategory{}, Tagged: map[preflight.Ref][]preflight.Category{}},
	}}
}

// run reads all parts. It recovers from the library's panics at unexpected answers, which would end the operator after
// each start.
func (i *inspection) run(ctx context.Context) (err error) {
	defer func() {
		if recover() != nil {
			err = fault.Errorf(fault.Incompatible, "inspect", i.target.Address(),
				"see that a vCenter is behind this address, and nothing in between that changes its answers",
				"it gave an answer that cannot be understood")
		}
	}()
	defer i.Close()
	err = i.enter(ctx)
	i.found.ID, i.found.Version, i.found.CertificateExpires = i.report.InstanceUUID, i.report.Version, i.report.Expires
	if err != nil {
		return err
	}
	return i.spend(ctx, i.read)
}

// read reads part after part. The others need the inventory first.
func (i *inspection) read(ctx context.Context) error {
	if err := i.look(ctx, objectKinds); err != nil {
		return err
	}
	if err := i.machines(ctx); err != nil {
		return i.target.classify("read the virtual machines of", err, i.nameOf)
	}
	i.parts(ctx)
	if !i.ask.Access {
		return nil
	}
	return i.access(ctx)
}

// look reads the inventory, and checks the datacenters in it. A path may omit its leading slash.
func (i *inspection) look(ctx context.Context, kinds map[string][]string) error {
	if err := i.inventory(ctx, kinds); err != nil {
		return i.target.classify("read the inventory of", err, i.nameOf)
	}
	seen := i.datacenterPaths()
	i.report.Datacenters = seen
	for _, name := range i.target.Datacenters {
		if !slices.Contains(seen, "/"+strings.Trim(name, "/")) && !slices.Contains(i.report.Missing, name) {
			i.report.Missing = append(i.report.Missing, name)
		}
	}
	switch address := i.target.Address(); {
	case len(i.report.Missing) > 0:
		return fault.Errorf(fault.NotFound, "find datacenters in", address,
			"correct spec.datacenters, with the folders that they are in, or give the account the role ReadOnly on the datacenter and its folders",
			"%q not there or not readable; the account sees %s", i.report.Missing, cmp.Or(strings.Join(seen, ", "), "none"))
	case len(seen) == 0:
		return fault.Errorf(fault.Forbidden, "list the datacenters of", address,
			"give "+i.target.Username+" the role ReadOnly on the vCenter's root, or on its datacenters", "the account sees no datacenter")
	}
	return nil
}

// parts reads the parts that can fail on their own.
func (i *inspection) parts(ctx context.Context) {
	for _, p := range []struct {
		of     preflight.Part
		wanted bool
		read   func(context.Context) error
	}{
		{preflight.Tasks, true, i.tasks},
		{preflight.Privileges, true, i.privileges},
		{preflight.Excess, i.ask.Features != privileges.Features{}, i.excess},
		{preflight.Policies, i.ask.Features.Block, i.policies},
		{preflight.CNS, i.ask.Features.Block, i.cns},
		{preflight.Tags, len(i.ask.Categories) > 0, i.tags},
		{preflight.Upgrade, i.ask.Upgrade, i.removed},
		{preflight.StorageDRS, i.ask.Features.Block, i.storageDRS},
		{preflight.Rules, i.ask.Features.Topology, i.rules},
		{preflight.Latency, true, i.latency},
	} {
		if !p.wanted {
			continue
		}
		if err := p.read(ctx); err != nil {
			i.found.Failed[p.of] = i.target.classify("read "+string(p.of)+" of", err, i.nameOf)
		}
	}
}

// objectKinds are the kinds of the inventory, and the properties read of each. None is a subtype of another.
var objectKinds = map[string][]string{
	"Folder":          {"name", "parent"},
	"Datacenter":      {"name", "parent"},
	"ComputeResource": {"name", "parent"},
	"ResourcePool":    {"name", "parent"},
	"HostSystem":      {"name", "parent", "datastore", "summary.config.product.version", "runtime.inMaintenanceMode"},
	"Datastore":       {"name", "parent", "summary.url", "summary.type", "summary.accessible", "summary.maintenanceMode"},
}

var treeKinds = map[string][]string{"Folder": objectKinds["Folder"], "Datacenter": objectKinds["Datacenter"]}

func (i *inspection) inventory(ctx context.Context, kinds map[string][]string) error {
	mounts := map[preflight.Ref]map[preflight.Ref]bool{} // of datastores, by hosts
	i.found.Objects[ref(i.c.ServiceContent.RootFolder)] = preflight.Object{}
	all, err := i.view(ctx, kinds)
	if err != nil {
		return err
	}
	for n := range all {
		if err := i.object(all[n], mounts); err != nil {
			return err
		}
	}
	for n := range i.found.Datastores {
		d := &i.found.Datastores[n]
		d.Hosts, d.Inside = mounts[d.Ref], i.inside(d.Ref)
	}
	slices.SortFunc(i.found.Datastores, func(a, b preflight.Datastore) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func (i *inspection) object(content types.ObjectContent, mounts map[preflight.Ref]map[preflight.Ref]bool) error {
	self, list := ref(content.Obj), []types.ObjectContent{content}
	var e mo.ManagedEntity
	if err := mo.LoadObjectContent(list, &e); err != nil {
		return err
	}
	// The drivers find a name with /, \ or % only as the vCenter escapes it.
	o := preflight.Object{Name: e.Name, Parent: parent(e.Parent)}
	switch content.Obj.Type {
	case "Datastore":
		var d mo.Datastore
		if err := mo.LoadObjectContent(list, &d); err != nil {
			return err
		}
		i.found.Datastores = append(i.found.Datastores, preflight.Datastore{
			Ref: self, Name: d.Name, URL: d.Summary.Url, Type: d.Summary.Type,
			Accessible: d.Summary.Accessible && (d.Summary.MaintenanceMode == "" || d.Summary.MaintenanceMode == "normal")})
	case "HostSystem":
		var h mo.HostSystem
		if err := mo.LoadObjectContent(list, &h); err != nil {
			return err
		}
		o.Maintenance = h.Runtime.InMaintenanceMode
		if p := h.Summary.Config.Product; p != nil {
			o.Version = p.Version
		}
		for _, d := range h.Datastore {
			if mounts[ref(d)] == nil {
				mounts[ref(d)] = map[preflight.Ref]bool{}
			}
			mounts[ref(d)][self] = true
		}
	}
	i.found.Objects[self] = o
	return nil
}

func ref(r types.ManagedObjectReference) preflight.Ref {
	return preflight.Ref{Type: r.Type, Value: r.Value}
}

func parent(r *types.ManagedObjectReference) preflight.Ref {
	if r == nil {
		return preflight.Ref{}
	}
	return ref(*r)
}

func unref(r preflight.Ref) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: r.Type, Value: r.Value}
}

// datacenterPaths returns the datacenters whose folders the account can read up to the root.
func (i *inspection) datacenterPaths() []string {
	root := ref(i.c.ServiceContent.RootFolder)
	out := []string{}
	for r := range i.found.Objects {
		if r.Type != "Datacenter" {
			continue
		}
		if chain := i.found.Ancestors(r); chain[len(chain)-1] == root {
			out = append(out, i.found.Path(r))
		}
	}
	slices.Sort(out)
	return out
}

// view reads all objects of some kinds, page by page.
func (i *inspection) view(ctx context.Context, kinds map[string][]string) ([]types.ObjectContent, error) {
	names := slices.Sorted(maps.Keys(kinds))
	v, err := view.NewManager(i.c).CreateContainerView(ctx, i.c.ServiceContent.RootFolder, names, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = v.Destroy(ctx) // it ends with the session in any case
	}()
	spec := types.PropertyFilterSpec{ObjectSet: []types.ObjectSpec{{
		Obj: v.Reference(), Skip: types.NewBool(true), SelectSet: []types.BaseSelectionSpec{v.TraversalSpec()}}}}
	for _, k := range names {
		spec.PropSet = append(spec.PropSet, types.PropertySpec{Type: k, PathSet: kinds[k]})
	}
	request := types.RetrieveProperties{SpecSet: []types.PropertyFilterSpec{spec}}
	res, err := property.DefaultCollector(i.c).RetrieveProperties(ctx, request, pageSize)
	if err != nil {
		return nil, err
	}
	return res.Returnval, nil
}
