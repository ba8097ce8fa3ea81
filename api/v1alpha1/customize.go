package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// PolicyOf returns the spec.drivers entry of a driver, or the zero value.
func (s *VDOConfigSpec) PolicyOf(driver string) DriverPolicy {
	for _, d := range s.Drivers {
		if d.Driver == driver {
			return d
		}
	}
	return DriverPolicy{}
}

// DriverPolicy has the settings of a driver's version and pods.
type DriverPolicy struct {
	// +kubebuilder:validation:Enum=cpi;csi;cni;snapshot-controller
	Driver string `json:"driver"`
	// Policy: latest, lts, or disabled. Default: latest; disabled for cni, and for snapshot-controller if csi is.
	// +optional
	// +kubebuilder:validation:Enum=latest;lts;disabled
	Policy string `json:"policy,omitempty"`
	// Version pins the driver.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^v?[0-9]+[.][0-9]+[.][0-9]+([-+][0-9A-Za-z.+-]+)?$')`,message="write a whole version, such as 3.5.1"
	Version string `json:"version,omitempty"`
	// LogLevel Debug makes the driver log more. Default: as in its manifests.
	// +optional
	// +kubebuilder:validation:Enum=Normal;Debug
	LogLevel LogLevel `json:"logLevel,omitempty"`
	// Proxy to reach the vCenters through.
	// +optional
	Proxy *Proxy `json:"proxy,omitempty"`
	// Workloads are settings of the driver's pods.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Workloads []Workload `json:"workloads,omitempty"`
}

// LogLevel is Normal or Debug.
type LogLevel string

// LogDebug is the level of detailed logs.
const LogDebug LogLevel = "Debug"

// Proxy is a driver's proxy to its vCenters.
//
// +kubebuilder:validation:XValidation:rule="(has(self.https) && size(self.https) > 0) || (has(self.http) && size(self.http) > 0)",message="give the proxy in https, the scheme of the vCenter's API"
type Proxy struct {
	// HTTPS is the URL of the proxy for https:// addresses, such as vCenters.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^https?://[A-Za-z0-9._:\[\]-]+/?$')`,message="write a URL such as http://proxy.site.example:3128, without user and password: whoever may read pods would read them"
	HTTPS string `json:"https,omitempty"`
	// HTTP is the URL of the proxy for http:// addresses.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^https?://[A-Za-z0-9._:\[\]-]+/?$')`,message="write a URL such as http://proxy.site.example:3128, without user and password: whoever may read pods would read them"
	HTTP string `json:"http,omitempty"`
	// NoProxy are hosts, .domains and subnets to reach without the proxy. The operator always adds
	// the API server and the cluster's services.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^[A-Za-z0-9.*:/_-]+$')`,message="write one host, .domain or subnet an item"
	// +listType=atomic
	NoProxy []string `json:"noProxy,omitempty"`
}

// Workload has settings for the pods of one Deployment or DaemonSet of a driver.
type Workload struct {
	// Name of the Deployment or DaemonSet in the driver's manifests.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// NodeSelector is added to the manifest's: pods run on nodes with all these labels.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations are added to the manifest's.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// PriorityClassName replaces the manifest's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// Containers are settings of the manifest's containers.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Containers []Container `json:"containers,omitempty"`
}

// Container has settings for one container.
type Container struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Resources replace the manifest's, resource by resource.
	// +optional
	Resources *Resources `json:"resources,omitempty"`
	// Args are more arguments, each a flag such as --timeout=600s. It replaces the same flag of the manifest.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^--?[A-Za-z0-9][A-Za-z0-9_-]*(=[A-Za-z0-9._,:/\\$()=*+-]*)?$`
	// +listType=atomic
	Args []string `json:"args,omitempty"`
}

// Resources are the requests and limits of a container.
type Resources struct {
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// Patch changes one object of a driver's manifests. It applies to the object as upstream wrote it,
// with upstream's image names, before the operator's own changes. The operator refuses changes to
// names, selectors and privileges, and images that the bundle does not contain.
type Patch struct {
	Target PatchTarget `json:"target"`
	// Patch in YAML or JSON: a list is a JSON patch (RFC 6902), a map a strategic merge patch.
	// Every user who may read VDOConfigs can read it: write no secrets here.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Patch string `json:"patch"`
}

// PatchTarget names one object of a driver's manifests.
type PatchTarget struct {
	// +kubebuilder:validation:Enum=cpi;csi;cni;snapshot-controller
	Driver string `json:"driver"`
	// +kubebuilder:validation:Enum=Deployment;DaemonSet;Service;ServiceAccount;ConfigMap;CSIDriver
	Kind string `json:"kind"`
	// Namespace of the object. Default: any.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
