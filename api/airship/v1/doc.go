// Package v1 holds [SIPCluster], which says which BareMetalHosts of a management cluster
// a tenant cluster gets, and which services (load balancers, jump host, login) stand
// before it; and [HostAction], which requests a change of power of one of these hosts.
//
// The spec fields that the predecessor's last version had keep their names and meaning,
// so that its resources apply unchanged. Of its older schemas the role keys are refused,
// with what to write instead. Status follows the Kubernetes conventions: conditions with
// observedGeneration, of the types Ready, Reconciling and Stalled as kstatus reads them;
// Ready has the predecessor's six reasons.
//
// # On a BareMetalHost
//
// A host that a SIPCluster holds has the annotation [AnnotationClaim] from before any
// service is made until the host is given back, and the three labels from when the
// services are ready. The labels are what tenants' tools select by; the claim is what
// keeps two SIPClusters off the same host.
//
// +kubebuilder:object:generate=true
// +groupName=airship.airshipit.org
package v1
