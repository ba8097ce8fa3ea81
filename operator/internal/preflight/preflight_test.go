package preflight_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

var now = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

// west is a vCenter of the storage driver alone.
var west = preflight.Use{Name: "west", CSI: true}

func ref(kind, value string) preflight.Ref { return preflight.Ref{Type: kind, Value: value} }

const csiRegion, csiZone = "topology.csi.vmware.com/region", "topology.csi.vmware.com/zone"
const newRegion, newZone = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"

// allowing is the allowedTopologies of a StorageClass for each of these zones, below one key.
func allowing(key string, zones ...string) (out []corev1.TopologySelectorTerm) {
	for _, zone := range zones {
		out = append(out, corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: csiRegion, Values: []string{"north"}}, {Key: key, Values: []string{zone, "none"}}}})
	}
	return out
}

// healthy is a cluster of three nodes on two hosts of one vCenter, in two zones.
func healthy() preflight.Snapshot {
	root, dc, cluster := ref("Folder", "root"), ref("Datacenter", "dc"), ref("ClusterComputeResource", "c")
	folder, pool := ref("Folder", "vms"), ref("ResourcePool", "pool")
	one, two := ref("HostSystem", "h1"), ref("HostSystem", "h2")
	v := preflight.VCenter{
		Use: preflight.Use{Name: "east", CPI: true, CSI: true}, Server: "vc.site", Account: preflight.Account{Username: "vdo@vsphere.local"}, Version: "8.0.3",
		CertificateExpires: now.Add(365 * 24 * time.Hour), Failed: map[preflight.Part]error{},
		Removed: &preflight.Removed{},
	}
	v.Contents = preflight.Contents{
		Objects: map[preflight.Ref]preflight.Object{
			root: {}, dc: {Name: "dc", Parent: root}, cluster: {Name: "c", Parent: dc}, folder: {Name: "k8s", Parent: dc}, pool: {Name: "Resources", Parent: cluster},
			one: {Name: "esx1", Parent: cluster, Version: "8.0.3"}, two: {Name: "esx2", Parent: cluster, Version: "8.0.2"},
		},
		Datastores: []preflight.Datastore{{Ref: ref("Datastore", "vsan"),
			Name: "vsan", URL: "ds:///vsan/", Accessible: true, MayHold: true, Hosts: map[preflight.Ref]bool{one: true, two: true}}},
		Categories: map[string]preflight.TagCategory{"region": {}, "zone": {}},
		Tagged: map[preflight.Ref][]preflight.Category{
			dc: {{Name: "region", Tag: "north"}}, one: {{Name: "zone", Tag: "a"}}, two: {{Name: "zone", Tag: "b"}}},
		Policies: []string{"gold"}, Fits: map[string][]preflight.Ref{"gold": {ref("Datastore", "vsan")}},
	}
	s := preflight.Snapshot{
		Now:   now,
		Wants: preflight.Wants{CPI: true, CSI: true, Zone: "zone", Region: "region", Categories: []string{"region", "zone"}, ClusterID: "a"},
		Cluster: preflight.Cluster{
			KeptClusterID: "a", StorageInstalled: true, ControlPlane: true, CloudProviders: map[string]string{"kube-controller-manager-0": "external"},
			StorageClasses: []preflight.StorageClass{{Name: "fast", Policy: "gold", DatastoreURL: "ds:///vsan/"}},
		},
	}
	for i, host := range []preflight.Ref{one, one, two} {
		uuid := fmt.Sprintf("4201%04d-aabb-ccdd-eeff-001122334455", i)
		name := fmt.Sprintf("node-%d", i)
		s.Cluster.Nodes = append(s.Cluster.Nodes, preflight.Node{
			Name: name, UUID: uuid, ProviderID: "vsphere://" + uuid, ControlPlane: i == 0,
			Registered: true, TopologyKeys: []string{csiRegion, csiZone},
			Zones: map[string]string{csiRegion: "north", csiZone: string("aab"[i]), newRegion: "north", newZone: string("aab"[i])}})
		v.Machines = append(v.Machines, preflight.Machine{
			Ref: ref("VirtualMachine", name), Name: name, UUID: uuid, Guest: preflight.Guest{HostName: name, Addresses: 1, ToolsRunning: true}, DiskUUID: true, Hardware: "vmx-19",
			Controllers: []string{"pvscsi"}, Parents: preflight.Parents{Folder: folder, Pool: pool, Host: host}})
	}
	s.VCenters = []preflight.VCenter{v}
	s.Images = &preflight.Images{
		Workloads: []render.Workload{{Driver: matrix.CSI, Release: "csi@3.5.1", Kind: "DaemonSet", Name: "vsphere-csi-node", Images: []render.Image{{Upstream: "up.example/driver", Digest: driver}}}},
		Platforms: map[image.Digest][]image.Platform{driver: {{OS: "linux", Architecture: "amd64"}}},
		Mirrors: &preflight.Mirrors{Repository: "mirror.site/vdo", Bundle: "mirror.site/vdo@" + driver.String(),
			Rules: []preflight.MirrorRule{{Set: "ImageDigestMirrorSet vdo-drivers", Entry: mirrorset.Entry{Source: "up.example", Mirrors: []string{"mirror.site/vdo/up.example"}}}}},
		Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-0", Labels: map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}}},
	}
	return s
}

var driver = image.DigestOf([]byte("driver"))

// What is found of a VM concerns each driver, under whichever name it has the vCenter; no one is told to
// unregister the only one.
func TestOneVCenterUnderANameForEachDriverIsCheckedForBoth(t *testing.T) {
	for _, cloud := range []int{0, 1} {
		s := healthy()
		s.VCenters[0].ID = "1-1"
		s.VCenters[0].Machines = slices.Clone(s.VCenters[0].Machines)
		s.VCenters[0].Machines[1].DiskUUID, s.VCenters[0].Machines[1].ToolsRunning = false, false
		twice := s.VCenters[0]
		twice.Name = "by-address"
		s.VCenters = append(s.VCenters, twice)
		for i := range s.VCenters {
			s.VCenters[i].CPI, s.VCenters[i].CSI = i == cloud, i != cloud
		}
		results := preflight.Check(s)
		require.Contains(t, of(results, "vm-disk-uuid"), "disk.EnableUUID is off")
		require.Contains(t, of(results, "vm-tools"), "does not run")
		gates := map[preflight.ID][]matrix.Driver{}
		for _, r := range results {
			if r.Action == preflight.BlockInstall {
				gates[r.ID] = append(gates[r.ID], r.Drivers...)
			}
		}
		require.Equal(t, []matrix.Driver{matrix.CSI}, gates["vm-disk-uuid"])
		require.Equal(t, []matrix.Driver{matrix.CPI}, gates["vm-tools"])
		require.Len(t, preflight.NodeMachines(s), len(s.Cluster.Nodes))
		require.Len(t, preflight.Placements(s), len(s.Cluster.Nodes))
		require.Empty(t, of(results, "node-vm"))
		s.VCenters[1].ID = "2-2"
		require.Contains(t, of(preflight.Check(s), "node-vm"), "several VMs")
	}
}

// of is what a check found that is amiss, "" where it passed.
func of(results []preflight.Result, id preflight.ID) string {
	for _, r := range results {
		if r.ID == id && r.Action != preflight.Pass {
			return r.Found
		}
	}
	return ""
}

