package vcenter

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// authorization answers by the API's documentation of AuthorizationManager. The simulator allows everything:
//
//   - A permission of a principal on an entity replaces that principal's earlier one there, and no other
//     (SetEntityPermissions). Some entities always have their parent's, and are refused: see [owner].
//   - The role of a principal's permission on an entity decides its privileges there, else that of the nearest
//     ancestor whose permission propagates (HasUserPrivilegeOnEntities, FetchUserPrivilegeOnEntities).
//   - A new role's id is returned (AddAuthorizationRole): the simulator returns none.
//   - On request, a role that permissions use is not removed; else it is removed with them (RemoveAuthorizationRole).
//   - A change needs the privilege in its documentation, see privilegeOf.
//
// An account without any permission is an administrator, as in the simulator. Accounts created in the vCenter and
// unknown ones are not.
type authorization struct {
	*simulator.AuthorizationManager

	v *VCenter
}

// privilegeOf are the privileges that methods need by the API's documentation: on their object, or for roles on the
// root.
var privilegeOf = map[string]string{
	"AddAuthorizationRole": "Authorization.ModifyRoles", "UpdateAuthorizationRole": "Authorization.ModifyRoles", "RemoveAuthorizationRole": "Authorization.ModifyRoles",
	"SetEntityPermissions": "Authorization.ModifyPermissions", "RemoveEntityPermission": "Authorization.ModifyPermissions",
	"ReconfigVM_Task": "VirtualMachine.Config.Settings", "UpgradeVM_Task": "VirtualMachine.Config.UpgradeVirtualHardware",
	"PowerOnVM_Task": "VirtualMachine.Interact.PowerOn", "PowerOffVM_Task": "VirtualMachine.Interact.PowerOff", "ShutdownGuest": "VirtualMachine.Interact.PowerOff",
}

// lacks returns the fault if the session lacks the method's privilege.
func (v *VCenter) lacks(ctx *simulator.Context, m *simulator.Method) types.BaseMethodFault {
	privilege := privilegeOf[m.Name]
	if privilege == "" || ctx.Session == nil {
		return nil
	}
	entity := v.content().RootFolder
	switch req := m.Body.(type) {
	case *types.SetEntityPermissions:
		entity = req.Entity
	case *types.RemoveEntityPermission:
		entity = req.Entity
	default:
		if m.This.Type == "VirtualMachine" {
			entity = m.This
		}
	}
	a, ok := v.model.Map().Get(*v.content().AuthorizationManager).(*authorization)
	if !ok || slices.Contains(a.effective(ctx, ctx.Session.UserName, entity), privilege) {
		return nil
	}
	return &types.NoPermission{Object: &entity, PrivilegeId: privilege}
}

// withoutRole reports whether an account was created in the vCenter and has no permission.
func (v *VCenter) withoutRole(user string) bool {
	v.mu.Lock()
	made := v.plain[plainUser(user)]
	v.mu.Unlock()
	if !made {
		return false
	}
	a, ok := v.model.Map().Get(*v.content().AuthorizationManager).(*authorization)
	return ok && !slices.ContainsFunc(a.permissions(), func(p types.Permission) bool { return plainUser(p.Principal) == plainUser(user) })
}

func (a *authorization) RemoveAuthorizationRole(req *types.RemoveAuthorizationRole) soap.HasFault {
	for _, p := range a.permissions() {
		if p.RoleId != req.RoleId {
			continue
		}
		if req.FailIfUsed {
			return &methods.RemoveAuthorizationRoleBody{Fault_: simulator.Fault("", new(types.RemoveFailed))}
		}
		a.RemoveEntityPermission(&types.RemoveEntityPermission{Entity: *p.Entity, User: p.Principal, IsGroup: p.Group})
	}
	return a.AuthorizationManager.RemoveAuthorizationRole(req)
}

// RemoveEntityPermission removes the permission of an account in either form of its name.
func (a *authorization) RemoveEntityPermission(req *types.RemoveEntityPermission) soap.HasFault {
	for _, p := range a.permissions() {
		if p.Entity != nil && *p.Entity == req.Entity && p.Group == req.IsGroup && plainUser(p.Principal) == plainUser(req.User) {
			exact := *req
			exact.User = p.Principal
			return a.AuthorizationManager.RemoveEntityPermission(&exact)
		}
	}
	return &methods.RemoveEntityPermissionBody{Fault_: simulator.Fault("", new(types.NotFound))}
}

