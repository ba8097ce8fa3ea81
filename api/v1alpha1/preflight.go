package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PreflightAction is the lowered action of a check: Warn or Disabled. (Off would be a boolean in YAML.)
type PreflightAction string

// The actions.
const (
	PreflightWarn     PreflightAction = "Warn"
	PreflightDisabled PreflightAction = "Disabled"
)

// PreflightPolicy has the settings of the preflight checks.
type PreflightPolicy struct {
	// Checks with a lowered action. All others block installations, upgrades and configuration
	// changes of a driver that would not work with the findings.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=64
	Checks []PreflightCheck `json:"checks,omitempty"`
	// Interval between checks while they block nothing.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,6}([.][0-9]{1,9})?h)?([0-9]{1,7}([.][0-9]{1,9})?m)?([0-9]{1,9}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) >= duration('5m')`,message="write a duration of at least 5m, such as 10m or 1h30m"
	Interval metav1.Duration `json:"interval,omitzero"`
}

// PreflightCheck lowers a check's action.
type PreflightCheck struct {
	// ID of the check, as in status.preflight and the output of vdoctl check. Ids of former checks,
	// such as vm-folder, are accepted, so that stored VDOConfigs stay valid, and have no effect.
	// +kubebuilder:validation:Enum=cluster;cluster-id;node-vm;node-name;node-address;node-provider-id;node-cloud-provider;node-uninitialized;node-control-plane;node-zone-labels;node-registered;vcenter-connection;vcenter-account;vcenter-privileges;vcenter-excess;vcenter-datacenters;vcenter-version;vcenter-certificate;vcenter-clock;vcenter-tasks;vcenter-cns;vcenter-upgrade;host-version;vm-disk-uuid;vm-folder;vm-hardware;vm-scsi;vm-tools;vm-snapshots;vm-change-tracking;vm-disk-latency;datastore-shared;datastore-space;datastore-vsan;datastore-cluster;storage-class;topology-category;topology-tag;topology-host-group;topology-vcenters;image-platform;image-mirror-set
	ID string `json:"id"`
	// Action: Warn shows the findings and blocks nothing; Disabled skips the check.
	// +kubebuilder:validation:Enum=Warn;Disabled
	Action PreflightAction `json:"action"`
	// Reason why the check does not apply at this site. The status shows it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'\S') && !self.matches(r'\p{Cc}')`,message="write the reason in words, on one line"
	Reason string `json:"reason"`
}

// PreflightStatus is the findings of the checks.
type PreflightStatus struct {
	// CheckedAt is when the operator last checked the cluster and the vCenters. Without it the
	// findings are about the bundle only.
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
	// Question identifies the configuration that was checked.
	// +optional
	Question string `json:"question,omitempty"`
	// HandledReconcileAt is the value of the annotation reconcile.vdo.vmware.com/requestedAt at the
	// last check. The status' own handledReconcileAt is that of the reconcile, which does not wait
	// for the checks that it requests.
	// +optional
	HandledReconcileAt string `json:"handledReconcileAt,omitempty"`
	// Verdict is the most severe action.
	// +optional
	Verdict string `json:"verdict,omitempty"`
	// Passed is how many checks found nothing.
	// +optional
	Passed int `json:"passed,omitempty"`
	// Results that did not pass or were lowered, most severe first.
	// +optional
	// +listType=atomic
	Results []PreflightResult `json:"results,omitempty"`
	// Omitted is how many more exist, since the status is limited.
	// +optional
	Omitted int `json:"omitted,omitempty"`
}

// PreflightResult is the finding of one check.
type PreflightResult struct {
	ID string `json:"id"`
	// Action: Warn, BlockInstall, or Disabled if the check was skipped.
	Action string `json:"action"`
	// Drivers concerned.
	// +optional
	// +listType=atomic
	Drivers []string `json:"drivers,omitempty"`
	// VCenter is the name of the VsphereCloudConfig with the finding.
	// +optional
	VCenter string `json:"vCenter,omitempty"`
	// Objects concerned, the first of Count.
	// +optional
	// +listType=atomic
	Objects []string `json:"objects,omitempty"`
	// +optional
	Count int `json:"count,omitempty"`
	// StopsDriver is set if a driver would not start: a running driver keeps its configuration.
	// +optional
	StopsDriver bool `json:"stopsDriver,omitempty"`
	// Found, Why it matters, and Remedy: a command, or a place in the vSphere Client.
	Found string `json:"found"`
	// +optional
	Why string `json:"why,omitempty"`
	// +optional
	Remedy string `json:"remedy,omitempty"`
	// Override is set if spec.preflight lowered the action.
	// +optional
	Override *PreflightOverride `json:"override,omitempty"`
}

// PreflightOverride is why a result has a milder action.
type PreflightOverride struct {
	// Was is the action without spec.preflight.
	Was string `json:"was"`
	// Reason from spec.preflight.
	Reason string `json:"reason"`
}
