package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SIPClusterStatus is the current hosts and services.
type SIPClusterStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Wanted is how many hosts the spec requests; Held is how many are allocated.
	// +optional
	Wanted int32 `json:"wanted"`
	// +optional
	Held int32 `json:"held"`
	// Hosts that are allocated, by role.
	// +optional
	// +listType=atomic
	Hosts []HostStatus `json:"hosts,omitempty"`
	// HostSelector and sip.airshipit.org/node-type are the hostSelector for the tenant's
	// Metal3MachineTemplates. Without it they may take hosts of other tenants.
	// +optional
	HostSelector map[string]string `json:"hostSelector,omitempty"`
	// ClusterName is the Cluster of Cluster API whose machines use the hosts.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// HostsOmitted is how many allocated hosts are not listed in hosts.
	// +optional
	HostsOmitted int32 `json:"hostsOmitted,omitempty"`
	// Namespace of the services.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Services in front of the hosts.
	// +optional
	// +listType=map
	// +listMapKey=name
	Services []ServiceStatus `json:"services,omitempty"`
	// Missing lists, for each role with too few hosts, how many are missing and why the other hosts were refused.
	// +optional
	// +listType=map
	// +listMapKey=role
	Missing []MissingHosts `json:"missing,omitempty"`
}

// HostStatus is one allocated host.
type HostStatus struct {
	Role      Role   `json:"role"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Addresses that the services use.
	// +optional
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
	// Topology is the host's value of the role's topologyKey.
	// +optional
	Topology string `json:"topology,omitempty"`
	// Labelled is true if the host has the labels: once the services are ready.
	// +optional
	Labelled bool `json:"labelled,omitempty"`
	// FailedSince is when the operator first saw that it failed.
	// +optional
	FailedSince *metav1.Time `json:"failedSince,omitempty"`
	// Problem of a host that stays allocated, or why it cannot be released.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// ServiceStatus is one service.
type ServiceStatus struct {
	// Name of its Deployment and Service.
	Name string `json:"name"`
	// Kind is its field of spec.services.
	Kind string `json:"kind"`
	// Ready is true if it serves as the spec says.
	Ready bool `json:"ready"`
	// Endpoints are ports of every node, as :PORT or :START-END, and the Service's address in the cluster.
	// +optional
	// +listType=atomic
	Endpoints []string `json:"endpoints,omitempty"`
	// Image that runs.
	// +optional
	Image string `json:"image,omitempty"`
	// Message says why it is not ready.
	// +optional
	Message string `json:"message,omitempty"`
}

// MissingHosts is a role with too few hosts.
type MissingHosts struct {
	Role Role `json:"role"`
	// Count is how many are missing.
	Count int32 `json:"count"`
	// Refused are the hosts not allocated, counted by reason.
	// +optional
	// +listType=map
	// +listMapKey=reason
	Refused []RefusedHosts `json:"refused,omitempty"`
}

// RefusedHosts are the hosts that one rule refused.
type RefusedHosts struct {
	Reason string `json:"reason"`
	Count  int32  `json:"count"`
	// Hosts lists some of them, as NAMESPACE/NAME.
	// +optional
	// +listType=atomic
	Hosts []string `json:"hosts,omitempty"`
}
