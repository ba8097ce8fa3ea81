// Package privileges defines which privileges the drivers need in a vCenter, on which objects, and whether they have
// to propagate. It has pure functions only.
//
//	role       privileges                                       on                          for
//	search     Cns.Searchable, StorageProfile.View               the vCenter's root          block and file volumes
//	datastore  Datastore.FileManagement                          datastores for volumes      block and file volumes
//	vm         VirtualMachine.Config.AddExistingDisk,            the nodes' VMs              block volumes
//	           VirtualMachine.Config.AddRemoveDevice,
//	           with encryption Cryptographer.AddDisk
//	file       Host.Config.Storage                               vSAN clusters               file volumes
//	ReadOnly   System.Read, System.View                          root, and all ancestors of  cloud provider, volumes,
//	                                                             the nodes' VMs and the VMs  zones and topology
//
// On each compute cluster that nodes run in, the role propagates to all its hosts. For each volume the storage driver
// reads the host of every node VM, and with topology all hosts below a tagged object. The first error ends the call. A
// node VM may move to any host of its cluster. An account has one role on an object, so the role "file" propagates
// there too.
//
// Each role of a vCenter also has System.Anonymous, System.Read and System.View, and ReadOnly is built in. Snapshots,
// topology and the zones of the cloud provider need no further privileges. The source for Cryptographer.AddDisk is
// vSphere's own table of privileges (to add a disk to an encrypted VM), not the driver's.
package privileges

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Kind is a kind of vCenter object that privileges are granted on.
type Kind string

// The kinds.
const (
	Root      Kind = "root"
	Ancestor  Kind = "ancestor" // datacenters, folders, clusters, hosts that nodes' VMs are in
	VM        Kind = "vm"
	Datastore Kind = "datastore"
	Cluster   Kind = "cluster" // the vSAN clusters of file volumes
	Compute   Kind = "compute" // clusters, and standalone hosts, that nodes run in; with all their hosts
	Host      Kind = "host"    // all hosts of these: what Compute propagates to
)

// Features are the requested features of the drivers.
type Features struct {
	CPI      bool // the cloud provider, with zones or without
	Block    bool // block volumes, with snapshots or without
	File     bool // shared volumes of vSAN file service
	Topology bool // volumes know zones
	// Encryption: nodes' VMs are encrypted, or volumes are, by a storage policy.
	Encryption bool
}

// Role is a role that the drivers' account needs.
type Role struct {
	Name       string   `json:"name"`
	Privileges []string `json:"privileges"` // sorted, without those that every role has
	On         Kind     `json:"on"`
	// Propagate is set if the permission also applies below the object.
	Propagate bool `json:"propagate"`
	// BuiltIn is set for a role that exists in every vCenter and is not created.
	BuiltIn bool   `json:"builtIn,omitempty"`
	Why     string `json:"why"`
}

// ReadOnly is the name of the built-in role as the API has it.
const ReadOnly = "ReadOnly"

// Implicit returns the privileges that every role has besides its own.
func Implicit() []string { return []string{"System.Anonymous", "System.Read", "System.View"} }

func read() []string { return []string{"System.Read", "System.View"} }

// Roles returns the roles that the features need, in a plan's order.
func Roles(f Features) []Role {
	var out []Role
	if f.Block || f.File {
		out = append(out,
			Role{Name: "vdo-csi-search", Privileges: []string{"Cns.Searchable", "StorageProfile.View"}, On: Root,
				Why: "find volumes, and read storage policies"},
			Role{Name: "vdo-csi-datastore", Privileges: []string{"Datastore.FileManagement"}, On: Datastore,
				Why: "keep volumes on these datastores"})
	}
	if f.Block {
		r := Role{Name: "vdo-csi-vm", Privileges: []string{"VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Config.AddRemoveDevice"}, On: VM,
			Why: "attach and detach volumes"}
		if f.Encryption {
			r.Privileges = append([]string{"Cryptographer.AddDisk"}, r.Privileges...)
			r.Why += ", encrypted ones too"
		}
		out = append(out, r)
	}
	if f.File {
		out = append(out, Role{
			Name: "vdo-csi-file", Privileges: []string{"Host.Config.Storage"}, On: Cluster, Why: "make file shares"})
	}
	if f != (Features{}) {
		out = append(out, Role{Name: ReadOnly, Privileges: read(), On: Ancestor, BuiltIn: true, Why: "find the nodes' VMs, their zones and shared datastores"})
	}
	return out
}

var everything = Features{CPI: true, Block: true, File: true, Topology: true, Encryption: true}

// IsDriverRole reports whether vdoctl may create a role of this name, for any features.
func IsDriverRole(name string) bool {
	return slices.ContainsFunc(Roles(everything), func(r Role) bool { return !r.BuiltIn && r.Name == name })
}

// Needed returns the privileges that are needed on objects of a kind, sorted.
func Needed(f Features, k Kind) []string {
	var out []string
	for _, r := range Roles(f) {
		switch {
		case r.On == k:
			out = append(out, r.Privileges...)
		case r.On == Ancestor && (k == Root || k == VM || k == Compute || k == Host):
			out = append(out, read()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Beyond returns an account's privileges on an object that the features need on no object, sorted. A site may grant
// needed privileges on each VM or on a folder, so they are never in excess.
func Beyond(f Features, has []string) []string {
	f.Encryption = f.Encryption || f.Block // all clusters of the vCenter share the role for VMs
	needed := read()
	for _, r := range Roles(f) {
		needed = append(needed, r.Privileges...)
	}
	_, tooMuch := Compare(has, needed)
	return tooMuch
}

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
		if !ok && o.Kind != Datastore { // which the cloud provider does not read
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
	p := PlannedPermission{Path: o.Path, ID: o.ID, State: Create}
	p.Permission = Permission{Role: r.Name, Propagate: r.Propagate}
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
