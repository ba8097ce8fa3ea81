package privileges

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Object is an object that the drivers' account needs privileges on.
type Object struct {
	Kind Kind
	Path string // inventory path; "/" is the root
	ID   string // Type-Value, as PowerCLI names it
}

// Existing is a vCenter's roles, and the permissions of one account.
type Existing struct {
	Roles       map[string][]string   // privileges, by name
	Permissions map[string]Permission // by path
	IDs         map[string]string     // of the objects of Permissions, by path
	// Effective are the account's privileges by path, also through groups and inheritance; a missing path is unknown.
	Effective map[string][]string
}

// Permission is a role that an account has on an object.
type Permission struct {
	Role      string `json:"role"`
	Propagate bool   `json:"propagate"`
}

// State is how a desired role or permission compares with the existing one.
type State string

// The states.
const (
	Keep   State = "keep"
	Create State = "create"
	Change State = "change"
)

// PlannedRole is a role, and how it compares. All clusters share a vCenter's roles: a role only gains missing
// privileges.
type PlannedRole struct {
	Role

	State   State    `json:"state"`
	Add     []string `json:"add,omitempty"`     // privileges that the existing role lacks
	TooMuch []string `json:"tooMuch,omitempty"` // those that it has and this plan does not need; they stay
}

// PlannedPermission is a permission, and how it compares.
type PlannedPermission struct {
	Permission

	Path  string `json:"path"`
	ID    string `json:"id"`
	State State  `json:"state"`
	// Has is the account's own permission there, if it differs.
	Has *Permission `json:"has,omitempty"`
	// Loses are the privileges that the account would lose there: those that only its own permission gives, and others
	// that drivers never need.
	Loses []string `json:"loses,omitempty"`
}

// Plan is what an account needs in one vCenter.
type Plan struct {
	Principal   string              `json:"principal"`
	Roles       []PlannedRole       `json:"roles"`
	Permissions []PlannedPermission `json:"permissions"`
	// NotNeeded are permissions of the account on other objects.
	NotNeeded map[string]Permission `json:"notNeeded,omitempty"`
	// Covered are the IDs of those objects that get the same from a role of the plan by propagation.
	Covered []string `json:"-"`
}

// NewPlan computes the roles of an account by object, and compares them with the existing ones. An account has one
// role on an object: that of its kind, which includes ReadOnly, or ReadOnly. It propagates from compute clusters. With
// folders, objects of kind VM are folders, and the role applies to all VMs below.
func NewPlan(f Features, principal string, objects []Object, folders bool, has Existing) Plan {
	p := Plan{Principal: principal, Roles: []PlannedRole{}, Permissions: []PlannedPermission{}}
	roleOn := map[Kind]Role{}
	propagates := map[string]bool{}
	for _, o := range objects {
		propagates[o.Path] = propagates[o.Path] || o.Kind == Compute || folders && o.Kind == VM
	}
	for _, r := range Roles(f) {
		r.Propagate = folders && r.On == VM
		roleOn[r.On] = r
		if !r.BuiltIn {
			p.Roles = append(p.Roles, plannedRole(r, has))
		}
	}
	wanted := map[string]bool{}
	for _, o := range slices.SortedStableFunc(slices.Values(objects), bySpecific) {
		role, ok := roleOn[o.Kind]
		if !ok {
			role, ok = roleOn[Ancestor]
		}
		if ok && !wanted[o.Path] {
			wanted[o.Path] = true
			role.Propagate = propagates[o.Path]
			p.Permissions = append(p.Permissions, plannedPermission(o, role, has))
		}
	}
	slices.SortFunc(p.Permissions, func(a, b PlannedPermission) int { return cmp.Compare(a.Path, b.Path) })
	for path, perm := range has.Permissions {
		if !wanted[path] {
			if p.NotNeeded == nil {
				p.NotNeeded = map[string]Permission{}
			}
			p.NotNeeded[path] = perm
			if p.covers(path, perm) {
				p.Covered = append(p.Covered, has.IDs[path])
			}
		}
	}
	return p
}

// covers reports whether an account keeps a permission's privileges on an object without that permission.
func (p *Plan) covers(path string, has Permission) bool {
	return slices.ContainsFunc(p.Permissions, func(x PlannedPermission) bool {
		return x.Propagate && strings.HasPrefix(path, x.Path+"/") && (x.Role == has.Role || has.Role == ReadOnly)
	})
}

// bySpecific sorts objects that need ReadOnly last: an object of a second kind gets the role of that one.
func bySpecific(a, b Object) int {
	last := func(o Object) int {
		if o.Kind == Ancestor || o.Kind == Compute {
			return 1
		}
		return 0
	}
	return last(a) - last(b)
}

func plannedRole(r Role, has Existing) PlannedRole {
	p := PlannedRole{Role: r, State: Create}
	if now, ok := has.Roles[r.Name]; ok {
		p.Add, p.TooMuch = Compare(now, r.Privileges)
		p.State = Keep
		if len(p.Add) > 0 { // privileges in excess may be needed by others
			p.State = Change
		}
	}
	return p
}

func plannedPermission(o Object, r Role, has Existing) PlannedPermission {
	p := PlannedPermission{Path: o.Path, ID: o.ID, Permission: Permission{Role: r.Name, Propagate: r.Propagate}, State: Create}
	now, ok := has.Permissions[o.Path]
	if ok && now == p.Permission {
		p.State = Keep
		return p
	}
	lost := Beyond(everything, has.Effective[o.Path])
	if ok {
		p.State, p.Has = Change, &now
		lost = append(lost, has.Roles[now.Role]...)
	}
	_, lost = Compare(lost, r.Privileges)
	p.Loses = slices.Compact(lost)
	if now.Propagate && len(p.Loses) == 0 { // others may read below by it
		p.Propagate = true
		if now == p.Permission {
			p.State, p.Has = Keep, nil
		}
	}
	return p
}

// Compare returns the missing and the excess privileges, sorted. It ignores those that every role has.
func Compare(has, needed []string) (missing, tooMuch []string) {
	for _, n := range needed {
		if !slices.Contains(has, n) {
			missing = append(missing, n)
		}
	}
	for _, h := range has {
		if !slices.Contains(needed, h) && !slices.Contains(Implicit(), h) {
			tooMuch = append(tooMuch, h)
		}
	}
	slices.Sort(missing)
	slices.Sort(tooMuch)
	return missing, tooMuch
}

// Losses describes the privileges that an account would lose: on the first object, and how many more follow.
func Losses(list []PlannedPermission) string {
	if len(list) == 0 {
		return ""
	}
	x, text := list[0], ""
	if x.Has != nil {
		text = " of its role " + x.Has.Role
	}
	text = fault.Few(x.Loses, few) + text + " on " + x.Path
	if n := len(list) - 1; n > 0 {
		text += fmt.Sprintf(", and on %d more objects", n)
	}
	return text
}

const few = 3

// DomainUser returns an account as DOMAIN\name, as vCenters name principals.
func DomainUser(account string) string {
	if name, domain, ok := strings.Cut(account, "@"); ok {
		return strings.ToUpper(domain) + `\` + name
	}
	return account
}

// SameUser reports whether two names are of one account: name@domain and DOMAIN\name.
func SameUser(a, b string) bool { return strings.EqualFold(DomainUser(a), DomainUser(b)) }
