package preflight

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// Snapshot is all facts that the checks use. It is collected once, and does not change later.
type Snapshot struct {
	Now      time.Time
	Wants    Wants
	Cluster  Cluster
	VCenters []VCenter // in the order of the configuration
	// Images are the images to install; nil if they are unknown.
	Images *Images
}

// Wants is what the configuration requests.
type Wants struct {
	CPI, CSI     bool
	Zone, Region string   // the cloud provider's tag categories
	Categories   []string // the storage driver's tag categories
	FileVolumes  bool
	Encryption   bool
	Snapshots    bool   // VolumeSnapshotClasses are requested
	ClusterID    string // as the configuration gives it
	CSIVersion   string // the pinned version; "" for a current one
}

// AllCategories are the tag categories of both drivers, sorted, each once.
func (w Wants) AllCategories() []string {
	all := slices.Clone(w.Categories)
	for _, c := range []string{w.Zone, w.Region} {
		if c != "" {
			all = append(all, c)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Cluster is what was read from the API server.
type Cluster struct {
	// Err is why nothing was read; the other fields are empty then.
	Err error
	// Skipped is set if the cluster was not to be read.
	Skipped        bool
	Nodes          []Node // without the excluded ones
	ControlPlane   bool   // a node has its label, excluded or not
	StorageClasses []StorageClass
	// KeptClusterID is the id that the storage driver generated, in the ConfigMap vsphere-csi-cluster-id.
	KeptClusterID string
	// StorageInstalled is set if the storage driver is registered in the cluster.
	StorageInstalled bool
	// CloudProviders are the --cloud-provider flags of kube-controller-manager pods, by pod name, and of k3s or RKE2
	// on a node; "" if the flag is missing.
	CloudProviders map[string]string
}

// Policies returns the storage policies that StorageClasses name, sorted, each once.
func (c *Cluster) Policies() (out []string) {
	for _, class := range c.StorageClasses {
		if class.Policy != "" {
			out = append(out, class.Policy)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Node is a node of the cluster.
type Node struct {
	Name          string
	UUID          string // status.nodeInfo.systemUUID
	ProviderID    string
	Kubelet       string            // its version
	ControlPlane  bool              // or etcd
	Begun         bool              // by `vdoctl vms fix`, and not done
	Machine       string            // that owns it, of a Machine API
	Uninitialized bool              // has the taint that the cloud provider removes
	Zones         map[string]string // the labels that [IsZoneLabel] accepts
	Registered    bool              // its CSINode has the storage driver
	TopologyKeys  []string          // of the driver there
}

// Keys returns the keys that identify a node's VM, in lower case: its UUID in both byte orders, and its name.
func (n *Node) Keys() []string {
	return []string{strings.ToLower(n.UUID), Swapped(n.UUID), strings.ToLower(n.Name)}
}

// StorageClass is a StorageClass of the storage driver.
type StorageClass struct {
	Name, Policy, DatastoreURL, FSType string

	Allowed []corev1.TopologySelectorTerm // allowedTopologies
}

// Part is a part of a vCenter that is read, and can fail, on its own.
type Part string

// The parts.
const (
	Tags       Part = "tags"
	Policies   Part = "storage policies"
	CNS        Part = "cloud native storage"
	Privileges Part = "privileges"
	Excess     Part = "all privileges of the account"
	Tasks      Part = "tasks"
	Upgrade    Part = "what vSphere 9 removes"
	StorageDRS Part = "datastore clusters"
	Rules      Part = "rules of clusters"
	Latency    Part = "disk latency"
)

// VCenter is the facts about one vCenter.
type VCenter struct {
	Use
	ID     string // its instance UUID, as it reports it; "" if unknown
	Server string // host or host:port
	// Unresolved is set if its VsphereCloudConfig could not be read: the vCenter is unknown, and may be another one of
	// these.
	Unresolved bool
	// Err is why it could not be read; the other fields have the facts until then.
	Err error
	// Failed are the parts that could not be read, and why.
	Failed map[Part]error

	Account
	Contents
	Version            string
	CertificateExpires time.Time // zero if unknown
	Insecure           bool      // the certificate is not checked
	// Removed is what vSphere 9 removes; nil if the account may not read it, or the vCenter has version 9.
	Removed *Removed
}

// Account is the drivers' account.
type Account struct {
	Username string    // as the Secret has it
	Given    string    // its source, if not the Secret
	Ends     time.Time // of its password; zero if unknown or never
	Lacking  []Lack    // privileges that the account lacks
	Excess   []Lack    // privileges that it has and no driver needs
	Access   Access
}

// Access is what an account may do in a vCenter, and the objects that it needs privileges on.
type Access struct {
	Principal string // the account as DOMAIN\name
	Features  privileges.Features
	Objects   []privileges.Object
	// Existing has effective privileges on the root, the ancestors of the nodes' VMs, and datastores: the first 200
	// objects. For another account than the logged-in one they are empty if the vCenter does not return them: it may
	// not exist.
	Existing privileges.Existing
}

// Contents are the inventory facts of the checks.
type Contents struct {
	Machines   []Machine              // the VMs that may be nodes
	Objects    map[Ref]Object         // folders, datacenters, clusters, hosts, resource pools
	Datastores []Datastore            // that hosts mount
	Categories map[string]TagCategory // the existing ones of the requested categories
	Tagged     map[Ref][]Category     // the categories of the tags on an object
	Policies   []string               // names of the storage policies
	Fits       map[string][]Ref       // datastores that fit a storage policy, of the requested policies
	Bound      map[Ref][]Ref          // hosts that rules bind a VM to
	Shares     []Share                // the vSAN clusters, if file volumes are requested
}

// Removed is the features in use that vSphere 9 removes.
type Removed struct {
	WindowsDomains []string // of Integrated Windows Authentication
	Baselines      []string // clusters with hosts patched by baselines, by path
}

// Share is a vSAN cluster, and whether the account may create file shares there.
type Share struct {
	Cluster string
	May     bool
}

// Ref is the Type and Value of an object's managed object reference.
type Ref struct{ Type, Value string }

// Compare orders references by type and value.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Type, o.Type), cmp.Compare(r.Value, o.Value))
}

// Category is the category and the name of a tag on an object.
type Category struct{ Name, Tag string }

// TagCategory is an existing tag category.
type TagCategory struct {
	Single bool     // an object has at most one tag of it
	Types  []string // allowed object types, with or without [TypeNamespace]; none for all
	Tags   []string
}

// TypeNamespace is before the types of a category. Since vSphere 7.0 U1 the Client needs it to assign the category's
// tags.
const TypeNamespace = "urn:vim25:"

// Object is a folder, datacenter, cluster, host or resource pool.
type Object struct {
	Name        string
	Parent      Ref    // zero at the root
	Version     string // of a host's ESXi
	Maintenance bool   // of a host
	MovesVMs    bool   // of a cluster: DRS or HA runs VMs on another host by itself
	StorageDRS  bool   // of a datastore cluster: Storage DRS is on
}

// Machine is a VM.
type Machine struct {
	Ref  Ref
	Name string
	UUID string // BIOS UUID, lower case
	Guest
	On, Off        bool // neither if it is suspended
	DiskUUID       bool
	Hardware       string   // vmx-15
	Controllers    []string // kinds of its SCSI controllers, sorted: pvscsi, lsilogic, …
	Snapshots      int      // at the root of its tree
	ChangeTracking bool
	DiskLatency    time.Duration // highest of its disks, average of some minutes; 0 if unknown
	Parents
	Template bool
}

// Parents are the folder, resource pool and host of a VM.
type Parents struct{ Folder, Pool, Host Ref }

// Guest is what VMware Tools report.
type Guest struct {
	HostName     string
	Addresses    int // how many they report
	ToolsRunning bool
}

// Datastore is a datastore that hosts mount.
type Datastore struct {
	Ref        Ref
	Name, URL  string
	Type       string       // VMFS, NFS, NFS41, vsan, VVOL
	Inside     bool         // in a configured datacenter
	Accessible bool         // and not in maintenance
	Hosts      map[Ref]bool // that mount it
	// MayHold is set if the account may create volumes there.
	MayHold bool
}

// Lack is the privileges that the account lacks, or has in excess, on an object.
type Lack struct {
	Object     string // its path, or its name
	Kind       privileges.Kind
	Privileges []string // sorted
}

// Path returns the inventory path of an object, as far as its ancestors are known.
func (v *VCenter) Path(r Ref) string {
	path := ""
	for _, a := range v.Ancestors(r) {
		if o := v.Objects[a]; o.Parent != (Ref{}) {
			path = "/" + o.Name + path
		}
	}
	return path
}

// At returns the object at an inventory path, except the root.
func (v *VCenter) At(path string) (Ref, bool) {
	for r, o := range v.Objects {
		if o.Parent != (Ref{}) && v.Path(r) == path {
			return r, true
		}
	}
	return Ref{}, false
}

const maxDepth = 64

// Ancestors returns an object and all its ancestors, bottom up.
func (v *VCenter) Ancestors(r Ref) []Ref {
	var out []Ref
	for range maxDepth {
		if r == (Ref{}) {
			break
		}
		out = append(out, r)
		r = v.Objects[r].Parent
	}
	return out
}

// MachinePath returns the inventory path of a VM.
func (v *VCenter) MachinePath(m *Machine) string { return v.Path(m.Folder) + "/" + m.Name }

// SameUUID reports whether two UUIDs are of one machine. A kernel may show the first three groups of a VM's UUID in
// the byte order of SMBIOS.
func SameUUID(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a != "" && (a == b || Swapped(a) == b)
}

// Swapped returns a UUID with the first three groups in the other byte order.
func Swapped(id string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 {
		return id
	}
	slices.Reverse(b[:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
