// Package inventory records every object that one VDOConfig, or one SIPCluster, has on the cluster, and has the set
// operations on such a record.
//
// The record is in a ConfigMap (see [Naming]), in the namespace of the VDOConfig. A SIPCluster's record is in the
// operator's own namespace, where tenants cannot write. The ConfigMap has it under the key [DataKey], as JSON:
//
//	{
//	  "apiVersion": "vdo.vmware.com/inventory/v1",
//	  "memory": {…},
//	  "objects": [
//	    {"group":"apps","version":"v1","kind":"DaemonSet","namespace":"kube-system",
//	     "name":"vsphere-cloud-controller-manager","uid":"…","driver":"cpi","release":"cpi@1.33.1",
//	     "rendered":"…","content":"…"}
//	  ]
//	}
//
// Objects are sorted, so the same inventory has the same bytes. "memory" is a [Memory], and "driver" a [Part].
//
// The operator trusts the record, since anyone who can write in the operator's namespace administers the operator. A
// missing record is recreated: running drivers are adopted like any other installation. Objects that no record has are
// not removed.
//
// # Never losing an object
//
// Before an apply, the record is widened to old ∪ new; an object not applied yet has no release. After a stage, the
// record gets the release and UID of each applied object. An entry leaves the record only once its object is gone, or
// is left to another manager as the user wants. So an interrupted apply leaves a record of at least all objects on the
// cluster.
package inventory

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

const (
	// APIVersion is that of the record.
	APIVersion = "vdo.vmware.com/inventory/v1"
	// DataKey is the key of the ConfigMap that holds the record.
	DataKey = "inventory.json"
)

// Part is the owner of an object: a driver, or a service of a SIPCluster.
type Part = matrix.Driver

// Memory has what an inventory records beside objects.
type Memory struct {
	// CloudProvider and StorageProvider are the last settings that could be rendered: drivers are repaired by them.
	CloudProvider   *v1alpha1.CloudProvider   `json:"cloudProvider,omitempty"`
	StorageProvider *v1alpha1.StorageProvider `json:"storageProvider,omitempty"`
	// Searched are the locations, SERVER/DATACENTER or SERVER, that the cloud provider last searched. KeepsNodes is
	// set if it was told to delete no Node objects.
	Searched   []string `json:"searched,omitempty"`
	KeepsNodes bool     `json:"keepsNodes,omitempty"`
	// Servers are the instance UUIDs of vCenters by their present and earlier addresses.
	Servers map[string]string `json:"servers,omitempty"`
	// VCenters are the locations of the vCenters in the drivers' last configuration, UUID HOST:PORT DATACENTER,…, by
	// VsphereCloudConfig.
	VCenters map[string]string `json:"vCenters,omitempty"`
	// Drivers and Patches are the pod settings that drivers were last rendered with.
	Drivers   []v1alpha1.DriverPolicy `json:"drivers,omitempty"`
	Patches   []v1alpha1.Patch        `json:"patches,omitempty"`
	ClusterID string                  `json:"clusterID,omitempty"`
	// ClusterUID is the UID of the kube-system Namespace of the cluster with this cluster id.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Hashes are set after a loss of the hash key: the hashes in pods, by those of the same configuration under the
	// current key. Pods stay unchanged while their configuration does.
	Hashes map[string]string `json:"hashes,omitempty"`
	// Kubernetes is the version that drivers were last chosen for; it never decreases.
	Kubernetes string `json:"kubernetes,omitempty"`
	// NewerSince is since when API servers report only a newer minor. It does not count yet, since not all of them
	// can be asked.
	NewerSince time.Time `json:"newerSince,omitzero"`
	// Seen are the vCenters with their last known versions.
	Seen []revision.VCenter `json:"seen,omitempty"`
	// Revisions are what was installed from, and the outcomes.
	Revisions revision.Histories `json:"revisions,omitempty"`
}

// Key identifies an object, in whatever version of its kind it is read.
type Key struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns "Kind namespace/name" or "Kind name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// Compare orders keys by group, kind, namespace and name.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Group, other.Group), strings.Compare(k.Kind, other.Kind),
		strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name))
}

// ID is a key with the version of the kind in which to read the object.
type ID struct {
	Key
	Version string `json:"version"`
}

// Entry is one object of an inventory.
type Entry struct {
	ID
	// UID is that of the applied object; "" before.
	UID    string `json:"uid,omitempty"`
	Driver Part   `json:"driver"`
	// Release was last applied, such as "csi@3.5.1", or a service's image; "" before.
	Release string `json:"release,omitempty"`
	// Rendered is a hash of the object as last applied, and Content of its source in bundle, mirror and program; ""
	// before. They are keyed, since the object may be a Secret.
	Rendered string `json:"rendered,omitempty"`
	Content  string `json:"content,omitempty"`
}

// Inventory is a set of entries with distinct keys. The zero value is empty. Values do not change: methods return new
// ones.
type Inventory struct {
	entries map[Key]Entry
	memory  Memory
}

// Memory returns what is recorded beside objects. Its parts are shared: callers must not change them.
func (i Inventory) Memory() Memory { return i.memory }

// WithMemory returns the inventory with another memory.
func (i Inventory) WithMemory(m Memory) Inventory {
	out := i.clone()
	out.memory = m
	return out
}

// Of returns an inventory of entries; the last of several with the same key counts.
func Of(entries ...Entry) Inventory {
	return Inventory{}.With(entries...)
}

// Len returns the number of objects.
func (i Inventory) Len() int { return len(i.entries) }

