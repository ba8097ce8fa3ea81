package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DriftMode is Repair, Warn or Off.
type DriftMode string

// The drift modes.
const (
	DriftRepair DriftMode = "Repair"
	DriftWarn   DriftMode = "Warn"
	DriftOff    DriftMode = "Off"
)

// DriftPolicy says what is done about objects that another manager has changed or deleted.
type DriftPolicy struct {
	// Mode: Repair puts them right at once; Warn shows them in status.drift, in the condition
	// Drifted and in metrics, and leaves them; Off does not look. Whatever the
	// mode, a new release or setting is applied whole, drift included. Default: Repair.
	// +optional
	// +kubebuilder:validation:Enum=Repair;Warn;Off
	Mode DriftMode `json:"mode,omitempty"`
	// Ignore leaves fields to others, in every mode.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Ignore []DriftIgnore `json:"ignore,omitempty"`
}

// DriftIgnore names fields of objects that are left to others. A field that no other manager has
// set yet stays as it is.
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
	// Paths are JSON pointers (RFC 6901), such as /spec/replicas. Of a list's items those
	// that have a name are known by it: /spec/template/spec/containers/0/resources is of the
	// container that the bundle has first. Refused are paths to what identifies an object,
	// selects pods, grants rights, or says which images run with which rights.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^(/([^/~]|~[01])+)+$')`,message="write a JSON pointer, such as /spec/replicas; a slash within a key is ~1, a tilde ~0"
	// +listType=set
	Paths []string `json:"paths"`
}

// PlanStatus is what is still to be done.
type PlanStatus struct {
	// Bundle that the plan is made from: REPOSITORY@DIGEST.
	// +optional
	Bundle string `json:"bundle,omitempty"`
	// Releases that shall be there, such as csi@3.7.3.
	// +optional
	// +listType=atomic
	Releases []string `json:"releases,omitempty"`
	// Held is why it is not carried out now; empty where it is, or nothing is to be done.
	// +optional
	Held string `json:"held,omitempty"`
	// Actions counts the objects by what is to be done with them.
	// +optional
	// +listType=map
	// +listMapKey=action
	Actions []PlanCount `json:"actions,omitempty"`
	// Steps are the objects that something is to be done with, by driver, kind and name.
	// +optional
	// +listType=atomic
	Steps []PlanStep `json:"steps,omitempty"`
	// Omitted is how many steps are not listed, since the status is bounded.
	// +optional
	Omitted int `json:"omitted,omitempty"`
}

// PlanCount is how many objects an action is for.
type PlanCount struct {
	Action string `json:"action"`
	Count  int    `json:"count"`
}

// PlanStep is what is to be done with one object.
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
	// Reason names the fields that differ, not their values, or says why.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// DriftStatus is an object that another manager has changed or deleted and that is not repaired.
type DriftStatus struct {
	Driver string `json:"driver"`
	Kind   string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Fields that differ; none where the object was deleted.
	// +optional
	Fields string `json:"fields,omitempty"`
	// Manager is who sets one of these fields again each time that it is repaired.
	// +optional
	Manager string `json:"manager,omitempty"`
	// Repairs is how often it was repaired in a row, and Until when it is tried again:
	// of objects that another manager goes on changing.
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
