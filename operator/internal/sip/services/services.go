// Package services renders the services of a SIPCluster: load balancers, jump hosts and
// login, as the objects that the API server shall have. It is pure: what differs from
// pass to pass (time, chance, Secrets that are read) comes in by [Input].
//
//	set := services.Render(input)
//	for _, s := range set.Services { apply(s.Objects) … ready when Deployment s.Name is rolled out }
//
// # Contract
//
//   - Every object is namespaced; its apiVersion, kind and name are set, and it has no owner,
//     no finalizer and no status. Who applies it puts it into the SIPCluster's namespace, adds
//     its own labels, and records it before.
//   - Each service has exactly one Deployment, of the service's name, and one Service of
//     the same name. Names are the same from pass to pass and differ between SIPClusters
//     of one namespace; see [Name].
//   - A Deployment's pod template changes exactly when its pods have to be rolled.
//   - Same input, same bytes: what is made by chance (keys, certificates) is taken over
//     from [Input.Kept] as long as it is valid.
//   - Nothing secret is in an object of another kind than Secret, and in no error.
//   - Faults are of one service: they are in its [Service], and the others are rendered.
//   - Of hosts with one address the first serves, in the order of roles and of [Input];
//     the others are left out, which their [Service] tells of.
//   - Hosts are named NAME, or NAME.NAMESPACE where two would have one name or the name looks
//     like an address.
package services

import (
	"io"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
)

// Kind is one kind of service, named as its field of spec.services.
type Kind string

// The kinds.
const (
	LoadBalancerControlPlane Kind = "loadBalancerControlPlane"
	LoadBalancerWorker       Kind = "loadBalancerWorker"
	JumpHost                 Kind = "jumpHost"
	Auth                     Kind = "auth"
)

// Input is all that the services are made of.
type Input struct {
	Cluster types.NamespacedName // of the SIPCluster
	UID     types.UID
	Spec    airship.Services
	// Hosts to serve, by role, sorted by namespace and name: without those that leave.
	Hosts map[airship.Role][]Host
	// Secrets are those that the spec refers to (see [airship.Services.SecretNames]), by
	// name. One that is not there, or cannot be read, is not in it.
	Secrets map[airship.SecretName]Secret
	// Kept are the Secrets of an earlier pass as the cluster has them, by name.
	Kept map[string]Secret
	// Images answers which image a service runs.
	Images Images
	// PullSecret is a .dockerconfigjson for the bundle's mirror; empty for none.
	PullSecret []byte
	// Egress is where services may connect to. Without it they reach any host, and no provider of users.
	Egress []netip.Prefix
	// AssignsUsers is that the cluster gives pods users and groups of the namespace's range and
	// refuses others, as OpenShift's restricted-v2 does. Else pods name one: images name theirs
	// by a word, which the kubelet cannot tell from root.
	AssignsUsers bool
	Now          time.Time
	Rand         io.Reader // of keys; as crypto/rand.Reader
}

// Images resolves images.
type Images interface {
	// Image returns the reference, with a digest, that the service of a name (see [Name]) and
	// a kind runs: asked for in the resource, or the bundle's where that is "". Errors are
	// faults.
	Image(name string, kind Kind, asked string) (string, error)
}

// Host is one BareMetalHost that a SIPCluster holds.
type Host struct {
	Namespace, Name string
	// Addresses on the networks that the services use, by nodeInterfaceId; "" is the only
	// network. IPv4 before IPv6. None where they are not known.
	Addresses map[string][]netip.Addr
}

// Secret is the data of a Secret. It does not print.
type Secret map[string][]byte

// String keeps it out of logs.
func (Secret) String() string { return "[redacted]" }

// GoString keeps it out of logs.
func (Secret) GoString() string { return "[redacted]" }

// Set is what was rendered.
type Set struct {
	// Services in the order of the spec: load balancers, jump hosts, login.
	Services []Service
	// RenewAt is when something made here (a certificate) is to be renewed, and the
	// services rendered again; zero for never.
	RenewAt time.Time
}

// Service is one service.
type Service struct {
	Name string // of its Deployment and Service
	Kind Kind
	// Image that it runs, with digest.
	Image string
	// Ports that every node answers on, sorted.
	Ports []Ports
	// Objects to apply, in this order. Empty where Err is not nil: what is on the cluster
	// then stays.
	Objects []*unstructured.Unstructured
	// LeftOut are hosts that the service does not lead to, and why: it leads to the others.
	LeftOut map[types.NamespacedName]string
	// Err is why it cannot be rendered: a fault that names the field.
	Err error
}

// Ports is one port, or a range of them.
type Ports struct{ Start, End int32 }

// PodLabels select the pods of the service of a name.
func PodLabels(name string) map[string]string { return map[string]string{labelInstance: name} }

// PodsOf selects the pods of services by their names, of which there is one at least.
func PodsOf(names []string) (labels.Selector, error) {
	one, err := labels.NewRequirement(labelInstance, selection.In, names)
	if err != nil {
		return nil, err
	}
	return labels.NewSelector().Add(*one), nil
}
