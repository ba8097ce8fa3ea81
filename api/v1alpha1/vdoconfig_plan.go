package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DriftMode is Repair, Warn or Off.
type DriftMode string

// The drift modes, besides Repair.
const (
	DriftWarn DriftMode = "Warn"
	DriftOff  DriftMode = "Off"
)

// DriftPolicy says how to handle objects that another manager changed or deleted.
type DriftPolicy struct {
	// Mode: Repair restores them at once. Warn leaves them, and shows them in status.drift, the
	// condition Drifted and metrics. Off does not look for them. In every mode a new release or
	// setting is applied whole, including drift. Default: Repair.
	// +optional
	// +kubebuilder:validation:Enum=Repair;Warn;Off
	Mode DriftMode `json:"mode,omitempty"`
	// Ignore leaves fields alone, in every mode.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Ignore []DriftIgnore `json:"ignore,omitempty"`
}

// DriftIgnore names fields of objects to leave to others. A field that no other manager has set yet
// does not change.
type DriftIgnore struct {
	// Driver whose objects are meant. Default: all.
	// +optional
	// +kubebuilder:validation:Enum=cpi;csi;cni;snapshot-controller
	Driver string `json:"driver,omitempty"`
	// Kind of the objects, such as Deployment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Namespace and Name of the object. Default: all of the kind.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Paths are JSON pointers (RFC 6901), such as /spec/replicas. List items with a name are
	// identified by it: /spec/template/spec/containers/0/resources means the container that is
	// first in the bundle. Refused are paths to fields that identify an object, select pods or
	// grant permissions, or that set images and their privileges. A path ends at other
	// lists, such as tolerations.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^(/([^/~]|~[01])+)+$')`,message="write a JSON pointer, such as /spec/replicas; a slash within a key is ~1, a tilde ~0"
	// +listType=set
	Paths []string `json:"paths"`
}

// PlanStatus is the remaining changes.
type PlanStatus struct {
	// Bundle of the plan: REPOSITORY@DIGEST.
	// +optional
	Bundle string `json:"bundle,omitempty"`
	// Releases that are desired, such as csi@3.7.3.
	// +optional
	// +listType=atomic
	Releases []string `json:"releases,omitempty"`
	// Actions counts the objects by action.
	// +optional
	// +listType=map
	// +listMapKey=action
	Actions []PlanCount `json:"actions,omitempty"`
	// Steps are the objects to change, by driver, kind and name.
	// +optional
	// +listType=atomic
	Steps []PlanStep `json:"steps,omitempty"`
	// Omitted is how many steps are not listed, since the status is limited.
	// +optional
	Omitted int `json:"omitted,omitempty"`
}

// PlanCount is how many objects an action is for.
type PlanCount struct {
	Action string `json:"action"`
	Count  int    `json:"count"`
}

// PlanStep is the action on one object.
type PlanStep struct {
	// Action: create, change, replace, recreate, prune, keep, forget, wait or conflict.
	Action string `json:"action"`
	Driver string `json:"driver"`
	Kind   string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Cause: release, content, configuration or drift.
	// +optional
	Cause string `json:"cause,omitempty"`
	// Reason names the fields that differ, without their values, or says why.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// DriftStatus is an object that another manager changed or deleted and the operator does not repair.
type DriftStatus struct {
	Driver string `json:"driver"`
	Kind   string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Fields that differ; empty if the object was deleted.
	// +optional
	Fields string `json:"fields,omitempty"`
	// Manager that sets one of these fields again after each repair.
	// +optional
	Manager string `json:"manager,omitempty"`
	// Repairs counts the repairs in a row, and Until is when the operator tries again, if another
	// manager keeps changing the object.
	// +optional
	Repairs int `json:"repairs,omitempty"`
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// NodeStatus is a node with a finding.
type NodeStatus struct {
	Name string `json:"name"`
	// Driver that the finding is about.
	Driver string `json:"driver"`
	Reason string `json:"reason"`
	// Message says what to do.
	Message string `json:"message"`
}
