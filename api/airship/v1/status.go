package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SIPClusterStatus is what the tenant cluster has.
type SIPClusterStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Wanted is how many hosts the spec asks for, and Held how many there are.
	// +optional
	Wanted int32 `json:"wanted,omitempty"`
	// +optional
	Held int32 `json:"held,omitempty"`
	// Hosts that are held, by role.
	// +optional
	// +listType=atomic
	Hosts []HostStatus `json:"hosts,omitempty"`
	// HostSelector is, with sip.airshipit.org/node-type, the hostSelector that the tenant's
	// Metal3MachineTemplates need, lest they take hosts of others.
	// +optional
	HostSelector map[string]string `json:"hostSelector,omitempty"`
	// ClusterName is the Cluster of Cluster API whose machines use the hosts.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// HostsOmitted is how many of those that are held have no room in hosts.
	// +optional
	HostsOmitted int32 `json:"hostsOmitted,omitempty"`
	// Namespace is the operator's for the services.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Services that stand before them.
	// +optional
	// +listType=map
	// +listMapKey=name
	Services []ServiceStatus `json:"services,omitempty"`
	// Missing says, for each role with too few hosts, how many are missing and why the
	// other hosts were refused.
	// +optional
	// +listType=map
	// +listMapKey=role
	Missing []MissingHosts `json:"missing,omitempty"`
}

// HostStatus is one host that is held.
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
	// Labelled is whether it has the labels: from when the services are ready.
	// +optional
	Labelled bool `json:"labelled,omitempty"`
	// FailedSince is when the operator first saw that it failed.
	// +optional
	FailedSince *metav1.Time `json:"failedSince,omitempty"`
	// Problem of a host that is held all the same; or why it cannot leave.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// ServiceStatus is one service.
type ServiceStatus struct {
	// Name of its Deployment and Service.
	Name string `json:"name"`
	// Kind is the field of spec.services that it is from.
	Kind string `json:"kind"`
	// Ready is whether it serves as the spec says.
	Ready bool `json:"ready"`
	// Endpoints are ports of every node, as :PORT or :START-END, and the Service's address
	// in the cluster.
	// +optional
	// +listType=atomic
	Endpoints []string `json:"endpoints,omitempty"`
	// Image that runs.
	// +optional
	Image string `json:"image,omitempty"`
	// Message says what is not ready.
	// +optional
	Message string `json:"message,omitempty"`
}

// MissingHosts is a role with too few hosts.
type MissingHosts struct {
	Role Role `json:"role"`
	// Count is how many are missing.
	Count int32 `json:"count"`
	// Refused are the hosts that were not taken, counted by reason.
	// +optional
	// +listType=map
	// +listMapKey=reason
	Refused []RefusedHosts `json:"refused,omitempty"`
}

// RefusedHosts are hosts that one rule refused.
type RefusedHosts struct {
	Reason string `json:"reason"`
	Count  int32  `json:"count"`
	// Hosts are a few of them, as NAMESPACE/NAME.
	// +optional
	// +listType=atomic
	Hosts []string `json:"hosts,omitempty"`
}
