// Package services renders the services of a SIPCluster (load balancers, jump hosts and login) as the objects that
// the API server shall have. Everything that differs between reconciles (time, Secrets) comes in by [Input].
//
//	for _, s := range services.Render(input) { apply(s.Objects) … ready when Deployment s.Name is rolled out }
//
// # Contract
//
//   - Every object is namespaced. Its apiVersion, kind and name are set; it has no owner, finalizer or status. The
//     caller sets the services' namespace and its own labels.
//   - Each service has exactly one Deployment and one Service, both of the service's name: see [Name].
//   - A Deployment's pod template changes exactly when its pods have to be rolled.
//   - Same input, same bytes: random parts (keys, certificates) are adopted from [Input.Kept].
//   - Only Secrets have secrets, no other object and no error.
//   - A fault concerns one service: it is in its [Service], and the others are rendered.
package services

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
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

// Input is everything that the services are rendered from.
type Input struct {
	Cluster types.NamespacedName // of the SIPCluster
	Spec    airship.Services
	// Hosts to serve, by role, sorted by namespace and name, without those that leave.
	Hosts map[airship.Role][]Host
	// Secret reads a Secret that the spec refers to; nil for a missing one. Errors are faults.
	Secret func(airship.SecretName) (Secret, error)
	// Kept are the cluster's Secrets of an earlier reconcile, by name: no two have the same.
	Kept map[string]Secret
	// Running are the cluster's Deployments of an earlier reconcile, by name.
	Running map[string]*appsv1.Deployment
	// Images are those of the bundle. Unusable is why the bundle cannot be used: then services keep their current
	// image.
	Images   Images
	Unusable error
	// Templates has templates of HAProxy's configuration as KIND.cfg, in the place of the frontends and backends here.
	// Nil for none.
	Templates fs.FS
	// PullSecret is a .dockerconfigjson for the bundle's mirror; empty for none.
	PullSecret []byte
	// Egress are the networks that services may connect to. Without any they reach hosts in private networks (RFC
	// 1918, RFC 4193), and no OIDC or other login provider.
	Egress []netip.Prefix
	// APIServers are the addresses of the management API, where Dex keeps its state. No host has one of them.
	APIServers []netip.AddrPort
	// AssignsUsers is whether the cluster gives pods users and groups of the namespace's range and refuses others, as
	// OpenShift's restricted-v2 does. Else pods set a number: images name a user, which the kubelet cannot tell from
	// root.
	AssignsUsers bool
	Now          time.Time
}

// Images returns the reference, with a digest, that the services of a kind run. Errors are faults.
type Images func(Kind) (string, error)

// Host is one BareMetalHost that a SIPCluster holds.
type Host struct {
	Namespace, Name string
	// Addresses on the networks that the services use, by nodeInterfaceId; "" is the only network. IPv4 before IPv6.
	// None if they are unknown.
	Addresses   map[string][]netip.Addr
	Provisioned bool // so that it has to have addresses
	// Unread is whether its data could not be read, so that an address may be missing. Before are then its earlier
	// addresses: a service keeps forwarding to those of them that it already forwards to.
	Unread bool
	Before []netip.Addr
}

// Secret is the data of a Secret. It prints as redacted.
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
	// Objects to apply, in this order. If there are none, the cluster's objects stay.
	Objects []*unstructured.Unstructured
	// LeftOut are the hosts that the service does not forward to, with the reason.
	LeftOut map[types.NamespacedName]string
	// Err is why it cannot be rendered, or does not serve as the spec says: a fault that names the field.
	Err error
}

// Leads reports whether a pod, by its labels, belongs to a service that forwards to hosts.
func Leads(labels map[string]string) bool { return labels[labelComponent] != string(Auth) }

// LeadsTo returns the addresses that a Deployment's pods forward to, if it records them.
func LeadsTo(deployment metav1.Object) (all []netip.Addr, noted bool) {
	note, noted := deployment.GetAnnotations()[annotationLeads]
	for text := range strings.SplitSeq(note, ",") {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all, noted
}

// NameOf returns the name of the service that an object belongs to, "" for none.
func NameOf(o metav1.Object) string { return o.GetLabels()[labelInstance] }

// maxName leaves room for suffixes of further objects, such as "-tls".
const maxName = 63 - 16

// Name returns the name of a service of a SIPCluster: sip-CLUSTER-KIND-INDEX-HASH, cut to fit a DNS label. The hash
// keeps clusters apart whose names are cut or have dots; the index counts services of one kind.
func Name(cluster string, kind Kind, index int) string {
	short := map[Kind]string{
		LoadBalancerControlPlane: "lb-cp", LoadBalancerWorker: "lb-worker", JumpHost: "jump", Auth: "auth",
	}[kind]
	sum := sha256.Sum256([]byte(cluster))
	tail := fmt.Sprintf("-%s-%d-%x", short, index, sum[:4])
	return "sip-" + label(cluster, maxName-len("sip-")-len(tail)) + tail
}

// Namespace returns the name of the namespace for the services of one SIPCluster. The operator records the cluster on
// it.
func Namespace(of types.NamespacedName) string {
	sum := sha256.Sum256([]byte(of.String()))
	return fmt.Sprintf("sip-%s-%x", label(of.Namespace+"-"+of.Name, 63-len("sip-")-1-16), sum[:8])
}

func label(s string, most int) string { return strings.ReplaceAll(s[:min(len(s), most)], ".", "-") }
