// Package v1alpha1 holds the resources of the operator: [DriverBundle], what may
// be installed; [VsphereCloudConfig], a vCenter; [VDOConfig], what is installed and
// how it fares.
//
// The spec fields of VDOConfig and VsphereCloudConfig that the earlier operator of
// this group had keep their names and meaning, so that existing resources apply
// unchanged. Status follows the Kubernetes conventions: conditions with
// observedGeneration, of the types Ready, Reconciling and Stalled as kstatus reads
// them, and further ones for parts.
//
// +kubebuilder:object:generate=true
// +groupName=vdo.vmware.com
package v1alpha1
