package vcenter

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// maxEffective bounds the objects on which all privileges of an account are read: an administrator has about five
// hundred on each.
const maxEffective = 200

// access reads the roles, and the permissions and privileges of the principal.
func (i *inspection) access(ctx context.Context) error {
	a := &i.found.Access
	isNode := map[string]bool{} // by UUID, in both forms
	for n := range i.ask.Nodes {
		uuid := i.ask.Nodes[n].UUID
		isNode[strings.ToLower(uuid)], isNode[preflight.Swapped(uuid)] = true, true
	}
	delete(isNode, "")
	i.found.Machines = slices.DeleteFunc(i.found.Machines, func(m preflight.Machine) bool { // of a node's name only
		return !i.asked(&m) && !isNode[m.UUID]
	})
	a.Features, a.Principal = i.ask.Features, i.Canonical(ctx, cmp.Or(i.ask.Principal, i.User))
	own := i.same(a.Principal, i.User)
	for _, k := range []privileges.Kind{
		privileges.Root, privileges.Ancestor, privileges.Compute, privileges.Cluster, privileges.VM, privileges.Datastore,
	} {
		for _, r := range i.entities(k) {
			if k == privileges.Datastore && !i.holdsVolumes(ref(r)) {
				continue
			}
			a.Objects = append(a.Objects, privileges.Object{Kind: k, Path: i.nameOf(ref(r)), ID: r.Type + "-" + r.Value})
		}
	}
	if err := i.existing(ctx, a); err != nil {
		return err
	}
	err := i.fetch(ctx, a.Principal, func(_ privileges.Kind, on string, has []string) {
		a.Existing.Effective[on] = slices.Sorted(slices.Values(has))
	})
	if err != nil && (own || !soap.IsSoapFault(err)) {
		return i.target.classify("read the account's privileges in", err, i.nameOf)
	}
	return nil
}

// holdsVolumes reports whether a datastore may be for volumes. At least two of the nodes' hosts mount it, or the only
// one of a cluster, since a zone may be one host. Without known nodes, it has to be in a configured datacenter.
func (i *inspection) holdsVolumes(r preflight.Ref) bool {
	at := slices.IndexFunc(i.found.Datastores, func(d preflight.Datastore) bool { return d.Ref == r })
	hosts, perCluster := map[preflight.Ref]bool{}, map[preflight.Ref]int{}
	for n := range i.found.Machines {
		if host := i.found.Machines[n].Host; !hosts[host] {
			hosts[host] = true
			perCluster[i.found.Objects[host].Parent]++
		}
	}
	mounting, alone := 0, false
	for host := range hosts {
		if at >= 0 && i.found.Datastores[at].Hosts[host] {
			mounting++
			alone = alone || perCluster[i.found.Objects[host].Parent] == 1
		}
	}
	return len(hosts) == 0 && i.inside(r) || mounting > 1 || alone
}

func (i *inspection) existing(ctx context.Context, a *preflight.Access) error {
	roles, err := i.Roles(ctx)
	if err != nil {
		return err
	}
	permissions, err := i.Permissions(ctx, a.Principal)
	a.Existing = privileges.Existing{
		Roles: map[string][]string{}, Permissions: map[string]privileges.Permission{}, IDs: map[string]string{},
		Effective: map[string][]string{}}
	for name, r := range roles {
		a.Existing.Roles[name] = r.Privileges
	}
	for id, p := range permissions {
		kind, value, _ := strings.Cut(id, "-")
		path := i.nameOf(preflight.Ref{Type: kind, Value: value})
		a.Existing.Permissions[path], a.Existing.IDs[path] = p, id
	}
	return err
}

// excess finds privileges of the account that the drivers do not need. It reports those on the root only there.
func (i *inspection) excess(ctx context.Context) error {
	var root []string
	return i.fetch(ctx, i.User, func(k privileges.Kind, on string, has []string) {
		more := slices.DeleteFunc(privileges.Beyond(i.ask.Features, has), func(p string) bool { return slices.Contains(root, p) })
		if k == privileges.Root {
			root = more
		}
		if len(more) > 0 {
			i.found.Excess = append(i.found.Excess, preflight.Lack{Object: on, Kind: k, Privileges: more})
		}
	})
}

// fetch reads all privileges of an account on the first maxEffective objects that it needs some on, in one call. The
// root comes first.
func (i *inspection) fetch(ctx context.Context, account string, each func(k privileges.Kind, on string, has []string)) error {
	kinds := map[types.ManagedObjectReference]privileges.Kind{}
	var refs []types.ManagedObjectReference
	for _, k := range []privileges.Kind{privileges.Root, privileges.Ancestor, privileges.Datastore, privileges.VM} {
		for _, r := range i.entities(k) {
			if kinds[r] == "" && len(refs) < maxEffective {
				kinds[r] = k
				refs = append(refs, r)
			}
		}
	}
	list, err := i.authorization().FetchUserPrivilegeOnEntities(ctx, refs, account)
	if err != nil {
		return err
	}
	isRoot := func(r types.UserPrivilegeResult) bool { return r.Entity == i.c.ServiceContent.RootFolder }
	if at := slices.IndexFunc(list, isRoot); at > 0 {
		list[0], list[at] = list[at], list[0]
	}
	for _, r := range list {
		each(kinds[r.Entity], i.nameOf(ref(r.Entity)), r.Privileges)
	}
	return nil
}
