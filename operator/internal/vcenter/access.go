package vcenter

import (
	"context"
	"maps"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
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
	Existing  privileges.Existing
	// Effective are the privileges of the principal on the root, on what the nodes' VMs are
	// in, and on datastores, by path; of the first 200 objects. Of another one than logs in
	// they are empty where the vCenter does not say: it may not be there yet.
	Effective map[string][]string
}

// InspectAccess inspects, and reads in the same session the roles, and the permissions and
// privileges of a principal (default: of the account that logs in).
func InspectAccess(ctx context.Context, t Target, a Ask, principal string) (preflight.VCenter, Access) {
	access := Access{Principal: principal}
	found := inspect(ctx, t, a, func(ctx context.Context, i *inspection) error { return i.access(ctx, &access) })
	return found, access
}

func (i *inspection) access(ctx context.Context, a *Access) error {
	own := a.Principal == "" || privileges.SameUser(a.Principal, i.report.User)
	if a.Principal == "" {
		a.Principal = i.report.User
	}
	a.Principal = privileges.DomainUser(a.Principal)
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
		return i.classify("read the roles and permissions of", err)
	}
	if err := i.effective(ctx, a); err != nil && (own || !soap.IsSoapFault(err)) {
		return i.classify("read the account's privileges in", err)
	}
	a.Existing.Effective = a.Effective
	return nil
}

// holdsVolumes says whether a datastore may be one for volumes: more than one of the hosts
// that nodes run on mount it, or the only one of a cluster does, since a zone may be one
// host. While no node is known, whether it is in a configured datacenter.
func (i *inspection) holdsVolumes(r preflight.Ref) bool {
	at := slices.IndexFunc(i.found.Datastores, func(d preflight.Datastore) bool { return d.Ref == r })
	hosts, mounting := map[preflight.Ref]map[preflight.Ref]bool{}, map[preflight.Ref]preflight.Ref{} // by cluster; clusters, by host
	for n := range i.found.Machines {
		host := i.found.Machines[n].Host
		cluster := i.found.Objects[host].Parent
		if hosts[cluster] == nil {
			hosts[cluster] = map[preflight.Ref]bool{}
		}
		hosts[cluster][host] = true
		if at >= 0 && i.found.Datastores[at].Hosts[host] {
			mounting[host] = cluster
		}
	}
	alone := slices.ContainsFunc(slices.Collect(maps.Values(mounting)), func(cluster preflight.Ref) bool { return len(hosts[cluster]) == 1 })
	return len(hosts) == 0 && i.inside(r) || len(mounting) > 1 || alone
}

func (i *inspection) existing(ctx context.Context, a *Access) error {
	m := object.NewAuthorizationManager(i.c)
	roles, err := m.RoleList(ctx)
	if err != nil {
		return err
	}
	permissions, err := m.RetrieveAllPermissions(ctx)
	if err != nil {
		return err
	}
	a.Existing = privileges.Existing{Roles: map[string][]string{}, Permissions: map[string]privileges.Permission{}}
	for _, r := range roles {
		a.Existing.Roles[r.Name] = r.Privilege
	}
	for _, p := range permissions {
		if p.Group || p.Entity == nil || !privileges.SameUser(p.Principal, a.Principal) {
			continue
		}
		name := ""
		if r := roles.ById(p.RoleId); r != nil {
			name = r.Name
		}
		a.Existing.Permissions[i.nameOf(ref(*p.Entity))] = privileges.Permission{Role: name, Propagate: p.Propagate}
	}
	return nil
}

// effective reads all privileges of the account on the objects that it needs some on.
func (i *inspection) effective(ctx context.Context, a *Access) error {
	a.Effective = map[string][]string{}
	return i.fetch(ctx, a.Principal, func(_ privileges.Kind, on string, has []string) {
		a.Effective[on] = slices.Sorted(slices.Values(has))
	})
}

// excess finds what the account may do beyond what the drivers need. What it may do on the
// root is not named again on what is below.
func (i *inspection) excess(ctx context.Context) error {
	var root []string
	return i.fetch(ctx, i.report.User, func(k privileges.Kind, on string, has []string) {
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
	res, err := methods.FetchUserPrivilegeOnEntities(ctx, i.c, &types.FetchUserPrivilegeOnEntities{
		This: *i.c.ServiceContent.AuthorizationManager, Entities: refs, UserName: account})
	if err != nil {
		return err
	}
	root := i.c.ServiceContent.RootFolder
	slices.SortStableFunc(res.Returnval, func(a, b types.UserPrivilegeResult) int { return first(a.Entity == root) - first(b.Entity == root) })
	for _, r := range res.Returnval {
		each(kinds[r.Entity], i.nameOf(ref(r.Entity)), r.Privileges)
	}
	return nil
}

// first orders what is one thing before what is not.
func first(is bool) int {
	if is {
		return 0
	}
	return 1
}
