package vcenter

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
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
	// Effective are the privileges of the account on the root, on what the nodes' VMs are
	// in, and on datastores, by path; of the first 200 objects.
	Effective map[string][]string
}

// InspectAccess inspects, and reads in the same session the roles, the permissions of a
// principal (default: of the account that logs in) and, for the latter, its privileges.
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
	for _, k := range []privileges.Kind{privileges.Root, privileges.Ancestor, privileges.Cluster, privileges.VM, privileges.Datastore} {
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
	if !own {
		return nil
	}
	if err := i.effective(ctx, a); err != nil {
		return i.classify("read the account's privileges in", err)
	}
	return nil
}

// holdsVolumes says whether a datastore may be one for volumes: more than one of the hosts
// that nodes run on mount it, or the only one there is. While no node is known, whether it
// is in a configured datacenter.
func (i *inspection) holdsVolumes(r preflight.Ref) bool {
	hosts := map[preflight.Ref]bool{}
	for n := range i.found.Machines {
		hosts[i.found.Machines[n].Host] = true
	}
	if len(hosts) == 0 {
		return i.inside(r)
	}
	mounted := 0
	for n := range i.found.Datastores {
		if d := &i.found.Datastores[n]; d.Ref == r {
			for h := range hosts {
				if d.Hosts[h] {
					mounted++
				}
			}
		}
	}
	return mounted > 1 || mounted == 1 && len(hosts) == 1
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

func (i *inspection) effective(ctx context.Context, a *Access) error {
	var refs []types.ManagedObjectReference
	for _, k := range []privileges.Kind{privileges.Root, privileges.Ancestor, privileges.Datastore, privileges.VM} {
		refs = append(refs, i.entities(k)...)
	}
	refs = refs[:min(len(refs), maxEffective)]
	res, err := methods.FetchUserPrivilegeOnEntities(ctx, i.c, &types.FetchUserPrivilegeOnEntities{
		This: *i.c.ServiceContent.AuthorizationManager, Entities: refs, UserName: i.report.User})
	if err != nil {
		return err
	}
	a.Effective = map[string][]string{}
	for _, r := range res.Returnval {
		a.Effective[i.nameOf(ref(r.Entity))] = slices.Sorted(slices.Values(r.Privileges))
	}
	return nil
}
