// Package render turns the manifests of a bundle into the exact objects that a
// cluster shall have: images pinned to the site's mirror, configuration made from
// the VDOConfig, samples left out, everything in the stages in which it is
// applied. It is pure: no clock, no cluster, no network; the same [Input] gives
// the same [Rendered].
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
// # What is done to upstream's objects
//
//   - every manifest is judged first: what the matrix does not list of the
//     release, or is beyond the driver's ceiling, is refused, all findings together
//   - images become REPOSITORY@DIGEST of the signed lock; imagePullPolicy Always
//     becomes IfNotPresent, because a digest cannot change; pods get the pull
//     secret, which is copied into their namespace
//   - the sample Secret and ConfigMap of the cloud provider's manifest are left
//     out and replaced by ours
//   - settings and patches of the VDOConfig are applied, held to what the manifest had
//   - the storage driver's provisioner gets the topology flags that upstream has
//     as comments only; its node plugins restart where the categories change, since a node
//     keeps the topology that it was registered with; they get the kubelet's real root folder
//   - replicas of controllers never exceed the nodes that can hold them
//   - pod templates of those that read configuration carry a keyed hash of it, so
//     that a change rolls them out
//   - all objects carry the labels app.kubernetes.io/managed-by,
//     vdo.vmware.com/driver and vdo.vmware.com/version; selectors and the labels
//     of pod templates stay as they are, because they are immutable or selected by
//
// # What is left out
//
//   - the validating webhook of the storage driver, unless spec.storageProvider.webhook
//   - upstream's snapshot validation webhook, always: it is gone from upstream since
//     CSI 3.4, and a part of a bundle only because it lies in older releases
//   - the Windows node plugin where the cluster has no Windows node, so that a
//     bundle without Windows images serves; it comes with the first Windows node
//   - the snapshot-controller on OpenShift, which has its own, and where another
//     one runs already ([Cluster.ForeignSnapshotController])
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

	// AnnotationConfigHash is on pod templates of those that read configuration:
	// an HMAC of it under [Input.HashKey]. A plain hash would let whoever may read
	// pods try passwords offline.
	AnnotationConfigHash = "vdo.vmware.com/config-hash"
	// AnnotationTopology is on pod templates of the storage driver's node plugins: the tag
	// categories of topology. Where they change a plugin has to register its node again.
	AnnotationTopology = "vdo.vmware.com/topology-categories"
)

// Names of the objects that rendering makes.
const (
	CPINamespace  = drivers.SystemNamespace
	CPIConfigMap  = drivers.CloudConfigMap
	CPIConfigKey  = drivers.CloudConfigKey
	CPISecret     = drivers.CloudSecret
	CSINamespace  = drivers.CSINamespace
	CSISecret     = drivers.ConfigSecret
	CSIConfigKey  = "csi-vsphere.conf"
	FeatureStates = drivers.FeatureStates
	// PullSecret is the copy of the mirror's login in each namespace with pods.
	PullSecret = "vdo-registry-pull" //nolint:gosec // a name, not a credential
	// WebhookSecret holds the certificate of the storage driver's webhook.
	WebhookSecret = drivers.WebhookSecret
	// MirrorSetName is of the ImageDigestMirrorSet that the operator writes.
	MirrorSetName = "vdo-operator"
	// ClusterIDConfigMap is the storage driver's own record of a cluster id that it made.
	ClusterIDConfigMap = "vsphere-csi-cluster-id"
)

// Input is everything that rendering depends on.
type Input struct {
	Origin // the accepted bundle
	// Mirrored are the repositories that OpenShift's nodes are led to the mirror for; none: the
	// operator writes nothing of the sort.
	Mirrored mirrorset.Entries
	// OtherSources are the bundles of drivers that are rendered from another one than the accepted.
	OtherSources map[matrix.Driver]Origin
	// Releases are the chosen ones, at most one for a driver.
	Releases []matrix.ReleaseID
	Spec     v1alpha1.VDOConfigSpec
	// VCenters are keyed by the name of their VsphereCloudConfig.
	VCenters map[string]VCenter
	// Keep names the drivers whose configuration stays as it is on the cluster, so that all
	// else of them can be rendered without their vCenters: see [Object.Config]. Optional.
	Keep    map[matrix.Driver]bool
	Cluster Cluster
	// PullSecret is the content of .dockerconfigjson with the mirror's login; empty
	// where pods need none.
	PullSecret []byte
	// HashKey makes config hashes: at least 16 random bytes, made once for an
	// installation and kept in a Secret.
	HashKey []byte
	// Canary has the storage driver's DaemonSets replace no pods by themselves: canary nodes
	// get the new ones first.
	Canary bool
	// Webhook is the webhook's certificate; needed where Spec.StorageProvider.Webhook is set.
	Webhook *webhookcert.Certificate
}

// Origin is the bundle that a release is rendered from (bundle.Contents).
type Origin struct {
	Lock       *bundle.Lock
	Manifests  map[string][]byte   // keyed DRIVER/VERSION/FILE
	Matrix     *matrix.Document    // lists what releases need of a cluster
	Repository string              // of the bundle in the mirror, HOST/PATH
	ImageNames v1alpha1.ImageNames // how pods name images; "" is in Repository
}

