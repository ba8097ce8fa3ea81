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

import "slices"

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
	needed := read()
	for _, r := range Roles(f) {
		needed = append(needed, r.Privileges...)
	}
	_, tooMuch := Compare(has, needed)
	return tooMuch
}
