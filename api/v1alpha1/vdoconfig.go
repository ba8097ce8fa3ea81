package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VDOConfig says which drivers this cluster has, with which vCenters and settings. A cluster has one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations={"argocd.argoproj.io/sync-options=Prune=false,Delete=false","kustomize.toolkit.fluxcd.io/prune=disabled"}
// +kubebuilder:metadata:annotations={"kapp.k14s.io/delete-strategy=orphan","helm.sh/resource-policy=keep"}
// +kubebuilder:resource:shortName=vdo
// +kubebuilder:printcolumn:name="CPI",type=string,JSONPath=`.status.drivers[?(@.driver=="cpi")].version`
// +kubebuilder:printcolumn:name="CSI",type=string,JSONPath=`.status.drivers[?(@.driver=="csi")].version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VDOConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VDOConfigSpec   `json:"spec"`
	Status VDOConfigStatus `json:"status,omitempty"`
}

// VDOConfigSpec is the desired configuration.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageProvider) || (has(self.cloudProvider) && has(self.cloudProvider.vsphereCloudConfigs) && size(self.cloudProvider.vsphereCloudConfigs) > 0)",message="name a storageProvider, a cloudProvider, or both: a cloudProvider is one that names vCenters in vsphereCloudConfigs"
type VDOConfigSpec struct {
	// CloudProvider settings. Without them, or without a vCenter in them, no cloud provider (CPI) is installed.
	// +optional
	CloudProvider *CloudProvider `json:"cloudProvider,omitempty"`
	// StorageProvider settings. Without them no storage driver (CSI) is installed.
	// +optional
	StorageProvider *StorageProvider `json:"storageProvider,omitempty"`
	// Bundle to install from. Default: the one DriverBundle of the namespace.
	// +optional
	Bundle *LocalReference `json:"bundle,omitempty"`
	// Drivers has the settings of versions and pods, by driver.
	// +optional
	// +listType=map
	// +listMapKey=driver
	// +kubebuilder:validation:MaxItems=4
	Drivers []DriverPolicy `json:"drivers,omitempty"`
	// Patches change objects of the drivers' manifests, in this order. Use them if no other field fits.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Patches []Patch `json:"patches,omitempty"`
	// ExcludedNodes are labels of nodes that are not on vSphere. A node with one of them gets no
	// node plugin of the storage driver and is not assessed. The cloud provider then deletes no
	// Node objects, since it cannot tell such a node from a deleted VM.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	ExcludedNodes map[string]string `json:"excludedNodes,omitempty"`
	// OpenShift settings.
	// +optional
	OpenShift *OpenShift `json:"openShift,omitempty"`
	// Preflight has the settings of the checks before drivers are installed, upgraded or reconfigured.
	// +optional
	Preflight *PreflightPolicy `json:"preflight,omitempty"`
	// Upgrade says what happens when a bundle has newer releases. Automatic installs them. Manual
	// keeps the installed ones while they fit, until upgradePolicy.approval names the revision.
	// Default: Automatic, or as in the earlier operator's matrix ConfigMap.
	// +optional
	// +kubebuilder:validation:Enum=Automatic;Manual
	Upgrade UpgradeMode `json:"upgrade,omitempty"`
	// UpgradePolicy says when an upgrade may start, who has to approve it, and what happens if it fails.
	// +optional
	UpgradePolicy *UpgradePolicy `json:"upgradePolicy,omitempty"`
	// OnDelete says what deleting this resource does while PersistentVolumes use the driver. Refuse
	// keeps everything and reports it. Remove removes the drivers anyway. Orphan always leaves the
	// drivers installed, except the registration of the storage driver's webhook, whose certificate
	// would expire. Refuse also keeps the network plug-in (CNI), even without PersistentVolumes,
	// since no pod has a network without it; Remove removes it last. A driver that the spec no longer
	// requests is removed under Orphan as under Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	// +kubebuilder:validation:Enum=Refuse;Remove;Orphan
	OnDelete DeleteMode `json:"onDelete,omitempty"`
	// Suspend stops changes to the cluster. The operator still assesses health and renews the certificate
	// of the storage driver's webhook. While it is set, deleting this resource removes nothing.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// DryRun makes the operator try all changes at the API server without effect, and show them in
	// status.plan. It writes only the status: no finalizer, and no certificate of the storage
	// driver's webhook.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// Drift says how to handle objects that another manager changed or deleted. Default: the operator repairs them.
	// +optional
	Drift *DriftPolicy `json:"drift,omitempty"`
	// Interval between checks of the cluster for drift and health.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,6}([.][0-9]{1,9})?h)?([0-9]{1,7}([.][0-9]{1,9})?m)?([0-9]{1,9}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) >= duration('10s')`,message="write a duration of at least 10s, such as 90s, 10m or 1h30m"
	Interval metav1.Duration `json:"interval,omitzero"`
}

