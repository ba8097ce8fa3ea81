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

// maxEffective bounds on how many objects all privileges of an account are read: an
// administrator has some five hundred on each.
const maxEffective = 200

// Access is what an account may do in a vCenter, and what it needs to be allowed.
type Access struct {
	Principal string // the account as DOMAIN\name
	Objects   []privileges.Object
	// Existing has effective privileges on the root, on what the nodes' VMs are in, and on datastores; of
	// the first 200 objects. Of another account than logs in they are empty where the vCenter does not
	// say: it may not be there yet.
	Existing privileges.Existing
}

// InspectAccess inspects, and reads in the same session the roles, and the permissions and
// privileges of a principal (default: of the account that logs in).
func InspectAccess(ctx context.Context, t Target, a Ask, principal string) (preflight.VCenter, Access) {
	access := Access{Principal: principal}
	found := inspect(ctx, t, a, func(ctx context.Context, i *inspection) error { return i.access(ctx, &access) })
	return found, access
}

func (i *inspection) access(ctx context.Context, a *Access) error {
	a.Principal = i.Canonical(ctx, cmp.Or(a.Principal, i.User))
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
		return i.target.classify("read the account's privileges in", err)
	}
	return nil
}

// holdsVolumes says whether a datastore may be one for volumes: more than one of the hosts
// that nodes run on mount it, or the only one of a cluster does, since a zone may be one
// host. While no node is known, whether it is in a configured datacenter.
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

func (i *inspection) existing(ctx context.Context, a *Access) error {
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

// excess finds what the account may do beyond what the drivers need. What it may do on the
// root is not named again on what is below.
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

// fetch reads all privileges of an account on the first objects of each kind that it needs
// some on: maxEffective in all, in one call. The root comes first.
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
