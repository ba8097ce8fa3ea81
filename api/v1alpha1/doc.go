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