// UpgradeMode is Automatic or Manual.
type UpgradeMode string

// The upgrade modes.
const (
	UpgradeAutomatic UpgradeMode = "Automatic"
	UpgradeManual    UpgradeMode = "Manual"
)

// DeleteMode is Refuse, Remove or Orphan.
type DeleteMode string

// The delete modes.
const (
	DeleteRefuse DeleteMode = "Refuse"
	DeleteRemove DeleteMode = "Remove"
	DeleteOrphan DeleteMode = "Orphan"
)

// CloudProvider settings.
type CloudProvider struct {
	// VsphereCloudConfigs are the vCenters, by the names of their resources. An empty list means no
	// cloud provider: the earlier operator's command line wrote it for a storage driver without one.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	VsphereCloudConfigs []objectName `json:"vsphereCloudConfigs,omitempty"`
	// Topology names the vSphere tag categories of zones and regions.
	// +optional
	Topology *Topology `json:"topology,omitempty"`
	// NodeAddresses selects a node's addresses among those of its VM.
	// +optional
	NodeAddresses *NodeAddresses `json:"nodeAddresses,omitempty"`
	// IPFamilies of nodes' addresses, by priority: ipv4, ipv6 or both (dual stack, which the cloud
	// provider calls alpha). Default: ipv4.
	// +optional
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=ipv4;ipv6
	// +listType=set
	IPFamilies []string `json:"ipFamilies,omitempty"`
	// AcceptNodeDeletion lists where the cloud provider may stop searching: SERVER/DATACENTER, or
	// SERVER for a whole vCenter that the configuration no longer names. It deletes the Node
	// objects of VMs that it does not find, so you cannot remove a datacenter or vCenter without
	// this entry. The entry spec.excludedNodes lets it delete Node objects again after you removed
	// all labels of spec.excludedNodes.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	// +listType=set
	AcceptNodeDeletion []string `json:"acceptNodeDeletion,omitempty"`
}

// Topology names tag categories. The cloud provider looks up zones only if both are set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.zone) && size(self.zone) > 0) == (has(self.region) && size(self.region) > 0)",message="zone and region go together: with only one of them the cloud provider skips zones"
type Topology struct {
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'\p{Cc}')`,message="a tag category's name is one line: no line ends, tabs or other control characters"
	Zone string `json:"zone,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'\p{Cc}')`,message="a tag category's name is one line: no line ends, tabs or other control characters"
	Region string `json:"region,omitempty"`
}

