// Package v1alpha1 holds the operator's resources: [DriverBundle], the drivers that may be
// installed; [VsphereCloudConfig], a vCenter; [VDOConfig], the installed drivers and their health.
//
// The spec fields that VDOConfig and VsphereCloudConfig had in the earlier operator keep their
// names and meaning, so that existing resources apply unchanged. Status follows the Kubernetes
// conventions: conditions with observedGeneration, of the types Ready, Reconciling and Stalled as
// kstatus reads them, and further ones for parts.
//
// +kubebuilder:object:generate=true
// +groupName=vdo.vmware.com
package v1alpha1

import (
	"crypto/sha256"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of these kinds.
var GroupVersion = schema.GroupVersion{Group: "vdo.vmware.com", Version: "v1alpha1"}

// AddToScheme registers the kinds in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&DriverBundle{}, &DriverBundleList{},
		&VsphereCloudConfig{}, &VsphereCloudConfigList{},
		&VDOConfig{}, &VDOConfigList{},
		&CompatibilityConfig{}, &CompatibilityConfigList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Condition types. Ready, Reconciling and Stalled are those of kstatus. The user reference is
// generated from these comments.
const (
	ConditionReady       = "Ready"       // the spec is in effect
	ConditionSuspended   = "Suspended"   // spec.suspend or spec.dryRun is set
	ConditionReconciling = "Reconciling" // the operator works towards the spec, or waits for a fault to pass
	ConditionStalled     = "Stalled"     // an administrator has to act

	ConditionVerified = "Verified" // the bundle's signatures satisfy the trust policy
	ConditionFresh    = "Fresh"    // matrix neither expired nor older, or accepted by spec.acceptOlder

	ConditionResolved    = "Resolved"                // releases were chosen
	ConditionApplied     = "Applied"                 // the releases' objects are on the cluster
	ConditionCPI         = "CPIReady"                // the cloud provider is healthy
	ConditionCSI         = "CSIReady"                // the storage driver is healthy
	ConditionCNI         = "CNIReady"                // the network plug-in is healthy
	ConditionCertificate = "WebhookCertificateValid" // the webhook's certificate has more than 30 days left
	ConditionDrifted     = "Drifted"                 // an object differs and is not repaired; otherwise absent
	ConditionUpgradeable = "Upgradeable"             // installed drivers and bundle support the next Kubernetes and vCenter
	ConditionUpgraded    = "Upgraded"                // the chosen revision is installed
	ConditionPreflight   = "PreflightPassed"         // no check blocks a change
)

// AnnotationRequestedAt on a resource of any kind requests a reconcile each time that its value
// changes. The usual value is the current time.
const AnnotationRequestedAt = "reconcile.vdo.vmware.com/requestedAt"

// objectName is the name of a Kubernetes object. The empty line keeps this out of the descriptions of fields.

// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="write the name of a Kubernetes object: lower-case letters and digits, with - and . between them"
type objectName = string

// LocalReference names an object in the resource's own namespace.
type LocalReference struct {
	Name objectName `json:"name"`
}

// KeyReference names a key of a ConfigMap or a Secret in the resource's own namespace. Exactly one
// of configMap and secret is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMap) != has(self.secret)",message="give exactly one of configMap and secret"
type KeyReference struct {
	// +optional
	ConfigMap objectName `json:"configMap,omitempty"`
	// +optional
	Secret objectName `json:"secret,omitempty"`
	// Key of it. Default: depends on the field.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^[-._a-zA-Z0-9]+$')`,message="write a key of a ConfigMap or Secret: letters, digits, - _ and ."
	Key string `json:"key,omitempty"`
}

// GetConditions returns the status conditions.
func (in *DriverBundle) GetConditions() []metav1.Condition { return in.Status.Conditions }

// GetConditions returns the status conditions.
func (in *VsphereCloudConfig) GetConditions() []metav1.Condition { return in.Status.Conditions }

// GetConditions returns the status conditions.
func (in *VDOConfig) GetConditions() []metav1.Condition { return in.Status.Conditions }

// MaxAsked is how many bytes of an annotation's value a status keeps. Annotations may have 256 KiB.
const MaxAsked = 256

// Asked returns the value of a request annotation as a status keeps it. A value longer than
// [MaxAsked] is cut, with its SHA-256.
func Asked(o metav1.Object, annotation string) string {
	value := o.GetAnnotations()[annotation]
	if len(value) <= MaxAsked {
		return value
	}
	return fmt.Sprintf("%s sha256:%x", strings.ToValidUTF8(value[:128], ""), sha256.Sum256([]byte(value)))
}