// Get returns an entry.
func (i Inventory) Get(k Key) (Entry, bool) {
	e, ok := i.entries[k]
	return e, ok
}

// Entries returns all entries, sorted.
func (i Inventory) Entries() []Entry {
	return slices.SortedFunc(maps.Values(i.entries), func(a, b Entry) int { return a.Compare(b.Key) })
}

// Drivers returns the drivers that have objects, sorted.
func (i Inventory) Drivers() []matrix.Driver {
	var all []matrix.Driver
	for _, e := range i.entries {
		if !slices.Contains(all, e.Driver) {
			all = append(all, e.Driver)
		}
	}
	slices.Sort(all)
	return all
}

// Has reports whether a driver has objects.
func (i Inventory) Has(d matrix.Driver) bool {
	return slices.Contains(i.Drivers(), d)
}

// With returns the inventory with entries added or replaced.
func (i Inventory) With(entries ...Entry) Inventory {
	out := i.clone()
	for _, e := range entries {
		out.entries[e.Key] = e
	}
	return out
}

// Without returns the inventory without the given objects.
func (i Inventory) Without(keys ...Key) Inventory {
	out := i.clone()
	for _, k := range keys {
		delete(out.entries, k)
	}
	return out
}

// WithoutUID returns the inventory before an object is recreated, with a new UID. If the operator is killed then, it
// identifies the object by its labels.
func (i Inventory) WithoutUID(k Key) Inventory {
	e, exists := i.entries[k]
	if !exists || e.UID == "" {
		return i
	}
	e.UID = ""
	return i.With(e)
}

// Union returns the inventory widened by entries for new objects; existing entries stay.
func (i Inventory) Union(entries ...Entry) Inventory {
	out := i.clone()
	for _, e := range entries {
		if _, exists := out.entries[e.Key]; !exists {
			out.entries[e.Key] = e
		}
	}
	return out
}

// Equal reports whether both record the same.
func (i Inventory) Equal(other Inventory) bool {
	return bytes.Equal(i.Marshal(), other.Marshal())
}

func (i Inventory) clone() Inventory {
	out := Inventory{entries: map[Key]Entry{}, memory: i.memory}
	maps.Copy(out.entries, i.entries)
	return out
}

const maxName = 253

// Naming is how ConfigMaps with records are named. The zero value is [VDOConfigs].
type Naming struct{ record, second string }

// The namings by kind of owner: the name of a VDOConfig, or NAMESPACE.NAME of a SIPCluster. The latter is unique,
// since a namespace has no dots.
var (
	VDOConfigs  = Naming{record: "vdo-inventory-", second: "vdo-inventory-copy-"}
	SIPClusters = Naming{record: "sip-inventory-of-", second: "sip-inventory-copy-"}
)

// ConfigMap returns the name of the ConfigMap with the inventory of an owner.
func (n Naming) ConfigMap(owner string) string {
	n = cmp.Or(n, VDOConfigs)
	return bounded(n.record, owner, n.shares(owner))
}

// Copy returns the ConfigMap name of an inventory's second copy, which programs before v0.1 kept. It is removed with
// the first one. Dropped in v0.2.
func (n Naming) Copy(owner string) string {
	n = cmp.Or(n, VDOConfigs)
	return bounded(n.second, owner, n.shares(owner))
}

// shares reports whether an owner's record would have another one's name: that of its second copy, or of an owner
// whose name is a hash.
func (n Naming) shares(owner string) bool {
	_, err := hex.DecodeString(owner)
	return strings.HasPrefix(n.record+owner, n.second) || (err == nil && len(owner) == 2*sha256.Size)
}

// bounded returns prefix and owner, or a hash of the owner if it is too long or hashed is set.
func bounded(prefix, owner string, hashed bool) string {
	if name := prefix + owner; len(name) <= maxName && !hashed {
		return name
	}
	sum := sha256.Sum256([]byte(owner))
	return prefix + hex.EncodeToString(sum[:])
}

type record struct {
	APIVersion string  `json:"apiVersion"`
	Memory     Memory  `json:"memory"`
	Objects    []Entry `json:"objects"`
}

// Marshal returns the record.
func (i Inventory) Marshal() []byte {
	data, err := json.Marshal(record{APIVersion, i.memory, append([]Entry{}, i.Entries()...)})
	if err != nil {
		panic(err) // never: it is made of texts, numbers, and maps and structures of them
	}
	return append(data, '\n')
}

// Parse parses a record; name is its origin, for errors. It refuses a record of another version, since writing it
// would lose objects.
func Parse(name string, data []byte) (Inventory, error) {
	bad := func(format string, args ...any) (Inventory, error) {
		return Inventory{}, fault.Errorf(fault.Corrupt, "read inventory", name,
			"restore the ConfigMap from a backup; or delete it: installed drivers are adopted again", format, args...)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	var r record
	if err := dec.Decode(&r); err != nil {
		return bad("no inventory: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF { //nolint:errorlint // io.EOF is returned bare
		return bad("something follows the record")
	}
	if r.APIVersion != APIVersion {
		return bad("apiVersion is %q, this program reads %q", r.APIVersion, APIVersion)
	}
	inv := Inventory{memory: r.Memory}.clone()
	for n, e := range r.Objects {
		if e.Kind == "" || e.Name == "" || e.Version == "" || e.Driver == "" {
			return bad("object %d lacks kind, name, version or driver", n)
		}
		if _, twice := inv.entries[e.Key]; twice {
			return bad("%s is there twice", e.Key)
		}
		inv.entries[e.Key] = e
	}
	return inv, nil
}
