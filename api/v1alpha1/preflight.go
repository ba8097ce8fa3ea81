package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PreflightAction is what becomes of a check that is turned down: Warn or Disabled. (Off
// would be a boolean in YAML.)
type PreflightAction string

// The actions.
const (
	PreflightWarn     PreflightAction = "Warn"
	PreflightDisabled PreflightAction = "Disabled"
)

// PreflightPolicy says how what the drivers need is checked.
type PreflightPolicy struct {
	// Checks that are turned down. All others keep installations, upgrades and changes of
	// the configuration back as far as a driver would not work with what was found.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=64
	Checks []PreflightCheck `json:"checks,omitempty"`
	// Interval between checks, while nothing is kept back.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,6}([.][0-9]{1,9})?h)?([0-9]{1,7}([.][0-9]{1,9})?m)?([0-9]{1,9}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) >= duration('5m')`,message="write a duration of at least 5m, such as 10m or 1h30m"
	Interval metav1.Duration `json:"interval,omitzero"`
}

// PreflightCheck turns one check down.
type PreflightCheck struct {
	// ID of the check, as in status.preflight and in what vdoctl check prints. Those that were one
	// once, such as vm-folder, are accepted, so that stored VDOConfigs stay valid, and have no effect.
	// +kubebuilder:validation:Enum=cluster;cluster-id;node-vm;node-name;node-address;node-provider-id;node-cloud-provider;node-uninitialized;node-control-plane;node-zone-labels;node-registered;vcenter-connection;vcenter-account;vcenter-privileges;vcenter-excess;vcenter-datacenters;vcenter-version;vcenter-certificate;vcenter-clock;vcenter-tasks;vcenter-cns;vcenter-upgrade;host-version;vm-disk-uuid;vm-folder;vm-hardware;vm-scsi;vm-tools;vm-snapshots;vm-change-tracking;vm-disk-latency;datastore-shared;datastore-space;datastore-cluster;storage-class;topology-category;topology-tag;topology-host-group;topology-vcenters;image-platform;image-mirror-set
	ID string `json:"id"`
	// Action: Warn shows what the check finds and keeps nothing back; Disabled leaves it out.
	// +kubebuilder:validation:Enum=Warn;Disabled
	Action PreflightAction `json:"action"`
	// Reason why the check does not count at this site. It is shown in the status.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'\S') && !self.matches(r'\p{Cc}')`,message="write the reason in words, on one line"
	Reason string `json:"reason"`
}

// PreflightStatus is what the checks found.
type PreflightStatus struct {
	// CheckedAt is when the cluster and the vCenters were last looked at. Without it what is
	// found here is of the bundle alone: they were not looked at.
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
	// Question identifies the configuration that was checked.
	// +optional
	Question string `json:"question,omitempty"`
	// HandledReconcileAt is the value of the annotation
	// reconcile.vdo.vmware.com/requestedAt that was there when what is found here was last
	// looked for. The status' own handledReconcileAt tells of the pass, which does not wait
	// for the checks that it asks for.
	// +optional
	HandledReconcileAt string `json:"handledReconcileAt,omitempty"`
	// Verdict is the gravest action.
	// +optional
	Verdict string `json:"verdict,omitempty"`
	// Passed is how many checks found nothing.
	// +optional
	Passed int `json:"passed,omitempty"`
	// Results that did not pass or were turned down, the gravest first.
	// +optional
	// +listType=atomic
	Results []PreflightResult `json:"results,omitempty"`
	// Omitted is how many more there are, since the status is bounded.
	// +optional
	Omitted int `json:"omitted,omitempty"`
}

// PreflightResult is what one check found.
type PreflightResult struct {
	ID string `json:"id"`
	// Action: Warn, BlockInstall, or Disabled where it was left out.
	Action string `json:"action"`
	// Drivers that it concerns.
	// +optional
	// +listType=atomic
	Drivers []string `json:"drivers,omitempty"`
	// VCenter is the name of the VsphereCloudConfig that it was found in.
	// +optional
	VCenter string `json:"vCenter,omitempty"`
	// Objects concerned, the first of Count.
	// +optional
	// +listType=atomic
	Objects []string `json:"objects,omitempty"`
	// +optional
	Count int `json:"count,omitempty"`
	// StopsDriver is set where a driver would not start: one that runs keeps the
	// configuration that it has.
	// +optional
	StopsDriver bool `json:"stopsDriver,omitempty"`
	// Found, Why it matters, and Remedy: a command, or a place in the vSphere Client.
	Found string `json:"found"`
	// +optional
	Why string `json:"why,omitempty"`
	// +optional
	Remedy string `json:"remedy,omitempty"`
	// Override is set of a check that spec.preflight turned down.
	// +optional
	Override *PreflightOverride `json:"override,omitempty"`
}

// PreflightOverride is why a result has a milder action.
type PreflightOverride struct {
	// Was is the action without spec.preflight.
	Was string `json:"was"`
	// Reason as spec.preflight gives it.
	Reason string `json:"reason"`
}
