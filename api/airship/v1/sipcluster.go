package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SIPCluster is a tenant cluster's share of the management cluster: hosts by role, and the services
// in front of them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations={"argocd.argoproj.io/sync-options=Prune=false,Delete=false","kustomize.toolkit.fluxcd.io/prune=disabled"}
// +kubebuilder:metadata:annotations={"kapp.k14s.io/delete-strategy=orphan","helm.sh/resource-policy=keep"}
// +kubebuilder:resource:path=sipclusters,singular=sipcluster,shortName=sip
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Hosts",type=integer,JSONPath=`.status.held`
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.status.wanted`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name becomes the value of a label on hosts: write at most 63 characters"
type SIPCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec SIPClusterSpec `json:"spec,omitzero"`
	// +optional
	Status SIPClusterStatus `json:"status,omitzero"`
}

// SIPClusterSpec is the desired hosts and services.
type SIPClusterSpec struct {
	// Nodes says by role, ControlPlane or Worker, which hosts and how many.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(role, role in ['ControlPlane', 'Worker'])",message="roles are ControlPlane and Worker: write ControlPlane for master and Worker for worker; inside it labelSelector for vm-flavor, topologyKey for scheduling-constraints or spreadTopology, and count; and spec.services for spec.infra"
	Nodes map[Role]NodeSet `json:"nodes,omitempty"`
	// ClusterName is the Cluster of Cluster API whose machines may use the hosts. Default: that of
	// the machines whose hostSelector names this SIPCluster, or of all machines.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`
	// Services in front of the hosts.
	// +optional
	Services Services `json:"services,omitzero"`
}

// Role of a host in the tenant cluster.
type Role string

// The roles.
const (
	RoleControlPlane Role = "ControlPlane"
	RoleWorker       Role = "Worker"
)

// NodeSet is the hosts of one role.
type NodeSet struct {
	// LabelSelector selects BareMetalHosts, in all namespaces; empty selects all.
	// +optional
	LabelSelector metav1.LabelSelector `json:"labelSelector,omitzero"`
	// TopologyKey is a label of BareMetalHosts. The role gets at most one host for each value of
	// the label; hosts without the label are not restricted.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^$|^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')`,message="write the key of a label, such as vino.airshipit.org/rack"
	TopologyKey string `json:"topologyKey,omitempty"`
	// Count of hosts. Default: none.
	// +optional
	Count *NodeCount `json:"count,omitempty"`
}

// NodeCount is how many hosts a role gets: the sum is allocated and labelled.
type NodeCount struct {
	// Active hosts are those that the tenant cluster needs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Active int32 `json:"active,omitempty"`
	// Standby hosts are allocated besides them. One replaces an active host that fails, and the
	// operator releases them first.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Standby int32 `json:"standby,omitempty"`
}

// Wanted returns how many hosts a role requests, and how many of them are standby.
func (n NodeSet) Wanted() (total, standby int) {
	if n.Count == nil {
		return 0, 0
	}
	return int(n.Count.Active) + int(n.Count.Standby), int(n.Count.Standby)
}

// SIPClusterList is a list of SIPCluster.
//
// +kubebuilder:object:root=true
type SIPClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SIPCluster `json:"items"`
}