// StorageProvider settings.
//
// +kubebuilder:validation:XValidation:rule="!has(self.vsphereCloudConfigs) || (has(self.vsphereCloudConfig) && size(self.vsphereCloudConfig) > 0 && !(self.vsphereCloudConfig in self.vsphereCloudConfigs) ? 1 : 0) + size(self.vsphereCloudConfigs) <= 1 || (has(self.topologyCategories) && size(self.topologyCategories) > 0)",message="several vCenters need topologyCategories"
// +kubebuilder:validation:XValidation:rule="!has(self.vsphereCloudConfigs) || (has(self.vsphereCloudConfig) && size(self.vsphereCloudConfig) > 0 && !(self.vsphereCloudConfig in self.vsphereCloudConfigs) ? 1 : 0) + size(self.vsphereCloudConfigs) <= 5",message="the storage driver takes five vCenters at most"
// +kubebuilder:validation:XValidation:rule="(has(self.vsphereCloudConfig) && size(self.vsphereCloudConfig) > 0) || (has(self.vsphereCloudConfigs) && size(self.vsphereCloudConfigs) > 0)",message="name the vCenter in vsphereCloudConfig"
type StorageProvider struct {
	// VsphereCloudConfig is the vCenter, by the name of its resource.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="write the name of a Kubernetes object: lower-case letters and digits, with - and . between them"
	VsphereCloudConfig string `json:"vsphereCloudConfig,omitempty"`
	// VsphereCloudConfigs are additional vCenters (CSI 3.0 and later; five in all).
	// +optional
	// +kubebuilder:validation:MaxItems=5
	// +listType=set
	VsphereCloudConfigs []objectName `json:"vsphereCloudConfigs,omitempty"`
	// ClusterDistribution is reported to vCenter.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'\p{Cc}')`,message="one line only: no line ends, tabs or other control characters"
	ClusterDistribution string `json:"clusterDistribution,omitempty"`
	// ClusterID identifies this cluster among all users of the vCenter. It must be unique. Default:
	// the driver creates one (CSI 3.0 and later); before, the UID of the kube-system namespace. If
	// a backup of another cluster was restored here, it confirms that this cluster replaces that
	// one and keeps its id. An id that the backup sets confirms nothing. Do not set it while both
	// run.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'\p{Cc}|^\s|\s$')`,message="a cluster id is one line, without space around it"
	ClusterID string `json:"clusterID,omitempty"`
	// CustomKubeletPath is the kubelet's root directory. A trailing slash has no effect. Default: /var/lib/kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`self == '' || (self.matches(r'^/[^\s:\\\x22\x27$]*[^\s:\\\x22\x27$/]/*$') && !self.matches(r'/[.][.]?(/|$)|//[^/]|\p{Cc}'))`,message="write the full path of a folder, such as /var/lib/kubelet: no spaces, colons, quotes, backslashes, . or .. in it"
	CustomKubeletPath string `json:"customKubeletPath,omitempty"`
	// FileVolumes has settings of shared (RWX) volumes.
	// +optional
	FileVolumes *FileVolumes `json:"fileVolumes,omitempty"`
	// TopologyCategories are the tag categories for the topology of volumes.
	// +optional
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="!self.contains(',')",message="a category's name cannot have a comma: list several as items"
	// +kubebuilder:validation:items:XValidation:rule=`!self.matches(r'\p{Cc}')`,message="a category's name is one line: no line ends, tabs or other control characters"
	// +listType=set
	TopologyCategories []string `json:"topologyCategories,omitempty"`
	// Encryption says that the nodes' VMs or volumes are encrypted. The account then needs
	// Cryptographer.AddDisk, and checks do not report it as excess. Default: false.
	// +optional
	Encryption bool `json:"encryption,omitempty"`
	// Webhook installs the driver's validating webhook, with a certificate that the operator
	// creates and renews. Default: false.
	// +optional
	Webhook bool `json:"webhook,omitempty"`
	// Snapshots limits the snapshots of one volume.
	// +optional
	Snapshots *SnapshotLimits `json:"snapshots,omitempty"`
	// FeatureStates of the driver that differ from its release's defaults. A state that the release
	// does not have is an error; all others are those of the release.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	FeatureStates map[string]bool `json:"featureStates,omitempty"`
	// QueryLimit is how many volumes the driver queries at once. Default: 10000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	QueryLimit int32 `json:"queryLimit,omitempty"`
	// ListVolumeThreshold is by how many volumes Kubernetes and the vCenter may differ before the
	// driver stops listing them. Default: 50.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	ListVolumeThreshold int32 `json:"listVolumeThreshold,omitempty"`
	// StorageClasses to create.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.filter(c, has(c.default) && c.default).size() <= 1",message="one class can be the default"
	// +listType=map
	// +listMapKey=name
	StorageClasses []StorageClass `json:"storageClasses,omitempty"`
	// SnapshotClasses are the VolumeSnapshotClasses to create.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.filter(c, has(c.default) && c.default).size() <= 1",message="one class can be the default"
	// +listType=map
	// +listMapKey=name
	SnapshotClasses []SnapshotClass `json:"snapshotClasses,omitempty"`
}

