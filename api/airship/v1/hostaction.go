package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HostAction requests one power change of a host allocated to a SIPCluster of the same namespace.
// Metal3 executes it: no BMC credentials leave the host's namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations={"argocd.argoproj.io/sync-options=Prune=false,Delete=false"}
// +kubebuilder:metadata:annotations={"kustomize.toolkit.fluxcd.io/prune=disabled"}
// +kubebuilder:metadata:annotations={"kapp.k14s.io/delete-strategy=orphan","helm.sh/resource-policy=keep"}
// +kubebuilder:resource:path=hostactions,singular=hostaction
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.action`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.spec.host.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HostAction struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec HostActionSpec `json:"spec"`
	// +optional
	Status HostActionStatus `json:"status,omitzero"`
}

// HostActionSpec is the requested action on a host.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="create another HostAction"
// +kubebuilder:validation:XValidation:rule="!has(self.force) || !self.force || self.action == 'Reboot'",message="force needs the action Reboot"
type HostActionSpec struct {
	// Cluster is the name of the host's SIPCluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster"`
	// Host is the BareMetalHost, as status.hosts of the SIPCluster names it.
	Host HostReference `json:"host"`
	// Action to execute.
	// +kubebuilder:validation:Enum=Reboot;PowerOff;PowerOn
	Action PowerAction `json:"action"`
	// Force reboots without asking the operating system.
	// +optional
	Force bool `json:"force,omitempty"`
}

// HostReference names a BareMetalHost.
type HostReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// String returns "host NAMESPACE/NAME".
func (h HostReference) String() string { return "host " + h.Namespace + "/" + h.Name }

// PowerAction is one power change.
type PowerAction string

// The actions.
const (
	Reboot   PowerAction = "Reboot"
	PowerOff PowerAction = "PowerOff"
	PowerOn  PowerAction = "PowerOn"
)

// Reasons of the condition Ready of a HostAction. The last two are final.
const (
	ReasonRequested = "Requested" // Metal3 has the request; False while the operator cannot pass it on
	ReasonCompleted = "Completed" // Metal3 has executed it
	ReasonRefused   = "Refused"   // the operator does not request it, or no longer
)

// HostActionStatus is the action's progress.
type HostActionStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// RequestedAt is when the operator passed the request to Metal3.
	// +optional
	RequestedAt *metav1.Time `json:"requestedAt,omitempty"`
	// CompletedAt is when the operator saw that Metal3 had executed it.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}

// GetConditions returns the status conditions.
func (in *HostAction) GetConditions() []metav1.Condition { return in.Status.Conditions }

// HostActionList is a list of HostAction.
//
// +kubebuilder:object:root=true
type HostActionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostAction `json:"items"`
}
