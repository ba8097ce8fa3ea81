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
