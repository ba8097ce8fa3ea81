package vcenter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// fault returns an error of the vCenter as a fault. If a privilege is missing, the hint is about the administrator's
// login.
func (a *Admin) fault(op string, err error) error { return a.faultOf(op, err, nil) }

// faultOn returns an error about one object as [Admin.fault] does, with paths for ids. op has %s for the object.
func (a *Admin) faultOn(ctx context.Context, op, id string, err error) error {
	if err == nil {
		return nil
	}
	name := func(r preflight.Ref) string { return a.PathOf(ctx, r.Type+"-"+r.Value) }
	return a.faultOf(strings.Replace(op, "%s", a.PathOf(ctx, id), 1), err, name)
}

func (a *Admin) faultOf(op string, err error, name namer) error {
	if err == nil {
		return nil
	}
	err = a.target.classify(op, err, name)
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Reason == fault.Forbidden {
		f.Hint = "log in as who may change this: --username administrator@vsphere.local, or run the script of `vdoctl users plan -o govc` there"
	}
	return err
}

// Role is a role of a vCenter.
type Role struct {
	ID         int32
	Name       string
	Privileges []string
}

func (a *Admin) authorization() *object.AuthorizationManager {
	return object.NewAuthorizationManager(a.c)
}

// Roles returns all roles by name.
func (a *Admin) Roles(ctx context.Context) (map[string]Role, error) {
	list, err := a.authorization().RoleList(ctx)
	if err != nil {
		return nil, a.fault("read the roles of", err)
	}
	roles := map[string]Role{}
	for _, r := range list {
		roles[r.Name] = Role{ID: r.RoleId, Name: r.Name, Privileges: r.Privilege}
	}
	return roles, nil
}

// MakeRole creates a role. One that exists is no error: a linked vCenter may have created it meanwhile.
func (a *Admin) MakeRole(ctx context.Context, name string, list []string) error {
	_, err := a.authorization().AddRole(ctx, name, list)
	if is[*types.AlreadyExists](err) {
		return nil
	}
	return a.fault("make the role "+name+" in", err)
}

// ChangeRole replaces a role's privileges.
func (a *Admin) ChangeRole(ctx context.Context, r Role, list []string) error {
	return a.fault("change the role "+r.Name+" in", a.authorization().UpdateRole(ctx, r.ID, r.Name, list))
}

// RemoveRole removes a role, unless a permission uses it.
func (a *Admin) RemoveRole(ctx context.Context, r Role) (used bool, err error) {
	err = a.authorization().RemoveRole(ctx, r.ID, true)
	if is[*types.RemoveFailed](err) {
		return true, nil
	}
	return false, a.fault("remove the role "+r.Name+" from", err)
}

// Permissions returns an account's permissions by object: Type-Value.
func (a *Admin) Permissions(ctx context.Context, principal string) (map[string]privileges.Permission, error) {
	roles, err := a.Roles(ctx)
	if err != nil {
		return nil, err
	}
	names := map[int32]string{}
	for name, r := range roles {
		names[r.ID] = name
	}
	all, err := a.authorization().RetrieveAllPermissions(ctx)
	if err != nil {
		return nil, a.fault("read the permissions of", err)
	}
	principal = a.Canonical(ctx, principal)
	out := map[string]privileges.Permission{}
	for _, p := range all {
		if p.Group || p.Entity == nil || !a.same(p.Principal, principal) {
			continue
		}
		out[p.Entity.Type+"-"+p.Entity.Value] = privileges.Permission{Role: names[p.RoleId], Propagate: p.Propagate}
	}
	return out, nil
}

func refOf(id string) (types.ManagedObjectReference, error) {
	kind, value, ok := strings.Cut(id, "-")
	if !ok {
		return types.ManagedObjectReference{}, fmt.Errorf("%q is not the id of an object", id)
	}
	return types.ManagedObjectReference{Type: kind, Value: value}, nil
}

// SetPermission gives an account a role on an object, replacing its earlier one there. Other accounts' permissions do
// not change.
func (a *Admin) SetPermission(ctx context.Context, id, principal string, r Role, propagate bool) error {
	ref, err := refOf(id)
	if err == nil {
		p := types.Permission{Entity: &ref, Principal: a.Canonical(ctx, principal), RoleId: r.ID, Propagate: propagate}
		err = a.authorization().SetEntityPermissions(ctx, ref, []types.Permission{p})
	}
	return a.faultOn(ctx, "set a permission on %s of", id, err)
}