// failing are ways in which a healthy cluster is not, with the one check that is to say so.
var failing = []struct {
	name   string
	change func(*preflight.Snapshot)
	id     preflight.ID
	action preflight.Action
	text   []string // of what was found, on which objects, and the remedy
}{
	{"no VM of the node in the datacenters", func(s *preflight.Snapshot) { s.VCenters[0].Machines = s.VCenters[0].Machines[:2] }, "node-vm", preflight.BlockInstall, []string{"node-2", "no VM", "spec.datacenters"}},
	{"two VMs with one DNS name, and the UUID of neither", func(s *preflight.Snapshot) {
		s.VCenters[0].Machines[2].UUID = "other"
		s.VCenters[0].Machines = append(s.VCenters[0].Machines, s.VCenters[0].Machines[2])
	}, "node-vm", preflight.BlockInstall, []string{"node-2 (/dc/k8s/node-2", "several VMs"}},
	{"a VM in two vCenters", func(s *preflight.Snapshot) {
		inWest(s)
		s.VCenters[0].Machines = append(s.VCenters[0].Machines, s.VCenters[1].Machines[0])
	}, "node-vm", preflight.BlockInstall, []string{"node-2 (/dc/k8s/node-2 in east, /dc/k8s/node-2 in west)"}},
	{"two nodes of one VM", func(s *preflight.Snapshot) { s.Cluster.Nodes[2].UUID = s.Cluster.Nodes[1].UUID },
		"node-vm", preflight.Warn, []string{"node-1", "node-2", "several nodes", "a UUID of its own"}},
	{"a vCenter that cannot be asked may have the VM", func(s *preflight.Snapshot) {
		s.VCenters[0].Machines = s.VCenters[0].Machines[:2]
		s.VCenters = append(s.VCenters, preflight.VCenter{Use: west, Err: errors.New("connection refused")})
	}, "node-vm", preflight.Warn, []string{"may be in another"}},
	{"the cloud provider lacks the vCenter of the VM", func(s *preflight.Snapshot) {
		s.VCenters[0].CPI = false
	}, "node-vm", preflight.BlockInstall, []string{"cpi is not configured", "node-0 (VM in east)"}},
	{"the storage driver lacks the vCenter of the VM", func(s *preflight.Snapshot) {
		s.VCenters[0].CSI = false
	}, "node-vm", preflight.Warn, []string{"csi is not configured", "for both drivers"}},
	{"hostname in another case", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].HostName = "Node-1" }, "node-name", preflight.Warn, []string{"node-1 (guest: Node-1)", "hostnamectl set-hostname node-1"}},
	{"kubelet without external cloud provider", func(s *preflight.Snapshot) { s.Cluster.Nodes[1].ProviderID = "" }, "node-provider-id", preflight.Warn, []string{"--cloud-provider=external", "kubectl taint node node-1"}},
	{"provider id of k3s", func(s *preflight.Snapshot) { s.Cluster.Nodes[1].ProviderID = "k3s://node-1" }, "node-provider-id", preflight.BlockInstall, []string{"another cloud", "--disable-cloud-controller"}},
	{"provider id of a VM that was cloned", func(s *preflight.Snapshot) {
		s.Cluster.Nodes[1].ProviderID = "vsphere://42010009-aabb-ccdd-eeff-001122334455"
	}, "node-provider-id", preflight.BlockInstall, []string{"another VM"}},
	{"in-tree cloud provider", func(s *preflight.Snapshot) {
		s.Cluster.CloudProviders["kube-controller-manager-0"] = "vsphere"
		s.Cluster.CloudProviders["kube-controller-manager-1"] = ""
	}, "node-cloud-provider", preflight.BlockInstall, []string{
		"kube-controller-manager-0\n", "--cloud-provider=vsphere", "each kubelet with --cloud-provider=external",
	}},
	{"no control plane", func(s *preflight.Snapshot) { s.Cluster.ControlPlane = false }, "node-control-plane", preflight.BlockInstall, []string{"kubectl label node"}},
	{"driver not registered on a node", func(s *preflight.Snapshot) { s.Cluster.Nodes[1].Registered = false }, "node-registered", preflight.Warn, []string{"node-1", "get csinodetopology node-1"}},
	{"registered before one category was configured", func(s *preflight.Snapshot) { s.Cluster.Nodes[1].TopologyKeys = []string{csiZone} }, "node-registered", preflight.Warn, []string{"node-1", "without topology keys", "rollout restart"}},
	{"a node without the label of a category", func(s *preflight.Snapshot) { delete(s.Cluster.Nodes[1].Zones, csiRegion) }, "node-registered", preflight.Warn, []string{"node-1", "or their labels"}},

	{"a node of another processor", func(s *preflight.Snapshot) { s.Images.Nodes[0].Labels["kubernetes.io/arch"] = "arm64" }, "image-platform", preflight.BlockInstall, []string{"node-0", "vsphere-csi-node", "up.example/driver", "spec.excludedNodes"}},

	{"no mirror set", func(s *preflight.Snapshot) { s.Images.Mirrors.Rules = nil }, "image-mirror-set", preflight.BlockInstall, []string{"up.example/driver (no set has it)", "below mirror.site/vdo",
		"vdo-bundle mirror-config mirror.site/vdo@" + driver.String() + " mirror.site/vdo --runtime openshift | oc apply -f -"}},
	{"disk.EnableUUID off", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].DiskUUID = false }, "vm-disk-uuid", preflight.BlockInstall, []string{"vdoctl vms fix --username ADMIN --drain --power-off"}},
	{"old virtual hardware", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].Hardware = "vmx-13" }, "vm-hardware", preflight.BlockInstall, []string{"hardware version is older than 15", "(node node-1, vmx-13)"}},
	{"other SCSI controllers", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].Controllers = []string{"lsilogic", "pvscsi"} }, "vm-scsi", preflight.Warn, []string{"lsilogic", "govc device.scsi.add "}},
	{"no SCSI controller", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].Controllers = nil }, "vm-scsi", preflight.BlockInstall, []string{"no SCSI"}},
	{"Tools not running", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].ToolsRunning = false }, "vm-tools", preflight.BlockInstall, []string{"does not run", "open-vm-tools"}},
	{"guest without hostname", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].HostName = "" }, "vm-tools", preflight.BlockInstall, []string{"no hostname"}},
	{"guest without address", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].Addresses = 0 }, "vm-tools", preflight.BlockInstall, []string{"no address"}},
	{"snapshots", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].Snapshots = 2 }, "vm-snapshots", preflight.Warn, []string{"govc snapshot.tree -vm /dc/k8s/node-1"}},
	{"changed block tracking on one of three", func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].ChangeTracking = true }, "vm-change-tracking", preflight.Warn, []string{"/dc/k8s/node-0", "ctkEnabled=TRUE"}},

	{"an administrator's account", func(s *preflight.Snapshot) {
		for _, on := range []string{"/", "/dc"} {
			s.VCenters[0].Excess = append(s.VCenters[0].Excess, preflight.Lack{Object: on, Kind: privileges.Root, Privileges: []string{"A.B", "C.D", "E.F", "G.H"}})
		}
	}, "vcenter-excess", preflight.Warn, []string{"more than the drivers need", "/ (A.B, C.D, E.F and 1 more), /dc (", "vdoctl users rotate --username ADMIN --principal NAME@DOMAIN", "vdoctl users plan --principal NAME@DOMAIN -o govc"}},
	{"refused login", vcenterError(fault.Unauthorized, "log in to"), "vcenter-account", preflight.BlockInstall, []string{"why it failed", "do this"}},
	{"locked account", vcenterError(fault.AccountLocked, "log in to"), "vcenter-account", preflight.BlockInstall, []string{"why it failed"}},
	{"Secret that is not there", vcenterError(fault.NotFound, "read the credentials of"), "vcenter-account", preflight.BlockInstall, nil},
	{"Secret without a password", vcenterError(fault.InvalidInput, "log in to"), "vcenter-account", preflight.BlockInstall, nil},
	{"certificate of another authority", vcenterError(fault.CertificateInvalid, "connect to"), "vcenter-certificate", preflight.BlockInstall, nil},
	{"CA that cannot be read", vcenterError(fault.InvalidInput, "read the CA certificates of"), "vcenter-certificate", preflight.BlockInstall, nil},
	{"server that is no vCenter", vcenterError(fault.InvalidInput, "connect to"), "vcenter-version", preflight.BlockInstall, nil},
	{"another vCenter than before", vcenterError(fault.Conflict, "use"), "vcenter-version", preflight.BlockInstall, nil},
	{"host that is away", vcenterError(fault.Unreachable, "connect to"), "vcenter-connection", preflight.BlockInstall, nil},
	{"vCenter that is still checked", vcenterError(fault.Incomplete, "use"), "vcenter-connection", preflight.BlockInstall, nil},
	{"fault of its own check", vcenterError(fault.InvalidInput, "check"), "vcenter-connection", preflight.BlockInstall, nil},
	{"another vCenter in its own check", vcenterError(fault.Conflict, "check"), "vcenter-version", preflight.BlockInstall, nil},
	{"datacenter that is not there", vcenterError(fault.NotFound, "find datacenters in"), "vcenter-datacenters", preflight.BlockInstall, nil},
	{"user name without a domain", func(s *preflight.Snapshot) {
		s.VCenters[0].Username = "vdo"
	}, "vcenter-account", preflight.BlockInstall, []string{"NAME@DOMAIN: correct username in the Secret of VsphereCloudConfig east"}},
	{"user name of a flag without a domain", func(s *preflight.Snapshot) {
		s.VCenters[0].Account = preflight.Account{Username: "vdo", Given: "--username"}
	}, "vcenter-account", preflight.BlockInstall, []string{"NAME@DOMAIN: correct --username"}},
	{"password that ends soon", func(s *preflight.Snapshot) {
		s.VCenters[0].Ends = now.Add(13 * 24 * time.Hour)
	}, "vcenter-account", preflight.Warn, []string{"vdo@vsphere.local", "ends on 2027-01-14",
		"vdoctl users rotate --username ADMIN --secret NAME"}},
	{"vCenter 6.7", func(s *preflight.Snapshot) { s.VCenters[0].Version = "6.7.0" }, "vcenter-version", preflight.Warn, []string{"3.2", "pin csi"}},
	{"hosts of another release", changed("h2", func(o *preflight.Object) { o.Version = "7.0.3" }), "host-version", preflight.Warn, []string{"/dc/c/esx2 (ESXi 7.0.3)"}},
	{"snapshots with a vCenter before 7.0 U3", func(s *preflight.Snapshot) { s.Wants.Snapshots, s.VCenters[0].Version = true, "7.0.2.00500" }, "vcenter-version", preflight.Warn, []string{"vc.site (7.0.2.00500)", "no snapshots", "snapshotClasses"}},
	{"snapshots with a host before 7.0 U3", func(s *preflight.Snapshot) {
		s.Wants.Snapshots, s.VCenters[0].Version = true, "7.0.3"
		changed("h1", func(o *preflight.Object) { o.Version = "7.0.3" })(s)
		changed("h2", func(o *preflight.Object) { o.Version = "7.0.1" })(s)
	}, "host-version", preflight.Warn, []string{"/dc/c/esx2 (ESXi 7.0.1)", "no snapshots", "Lifecycle Manager"}},
	{"missing privilege", func(s *preflight.Snapshot) {
		s.VCenters[0].Lacking = []preflight.Lack{{Object: "/", Kind: privileges.Root, Privileges: []string{"Cns.Searchable"}}}
	}, "vcenter-privileges", preflight.Warn, []string{"lacks Cns.Searchable on the vCenter's root", "vdoctl users create --username ADMIN", "vdoctl users plan"}},
	{"certificate that ends soon", func(s *preflight.Snapshot) { s.VCenters[0].CertificateExpires = now.Add(time.Hour) }, "vcenter-certificate", preflight.Warn, []string{"ends on 2027-01-01"}},
	{"certificate that is not checked", func(s *preflight.Snapshot) { s.VCenters[0].Insecure = true }, "vcenter-certificate", preflight.Warn, []string{"spec.thumbprint"}},
	{"Integrated Windows Authentication before vCenter 9", func(s *preflight.Snapshot) {
		s.VCenters[0].Removed.WindowsDomains = []string{"corp.example"}
	}, "vcenter-upgrade", preflight.Warn, []string{"corp.example", "Integrated Windows", "AD over LDAPS"}},
	{"baselines before vCenter 9", func(s *preflight.Snapshot) { s.VCenters[0].Removed.Baselines = []string{"/dc/c"} }, "vcenter-upgrade", preflight.Warn, []string{"/dc/c", "baselines", "image"}},
	{"cloud native storage does not answer", failed(preflight.CNS), "vcenter-cns", preflight.Warn, []string{"vsan-health"}},
	{"tasks not readable", failed(preflight.Tasks), "vcenter-tasks", preflight.Warn, nil},
	{"storage policies not readable", failed(preflight.Policies), "storage-class", preflight.Warn, []string{"StorageProfile.View"}},
	{"one vCenter under two names", func(s *preflight.Snapshot) {
		s.VCenters[0].ID = "1-1"
		s.VCenters = append(s.VCenters, s.VCenters[0])
		s.VCenters[1].Name, s.VCenters[1].Server = "other", "alias.site"
	}, "topology-vcenters", preflight.BlockInstall, []string{"VsphereCloudConfig east too", "by host, not by port"}},
	{"a zone in two vCenters", func(s *preflight.Snapshot) {
		inWest(s)
		s.VCenters[0].Tagged[ref("Folder", "hosts")] = s.VCenters[1].Tagged[ref("HostSystem", "h2")]
	}, "topology-vcenters", preflight.Warn,
		[]string{"north/b", "VsphereCloudConfig west has nodes", "vdoctl topology tag --vcenter east "}},

	{"no datastore in common", oneHostSees(), "datastore-shared", preflight.Warn, []string{"no supported datastore is seen by all hosts"}},
	{"none in common, and all hosts are in maintenance", oneHostSees("h1", "h2"), "datastore-shared", preflight.Warn, []string{"no supported datastore is seen by all hosts"}},
	{"no datastore in one zone", func(s *preflight.Snapshot) {
		s.VCenters[0].Datastores[0].Hosts = map[preflight.Ref]bool{ref("HostSystem", "h1"): true}
	}, "datastore-shared", preflight.Warn, []string{"no supported datastore", "north/b"}},
	{"datastore in maintenance", func(s *preflight.Snapshot) { s.VCenters[0].Datastores[0].Accessible = false }, "datastore-shared", preflight.Warn, []string{"no supported datastore"}},
	{"only NFS 4.1 in common", func(s *preflight.Snapshot) {
		s.Cluster.StorageClasses, s.VCenters[0].Datastores[0].Type = nil, "NFS41"
	}, "datastore-shared", preflight.Warn, []string{"no supported datastore", "not NFS 4.1"}},
	{"StorageClass with a datastore of NFS 4.1", func(s *preflight.Snapshot) { s.VCenters[0].Datastores[0].Type = "NFS41" }, "storage-class", preflight.Warn, []string{"fast (ds:///vsan/)", "no supported datastore", "NFS 4.1"}},
	{"no privilege on any shared datastore", func(s *preflight.Snapshot) { s.VCenters[0].Datastores[0].MayHold = false }, "datastore-shared", preflight.Warn, []string{"Datastore.FileManagement"}},
	{"a host of the zone, without nodes, lacks the datastore", func(s *preflight.Snapshot) { s.VCenters[0].Objects[ref("HostSystem", "h3")] = inZoneA(s) }, "datastore-shared", preflight.Warn, []string{"no supported datastore is seen by all hosts", "north/a"}},
	{"file volumes without vSAN", func(s *preflight.Snapshot) { s.Wants.FileVolumes = true }, "datastore-vsan", preflight.Warn, []string{"no vSAN datastore"}},
	{"file volumes with vSAN elsewhere", func(s *preflight.Snapshot) {
		s.Wants.FileVolumes, s.VCenters[0].Datastores[0].Type = true, "vsan"
	}, "datastore-vsan", preflight.Warn, []string{"no vSAN datastore"}},
	{"no vSAN cluster for file shares", func(s *preflight.Snapshot) {
		s.VCenters[0].Shares = []preflight.Share{{Cluster: "/dc/c"}, {Cluster: "/dc/d"}}
	}, "vcenter-privileges", preflight.Warn, []string{"lacks Host.Config.Storage on each vSAN cluster"}},
	{
		"several tags above a host, before CSI 3.3",
		func(s *preflight.Snapshot) {
			s.Wants.CSIVersion, s.Cluster.Nodes[0].Zones = "3.1.2", map[string]string{newRegion: "north", newZone: "c"}
			zoneOnCluster(s)
		},
		"topology-tag", preflight.BlockInstall, []string{"/dc/c/esx1 (node node-0)", "several tags of zone", "before 3.3"},
	},
	{"a node that the storage driver labeled in another zone", func(s *preflight.Snapshot) {
		s.Cluster.Nodes[2].Zones[csiZone] = "a"
	}, "topology-tag", preflight.Warn,
		[]string{"/dc/c/esx2 (node node-2: " + csiZone + "=a, tag b)", "vdoctl topology tag --vcenter east "}},
	{"a node that joined before topology was configured", func(s *preflight.Snapshot) {
		s.Cluster.Nodes[0].Uninitialized, s.Cluster.Nodes[0].Zones = true, nil // it gets them later
		delete(s.Cluster.Nodes[2].Zones, newZone)
	}, "topology-tag", preflight.Warn,
		[]string{"/dc/c/esx2 (node node-2: no " + newZone + ", tag b)", "only nodes that join", "kubectl label node NAME"}},
	{"a node that the cloud provider labeled in another zone", func(s *preflight.Snapshot) {
		s.Cluster.Nodes[2].Zones[newZone] = "a"
	}, "topology-tag", preflight.Warn,
		[]string{"/dc/c/esx2 (node node-2: topology.kubernetes.io/zone=a, tag b)"}},
	{"StorageClass for a zone without nodes", func(s *preflight.Snapshot) {
		s.Cluster.StorageClasses[0].Allowed = allowing(csiZone, "c", "d")
	}, "storage-class", preflight.Warn,
		[]string{"fast", "no node has", "kubectl edit storageclass fast"}},
	{"StorageClass for a label that is no topology key", func(s *preflight.Snapshot) {
		s.Cluster.StorageClasses[0].Allowed = allowing("topology.kubernetes.io/zone", "a")
	}, "storage-class", preflight.Warn, []string{"keys of its CSINode"}},
	{"StorageClass with a policy that is not there", func(s *preflight.Snapshot) { s.Cluster.StorageClasses[0].Policy = "silver" }, "storage-class", preflight.Warn, []string{"fast (silver)"}},
	{"StorageClass with a policy that no datastore fits", func(s *preflight.Snapshot) {
		s.Cluster.StorageClasses[0].DatastoreURL, s.VCenters[0].Fits["gold"] = "", nil
	}, "storage-class", preflight.Warn, []string{"fast (gold)", "fits none"}},
	{"StorageClass with a datastore that its policy does not fit", func(s *preflight.Snapshot) { s.VCenters[0].Fits["gold"] = nil }, "storage-class", preflight.Warn, []string{"fast (ds:///vsan/)", "their storage policy fits none"}},
	{"StorageClass with a datastore that no vCenter of several has", func(s *preflight.Snapshot) {
		s.Cluster.StorageClasses[0] = preflight.StorageClass{Name: "fast", DatastoreURL: "ds:///x/"}
		s.VCenters = append(s.VCenters, s.VCenters[0])
		s.VCenters[1].Name = "west"
	}, "storage-class", preflight.Warn, []string{"fast (ds:///x/)", "no vCenter has theirs"}},
	{"StorageClass with a datastore that the account may not use", func(s *preflight.Snapshot) { s.VCenters[0].Datastores[0].MayHold = false }, "storage-class", preflight.Warn, []string{"fast", "Datastore.FileManagement", "vdoctl users plan"}},
	{"StorageClass with a datastore that one host sees", oneHostSees(), "storage-class", preflight.Warn, []string{"fast (ds:///vsan/)", "not all hosts (of a zone)"}},
	{"datastore cluster with Storage DRS", func(s *preflight.Snapshot) {
		pod := preflight.Object{Name: "pod", Parent: ref("Datacenter", "dc"), StorageDRS: true}
		s.VCenters[0].Objects[ref("StoragePod", "p")] = pod
		s.VCenters[0].Objects[ref("Datastore", "vsan")] = preflight.Object{Name: "vsan", Parent: ref("StoragePod", "p")}
	}, "datastore-cluster", preflight.Warn, []string{"vsan (in /dc/pod)", "turn Storage DRS off"}},
	{"datastore cluster that the account may not read", func(s *preflight.Snapshot) {
		s.VCenters[0].Objects[ref("Datastore", "vsan")] = preflight.Object{Name: "vsan", Parent: ref("StoragePod", "p")}
	}, "datastore-cluster", preflight.Warn, []string{"vsan", "may not read"}},
	{"a cluster that moves VMs to another zone", movesVMs,
		"topology-host-group", preflight.Warn, []string{"/dc/k8s/node-0 (node node-0)", "cluster.rule.create"}},
	{"slow disk of the control plane", func(s *preflight.Snapshot) { s.VCenters[0].Machines[0].DiskLatency = 101 * time.Millisecond }, "vm-disk-latency", preflight.Warn, []string{"/dc/k8s/node-0 (node node-0, 101ms)", "faster datastore"}},

	{"category that is no key of a label", func(s *preflight.Snapshot) { s.Wants.Categories = append(s.Wants.Categories, "k8s zone") }, "topology-category", preflight.BlockInstall, []string{"k8s zone", "key of a node's label: name part must", "govc tags.category.update -name NEW 'k8s zone'"}},
	{"category that the vCenter lacks", func(s *preflight.Snapshot) { s.Wants.Categories = append(s.Wants.Categories, "rack") }, "topology-category", preflight.BlockInstall, []string{"rack", "`vdoctl topology tag --vcenter east --username ADMIN --attach rack:TAG=PATH`"}},
	{"tag on a VM", zoneOn("VirtualMachine", "vm", "a"), "topology-category", preflight.Warn, []string{"a (of zone, on VirtualMachine:vm)", "no host is in", "govc tags.detach -c CATEGORY a PATH"}},
	{"tag on a folder of VMs", zoneOn("Folder", "vms", "a"), "topology-category", preflight.Warn, []string{"a (of zone, on /dc/k8s)", "no host is in"}},
	{"one name for a region and a zone", func(s *preflight.Snapshot) {
		s.VCenters[0].Tagged[ref("Datacenter", "dc")] = []preflight.Category{{Name: "region", Tag: "a"}}
	}, "topology-category", preflight.Warn, []string{"a\n", "two categories", "govc tags.update -name NEW -c CATEGORY a"}},
	{"host without a zone", func(s *preflight.Snapshot) { delete(s.VCenters[0].Tagged, ref("HostSystem", "h2")) }, "topology-tag", preflight.BlockInstall, []string{"/dc/c/esx2 (node node-2)", "no tag of zone", "vdoctl topology tag "}},
	{"zone that cannot be a label", func(s *preflight.Snapshot) {
		long := []preflight.Category{{Name: "zone", Tag: strings.Repeat("z", 64)}}
		s.VCenters[0].Tagged[ref("HostSystem", "h2")] = long
	}, "topology-tag", preflight.BlockInstall,
		[]string{"/dc/c/esx2 (node node-2)", "must be no more than 63", "rename it"}},
	{"several vCenters without categories", func(s *preflight.Snapshot) {
		s.Wants.Categories = nil
		s.VCenters = append(s.VCenters, preflight.VCenter{Use: west, Version: "8.0.3"})
	}, "topology-vcenters", preflight.BlockInstall, []string{"topologyCategories"}},
	{"cluster id twice", func(s *preflight.Snapshot) { s.Cluster.KeptClusterID = "b" }, "cluster-id", preflight.BlockInstall, []string{"vsphere-csi-cluster-id", "take clusterID out"}},
	{"cluster that cannot be read", func(s *preflight.Snapshot) {
		s.Cluster = preflight.Cluster{Err: &fault.Error{Reason: fault.Unreachable, Op: "read the cluster", Err: errors.New("connection refused"), Hint: "see --kubeconfig"}}
	}, "cluster", preflight.BlockInstall, []string{"connection refused", "--kubeconfig"}},
}

