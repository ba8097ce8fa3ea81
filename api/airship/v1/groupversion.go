// Package v1 holds two kinds. A [SIPCluster] says which BareMetalHosts of a management cluster a
// tenant cluster gets, and which services (load balancers, jump host, OIDC provider) it has. A
// [HostAction] requests a power change of one of these hosts.
//
// The spec fields of the earlier operator's last version keep their names and meaning, so that its
// resources apply unchanged. The API server refuses the role keys of its older schemas and says
// what to write instead. Status follows the Kubernetes conventions: conditions with
// observedGeneration, of the types Ready, Reconciling and Stalled as kstatus reads them. Ready has
// the earlier operator's six reasons.
//
// # On a BareMetalHost
//
// A host allocated to a SIPCluster has the annotation [AnnotationClaim] from before the first
// service exists until the operator releases the host. It has the three labels once the services
// are ready. Tenants' tools select by the labels; the claim keeps two SIPClusters off the same
// host.
//
// +kubebuilder:object:generate=true
// +groupName=airship.airshipit.org
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of these kinds.
var GroupVersion = schema.GroupVersion{Group: "airship.airshipit.org", Version: "v1"}

// AddToScheme registers the kinds in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &SIPCluster{}, &SIPClusterList{}, &HostAction{}, &HostActionList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Names on resources, all the earlier operator's except the claim.
const (
	// Finalizer keeps a SIPCluster until its services and labels are removed.
	Finalizer = "sip.airship.airshipit.org/finalizer"

	LabelClusterNamespace = "sip.airshipit.org/cluster-namespace"
	LabelClusterName      = "sip.airshipit.org/cluster-name"
	LabelNodeType         = "sip.airshipit.org/node-type"

	// AnnotationClaim on a BareMetalHost is ROLE NAMESPACE/NAME UID of its SIPCluster. An administrator writes it
	// without UID to allocate the host to the SIPCluster of that name: after a restore, or a host of the original.
	AnnotationClaim = "sip.airshipit.org/claimed-by"

	// AnnotationServicesOf on a Namespace is NAMESPACE/NAME of the SIPCluster whose services run
	// there. Only the operator writes it.
	AnnotationServicesOf = "sip.airshipit.org/services-of"

	// AnnotationReleaseInUse on a SIPCluster, with the value "true", releases hosts that are in
	// use, on scale-in and on deletion.
	AnnotationReleaseInUse = "sip.airshipit.org/release-in-use"

	// AnnotationAllowedNamespaces on a BareMetalHost lists the namespaces, separated by commas,
	// whose SIPClusters may use it. Without it a HostDeployPolicy has to permit that.
	AnnotationAllowedNamespaces = "sip.airshipit.org/allowed-namespaces"
)

// AnnotationRequestedBy on a HostAction is the user who created it. The shipped admission policy requires it, and
// refuses any other user's name.
const AnnotationRequestedBy = "sip.airshipit.org/requested-by"

// Reasons of the condition Ready of a SIPCluster.
const (
	ReasonProgressing          = "Progressing"             // hosts or services are in progress
	ReasonUnschedulable        = "Unschedulable"           // too few hosts fit
	ReasonInfraServiceFailure  = "InfraServiceFailure"     // a service cannot be created or does not run
	ReasonUnableToApplyLabels  = "UnableToApplyLabels"     // a host cannot be claimed or labelled
	ReasonUnableToDecommission = "UnableToDecommission"    // services or labels cannot be removed
	ReasonSucceeded            = "ReconciliationSucceeded" // hosts and services are as the spec says
)

// ConditionDegraded is True while allocated hosts have failed, and absent otherwise.
const (
	ConditionDegraded = "Degraded"
	ReasonHostsFailed = "HostsFailed"
)

// GetConditions returns the status conditions.
func (in *SIPCluster) GetConditions() []metav1.Condition { return in.Status.Conditions }
