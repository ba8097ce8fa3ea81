package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all kinds here.
var GroupVersion = schema.GroupVersion{Group: "vdo.vmware.com", Version: "v1alpha1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&DriverBundle{}, &DriverBundleList{},
		&VsphereCloudConfig{}, &VsphereCloudConfigList{},
		&VDOConfig{}, &VDOConfigList{},
		&CompatibilityConfig{}, &CompatibilityConfigList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Condition types. Ready, Reconciling and Stalled are those of kstatus: Ready says
// that the spec is in effect; Reconciling that work towards it is under way;
// Stalled that only a person can help.
const (
	ConditionReady       = "Ready"
	ConditionSuspended   = "Suspended" // True while spec.suspend is set
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"

	ConditionVerified = "Verified" // the signature satisfies the policy
	ConditionFresh    = "Fresh"    // the matrix is neither expired nor older than one accepted

	ConditionResolved    = "Resolved"                // releases were chosen
	ConditionApplied     = "Applied"                 // their objects are on the cluster
	ConditionCPI         = "CPIReady"                // cloud provider healthy
	ConditionCSI         = "CSIReady"                // storage driver healthy
	ConditionCNI         = "CNIReady"                // network plug-in healthy
	ConditionCertificate = "WebhookCertificateValid" // it is renewed in time; False from 30 days before its end on
	ConditionDrifted     = "Drifted"                 // something differs and is not repaired; absent else
	ConditionUpgradeable = "Upgradeable"             // what is installed, and the bundle, serve the next Kubernetes minor and vCenter
	ConditionUpgraded    = "Upgraded"                // the revision that was chosen is in force; else why not
	ConditionPreflight   = "PreflightPassed"         // no check of what the drivers need keeps anything back
	ConditionNextMin     = "NextMinorCovered"        // the bundle has drivers for the next Kubernetes minor
)

// AnnotationRequestedAt on a resource of any kind asks for a pass now, each time
// that its value changes; the time of asking is the usual value.
const AnnotationRequestedAt = "reconcile.vdo.vmware.com/requestedAt"

// LocalReference names an object in the resource's own namespace.
type LocalReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="write the name of a Kubernetes object: lower-case letters and digits, with - and . between them"
	Name string `json:"name"`
}

// KeyReference names a key of a ConfigMap or a Secret in the resource's own
// namespace. Exactly one of configMap and secret is given.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMap) != has(self.secret)",message="give exactly one of configMap and secret"
type KeyReference struct {
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="write the name of a Kubernetes object: lower-case letters and digits, with - and . between them"
	ConfigMap string `json:"configMap,omitempty"`
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="write the name of a Kubernetes object: lower-case letters and digits, with - and . between them"
	Secret string `json:"secret,omitempty"`
	// Key defaults to the one usual for the field.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^[-._a-zA-Z0-9]+$')`,message="write a key of a ConfigMap or Secret: letters, digits, - _ and ."
	Key string `json:"key,omitempty"`
}