func vcenterError(r fault.Reason, op string) func(*preflight.Snapshot) {
	return func(s *preflight.Snapshot) {
		s.VCenters[0].Err = &fault.Error{Reason: r, Op: op, Subject: "vc.site:443", Err: errors.New("why it failed"), Hint: "do this"}
	}
}

func failed(p preflight.Part) func(*preflight.Snapshot) {
	return func(s *preflight.Snapshot) {
		s.VCenters[0].Failed[p] = &fault.Error{Reason: fault.Forbidden, Op: "read", Err: errors.New("denied")}
	}
}

// Each check has a case. Remedies lose nothing that is not the finding itself: a snapshot may be a backup, which change
// tracking serves.
func TestWhatIsAmissIsFoundByTheCheckForIt(t *testing.T) {
	untried := preflight.IDs()
	for _, c := range failing {
		untried = slices.DeleteFunc(untried, func(id preflight.ID) bool { return id == c.id })
		t.Run(c.name, func(t *testing.T) {
			s := healthy()
			c.change(&s)
			said := map[string]bool{}
			for _, r := range preflight.Check(s) {
				require.NotRegexp(t, `snapshot\.remove|ctkEnabled=FALSE|(destroy|kubectl delete|rm) `, r.Remedy)
				if r.Action == preflight.Pass {
					continue
				}
				key := fmt.Sprintf("%s in %q: %s", r.ID, r.On, r.Found)
				require.False(t, said[key], "%s is said once for all drivers", key)
				require.False(t, r.Stops && r.Action == preflight.Warn, "%s stops no driver", key)
				said[key] = true
				if r.ID != c.id || said[string(c.id)] {
					continue
				}
				said[string(c.id)] = true
				require.Equal(t, c.action, r.Action, "%+v", r)
				require.NotEqual(t, preflight.Info, r.Severity)
				require.NotEmpty(t, r.Why)
				text := r.Found + "\n" + r.Named() + "\n" + r.Remedy
				for _, fragment := range c.text {
					require.Contains(t, text, fragment)
				}
			}
			require.Contains(t, said, string(c.id))
		})
	}
	require.Empty(t, untried)
}