// VDOConfigStatus is the installed drivers and their health.
type VDOConfigStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Bundle that the drivers come from: REPOSITORY@DIGEST.
	// +optional
	Bundle string `json:"bundle,omitempty"`
	// DriverBundle that the operator followed last, by its name: the one in spec.bundle, or the only one.
	// +optional
	DriverBundle string `json:"driverBundle,omitempty"`
	// Revisions in the history, oldest first. The field current marks current ones.
	// +optional
	// +listType=map
	// +listMapKey=name
	Revisions []RevisionStatus `json:"revisions,omitempty"`
	// Candidate is the upgrade that waits or is blocked; absent if none.
	// +optional
	Candidate *CandidateStatus `json:"candidate,omitempty"`
	// Rollout is the progress of an upgrade on the canary nodes, while the other nodes wait.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Kubernetes version that drivers are chosen for: the lowest of the API servers in use.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
	// Drivers installed or desired.
	// +optional
	// +listType=map
	// +listMapKey=driver
	Drivers []DriverStatus `json:"drivers,omitempty"`
	// Nodes with findings; healthy nodes are only counted.
	// +optional
	// +listType=atomic
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// NodesReady is "READY/ALL".
	// +optional
	NodesReady string `json:"nodesReady,omitempty"`
	// Plan lists the remaining changes by object: those that wait, are blocked, or are not made
	// because of spec.dryRun or spec.suspend. Objects without changes are only counted.
	// +optional
	Plan *PlanStatus `json:"plan,omitempty"`
	// Preflight is the findings of the checks of cluster, nodes and vCenters.
	// +optional
	Preflight *PreflightStatus `json:"preflight,omitempty"`
	// Drift lists changed or deleted objects that the operator does not repair.
	// +optional
	// +listType=atomic
	Drift []DriftStatus `json:"drift,omitempty"`
	// HandledReconcileAt is the last handled value of the annotation
	// reconcile.vdo.vmware.com/requestedAt. A value of more than 256 bytes is cut, with its SHA-256.
	// +optional
	HandledReconcileAt string `json:"handledReconcileAt,omitempty"`
}

// DriverStatus is one driver.
type DriverStatus struct {
	Driver string `json:"driver"`
	// Version on the cluster: the one whose rollout is complete.
	// +optional
	Version string `json:"version,omitempty"`
	// Wanted is the chosen version.
	// +optional
	Wanted string `json:"wanted,omitempty"`
	// Source is the bundle of the release, REPOSITORY@DIGEST.
	// +optional
	Source string `json:"source,omitempty"`
	// Reasons for the choice.
	// +optional
	// +listType=atomic
	Reasons []string `json:"reasons,omitempty"`
	// Ready and Message are the driver's health.
	Ready bool `json:"ready"`
	// +optional
	Message string `json:"message,omitempty"`
	// Withdrawn is set if the matrix has withdrawn the running version.
	// +optional
	Withdrawn string `json:"withdrawn,omitempty"`
}

// VDOConfigList is a list of VDOConfig.
//
// +kubebuilder:object:root=true
type VDOConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VDOConfig `json:"items"`
}

// OpenShift settings. They have no effect on other clusters.
type OpenShift struct {
	// MirrorSet says who redirects the nodes from upstream's image names to the mirror, if a
	// DriverBundle's imageNames is Upstream. Check: the administrator; the operator blocks changes
	// whose images the nodes would not find. Write: the operator, by one ImageDigestMirrorSet,
	// vdo-operator, which needs additional permissions. It changes the configuration of all nodes,
	// which OpenShift's Machine Config Operator writes node by node. The nodes load added entries
	// without a drain. When the set is deleted with the VDOConfig, OpenShift drains the nodes, and
	// some releases reboot them. Default: Check.
	// +optional
	// +kubebuilder:validation:Enum=Check;Write
	MirrorSet MirrorSetMode `json:"mirrorSet,omitempty"`
}

// MirrorSetMode is Check or Write; "" is Check.
type MirrorSetMode string

// MirrorSetWrite lets the operator write the mirror set.
const MirrorSetWrite MirrorSetMode = "Write"

// WritesMirrorSet reports whether the operator redirects OpenShift's nodes to the mirror.
func (s *VDOConfigSpec) WritesMirrorSet() bool {
	return s.OpenShift != nil && s.OpenShift.MirrorSet == MirrorSetWrite
}
