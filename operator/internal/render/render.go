// Package render turns the manifests of a bundle into the exact objects for a cluster, in the stages
// in which they are applied. It is pure: no clock, no cluster, no network; the same [Input] gives the
// same [Rendered].
//
//	out, err := render.Render(render.Input{
//		Origin: render.Origin{
//			Lock: contents.Lock, Manifests: contents.Manifests, Repository: "registry.site/vdo/drivers",
//		},
//		Releases: chosen,
//		Spec: vdoConfig.Spec, VCenters: vcenters, Cluster: facts, HashKey: key,
//	})
//	for _, stage := range out.Stages {
//		// apply stage.Objects, then wait until all of stage.Waits hold
//	}
//
// # Changes to upstream's objects
//
//   - check refuses manifests with objects that the matrix does not list, or beyond the driver's
//     ceiling, and reports all findings together
//   - images become REPOSITORY@DIGEST of the signed lock
//   - imagePullPolicy Always becomes IfNotPresent, because a digest cannot change
//   - pods get the pull secret, which is copied into their namespace
//   - a Secret and ConfigMap made from the VDOConfig replace the samples of the cloud provider
//   - settings and patches of the VDOConfig apply, within the limits of the manifest
//   - the storage driver's provisioner gets the topology flags that upstream has in comments only
//   - its node plugins restart if the categories change, since a node keeps the topology that it was
//     registered with; they, and Antrea's agent, get the kubelet's real root directory
//   - replicas of controllers never exceed the nodes that can hold them
//   - pod templates that read configuration carry a keyed hash of it, so that a change rolls them out
//   - all objects carry the labels app.kubernetes.io/managed-by, vdo.vmware.com/driver and
//     vdo.vmware.com/version
//   - selectors and the labels of pod templates stay: they are immutable or selected by
//
// # Omitted objects
//
//   - the validating webhook of the storage driver, unless spec.storageProvider.webhook is set
//   - upstream's snapshot validation webhook: CSI 3.4 dropped it, and only older releases have it
//   - the Windows node plugin if the cluster has no Windows node, so that a bundle needs no Windows
//     images; the first Windows node adds it
package render

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

// Labels and annotations that rendered objects carry.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelDriver    = "vdo.vmware.com/driver"
	LabelVersion   = "vdo.vmware.com/version"
	ManagedBy      = "vdo-operator"

	// AnnotationConfigHash is on pod templates that read configuration: its HMAC under [Input.HashKey]. With a plain
	// hash, anyone who may read pods could try passwords offline.
	AnnotationConfigHash = "vdo.vmware.com/config-hash"
	// AnnotationTopology is on pod templates of the storage driver's node plugins: the tag categories of topology.
	// If they change, a plugin must register its node again.
	AnnotationTopology = "vdo.vmware.com/topology-categories"
)

// Names of rendered objects.
const (
	CPINamespace  = drivers.SystemNamespace
	CPIConfigMap  = drivers.CloudConfigMap
	CPIConfigKey  = drivers.CloudConfigKey
	CPISecret     = drivers.CloudSecret
	CSINamespace  = drivers.CSINamespace
	CSISecret     = drivers.ConfigSecret
	CSIConfigKey  = "csi-vsphere.conf"
	FeatureStates = drivers.FeatureStates
	// PullSecret is the copy of the mirror's pull secret in each namespace with pods.
	PullSecret = "vdo-registry-pull" //nolint:gosec // a name, not a credential
	// WebhookSecret holds the certificate of the storage driver's webhook.
	WebhookSecret = drivers.WebhookSecret
	// MirrorSetName is the name of the operator's ImageDigestMirrorSet.
	MirrorSetName = "vdo-operator"
	// ClusterIDConfigMap holds a cluster id that the storage driver generated.
	ClusterIDConfigMap = "vsphere-csi-cluster-id"
)

