package preflight

import (
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// checks returns the table. `make generate` publishes its texts, so they are literals.
func checks() []check {
	return append([]check{
		{
			id: "cluster", worst: BlockInstall, stops: true, when: clusterRequested, run: unreadCluster,
			reads: "nodes, StorageClasses, CSINodes", fails: "the API server cannot be read",
			why:    "nodes, and what is installed, are read from the API server",
			remedy: "see --kubeconfig and the permissions of the account", source: "Kubernetes API",
		},
		{
			id: "cluster-id", worst: BlockInstall, of: matrix.CSI, stops: true, when: clusterRead, run: clusterID,
			reads: "ConfigMap vsphere-csi-cluster-id, spec.storageProvider.clusterID", fails: "the cluster id is given twice",
			why:    "the storage driver ends at its start when it finds both",
			remedy: "take clusterID out of the VDOConfig: volumes are known by the one in the ConfigMap",
			source: "vsphere-csi-driver pkg/common/config/config.go",
		},
		{
			id: "topology-vcenters", worst: BlockInstall, of: matrix.CSI, stops: true,
			when: anyVCenter, run: severalVCenters,
			reads: "vsphereCloudConfigs, topologyCategories", fails: "several vCenters have no categories, are more than five, or one is there twice; a warning: a zone in two",
			why:    "the storage driver ends at its start otherwise, or does not know in which vCenter a zone is",
			remedy: "name the tag categories of regions and zones in spec.storageProvider.topologyCategories",
			source: "vsphere-csi-driver pkg/common/config/config.go",
		},
		{
			id: "vcenter-connection", worst: BlockInstall, stops: true, when: anyVCenter, seen: allAnswered,
			run:   failed(connection),
			reads: "TLS certificate, API versions, inventory", fails: "the vCenter does not answer",
			why:    "the drivers cannot work without it; other vCenters were checked all the same",
			remedy: "see that the vCenter runs", source: "vSphere API",
		},
		{
			id: "vcenter-account", worst: BlockInstall, stops: true, when: anyVCenter, run: accounts, seen: allAnswered,
			reads: "Secret, login", fails: "vCenter refuses the login, or CSI the form of the user name",
			why:    "the drivers log in with it; one whose login is refused tries again and again, until the account is locked",
			remedy: "correct the Secret that spec.credentials names", source: "vsphere-csi-driver pkg/common/config/config.go",
		},
		{
			id: "vcenter-datacenters", worst: BlockInstall, stops: true, when: anyVCenter, seen: allAnswered,
			run:   failed("vcenter-datacenters"),
			reads: "datacenters and their folders", fails: "a configured datacenter is missing or not readable",
			why:    "nodes and volumes are looked for in the datacenters of the configuration alone",
			remedy: "correct spec.datacenters", source: "vsphere-csi-driver pkg/common/cns-lib/vsphere/datacenter.go",
		},
		{
			id: "vcenter-version", worst: BlockInstall, stops: true, when: anyVCenter, run: versions, seen: allAnswered,
			reads: "about", fails: "the server is no vCenter, another one than before, older than 6.7 U3, or too old for CSI or for snapshots",
			why:    "the drivers work with no other server, and the storage driver ends at its start with an older vCenter",
			remedy: "upgrade the vCenter to 7.0 U3 or later", source: "vsphere-csi-driver pkg/csi/service/common/common_controller_helper.go",
		},
		{
			id: "vcenter-privileges", worst: Warn, when: someReadable, part: Privileges, run: vcenters(lacking),
			reads: "HasUserPrivilegeOnEntities", fails: "the account lacks a privilege on an object",
			why:    "a call without its privilege fails when the first volume is made or attached, not at the start",
			remedy: "give it what it needs: `vdoctl users create --username ADMIN`; or as a script for the vCenter: `vdoctl users plan -o govc`",
			source: "CSI documentation, roles and privileges; vsphere-problem-detector pkg/check/permissions.go",
		},
		{
			id: "vcenter-excess", worst: Warn, when: needsKnown, part: Excess, run: vcenters(excess),
			reads: "FetchUserPrivilegeOnEntities", fails: "the account has a privilege that the drivers never need",
			why:    "whoever reads the account's password, on a node or in a backup, may do as much",
			remedy: "give the drivers an account of their own: `vdoctl users rotate --username ADMIN --principal NAME@DOMAIN --secret NAME`, or `vdoctl users plan --principal NAME@DOMAIN -o govc`",
			source: "CSI documentation, roles and privileges",
		},
		{
			id: "vcenter-certificate", worst: BlockInstall, stops: true, when: anyVCenter, seen: someReadable,
			run:   certificates,
			reads: "TLS certificate", fails: "the certificate is not trusted, not checked, or ends within 30 days",
			why:    "every connection of the drivers fails if it is not trusted, has ended, or is replaced where a thumbprint is configured",
			remedy: "renew it: vSphere Client > Administration > Certificates > Certificate Management; then correct spec.thumbprint, where it is set",
			source: "vSphere documentation, Certificate Management",
		},
		{
			id: "vcenter-tasks", worst: Warn, when: someReadable, part: Tasks, run: nothing,
			reads: "TaskManager.recentTask", fails: "tasks cannot be read",
			why:    "the drivers wait for tasks: without reading them a volume is made and the call fails all the same",
			remedy: "give the account the role ReadOnly on the vCenter's root", source: "vsphere-problem-detector pkg/check/tasks.go",
		},
		{
			id: "vcenter-cns", worst: Warn, of: matrix.CSI, when: someReadable, part: CNS, run: nothing,
			reads: "CnsQueryVolume", fails: "cloud native storage does not answer",
			why:    "volumes are made through cloud native storage",
			remedy: "start the service vsan-health in the vCenter", source: "govmomi cns/client.go",
		},
		{
			id: "vcenter-upgrade", worst: Warn, when: upgradeRequested, part: Upgrade, run: vcenters(removedByNine),
			reads: "identity sources, clusters' software enablement; with an administrator's login", fails: "vCenter 7 or 8 uses Integrated Windows Authentication or baselines",
			why:    "vSphere 9 removes both: users of that domain cannot log in, and hosts of that cluster get no patches",
			remedy: "before an upgrade to vCenter 9, replace them", source: "Broadcom KB 314324, KB 379388",
		},
		{
			id: "host-version", worst: Warn, of: matrix.CSI, when: machinesKnown, run: machines(hostVersions),
			reads: "summary.config.product.version of the nodes' hosts", fails: "a host has another release than its vCenter, or makes no snapshots",
			why:    "new features of the storage driver work only when all hosts have the vCenter's release",
			remedy: "upgrade the hosts: vSphere Client > Lifecycle Manager", source: "vsphere-problem-detector pkg/check/node_esxi_version.go",
		},
		{
			id: "node-vm", worst: BlockInstall, when: machinesKnown, run: nodeVMs,
			reads: "config.uuid and guest.hostName of all VMs", fails: "a node has no VM in a driver's vCenters, or several, by UUID or name; nodes share one",
			why:    "the cloud provider and the storage driver know a node by its VM; without it nothing is attached, and the node may be deleted",
			remedy: "compare `kubectl get node {} -o jsonpath='{.status.nodeInfo.systemUUID}'` with `govc vm.info -vm.uuid`; correct spec.datacenters, or give the account ReadOnly on the VM and what it is in",
			source: "cloud-provider-vsphere pkg/cloudprovider/vsphere/nodemanager.go; vsphere-problem-detector pkg/check/nodes.go",
		},
		{
			id: "node-name", worst: Warn, of: matrix.CPI, when: machinesKnown, run: nodeNames,
			reads: "guest.hostName", fails: "it differs from the node's name, also in case",
			why:    "the cloud provider looks new nodes up by name, letter by letter",
			remedy: "set the same name in the guest, then register the node again: `hostnamectl set-hostname {}`",
			source: "cloud-provider-vsphere pkg/cloudprovider/vsphere/nodemanager.go",
		},
		{
			id: "node-provider-id", worst: BlockInstall, of: matrix.CPI, when: nodesKnown, run: providerIDs,
			reads: "spec.providerID", fails: "it is of another VM or cloud, or the cloud provider cannot set it",
			why:    "it is set once, by the cloud provider, and only on nodes that the kubelet has tainted",
			remedy: "drain the node, delete it, and join it again", source: "cloud-provider-vsphere documentation; vsphere-problem-detector pkg/check/node_provider.go",
		},
		{
			id: "node-cloud-provider", worst: BlockInstall, of: matrix.CPI,
			when: controllersSeen, run: inTree,
			reads: "arguments of kube-controller-manager pods, of k3s and of RKE2; other kubelets show none", fails: "--cloud-provider is neither empty nor external",
			why:    "an in-tree provider sets up and deletes nodes as the cloud provider does",
			remedy: "start it and each kubelet with --cloud-provider=external, see `vdoctl nodes check`",
			source: "Kubernetes documentation, Cloud Controller Manager Administration",
		},
		{
			id: "node-control-plane", worst: BlockInstall, when: nodesKnown, run: controlPlane,
			reads: "node labels", fails: "no node has the label of the control plane",
			why:    "the controllers of both drivers are scheduled on control-plane nodes alone",
			remedy: "`kubectl label node NAME node-role.kubernetes.io/control-plane=`", source: "manifests of both drivers",
		},
		{
			id: "node-registered", worst: Warn, of: matrix.CSI, when: storageInstalled, run: nodes(registered),
			reads: "CSINode, node labels", fails: "the storage driver is not registered, or lacks a topology key or its label",
			why:    "pods with volumes are not scheduled on a node that is not registered",
			remedy: "unless a nodeSelector keeps the node plugin away, read its registrar: `kubectl -n vmware-system-csi logs ds/vsphere-csi-node -c node-driver-registrar`; and `kubectl get csinodetopology {} -o yaml`",
			source: "Kubernetes documentation, CSINode",
		},
		{
			id: "vm-disk-uuid", worst: BlockInstall, of: matrix.CSI, when: machinesKnown,
			run:   has("disk.EnableUUID is off", func(m *Machine) bool { return !m.DiskUUID }),
			reads: "config.flags.diskUuidEnabled", fails: "it is off",
			why:    "without it a volume is attached and cannot be mounted: the guest does not see which disk it is",
			remedy: "let vdoctl set it, with the VM off for a while: `vdoctl vms fix --username ADMIN --drain --power-off`",
			source: "CSI documentation, prerequisites; vsphere-problem-detector pkg/check/node_uuid.go",
		},
		{
			id: "vm-hardware", worst: BlockInstall, when: machinesKnown, run: machines(hardware),
			reads: "config.version", fails: "it is older than 15",
			why:    "the drivers ask for hardware version 15 or later",
			remedy: "let vdoctl upgrade it, with the VM off for a while: `vdoctl vms fix --username ADMIN --drain --power-off`",
			source: "CPI and CSI documentation, prerequisites; vsphere-problem-detector pkg/check/node_hw_version.go",
		},
		{
			id: "vm-scsi", worst: BlockInstall, of: matrix.CSI, when: machinesKnown, run: machines(controllers),
			reads: "config.hardware.device", fails: "there is no SCSI controller; a warning where one is not paravirtual",
			why:    "each controller of another kind takes 15 places for volumes away",
			remedy: "add a VMware Paravirtual controller: `vdoctl vms fix --username ADMIN --drain --power-off`",
			source: "CSI documentation, prerequisites",
		},
		{
			id: "vm-tools", worst: BlockInstall, of: matrix.CPI, when: machinesKnown, run: machines(tools),
			reads: "guest.toolsRunningStatus, guest.hostName, guest.net", fails: "VMware Tools does not run, or reports no hostname or address",
			why:    "the cloud provider takes a node's name and addresses from VMware Tools",
			remedy: "in the guest: `apt-get install open-vm-tools` (or the like) and `systemctl enable --now open-vm-tools`; then: `govc vm.info {}`",
			source: "cloud-provider-vsphere pkg/cloudprovider/vsphere/nodemanager.go",
		},
		{
			id: "vm-snapshots", worst: Warn, of: matrix.CSI, when: machinesKnown,
			run:   has("the VM has snapshots", func(m *Machine) bool { return m.Snapshots > 0 }),
			reads: "rootSnapshot", fails: "the VM has a snapshot",
			why:    "volumes cannot be attached to or detached from a VM with snapshots as they should",
			remedy: "list them: `govc snapshot.tree -vm {}`; ask who made each, since it may be a backup, and delete the unneeded by name",
			source: "CSI documentation, prerequisites",
		},
		{
			id: "vm-change-tracking", worst: Warn, of: matrix.CSI, when: machinesKnown, run: changeTracking,
			reads: "config.changeTrackingEnabled", fails: "it is off, and on at other nodes",
			why:    "a volume that moves between VMs that differ in it breaks incremental backups",
			remedy: "turn it on, as backups need it, with the VM off: `govc vm.change -vm {} -e ctkEnabled=TRUE`",
			source: "vsphere-problem-detector pkg/check/node_cbt.go",
		},
		{
			id: "vm-disk-latency", worst: Warn, when: machinesKnown, part: Latency, run: machines(diskLatency),
			reads: "disk.maxTotalLatency of the control plane, the last hour", fails: "the average is more than 100 ms",
			why:    "etcd loses its leader, and the API server with it, while its disk is slow",
			remedy: "move the VM's disks to a faster datastore: vSphere Client > VM > Monitor > Performance shows which is slow",
			source: "vsphere-problem-detector pkg/check/node_perf.go",
		},
		{
			id: "datastore-shared", worst: Warn, of: matrix.CSI, when: machinesKnown, run: sharedDatastores,
			reads: "datastores of all hosts of a zone, but those in maintenance", fails: "they have none but NFS 4.1 in common, or the account may use none",
			why:    "a volume is made where every node that may use it can reach it",
			remedy: "mount one, not NFS 4.1, on all of them, or configure topology by zones with a datastore each",
			source: "vsphere-csi-driver v3.7.3 pkg/csi/service/common/topology.go",
		},
		{
			id: "datastore-vsan", worst: Warn, of: matrix.CSI, when: someReadable, run: vcenters(withoutVSAN),
			reads: "datastores of the configured datacenters", fails: "file volumes are asked for, and none of them is vSAN",
			why:    "file volumes are shares of vSAN File Service alone: claims stay pending",
			remedy: "enable vSAN File Service in a cluster there, or take spec.storageProvider.fileVolumes and StorageClasses of nfs4 out",
			source: "vsphere-csi-driver pkg/csi/service/common/authmanager.go",
		},
		{
			id: "datastore-cluster", worst: Warn, of: matrix.CSI, part: StorageDRS,
			when: machinesKnown, run: storageDRS,
			reads: "podStorageDrsEntry of datastore clusters", fails: "Storage DRS is on for a datastore for volumes",
			why:    "Storage DRS moves disks, and the storage driver does not find volumes that were moved",
			remedy: "move the datastore out of its cluster, or turn Storage DRS off there: vSphere Client > Storage > its cluster",
			source: "CSI documentation, limits; vsphere-problem-detector pkg/check/datastore.go",
		},
		{
			id: "storage-class", worst: Warn, of: matrix.CSI, part: Policies,
			when: hasClasses, run: storageClasses,
			reads:  "StorageClasses, storage policies with the datastores that fit, privileges there, topologies of nodes",
			fails:  "a policy or datastore is missing, none fits, all hosts of a zone see none, the account may use none, or allowedTopologies fit no node",
			why:    "a claim of such a class stays Pending",
			remedy: "make it: vSphere Client > Policies and Profiles > VM Storage Policies; or correct the class's parameter storagepolicyname",
			source: "vsphere-problem-detector pkg/check/datastore.go",
		},
		{
			id: "topology-category", worst: BlockInstall, stops: true, part: Tags,
			when: zoned, run: vcenters(categories),
			reads:  "tag categories, and the objects with their tags",
			fails:  "a category is missing, or has a name that CSI cannot use; a warning for a tag without hosts, or one name in two categories",
			why:    "the storage driver's controller ends at its start when a vCenter lacks one; the cloud provider leaves nodes uninitialized",
			remedy: "make it there, and tag what has it: `vdoctl topology tag --vcenter NAME --username ADMIN --attach {}:TAG=PATH`; or correct the name in the VDOConfig",
			source: "cloud-provider-vsphere v1.36.0 pkg/common/connectionmanager/zones.go",
		},
		{
			id: "topology-tag", worst: BlockInstall, stops: true, when: zonedNodes, run: machines(tags),
			reads:  "tags of each node's host and what it is in, node labels",
			fails:  "there is none of a category, one that is no value of a label, or, before CSI 3.3, several; a warning: another label, or none",
			why:    "a node without a tag of each category gets no zone, and the kubelet registers no driver with another zone than before",
			remedy: "tag the host, its cluster or its datacenter: `vdoctl topology tag --vcenter NAME --username ADMIN --attach CATEGORY:TAG={}`",
			source: "vsphere-csi-driver v3.1.2 and v3.3.0 pkg/common/cns-lib/vsphere/virtualmachine.go",
		},
		{
			id: "topology-host-group", worst: Warn, of: matrix.CSI, part: Rules,
			when: zonedNodes, run: machines(hostGroups),
			reads:  "DRS, HA, host groups and VM-host rules of the nodes' clusters",
			fails:  "hosts of one cluster are in several zones, and no rule keeps a VM on those of its zone",
			why:    "a node that moves to another zone keeps its labels, and its volumes may be out of reach there",
			remedy: "bind it by a rule Must run on hosts in group: `govc cluster.group.create`, then `govc cluster.rule.create -vm-host -enable -mandatory`; or tag whole clusters as zones",
			source: "vsphere-problem-detector pkg/check/cluster_host_group.go",
		},
	}, imageChecks()...)
}

func imageChecks() []check {
	return []check{
		{
			id: "image-platform", worst: BlockInstall, when: hasImages, run: imagePlatforms,
			reads: "the bundle's lock, node labels and taints", fails: "an image is not for a node that its pods come to",
			why:    "a container of another platform ends with exec format error, or its image is never pulled",
			remedy: "keep its pods away by nodeSelector or spec.excludedNodes, or make a bundle of more platforms", source: "OCI image index",
		},
		{
			id: "image-mirror-set", worst: BlockInstall, when: hasMirrors, run: mirrorSets,
			reads: "on OpenShift, with imageNames Upstream: mirror sets", fails: "they miss the bundle's repository",
			why:    "the kubelet asks upstream, which an isolated site does not reach",
			remedy: "apply a set: `vdo-bundle mirror-config --runtime openshift`", source: "containers-registries.conf(5)",
		},
	}
}

// The following functions report whether the snapshot has the facts that a check needs.

func clusterRequested(s *Snapshot) bool { return !s.Cluster.Skipped }
func clusterRead(s *Snapshot) bool      { return clusterRequested(s) && s.Cluster.Err == nil }
func nodesKnown(s *Snapshot) bool       { return clusterRead(s) && len(s.Cluster.Nodes) > 0 }
func anyVCenter(s *Snapshot) bool       { return len(s.VCenters) > 0 }
func someReadable(s *Snapshot) bool     { return len(s.readable()) > 0 }

// machinesKnown reports whether nodes and a vCenter with their VMs are known.
func machinesKnown(s *Snapshot) bool    { return nodesKnown(s) && someReadable(s) }
func storageInstalled(s *Snapshot) bool { return nodesKnown(s) && s.Cluster.StorageInstalled }
func controllersSeen(s *Snapshot) bool  { return nodesKnown(s) && len(s.Cluster.CloudProviders) > 0 }
func hasClasses(s *Snapshot) bool       { return someReadable(s) && len(s.Cluster.StorageClasses) > 0 }
func zoned(s *Snapshot) bool            { return someReadable(s) && len(s.Wants.AllCategories()) > 0 }
func zonedNodes(s *Snapshot) bool       { return zoned(s) && machinesKnown(s) }
func hasImages(s *Snapshot) bool        { return s.Images != nil }
func hasMirrors(s *Snapshot) bool       { return s.Images != nil && s.Images.Mirrors != nil }

func nothing(*Snapshot) []found { return nil }