func changed(name string, change func(*preflight.Object)) func(*preflight.Snapshot) {
	return func(s *preflight.Snapshot) {
		for r, o := range s.VCenters[0].Objects {
			if r.Value == name {
				change(&o)
				s.VCenters[0].Objects[r] = o
			}
		}
	}
}

func zoneOn(kind, value, tag string) func(*preflight.Snapshot) {
	return func(s *preflight.Snapshot) {
		s.VCenters[0].Tagged[ref(kind, value)] = []preflight.Category{{Name: "zone", Tag: tag}}
	}
}

// inWest has the last node and its zone in a second vCenter.
func inWest(s *preflight.Snapshot) {
	east := &s.VCenters[0]
	west := *east
	west.Name, west.Machines, west.Tagged = "west", slices.Clone(west.Machines[2:]), maps.Clone(west.Tagged)
	east.Machines = east.Machines[:2]
	delete(east.Tagged, ref("HostSystem", "h2"))
	delete(west.Tagged, ref("HostSystem", "h1"))
	s.VCenters = append(s.VCenters, west)
}

// oneHostSees has a datastore that the first host alone sees, and hosts in maintenance.
func oneHostSees(inMaintenance ...string) func(*preflight.Snapshot) {
	return func(s *preflight.Snapshot) {
		s.Wants.Categories = nil
		s.VCenters[0].Datastores[0].Hosts = map[preflight.Ref]bool{ref("HostSystem", "h1"): true}
		for _, h := range inMaintenance {
			changed(h, func(o *preflight.Object) { o.Maintenance = true })(s)
		}
	}
}

