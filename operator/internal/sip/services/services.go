// Package services renders the services of a SIPCluster: load balancers, jump hosts and
// login, as the objects that the API server shall have. What differs from
// pass to pass (time, Secrets that are read) comes in by [Input].
//
//	for _, s := range services.Render(input) { apply(s.Objects) … ready when Deployment s.Name is rolled out }
//
// # Contract
//
//   - Every object is namespaced; its apiVersion, kind and name are set, and it has no owner, no finalizer and no
//     status. Who applies it puts it into the services' namespace, and adds its own labels.
//   - Each service has exactly one Deployment and one Service, both of the service's name: see [Name].
//   - A Deployment's pod template changes exactly when its pods have to be rolled.
//   - Same input, same bytes: what is made by chance (keys, certificates) is adopted from [Input.Kept].
//   - Nothing secret is in an object of another kind than Secret, and in no error.
//   - Faults are of one service: they are in its [Service], and the others are rendered.
package services

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	Spec    airship.Services
	// Hosts to serve, by role, sorted by namespace and name: without those that leave.
	Hosts map[airship.Role][]Host
	// Secret reads one that the spec refers to; nil for one that is not there. Errors are faults.
	Secret func(airship.SecretName) (Secret, error)
	// Kept are the Secrets of an earlier pass as the cluster has them, by name.
	Kept map[string]Secret
	// Running are the Deployments of an earlier pass as the cluster has them, by name.
	Running map[string]*appsv1.Deployment
	// Images are those of the bundle. Unusable is why it cannot be used: services then keep the image that they
	// run.
	Images   Images
	Unusable error
	// PullSecret is a .dockerconfigjson for the bundle's mirror; empty for none.
	PullSecret []byte
	// Egress is where services may connect to. Without it they reach hosts in private networks (RFC 1918,
	// RFC 4193), and no provider of users.
	Egress []netip.Prefix
	// APIServers are the addresses of the management API. No host has one of them; the login keeps its
	// state there.
	APIServers []netip.AddrPort
	// AssignsUsers is that the cluster gives pods users and groups of the namespace's range and
	// refuses others, as OpenShift's restricted-v2 does. Else pods name one: images name theirs
	// by a word, which the kubelet cannot tell from root.
	AssignsUsers bool
	Now          time.Time
}

// Images returns the reference, with a digest, that the services of a kind run. Errors are faults.
type Images func(Kind) (string, error)

// Host is one BareMetalHost that a SIPCluster holds.
type Host struct {
	Namespace, Name string
	// Addresses on the networks that the services use, by nodeInterfaceId; "" is the only
	// network. IPv4 before IPv6. None where they are not known.
	Addresses map[string][]netip.Addr
	// Unread is whether its data could not be read, so that an address may be missing. Before are then the addresses
	// that it had: a service goes on leading to those of them that it leads to.
	Unread bool
	Before []netip.Addr
}

// Secret is the data of a Secret. It does not print.
type Secret map[string][]byte

// String keeps it out of logs.
func (Secret) String() string { return "[redacted]" }

// GoString keeps it out of logs.
func (Secret) GoString() string { return "[redacted]" }

// Service is one service.
type Service struct {
	Name string // of its Deployment and Service
	Kind Kind
	// Image that it runs, with digest.
	Image string
	// Endpoints are the ports that every node answers on, as :PORT or :START-END.
	Endpoints []string
	// Objects to apply, in this order. Empty where Err is not nil: what is on the cluster
	// then stays.
	Objects []*unstructured.Unstructured
	// LeftOut are hosts that the service does not lead to, and why: it leads to the others.
	LeftOut map[types.NamespacedName]string
	// Err is why it cannot be rendered: a fault that names the field.
	Err error
}

// Leading are the kinds that lead to hosts.
var Leading = []Kind{LoadBalancerControlPlane, LoadBalancerWorker, JumpHost}

// Leads tells whether a pod, by its labels, is of a service that leads to hosts.
func Leads(labels map[string]string) bool { return labels[labelComponent] != string(Auth) }

// NameOf returns the name of the service that an object is of, "" of none.
func NameOf(o metav1.Object) string { return o.GetLabels()[labelInstance] }

// maxName leaves room for suffixes of further objects, such as "-tls".
const maxName = 63 - 16

// Name is the name of a service of a SIPCluster: sip-CLUSTER-KIND-INDEX-HASH as far as it
// fits a DNS label. The hash keeps clusters apart whose names are cut or have dots; the
// index is the service's place among those of its kind.
func Name(cluster string, kind Kind, index int) string {
	short := map[Kind]string{
		LoadBalancerControlPlane: "lb-cp", LoadBalancerWorker: "lb-worker", JumpHost: "jump", Auth: "auth",
	}[kind]
	sum := sha256.Sum256([]byte(cluster))
	tail := fmt.Sprintf("-%s-%d-%x", short, index, sum[:4])
	return "sip-" + label(cluster, maxName-len("sip-")-len(tail)) + tail
}

// Namespace is the name of the namespace that the services of a SIPCluster run in: another one for
// each. The operator records on it whose it is.
func Namespace(of types.NamespacedName) string {
	sum := sha256.Sum256([]byte(of.String()))
	return fmt.Sprintf("sip-%s-%x", label(of.Namespace+"-"+of.Name, 63-len("sip-")-1-16), sum[:8])
}

// label cuts a DNS subdomain to what a label may hold.
func label(s string, most int) string { return strings.ReplaceAll(s[:min(len(s), most)], ".", "-") }