// Input is everything that rendering depends on.
type Input struct {
	Origin // the accepted bundle
	// Mirrored are the repositories that OpenShift's nodes pull from the mirror. If empty, no ImageDigestMirrorSet
	// is rendered.
	Mirrored mirrorset.Entries
	// OtherSources are the bundles of drivers on another bundle than the accepted one.
	OtherSources map[matrix.Driver]Origin
	// Releases are the chosen ones, at most one per driver.
	Releases []matrix.ReleaseID
	Spec     v1alpha1.VDOConfigSpec
	// VCenters are keyed by the name of their VsphereCloudConfig.
	VCenters map[string]VCenter
	// Keep names the drivers whose configuration on the cluster stays, so that the rest renders without their
	// vCenters: see [Object.Config]. Optional.
	Keep    map[matrix.Driver]bool
	Cluster Cluster
	// PullSecret is the content of .dockerconfigjson for the mirror; empty if pods need none.
	PullSecret []byte
	// HashKey makes config hashes: at least 16 random bytes, generated once per installation and stored in a Secret.
	HashKey []byte
	// Canary stops the storage driver's DaemonSets from replacing pods by themselves, so that canary nodes get the
	// new pods first.
	Canary bool
	// Webhook is the webhook's certificate; required if Spec.StorageProvider.Webhook is set.
	Webhook *webhookcert.Certificate
}

// Origin is the bundle that a release is rendered from (bundle.Contents).
type Origin struct {
	Lock       *bundle.Lock
	Manifests  map[string][]byte   // keyed by DRIVER/VERSION/FILE
	Matrix     *matrix.Document    // lists what releases need of a cluster
	Repository string              // of the bundle in the mirror, HOST/PATH
	ImageNames v1alpha1.ImageNames // how pods name images; "" means in Repository
}

// origin returns the bundle that a driver's release is rendered from.
func (in *Input) origin(d matrix.Driver) Origin {
	if o, others := in.OtherSources[d]; others {
		return o
	}
	return in.Origin
}

// VCenter is one vCenter and the account to use there.
type VCenter struct {
	Server      string // host name or IP address; IPv6 with or without brackets
	Port        int32  // 0: 443
	Insecure    bool
	Datacenters []string
	Thumbprint  string // SHA-1, hex pairs with colons; may be empty
	CA          []byte // PEM certificates; may be empty
	Credentials Credentials
	// InstanceUUID is the UUID that the vCenter reports, "" if the operator has not asked it yet.
	InstanceUUID string
}

// Credentials of a vCenter account. One line break at the end of either is dropped, because files and editors add
// it. They do not print.
type Credentials struct{ Username, Password string }

// String keeps credentials out of logs.
func (Credentials) String() string { return "[redacted]" }

// GoString keeps credentials out of logs.
func (Credentials) GoString() string { return "[redacted]" }

// MarshalText keeps credentials out of structured logs.
func (Credentials) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// Cluster is the part of the cluster's state that rendering needs.
type Cluster struct {
	// UID of the kube-system namespace; the cluster id of CSI before 3.0.
	UID string
	// Distribution as in matrix.Facts: "openshift" matters here.
	Distribution string
	Nodes        []*corev1.Node
	// GeneratedClusterID is key clusterID of ConfigMap vsphere-csi-cluster-id in vmware-system-csi, which CSI 3.0
	// and later generates; "" if none exists.
	GeneratedClusterID string
	// ConfiguredClusterID is the cluster-id in CSI's current Secret (see [ConfiguredClusterID]); "" if none exists.
	ConfiguredClusterID string
	// CloudConfig is the cloud provider's current vsphere.conf, YAML or INI; empty if none exists.
	CloudConfig []byte
	// Searched are the locations in the last configuration of our cloud provider, as [Cloud] has them. They count
	// for vCenters that CloudConfig no longer names.
	Searched []string
	// Servers are the instance UUIDs of vCenters by their present and earlier addresses.
	Servers map[string]string
	// KeepsNodes is set if our cloud provider was last configured to delete no Node objects.
	KeepsNodes bool
	// UnsureOfNodes is set if KeepsNodes or Searched is unknown. Rendering then keeps Node objects until the
	// administrator accepts their deletion.
	UnsureOfNodes bool
	// AnotherVCenter is set while a vCenter that is not accepted answers the cloud provider. It would not find the
	// nodes there, so it deletes none meanwhile.
	AnotherVCenter bool
	// ExistingCloudConfig, ExistingStorageConfig and ExistingFeatureStates are configurations of an installation to
	// adopt; empty if none exists, or if they are ours.
	ExistingCloudConfig, ExistingStorageConfig []byte
	ExistingFeatureStates                      map[string][]byte
}

