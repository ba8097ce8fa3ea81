// Package sipcluster keeps each SIPCluster true: it has the hosts that it asks for, its
// services run before them, and the hosts carry its labels.
//
// One pass has the four steps of the original, each in a file:
//
//	gather.go    read the BareMetalHosts, choose (package choose), and claim
//	extract.go   the addresses of the hosts that were chosen
//	deploy.go    prepare the services' namespace (namespace.go), render (render.go), apply, and assess
//	label.go     label what is held; release what leaves once no pod leads there
//
// status.go writes the outcome, once.
//
// # What holds whatever happens
//
//   - A host is held by the SIPCluster whose UID its claim has. One of the same name inherits nothing,
//     unless the host's owner has it adopted. What its owner does not permit is not taken.
//   - A host has one holder: the annotation that claims it is written under the resource
//     version that was decided on, before any service is made. Whoever comes second gets a
//     conflict and gathers again. So two SIPClusters, or two operators of which one does not
//     know yet that it no longer leads, never have the same host.
//   - Where something is to change, all hosts are read from the API server itself, so that
//     what an earlier pass did counts though no cache has it. One SIPCluster is worked on at
//     a time.
//   - A host is labelled when the load balancers of the control plane are rolled out. It gives its labels
//     and its claim up in one patch, under the resource version that was decided on, when no service
//     leads to it any more. Each pod of a service counts until it has ended, which open connections
//     through a load balancer may delay by ten minutes.
//   - A host in use is not given back, neither by scale-in nor by deletion, unless an annotation of
//     the SIPCluster says so.
//   - Images and logins change only with a bundle that is verified under the trust policy of
//     now: else each service keeps its own, new ones wait, and Ready says why.
//   - Services lead where they led while the data of a held host cannot be read, and Ready is
//     False.
//   - A pass that changes neither a host nor a service reads hosts from the cache. So neither an old cache
//     nor an operator that does not know yet that it no longer leads hands a host to who had it before. What
//     remains is the time between the answer of the API server and the write, as everywhere where a lease
//     decides.
//   - Hosts are claimed for a SIPCluster that the API server has, with the finalizer.
//   - Services run in a namespace that only the operator writes: what exists there is the record. It is
//     named for the SIPCluster, an annotation says whose it is, and it goes before hosts are released.
//   - What a pass could not find out its status says as before: a request that fails takes no host,
//     address, service or image from it.
//   - A SIPCluster has the finalizer before it has anything else, and loses it last.
//   - A pass has an end.
//
// What is interrupted anywhere is taken up by the next pass from what is on the cluster.
package sipcluster

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// Options of the controller. Namespace and Bundles are required.
type Options struct {
	Namespace string // the operator's
	Bundles   Bundles
	// Egress is where services may connect to: see [services.Input].
	Egress []netip.Prefix
	// AssignsUsers is that the cluster gives pods their users: see [services.Input].
	AssignsUsers bool
	// AllowOtherImages has services run the images that specs name: see [services.Input].
	AllowOtherImages bool
}

// Bundles gives the bundle that services run from.
type Bundles interface {
	// Open returns the images of the accepted bundle, and a login for them as a .dockerconfigjson, or nil.
	// Errors are faults.
	Open(ctx context.Context) (images services.Images, login []byte, err error)
}

// Reconciler is one pass. Its fields are required.
type Reconciler struct {
	Client client.Client
	Reader client.Reader // past every cache
	Hosts  client.Reader // a cache of BareMetalHosts
	Writer condition.Writer
	// Cluster writes the services' objects; its Records are inventory.SIPClusters.
	Cluster *cluster.Cluster
	Now     func() time.Time
	Grace   time.Duration // that a host has to be in error before another replaces it
	Options

	bound   sync.Map // UIDs of services' namespaces in which the operator has its rights
	written sync.Map // objects of services by their names: written
}

type object = *airship.SIPCluster

// Reconcile is one pass over one resource.
func (r *Reconciler) Reconcile(ctx context.Context, sip object) (reconcile.Result, error) {
	frame := reconciler.Reconciler[object]{
		Controller: r, Reader: r.Reader, Writer: r.Writer, Now: r.Now,
		Finalizer: &reconciler.Finalizer[object]{Name: airship.Finalizer, Client: r.Client, Remover: r},
	}
	return frame.Reconcile(ctx, sip)
}