// movesVMs has DRS move VMs between the hosts of the cluster, which are in two zones.
var movesVMs = changed("c", func(o *preflight.Object) { o.MovesVMs = true })

// What the checks find only where they have to: each of these is as it should be.
func TestWhatLooksLikeAFindingPasses(t *testing.T) {
	require.Len(t, preflight.Check(healthy()), len(preflight.IDs()), "it meets every check")
	for name, change := range map[string]func(*preflight.Snapshot){
		"nothing is amiss": func(*preflight.Snapshot) {},
		"rules bind VMs to the hosts of their zone": func(s *preflight.Snapshot) {
			movesVMs(s)
			s.VCenters[0].Bound = map[preflight.Ref][]preflight.Ref{}
			for _, m := range s.VCenters[0].Machines {
				s.VCenters[0].Bound[m.Ref] = []preflight.Ref{m.Host}
			}
		},
		"a StorageClass for one zone with nodes": func(s *preflight.Snapshot) {
			s.Cluster.StorageClasses[0].Allowed = allowing(csiZone, "c", "b")
		},
		"a password that ends later": func(s *preflight.Snapshot) { s.VCenters[0].Ends = now.Add(14 * 24 * time.Hour) },
		"a StorageClass for a zone, before nodes are registered": func(s *preflight.Snapshot) {
			s.Cluster.StorageClasses[0].Allowed, s.Cluster.StorageInstalled = allowing(csiZone, "a"), false
			for i := range s.Cluster.Nodes {
				s.Cluster.Nodes[i].TopologyKeys = nil
				delete(s.Cluster.Nodes[i].Zones, csiRegion)
				delete(s.Cluster.Nodes[i].Zones, csiZone)
			}
		},
		"a provider id of RKE2, without the cloud provider": func(s *preflight.Snapshot) {
			s.Wants.CPI, s.Cluster.Nodes[1].ProviderID = false, "rke2://node-1"
		},
		"a host in maintenance lacks the datastore": oneHostSees("h2"),
		"a slow disk of a worker":                   func(s *preflight.Snapshot) { s.VCenters[0].Machines[1].DiskLatency = time.Second },
		"file shares of a datastore that not all hosts see": func(s *preflight.Snapshot) {
			v := &s.VCenters[0]
			shares := v.Datastores[0]
			shares.URL, shares.Type, shares.Inside, shares.Hosts = "ds:///shares/", "vsan", true, nil
			v.Datastores = append(v.Datastores, shares)
			c := &s.Cluster.StorageClasses[0]
			c.Policy, c.DatastoreURL, c.FSType = "", shares.URL, "nfs4"
		},
		"a datastore of one of several vCenters": func(s *preflight.Snapshot) {
			s.Cluster.StorageClasses[0].Policy = ""
			west := s.VCenters[0]
			west.Name, west.Machines, west.Datastores, west.Tagged = "west", nil, nil, nil
			s.VCenters = append(s.VCenters, west)
		},
		"changed block tracking is on in another vCenter": func(s *preflight.Snapshot) {
			inWest(s)
			s.VCenters[1].Machines[0].ChangeTracking = true
		},
		"a user name without a domain, before CSI 3.1": func(s *preflight.Snapshot) {
			s.VCenters[0].Username, s.Wants.CSIVersion = "vdo", "3.0.3"
		},
		"vCenter 6.7 with CSI 3.1": func(s *preflight.Snapshot) {
			s.VCenters[0].Version, s.Wants.CSIVersion = "6.7.0", "3.1.2"
			changed("h1", func(o *preflight.Object) { o.Version = "6.7.0" })(s)
			changed("h2", func(o *preflight.Object) { o.Version = "6.7.0" })(s)
		},
		"one account under a name for each driver": func(s *preflight.Snapshot) {
			s.VCenters[0].ID = "1-1"
			storage := s.VCenters[0]
			storage.Name, storage.CPI, storage.Username = "storage", false, `VSPHERE.LOCAL\vdo`
			s.VCenters[0].CSI = false
			s.VCenters[0].Excess = []preflight.Lack{
				{Object: "/", Kind: privileges.Root, Privileges: []string{"Cns.Searchable"}},
			}
			s.VCenters = append(s.VCenters, storage)
		},
		"a storage driver that volumes keep": func(s *preflight.Snapshot) {
			s.Wants.CSI, s.VCenters[0].CSI = false, false
			s.VCenters[0].Excess = []preflight.Lack{
				{Object: "/", Kind: privileges.Root, Privileges: []string{"Cns.Searchable", "Host.Config.Storage"}},
			}
		},
		"a datastore cluster without Storage DRS": func(s *preflight.Snapshot) {
			s.VCenters[0].Objects[ref("StoragePod", "p")] = preflight.Object{Name: "pod"}
			s.VCenters[0].Objects[ref("Datastore", "vsan")] = preflight.Object{Parent: ref("StoragePod", "p")}
		},
	} {
		s := healthy()
		change(&s)
		for _, r := range preflight.Check(s) {
			require.Equal(t, preflight.Pass, r.Action, "%s: %+v", name, r)
			require.Equal(t, preflight.Info, r.Severity, "%s: %+v", name, r)
		}
	}
}