// Rendered is the desired state of the cluster.
type Rendered struct {
	// Stages in the order in which they are applied, without empty ones.
	Stages []Stage
	// Notes inform the user, one sentence each, sorted; they are not errors.
	Notes []string
	// Dropped are settings of an adopted installation that are not in the rendered configuration, sorted: their
	// names, never their values.
	Dropped []string
	// Cloud describes the cloud provider's configuration, nil if it is not rendered.
	Cloud *Cloud
}

// Cloud decides whether the cloud provider deletes Node objects.
type Cloud struct {
	// Searched are the locations in which it looks for VMs, sorted: SERVER/DATACENTER, or SERVER for a whole
	// vCenter, in lower case, without brackets. It is nil if its configuration stays.
	Searched []string
	// KeepsNodes is set if it deletes no Node objects.
	KeepsNodes bool
}

// Objects returns all objects, in order.
func (r *Rendered) Objects() []Object {
	var all []Object
	for _, s := range r.Stages {
		all = append(all, s.Objects...)
	}
	return all
}

// The stages, in order.
const (
	StageBase          = "base"           // namespaces and CRDs
	StageConfig        = "config"         // accounts, permissions, configuration
	StageMirrors       = "mirrors"        // redirects OpenShift's nodes to the mirror
	StageNode          = "nodes"          // CNI and CPI together: each waits for the other
	StageSnapshot      = "snapshot"       // snapshot-controller
	StageCSIController = "csi-controller" // CSIDriver, feature states, controller and syncer
	StageCSINode       = "csi-node"       // node plugins
	StageClasses       = "classes"        // StorageClasses and VolumeSnapshotClasses
	StageWebhookServer = "webhook-server" // the webhook's pods
	StageWebhook       = "webhook"        // its registration, which fails closed
)

// Stage is a set of objects that are applied together.
type Stage struct {
	Name    string
	Drivers []matrix.Driver // whose objects are in it, sorted
	Objects []Object        // sorted by kind (as they depend on each other), namespace, name
	Waits   []Wait          // conditions for the next stage
}

// Object is one object to apply.
type Object struct {
	*unstructured.Unstructured
	Driver matrix.Driver
	Apply  Strategy
	// Config is the part that comes from the cluster if the driver's configuration is kept.
	Config Config
}

// Config is the part of an object that comes from the cluster if a driver's configuration is kept.
type Config int

// The parts.
const (
	// NoConfig: none, or the configuration is rendered.
	NoConfig Config = iota
	// ConfigData: the data are those of the object on the cluster. If that is missing, the operator creates none.
	ConfigData
	// ConfigHash: the pod template's annotation [AnnotationConfigHash] is that of the object on the cluster.
	ConfigHash
)

// Strategy says how an object is applied.
type Strategy string

const (
	// Merge is server-side apply.
	Merge Strategy = "Merge"
	// Replace makes the data of a ConfigMap or Secret exactly the rendered ones; server-side apply would keep keys
	// of others. A stale feature state crashes the storage driver; a stale half of a credential stops the cloud
	// provider.
	Replace Strategy = "Replace"
)

// WaitKind is a kind of condition.
type WaitKind string

const (
	// Established means that the API server serves the CRD.
	Established WaitKind = "Established"
	// RolledOut means that all pods of the Deployment or DaemonSet are updated and available.
	RolledOut WaitKind = "RolledOut"
	// Exists means that the object exists, whoever created it.
	Exists WaitKind = "Exists"
	// NodesInitialized means that one of Nodes is without the taint node.cloudprovider.kubernetes.io/uninitialized, or
	// that no node of the cluster has it.
	NodesInitialized WaitKind = "NodesInitialized"
)

// Wait is a condition that must hold before the next stage is applied.
type Wait struct {
	Kind   WaitKind
	Object Ref      // zero for NodesInitialized
	Nodes  []string // names, sorted, for NodesInitialized
	Why    string
}

// Ref names an object.
type Ref struct {
	schema.GroupVersionKind
	Namespace, Name string
}

// RefOf returns the name of an object.
func RefOf(o *unstructured.Unstructured) Ref {
	return Ref{GroupVersionKind: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// String returns "Kind namespace/name" or "Kind name".
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}
