package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GetConditions returns the status conditions.
func (in *DriverBundle) GetConditions() []metav1.Condition { return in.Status.Conditions }

// GetConditions returns the status conditions.
func (in *VsphereCloudConfig) GetConditions() []metav1.Condition { return in.Status.Conditions }

// GetConditions returns the status conditions.
func (in *VDOConfig) GetConditions() []metav1.Condition { return in.Status.Conditions }