func TestAnUnreadPartIsFoundOnce(t *testing.T) {
	for part, id := range map[preflight.Part]preflight.ID{
		preflight.Privileges: "vcenter-privileges", preflight.Tags: "topology-category",
	} {
		s := healthy()
		failed(part)(&s)
		switch v := &s.VCenters[0]; part { // as an inspection leaves it
		case preflight.Privileges:
			v.Datastores[0].MayHold = false
		case preflight.Tags:
			v.Tagged = nil
			v.Datastores[0].Hosts = map[preflight.Ref]bool{ref("HostSystem", "h1"): true}
		}
		for _, r := range preflight.Check(s) {
			require.Equal(t, r.ID == id, r.Action == preflight.Warn, "%s: %+v", part, r)
		}
	}
}

func TestAVCenterThatIsAwayHidesNothingOfAnother(t *testing.T) {
	s := healthy()
	s.VCenters[0].Machines[1].DiskUUID = false
	s.VCenters = append([]preflight.VCenter{{Use: west, Server: "west.site", Err: &fault.Error{Reason: fault.Unreachable, Op: "connect to", Err: errors.New("no route")}}}, s.VCenters...)
	ids := map[preflight.ID]string{}
	for _, r := range preflight.Check(s) {
		if r.Action != preflight.Pass {
			ids[r.ID] = r.On
		}
	}
	require.Equal(t, map[preflight.ID]string{"vcenter-connection": "west", "vm-disk-uuid": "east"}, ids)
}

// While a name of the configuration leads nowhere, what drivers need in the other vCenters is not
// known: it may be meant for one of them.
func TestWhatIsTooMuchIsNotToldWhileANameLeadsNowhere(t *testing.T) {
	s := healthy()
	s.VCenters[0].CSI = false
	s.VCenters[0].Excess = []preflight.Lack{{Object: "/", Kind: privileges.Root, Privileges: []string{"Cns.Searchable"}}}
	s.VCenters = append(s.VCenters, preflight.VCenter{Use: preflight.Use{Name: "nope", CSI: true}, Unresolved: true, Err: &fault.Error{Reason: fault.NotFound, Op: "read", Subject: "VsphereCloudConfig nope", Err: errors.New("not found")}})
	results := preflight.Check(s)
	require.False(t, slices.ContainsFunc(results, func(r preflight.Result) bool { return r.ID == "vcenter-excess" }), "%+v", results)
}

func TestOutputIsBounded(t *testing.T) {
	s := healthy()
	m, n := s.VCenters[0].Machines[0], s.Cluster.Nodes[0]
	s.VCenters[0].Machines, s.Cluster.Nodes = nil, nil
	for i := range 5000 {
		n.Name, n.UUID = fmt.Sprintf("node-%04d", i), fmt.Sprintf("%08d-aabb-ccdd-eeff-001122334455", i)
		n.ProviderID = "vsphere://" + n.UUID
		m.Name, m.HostName, m.UUID, m.Ref.Value = n.Name, "x"+n.Name, n.UUID, n.Name
		m.DiskUUID, m.Hardware = false, fmt.Sprintf("vmx-%d", i%15)
		s.Cluster.Nodes, s.VCenters[0].Machines = append(s.Cluster.Nodes, n), append(s.VCenters[0].Machines, m)
	}
	results := preflight.Check(s)
	for _, r := range results {
		require.LessOrEqual(t, len(r.Objects), preflight.MaxObjects)
		if r.ID == "vm-disk-uuid" || r.ID == "vm-hardware" {
			require.Equal(t, 5000, r.Count)
			require.True(t, strings.HasSuffix(r.Named(), " and 4995 more"), r.Named())
		}
	}
	data := must.Have(json.Marshal(results))(t)
	require.Less(t, len(data), 32_000)
}

// Who may name a VM has nothing run where a remedy is copied into a shell, and nothing
// moved on a terminal that shows a status.
func TestNamesAreTextAlone(t *testing.T) {
	s := healthy()
	m := &s.VCenters[0].Machines[1]
	m.ToolsRunning, m.Name = false, "it's (1); reboot"
	path := s.VCenters[0].MachinePath(m)
	require.Contains(t, path, m.Name)
	find := func() preflight.Result {
		results := preflight.Check(s)
		i := slices.IndexFunc(results, func(r preflight.Result) bool { return r.ID == "vm-tools" })
		return results[i]
	}
	r := find()
	require.Equal(t, []string{path + " (node node-1)"}, r.Objects)
	require.Contains(t, r.Remedy, `govc vm.info '`+strings.ReplaceAll(path, "'", `'\''`)+`'`)

	m.Name = "a\x1b[2Jb\u202ec\n"
	r = find()
	st := preflight.Status([]preflight.Result{r})
	data := must.Have(json.Marshal(st))(t)
	for _, text := range []string{string(data), preflight.Gate([]preflight.Result{r})[matrix.CPI].Err.Error()} {
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text, `\u001b`)
		require.NotContains(t, text, "\u202e")
	}
}