// origin is what a driver's release is rendered from.
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
	Thumbprint  string // SHA-1 or SHA-256, hex pairs with colons; may be empty
	CA          []byte // PEM certificates; may be empty
	// Certificate is the certificate that the vCenter served, DER. With it a SHA-256
	// thumbprint that fits it is turned into the SHA-1 form that drivers know. Optional.
	Certificate []byte
	Credentials Credentials
	// InstanceUUID is what the vCenter says that it is, "" where it was not asked yet.
	InstanceUUID string
}

// Credentials of a vCenter account. One line break at the end of either is
// dropped, as files and editors add it. They do not print.
type Credentials struct{ Username, Password string }

// String keeps credentials out of logs.
func (Credentials) String() string { return "[redacted]" }

// GoString keeps credentials out of logs.
func (Credentials) GoString() string { return "[redacted]" }

// MarshalText keeps credentials out of structured logs.
func (Credentials) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// Cluster is what is known of the cluster.
type Cluster struct {
	// UID of the kube-system namespace; the cluster id of CSI before 3.0.
	UID string
	// Distribution as in matrix.Facts: "openshift" matters here.
	Distribution string
	Nodes        []Node
	// GeneratedClusterID is key clusterID of ConfigMap vsphere-csi-cluster-id in
	// vmware-system-csi, which CSI from 3.0 on made; "" where there is none.
	GeneratedClusterID string
	// ConfiguredClusterID is the cluster-id in the Secret that CSI uses now (see
	// [ConfiguredClusterID]); "" where there is none.
	ConfiguredClusterID string
	// CloudConfig is the vsphere.conf that the cloud provider runs with now, YAML or INI; empty
	// where there is none.
	CloudConfig []byte
	// Searched are the places that a cloud provider of ours was last told to look in, as
	// [Cloud] has them: they count where CloudConfig does not name their vCenter any more.
	Searched []string
	// KeepsNodes is set where a cloud provider of ours was last told to delete no Node objects.
	KeepsNodes bool
	// UnsureOfNodes is set where no one knows any more whether it was, or where it looked: then it
	// is, until that is accepted.
	UnsureOfNodes bool
	// AnotherVCenter is set while a vCenter that was not accepted answers the cloud provider: it would
	// not find the nodes there, and deletes none meanwhile.
	AnotherVCenter bool
	// ExistingCloudConfig, FoundStorageConfig and FoundFeatureStates are configurations of an
	// installation that is to be adopted; empty where there is none, or where they are ours.
	ExistingCloudConfig, ExistingStorageConfig []byte
	ExistingFeatureStates                      map[string]string
	// ForeignSnapshotController is set where a snapshot-controller runs that is not ours.
	ForeignSnapshotController bool
}

// Node is what rendering has to know of a node.
type Node struct {
	Name          string
	Labels        map[string]string
	Taints        []corev1.Taint
	Unschedulable bool
}

// Rendered is what shall be on the cluster.
type Rendered struct {
	// Stages in the order in which they are applied; those without objects are left out.
	Stages []Stage
	// Notes are what a user should know, one sentence each, sorted; not errors.
	Notes []string
	// Dropped are settings of an installation that is adopted which have no place in what
	// is rendered, sorted: their places, and never their values.
	Dropped []string
	// Cloud is what the cloud provider is told, nil where it is not rendered.
	Cloud *Cloud
}

// Cloud is what has the cloud provider delete Node objects, or not.
type Cloud struct {
	// Searched are the places that it looks in for VMs, sorted: SERVER/DATACENTER, or SERVER
	// for all of a vCenter, in small letters and without brackets. nil where its configuration
	// stays as it is.
	Searched []string
	// KeepsNodes is set where it deletes no Node objects.
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
	StageConfig        = "config"         // accounts, rights, configuration
	StageMirrors       = "mirrors"        // what leads OpenShift's nodes to the mirror
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
	Waits   []Wait          // what must hold before the next stage
}

// Object is one object to apply.
type Object struct {
	*unstructured.Unstructured
	Driver matrix.Driver
	Apply  Strategy
	// Keep marks what is never pruned: namespaces and CRDs.
	Keep bool
	// Config says what of the object is taken from the cluster, where the driver's
	// configuration is kept.
	Config Config
}

// Config is the part that an object has in a configuration that is kept as it is on the
// cluster.
type Config int

// The parts.
const (
	// NoConfig: none, or the configuration is rendered.
	NoConfig Config = iota
	// ConfigData: the data are those of the object on the cluster. Where it is not there,
	// there is no configuration: it is not made of nothing.
	ConfigData
	// ConfigHash: the annotation [AnnotationConfigHash] of the pod template is that of the
	// object on the cluster.
	ConfigHash
)

// Strategy says how an object is applied.
type Strategy string

const (
	// Merge is server-side apply.
	Merge Strategy = "Merge"
	// Replace makes the data of a ConfigMap or Secret exactly what is rendered,
	// whoever owned the keys that are not: server-side apply would keep them. A
	// stale feature state crashes the storage driver; a stale half of a credential
	// stops the cloud provider.
	Replace Strategy = "Replace"
)

// WaitKind is a kind of condition.
type WaitKind string

const (
	// Established means: the CRD is served.
	Established WaitKind = "Established"
	// RolledOut means: all pods of the Deployment or DaemonSet are updated and available.
	RolledOut WaitKind = "RolledOut"
	// Exists means: the object is there, whoever made it.
	Exists WaitKind = "Exists"
	// NodesInitialized means: one of Nodes is without the taint
	// node.cloudprovider.kubernetes.io/uninitialized, or no node of the cluster has it.
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