// RemovePermission removes an account's permission on an object. A missing permission or object is no error.
func (a *Admin) RemovePermission(ctx context.Context, id, principal string) error {
	ref, err := refOf(id)
	if err == nil {
		err = a.authorization().RemoveEntityPermission(ctx, ref, a.Canonical(ctx, principal), false)
	}
	if is[*types.NotFound](err) || is[*types.ManagedObjectNotFound](err) {
		return nil
	}
	return a.faultOn(ctx, "remove a permission on %s of", id, err)
}

// PathOf returns the inventory path of an object by its id, Type-Value; the id if it has none.
func (a *Admin) PathOf(ctx context.Context, id string) string {
	ref, err := refOf(id)
	if err != nil {
		return id
	}
	path, err := find.InventoryPath(ctx, a.c, ref)
	if err != nil {
		return id
	}
	return path
}

// Session is an open session in a vCenter.
type Session struct {
	Agent   string        // the program, as it names itself
	Address string        // the client's address, as the vCenter sees it
	Idle    time.Duration // by the vCenter's clock
}

// Sessions returns an account's sessions.
func (a *Admin) Sessions(ctx context.Context, principal string) ([]Session, error) {
	var m mo.SessionManager
	err := property.DefaultCollector(a.c).RetrieveOne(ctx, *a.c.ServiceContent.SessionManager, []string{"sessionList"}, &m)
	now := &time.Time{}
	if err == nil {
		now, err = methods.GetCurrentTime(ctx, a.c)
	}
	if err != nil {
		return nil, a.fault("read the sessions of", err)
	}
	principal = a.Canonical(ctx, principal)
	var out []Session
	for i := range m.SessionList {
		if s := &m.SessionList[i]; a.same(s.UserName, principal) {
			out = append(out, Session{Agent: s.UserAgent, Address: s.IpAddress, Idle: now.Sub(s.LastActiveTime)})
		}
	}
	return out, nil
}

// TagStep is one change of tags.
type TagStep struct {
	Do       string        `json:"do"`
	Category string        `json:"category"`
	Tag      string        `json:"tag,omitempty"`
	Path     string        `json:"path,omitempty"`
	On       preflight.Ref `json:"-"`               // the object at Path
	Types    []string      `json:"types,omitempty"` // of a category
}

// The kinds of steps.
const (
	MakeCategory = "make category"
	MakeTag      = "make tag"
	DetachTag    = "detach"
	AttachTag    = "attach"
)

// String returns the step as text.
func (s TagStep) String() string {
	switch s.Do {
	case MakeCategory:
		return fmt.Sprintf("%s %s (%s)", s.Do, s.Category, strings.Join(s.Types, ", "))
	case MakeTag:
		return fmt.Sprintf("%s %s of %s", s.Do, s.Tag, s.Category)
	case DetachTag:
		return fmt.Sprintf("%s %s:%s from %s", s.Do, s.Category, s.Tag, s.Path)
	}
	return fmt.Sprintf("%s %s:%s to %s", s.Do, s.Category, s.Tag, s.Path)
}

// ChangeTags executes a step. The API of tags has its own sessions.
func (a *Admin) ChangeTags(ctx context.Context, s TagStep) error {
	rc, err := a.automation(ctx)
	if err != nil {
		return a.fault("log in to the tags of", err)
	}
	m, tag := tags.NewManager(rc), &tags.Tag{}
	if s.Do == AttachTag || s.Do == DetachTag {
		tag, err = m.GetTagForCategory(ctx, s.Tag, s.Category)
	}
	switch {
	case err != nil:
	case s.Do == MakeCategory:
		c := &tags.Category{Name: s.Category, Cardinality: "SINGLE", Description: "regions and zones of the vSphere drivers"}
		for _, kind := range s.Types {
			c.AssociableTypes = append(c.AssociableTypes, preflight.TypeNamespace+kind)
		}
		_, err = m.CreateCategory(ctx, c)
	case s.Do == MakeTag:
		_, err = m.CreateTag(ctx, &tags.Tag{Name: s.Tag, CategoryID: s.Category})
	case s.Do == AttachTag:
		err = m.AttachTag(ctx, tag.ID, unref(s.On))
	case s.Do == DetachTag:
		err = m.DetachTag(ctx, tag.ID, unref(s.On))
	}
	return a.fault(s.String()+" in", err)
}
