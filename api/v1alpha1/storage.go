package v1alpha1

// SnapshotLimits are the most snapshots of one block volume. Default: the driver's limit, 3.
type SnapshotLimits struct {
	// MaxPerVolume for all volumes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	MaxPerVolume int32 `json:"maxPerVolume,omitempty"`
	// MaxPerVolumeVSAN for volumes on vSAN datastores.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	MaxPerVolumeVSAN int32 `json:"maxPerVolumeVSAN,omitempty"`
	// MaxPerVolumeVVOL for volumes on vVol datastores.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	MaxPerVolumeVVOL int32 `json:"maxPerVolumeVVOL,omitempty"`
}

// FileShareClusters are vSAN clusters of one vCenter.
type FileShareClusters struct {
	// VsphereCloudConfig is the vCenter, by the name of its resource. Default: the storage driver's only vCenter.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	VsphereCloudConfig string `json:"vsphereCloudConfig,omitempty"`
	// Clusters by their managed object ids in that vCenter, such as domain-c8.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^domain-[cs][0-9]+$`
	// +listType=set
	Clusters []string `json:"clusters"`
}

// StorageClass to create. Kubernetes does not allow most fields to change: to change one, use
// another name. The operator never deletes it, since claims name it.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.storagePolicy) && size(self.storagePolicy) > 0 && has(self.datastoreURL) && size(self.datastoreURL) > 0)",message="give storagePolicy or datastoreURL, and not both: a policy chooses datastores by itself"
type StorageClass struct {
	Name objectName `json:"name"`
	// StoragePolicy is the name of a storage policy of the vCenter.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	StoragePolicy string `json:"storagePolicy,omitempty"`
	// DatastoreURL is the only datastore for the volumes, such as ds:///vmfs/volumes/vsan:…/.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^ds:///[^\s,]+$')`,message="write a datastore's URL, such as ds:///vmfs/volumes/vsan:…/"
	DatastoreURL string `json:"datastoreURL,omitempty"`
	// FSType of volumes: nfs4 makes shared (RWX) file volumes. Default: the driver's, ext4.
	// +optional
	// +kubebuilder:validation:Enum=ext4;ext3;xfs;nfs4;ntfs
	FSType string `json:"fsType,omitempty"`
	// Default marks the class of claims that name none.
	// +optional
	Default bool `json:"default,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=Delete;Retain
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	// AllowVolumeExpansion of claims. Default: true.
	// +optional
	AllowVolumeExpansion *bool `json:"allowVolumeExpansion,omitempty"`
	// VolumeBindingMode. Default: WaitForFirstConsumer if the driver has topology (volumes are
	// created where their pods run), otherwise Immediate.
	// +optional
	// +kubebuilder:validation:Enum=Immediate;WaitForFirstConsumer
	VolumeBindingMode string `json:"volumeBindingMode,omitempty"`
}

// SnapshotClass is a VolumeSnapshotClass to create.
type SnapshotClass struct {
	Name objectName `json:"name"`
	// Default marks the class of snapshots that name none.
	// +optional
	Default bool `json:"default,omitempty"`
	// DeletionPolicy of the snapshots on the datastore. Default: Delete.
	// +optional
	// +kubebuilder:validation:Enum=Delete;Retain
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
}

// NodeAddresses selects a node's addresses among those of its VM. The cloud provider first drops the excluded
// ones. It prefers addresses in the subnets, then those on the network, then the first of the family.
type NodeAddresses struct {
	// InternalSubnets that contain the internal address.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	InternalSubnets []string `json:"internalSubnets,omitempty"`
	// ExternalSubnets that contain the external address.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	ExternalSubnets []string `json:"externalSubnets,omitempty"`
	// ExcludeInternalSubnets never contain the internal address, such as those of virtual addresses
	// that move between nodes.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	ExcludeInternalSubnets []string `json:"excludeInternalSubnets,omitempty"`
	// ExcludeExternalSubnets never contain the external address.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	ExcludeExternalSubnets []string `json:"excludeExternalSubnets,omitempty"`
	// InternalNetwork is the name of the internal address's port group.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	InternalNetwork string `json:"internalNetwork,omitempty"`
	// ExternalNetwork is the name of the external address's port group.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ExternalNetwork string `json:"externalNetwork,omitempty"`
}

// FileVolumes are settings of shared volumes on vSAN file service.
type FileVolumes struct {
	// VsanDataStoreURLs limits file shares to these datastores.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:XValidation:rule=`!self.matches(r'\p{Cc}')`,message="a datastore's URL is one line: no line ends, tabs or other control characters"
	// +listType=atomic
	VsanDataStoreURLs []string `json:"vsanDataStoreUrl,omitempty"`
	// NetPermissions are the access rules of the shares.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	NetPermissions []NetPermission `json:"netPermissions,omitempty"`
	// VsanClusters has no effect and is accepted for older resources. The driver creates file
	// shares on the vSAN clusters with file service where its account has Host.Config.Storage.
	// +optional
	// +kubebuilder:validation:MaxItems=5
	// +listType=atomic
	VsanClusters []FileShareClusters `json:"vsanClusters,omitempty"`
}

// NetPermission is an access rule of file shares.
type NetPermission struct {
	// IPs: an address, a subnet or *.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9A-Fa-f:.*/, -]*$')`,message="write an IP address, a subnet such as 10.0.0.0/16, or *"
	IPs string `json:"ips,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=READ_WRITE;READ_ONLY;NO_ACCESS
	Permissions string `json:"permissions,omitempty"`
	// +optional
	RootSquash bool `json:"rootSquash,omitempty"`
}