func TestUUIDsInBothByteOrders(t *testing.T) {
	const bios, kernel = "4201a8c4-1122-3344-5566-77889900aabb", "c4a80142-2211-4433-5566-77889900aabb"
	require.Equal(t, kernel, preflight.Swapped(bios))
	require.True(t, preflight.SameUUID(strings.ToUpper(bios), bios))
	require.True(t, preflight.SameUUID(kernel, bios))
	require.False(t, preflight.SameUUID("", ""))
	require.Equal(t, "odd", preflight.Swapped("odd"))
	s := healthy()
	s.Cluster.Nodes[0].UUID = preflight.Swapped(s.Cluster.Nodes[0].UUID)
	require.Equal(t, preflight.Pass, preflight.Worst(preflight.Check(s)))
}

// inZoneA is a further host, tagged with the zone a.
func inZoneA(s *preflight.Snapshot) preflight.Object {
	s.VCenters[0].Tagged[ref("HostSystem", "h3")] = []preflight.Category{{Name: "zone", Tag: "a"}}
	return preflight.Object{Name: "esx3", Parent: ref("ClusterComputeResource", "c"), Version: "8.0.3"}
}

var zoneOnCluster = zoneOn("ClusterComputeResource", "c", "c")

// The drivers take the tag of a higher object until each category has one.
func TestZonesAreThoseOfTheDrivers(t *testing.T) {
	s := healthy()
	zoneOnCluster(&s)
	levels := func() string {
		return string(must.Have(json.Marshal(preflight.Placements(s)[0].Levels))(t))
	}
	require.JSONEq(t, `[{"category": "region", "tag": "north", "on": "/dc"},
		{"category": "zone", "tag": "c", "on": "/dc/c", "overruled": ["a on /dc/c/esx1"]}]`, levels())
	require.Len(t, preflight.Zones(s), 1)

	s = healthy() // with the region found at the host, the walk ends there
	for _, host := range []string{"h1", "h2"} {
		r := ref("HostSystem", host)
		s.VCenters[0].Tagged[r] = append(s.VCenters[0].Tagged[r], preflight.Category{Name: "region", Tag: "south"})
	}
	zoneOnCluster(&s)
	require.JSONEq(t, `[{"category": "region", "tag": "south", "on": "/dc/c/esx1", "overruled": ["north on /dc"]},
		{"category": "zone", "tag": "a", "on": "/dc/c/esx1", "overruled": ["c on /dc/c"]}]`, levels())

	s = healthy() // before 3.0 the storage driver looks at hosts with nodes only
	s.VCenters[0].Objects[ref("HostSystem", "h3")] = inZoneA(&s)
	s.Wants.CSIVersion = "2.7.3"
	require.Equal(t, []string{"vsan"}, preflight.Zones(s)[0].Datastores)
	s.Wants.CSIVersion = "3.0.3"
	require.Empty(t, preflight.Zones(s)[0].Datastores)
}

// The operator's checks know of file volumes, which shared classes want, and of encryption as users plan does.
func TestFeaturesFollowTheConfiguration(t *testing.T) {
	storage := &v1alpha1.StorageProvider{VsphereCloudConfig: "east", Encryption: true,
		StorageClasses: []v1alpha1.StorageClass{{Name: "shared", FSType: "nfs4"}}}
	wants, uses := preflight.WantsOf(&v1alpha1.VDOConfigSpec{StorageProvider: storage})
	features := wants.FeaturesAt(uses[0], &preflight.Cluster{})
	require.True(t, features.File)
	require.Empty(t, privileges.Beyond(features, []string{"Cryptographer.AddDisk"}))
	require.Contains(t, privileges.Needed(features, privileges.VM), "Cryptographer.AddDisk")
	for others, more := range map[privileges.Features][]string{ // clusters share the role for VMs
		{Block: true}: nil, {CPI: true}: {"Cryptographer.AddDisk"},
	} {
		require.Equal(t, more, privileges.Beyond(others, []string{"Cryptographer.AddDisk"}))
	}

	storage.StorageClasses[0].FSType = "xfs"
	wants, uses = preflight.WantsOf(&v1alpha1.VDOConfigSpec{StorageProvider: storage})
	for fsType, file := range map[string]bool{"": false, "ext4": false, "nfs4": true} {
		users := preflight.Cluster{StorageClasses: []preflight.StorageClass{{Name: "own", FSType: fsType}}}
		require.Equal(t, file, wants.FeaturesAt(uses[0], &users).File, fsType)
	}
}

// The node's own VM is in a vCenter or datacenter that the configuration lacks. Another VM, of another
// cluster say, reports the same host name: its guest's root sets it.
func TestAVMOfANodesNameIsNotChanged(t *testing.T) {
	foreign := preflight.Machine{Ref: preflight.Ref{Type: "VirtualMachine", Value: "vm-9"}, Name: "somebody-elses", UUID: "42220000-0000-0000-0000-000000000009", On: true, Hardware: "vmx-13"}
	foreign.HostName = "worker-1"
	v := preflight.VCenter{Use: west, Contents: preflight.Contents{Machines: []preflight.Machine{foreign}}}
	s := preflight.Snapshot{VCenters: []preflight.VCenter{v}, Cluster: preflight.Cluster{Nodes: []preflight.Node{
		{Name: "worker-1", UUID: "42110000-0000-0000-0000-000000000001"}}}}
	require.Empty(t, preflight.NodeMachines(s)) // what vms fix shuts down
}

func TestWhatAFindingKeepsBackOfWhichDriver(t *testing.T) {
	const none, release, all = "", "release", "release and configuration"
	for name, c := range map[string]struct {
		change   func(*preflight.Snapshot)
		cpi, csi string
	}{
		"nothing amiss":       {func(*preflight.Snapshot) {}, none, none},
		"a warning":           {func(s *preflight.Snapshot) { s.VCenters[0].Machines[0].Snapshots = 1 }, none, none},
		"no VM behind a node": {func(s *preflight.Snapshot) { s.VCenters[0].Machines = s.VCenters[0].Machines[:2] }, release, release},
		"disk.EnableUUID is the storage driver's": {func(s *preflight.Snapshot) { s.VCenters[0].Machines[0].DiskUUID = false }, none, release},
		"Tools are the cloud provider's":          {func(s *preflight.Snapshot) { s.VCenters[0].Machines[0].ToolsRunning = false }, release, none},
		"a user name that CSI refuses":            {func(s *preflight.Snapshot) { s.VCenters[0].Username = "vdo" }, none, all},
		"an in-tree cloud provider":               {func(s *preflight.Snapshot) { s.Cluster.CloudProviders["0"] = "vsphere" }, release, none},
		"a category of the storage driver alone":  {func(s *preflight.Snapshot) { s.Wants.Categories = []string{"region", "zone", "rack"} }, none, all},
		"a category of both":                      {func(s *preflight.Snapshot) { delete(s.VCenters[0].Categories, "zone") }, all, all},
		"a category of the cloud provider alone":  {func(s *preflight.Snapshot) { s.Wants.Zone = "rack" }, all, none},
		"a category that a vCenter of the cloud provider lacks": {func(s *preflight.Snapshot) {
			other := s.VCenters[0]
			other.Name, other.CSI, other.Categories, other.Machines = "west", false, nil, nil
			s.VCenters = append(s.VCenters, other)
		}, all, none},
		"a vCenter of the storage driver that is away": {func(s *preflight.Snapshot) {
			s.VCenters = append(s.VCenters, preflight.VCenter{Use: west, Err: &fault.Error{Reason: fault.Unreachable, Op: "connect to", Subject: "west", Err: errors.New("refused")}})
		}, none, all},
		"a driver that is not asked for": {func(s *preflight.Snapshot) {
			s.Wants.CPI, s.VCenters[0].CPI = false, false
			delete(s.VCenters[0].Categories, "zone")
		}, none, all},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			c.change(&s)
			results := preflight.Check(s)
			gates := func(d matrix.Driver) string {
				h := preflight.Gate(results)[d]
				switch {
				case h.Configuration:
					return all
				case h.Err != nil:
					return release
				}
				return none
			}
			require.Equal(t, []string{c.cpi, c.csi}, []string{gates(matrix.CPI), gates(matrix.CSI)})
			// What the status lists keeps back the same: a restart forgets nothing.
			require.Equal(t, preflight.Gate(results), preflight.Gate(preflight.Listed(preflight.Status(results))))
		})
	}
}

