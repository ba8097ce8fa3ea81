// Package inventory is the record of every object that one VDOConfig, or one SIPCluster,
// has on the cluster, and the set operations on it.
//
// The record is kept in a ConfigMap (see [Naming]): a VDOConfig's beside it, and a
// SIPCluster's in the operator's own namespace, where tenants cannot write. It is under the
// key [DataKey], as JSON:
//
//	{
//	  "apiVersion": "vdo.vmware.com/inventory/v1",
//	  "complete": {"csi": "3.5.1"},
//	  "objects": [
//	    {"group":"apps","version":"v1","kind":"DaemonSet","namespace":"kube-system",
//	     "name":"vsphere-cloud-controller-manager","uid":"…","driver":"cpi","release":"cpi@1.33.1",
//	     "rendered":"…","content":"…"}
//	  ]
//	}
//
// Objects are sorted, so the same inventory has the same bytes. "complete" names,
// for each driver, the version whose roll-out was last seen complete. In "memory", "cloudProvider"
// and "storageProvider" are what the VDOConfig last said of drivers that could be
// rendered, and "clusterID" is the storage driver's cluster id, of the cluster whose kube-system
// Namespace has the UID "clusterUID": with them a driver is
// repaired also where the VDOConfig says no more, or nothing sensible, of it, or its
// configuration is lost. "kubernetes" is the version that drivers were last chosen for:
// it does not go back.
// "revisions" are the histories of package revision, by group.
//
// Each object is of a [Part]: "driver" is the driver, or the name of the SIPCluster's
// service.
//
// Who can write in the operator's namespace administers the operator: the record is believed as it
// is. One that is lost is recreated: what runs is adopted as any other installation is, and
// what no one knows any more is not removed.
//
// # What keeps it from losing an object
//
// Before anything is applied the record is widened to old ∪ new; an object that is
// not applied yet has no release. After a stage the release and UID of what was
// applied are noted. An entry leaves the record only once the object is seen to be
// gone, or is left to someone else by the user's wish. So an apply that is
// interrupted anywhere leaves a record of at least what is on the cluster.
package inventory

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

const (
	// APIVersion of the record.
	APIVersion = "vdo.vmware.com/inventory/v1"
	// DataKey is the key of the ConfigMap that holds the record.
	DataKey = "inventory.json"
)

// Part is what an object is of: a driver, or a service of a SIPCluster.
type Part = matrix.Driver

// Memory is what an inventory records beside objects.
type Memory struct {
	CloudProvider   *v1alpha1.CloudProvider   `json:"cloudProvider,omitempty"`
	StorageProvider *v1alpha1.StorageProvider `json:"storageProvider,omitempty"`
	// Searched are the places, SERVER/DATACENTER or SERVER, that the cloud provider was last
	// told to look in, and KeepsNodes whether it was told to delete no Node objects.
	Searched   []string `json:"searched,omitempty"`
	KeepsNodes bool     `json:"keepsNodes,omitempty"`
	// VCenters are where the vCenters are that drivers were last configured with, by the
	// names of their VsphereCloudConfigs: UUID HOST:PORT DATACENTER,….
	VCenters map[string]string `json:"vCenters,omitempty"`
	// Drivers and Patches are the settings of pods that drivers were last rendered with.
	Drivers   []v1alpha1.DriverPolicy `json:"drivers,omitempty"`
	Patches   []v1alpha1.Patch        `json:"patches,omitempty"`
	ClusterID string                  `json:"clusterID,omitempty"`
	// ClusterUID is the UID of the kube-system Namespace of the cluster that has this cluster id.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Hashes are those of configurations as pods have them, by the ones that they have under the key
	// of now: it was lost, and what pods have stays while it is of the same configuration.
	Hashes map[string]string `json:"hashes,omitempty"`
	// Kubernetes is the version that drivers were last chosen for.
	Kubernetes string `json:"kubernetes,omitempty"`
	// NewerSince is since when API servers answer with a newer minor only, which does not count
	// yet since not all of them can be asked.
	NewerSince time.Time `json:"newerSince,omitzero"`
	// Seen are the vCenters with their versions, as they were last seen.
	Seen []revision.VCenter `json:"seen,omitempty"`
	// Revisions are what was installed from, and what became of it.
	Revisions revision.Histories `json:"revisions,omitempty"`
}

// Key tells objects apart, whatever version of their kind they are read in.
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

// ID is a key with the version of the kind to read the object in.
type ID struct {
	Key
	Version string `json:"version"`
}

// Entry is one object of an inventory.
type Entry struct {
	ID
	// UID of the object as it was applied; "" before.
	UID    string `json:"uid,omitempty"`
	Driver Part   `json:"driver"`
	// Release that was last applied, such as "csi@3.5.1", or a service's image; "" before.
	Release string `json:"release,omitempty"`
	// Rendered identifies the object as it was last applied, and Content what of it
	// came from the bundle, the mirror and the program: keyed hashes, since the object
	// may be a Secret; "" before.
	Rendered string `json:"rendered,omitempty"`
	Content  string `json:"content,omitempty"`
}

// Inventory is a set of entries with distinct keys. The zero value is empty.
// Values are not changed: operations return new ones.
type Inventory struct {
	entries map[Key]Entry
	memory  Memory
}

// Memory returns what is recorded beside objects. Its parts are shared: callers do not
// change them.
func (i Inventory) Memory() Memory { return i.memory }

// WithMemory returns the inventory with another memory.
func (i Inventory) WithMemory(m Memory) Inventory {
	out := i.clone()
	out.memory = m
	return out
}

// Of returns an inventory of entries; of two with the same key the last counts.
func Of(entries ...Entry) Inventory {
	return Inventory{}.With(entries...)
}

// Len returns how many objects there are.
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

// Has tells whether a driver has objects.
func (i Inventory) Has(d matrix.Driver) bool {
	return slices.Contains(i.Drivers(), d)
}

// With returns the inventory with entries put in or replaced.
func (i Inventory) With(entries ...Entry) Inventory {
	out := i.clone()
	for _, e := range entries {
		out.entries[e.Key] = e
	}
	return out
}

// Without returns the inventory without the objects named.
func (i Inventory) Without(keys ...Key) Inventory {
	out := i.clone()
	for _, k := range keys {
		delete(out.entries, k)
	}
	return out
}

// WithoutUID returns the inventory before an object is recreated, which will have another UID: an
// operator that is killed then knows it by its labels.
func (i Inventory) WithoutUID(k Key) Inventory {
	e, exists := i.entries[k]
	if !exists || e.UID == "" {
		return i
	}
	e.UID = ""
	return i.With(e)
}

// Union returns the inventory widened by entries whose objects it does not have;
// what it says of those that it has stays.
func (i Inventory) Union(entries ...Entry) Inventory {
	out := i.clone()
	for _, e := range entries {
		if _, exists := out.entries[e.Key]; !exists {
			out.entries[e.Key] = e
		}
	}
	return out
}

// Equal tells whether both record the same.
func (i Inventory) Equal(other Inventory) bool {
	return bytes.Equal(i.Marshal(), other.Marshal())
}

func (i Inventory) clone() Inventory {
	out := Inventory{entries: map[Key]Entry{}, memory: i.memory}
	maps.Copy(out.entries, i.entries)
	return out
}