// plainUser returns an account as name@domain, in lower case.
func plainUser(name string) string {
	if domain, user, ok := strings.Cut(name, `\`); ok {
		name = user + "@" + domain
	}
	return strings.ToLower(name)
}

// owner returns the entity whose permissions another one has. A datacenter's direct child folders, root resource pools
// and standalone hosts always have their parent's.
func owner(ctx *simulator.Context, of types.ManagedObjectReference) types.ManagedObjectReference {
	if e, ok := ctx.Map.Get(of).(mo.Entity); ok && e.Entity().Parent != nil {
		over := *e.Entity().Parent
		switch over.Type + "/" + of.Type {
		case "Datacenter/Folder", "ComputeResource/HostSystem", "ComputeResource/ResourcePool",
			"ClusterComputeResource/ResourcePool":
			return over
		}
	}
	return of
}

func (a *authorization) SetEntityPermissions(ctx *simulator.Context, req *types.SetEntityPermissions) soap.HasFault {
	if owner(ctx, req.Entity) != req.Entity {
		invalid := &types.InvalidArgument{InvalidProperty: "entity"}
		return &methods.SetEntityPermissionsBody{Fault_: simulator.Fault("", invalid)}
	}
	all := *req
	all.Permission = slices.Clone(req.Permission)
	for _, p := range a.permissions() {
		same := func(q types.Permission) bool {
			return plainUser(q.Principal) == plainUser(p.Principal) && q.Group == p.Group
		}
		if p.Entity != nil && *p.Entity == req.Entity && !slices.ContainsFunc(req.Permission, same) {
			all.Permission = append(all.Permission, p)
		}
	}
	for i := range all.Permission {
		all.Permission[i].Entity = &all.Entity
	}
	return a.AuthorizationManager.SetEntityPermissions(&all)
}

func (a *authorization) AddAuthorizationRole(req *types.AddAuthorizationRole) soap.HasFault {
	body := a.AuthorizationManager.AddAuthorizationRole(req).(*methods.AddAuthorizationRoleBody)
	if r := object.AuthorizationRoleList(a.RoleList).ByName(req.Name); body.Res != nil && r != nil {
		body.Res.Returnval = r.RoleId
	}
	return body
}

func (a *authorization) permissions() []types.Permission {
	body := a.RetrieveAllPermissions(&types.RetrieveAllPermissions{This: a.Self}).(*methods.RetrieveAllPermissionsBody)
	return body.Res.Returnval
}

// effective returns the privileges of a user on an entity.
func (a *authorization) effective(ctx *simulator.Context, user string, entity types.ManagedObjectReference) []string {
	mine := map[types.ManagedObjectReference]types.Permission{}
	for _, p := range a.permissions() {
		if !p.Group && p.Entity != nil && plainUser(p.Principal) == plainUser(user) {
			mine[*p.Entity] = p
		}
	}
	roles := object.AuthorizationRoleList(a.RoleList)
	if len(mine) == 0 {
		a.v.mu.Lock()
		defer a.v.mu.Unlock()
		if _, known := a.v.passwords[plainUser(user)]; a.v.plain[plainUser(user)] || !known && !strings.EqualFold(user, ctx.Session.UserName) {
			return nil
		}
		return roles.ByName("Admin").Privilege
	}
	entity = owner(ctx, entity)
	at := &entity
	for at != nil {
		if p, ok := mine[*at]; ok && (p.Propagate || *at == entity) {
			return roles.ById(p.RoleId).Privilege
		}
		e, ok := ctx.Map.Get(*at).(mo.Entity)
		if !ok {
			break
		}
		at = e.Entity().Parent
	}
	return nil
}

func (a *authorization) available(ctx *simulator.Context, user string, entities []types.ManagedObjectReference, ids []string) []types.EntityPrivilege {
	out := make([]types.EntityPrivilege, 0, len(entities))
	for _, e := range entities {
		has := a.effective(ctx, user, e)
		p := types.EntityPrivilege{Entity: e}
		for _, id := range ids {
			p.PrivAvailability = append(p.PrivAvailability, types.PrivilegeAvailability{PrivId: id, IsGranted: slices.Contains(has, id)})
		}
		out = append(out, p)
	}
	return out
}

func (a *authorization) HasUserPrivilegeOnEntities(ctx *simulator.Context, req *types.HasUserPrivilegeOnEntities) soap.HasFault {
	return &methods.HasUserPrivilegeOnEntitiesBody{Res: &types.HasUserPrivilegeOnEntitiesResponse{
		Returnval: a.available(ctx, req.UserName, req.Entities, req.PrivId)}}
}

func (a *authorization) FetchUserPrivilegeOnEntities(ctx *simulator.Context, req *types.FetchUserPrivilegeOnEntities) soap.HasFault {
	res := &types.FetchUserPrivilegeOnEntitiesResponse{}
	for _, e := range req.Entities {
		res.Returnval = append(res.Returnval, types.UserPrivilegeResult{Entity: e, Privileges: a.effective(ctx, req.UserName, e)})
	}
	return &methods.FetchUserPrivilegeOnEntitiesBody{Res: res}
}

// Grant gives an account a role on an object, named by its inventory path. The role has these privileges and those of
// every role, and is created if missing.
func (v *VCenter) Grant(ctx context.Context, username, role, path string, propagate bool, privileges ...string) error {
	m := object.NewAuthorizationManager(v.client())
	list, err := m.RoleList(ctx)
	if err != nil {
		return err
	}
	r := list.ByName(role)
	if r == nil {
		id, err := m.AddRole(ctx, role, privileges)
		if err != nil {
			return err
		}
		r = &types.AuthorizationRole{RoleId: id}
	}
	ref, err := v.find(ctx, path)
	if err != nil {
		return err
	}
	return m.SetEntityPermissions(ctx, ref, []types.Permission{{Principal: username, RoleId: r.RoleId, Propagate: propagate}})
}