func TestAHoldSaysWhatToDo(t *testing.T) {
	s := healthy()
	s.Wants.Categories = []string{"region", "zone", "rack"}
	err := preflight.Gate(preflight.Check(s))[matrix.CSI].Err
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	for _, want := range []string{"topology-category in vCenter east", "no tag category of this name: rack", "vdoctl topology tag --vcenter east --username ADMIN --attach rack:TAG=PATH"} {
		require.Contains(t, fault.Text(err), want)
	}
	for reason, want := range map[fault.Reason]fault.Reason{
		fault.Unreachable: fault.Unreachable, fault.CertificateInvalid: fault.Refused, // only the former may pass
	} {
		s.VCenters[0].Err = fault.Errorf(reason, "connect to", "vc.site", "", "a cause")
		h := preflight.Gate(preflight.Check(s))[matrix.CSI]
		require.Equal(t, want, fault.ReasonOf(h.Err))
		require.True(t, h.Configuration)
	}
}

func turn(id string, a v1alpha1.PreflightAction) v1alpha1.PreflightCheck {
	return v1alpha1.PreflightCheck{ID: id, Action: a, Reason: "a lab"}
}

func TestACheckIsTurnedDown(t *testing.T) {
	s := healthy()
	s.VCenters[0].Machines[0].DiskUUID = false
	s.VCenters[0].Machines[1].Hardware = "vmx-13"
	s.VCenters[0].Machines[2].Hardware = "vmx-14"
	raw := preflight.Check(s)
	got := preflight.Turned(raw, &v1alpha1.PreflightPolicy{Checks: []v1alpha1.PreflightCheck{
		turn("vm-disk-uuid", v1alpha1.PreflightWarn), turn("vm-hardware", v1alpha1.PreflightDisabled), turn("vm-scsi", v1alpha1.PreflightWarn)}})
	require.Equal(t, preflight.Warn, preflight.Worst(got))
	require.Empty(t, preflight.Gate(got))
	st := preflight.Status(got)
	require.Equal(t, len(preflight.IDs())-2, st.Passed, "a check that passed stays one")
	require.Len(t, st.Results, 2)
	uuid, hardware := st.Results[0], st.Results[1]
	require.Equal(t, []string{"vm-disk-uuid", "Warn", "BlockInstall", "a lab"}, []string{uuid.ID, uuid.Action, uuid.Override.Was, uuid.Override.Reason})
	require.Contains(t, uuid.Objects[0], "node-0")
	require.Equal(t, []string{"vm-hardware", "Disabled", "BlockInstall"}, []string{hardware.ID, hardware.Action, hardware.Override.Was})

	down := []v1alpha1.PreflightCheck{turn("vcenter-account", v1alpha1.PreflightWarn)}
	unread := []preflight.Result{{ID: "vcenter-account", Action: preflight.BlockInstall, Stops: true}}
	unread = preflight.Turned(unread, &v1alpha1.PreflightPolicy{Checks: down})
	require.False(t, unread[0].Stops)
	for of, shown := range map[preflight.ID]int{
		"vm-tools": 1, "topology-vcenters": 1, "cluster-id": 0, "image-platform": 0,
		"node-cloud-provider": 0, "node-control-plane": 0, "node-registered": 0,
	} {
		require.Len(t, preflight.Only(unread, func(id preflight.ID) bool { return id == of }), shown, of)
	}

	require.Equal(t, preflight.BlockInstall, preflight.Worst(raw), "what was found is not changed")
	require.Equal(t, raw, preflight.Turned(raw, nil))
}

func TestAStatusCutsNoCommand(t *testing.T) {
	long := preflight.Result{ID: "cluster", Action: preflight.Warn}
	long.Found = "`one`, `two" + strings.Repeat(" and", 200) + "`"
	require.Equal(t, "`one`, …", preflight.Status([]preflight.Result{long}).Results[0].Found)
}

// Whatever fails, and however long its texts are, the status is bounded, and keeps back
// what all results do.
func TestAStatusIsBoundedAndKeepsWhatDecides(t *testing.T) {
	long := strings.Repeat("ünï", 3000)
	var results []preflight.Result
	for i := range 40 {
		for _, id := range preflight.IDs() {
			results = append(results, preflight.Result{ID: id, Action: preflight.BlockInstall, Drivers: []matrix.Driver{matrix.CPI}, On: fmt.Sprint("vc-", i),
				Objects: slices.Repeat([]string{long}, preflight.MaxObjects), Count: 5000, Found: long, Why: long, Remedy: long})
		}
	}
	results = append(results,
		preflight.Result{ID: "vm-scsi", Action: preflight.BlockInstall, Drivers: []matrix.Driver{matrix.CSI}, Found: "of csi"},
		preflight.Result{ID: "topology-tag", Action: preflight.BlockInstall, Stops: true, Drivers: []matrix.Driver{matrix.CSI}, Found: "stops csi"})
	st := preflight.Status(results)
	data := must.Have(json.Marshal(st))(t)
	require.Less(t, len(data), 48<<10)
	require.Equal(t, len(results), len(st.Results)+st.Omitted)
	full, listed := preflight.Gate(results), preflight.Gate(preflight.Listed(st))
	for _, d := range []matrix.Driver{matrix.CPI, matrix.CSI} {
		full, listed := full[d], listed[d]
		require.NotNil(t, listed.Err)
		full.Err, listed.Err = nil, nil
		require.Equal(t, full, listed, d)
	}
}

func TestTheCRDKnowsTheChecks(t *testing.T) {
	data := must.Have(os.ReadFile("../../../deploy/crds/vdo.vmware.com_vdoconfigs.yaml"))(t)
	var crd map[string]any
	require.NoError(t, yaml.Unmarshal(data, &crd))
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	require.NoError(t, err)
	schema, _ := versions[0].(map[string]any)
	checks := strings.Split("schema openAPIV3Schema properties spec properties preflight properties checks items properties id enum", " ")
	got, found, err := unstructured.NestedStringSlice(schema, checks...)
	require.NoError(t, err)
	require.True(t, found)
	want := []string{"vm-folder", "node-zone-labels", "datastore-space", "node-address", "vcenter-clock", "node-uninitialized"} // were ones once
	for _, id := range preflight.IDs() {
		want = append(want, string(id))
	}
	require.ElementsMatch(t, want, got, "api/v1alpha1/preflight.go, and make generate")
}
