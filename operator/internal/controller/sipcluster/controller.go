// Package sipcluster reconciles SIPClusters: it claims hosts, runs the services in front of them, and labels the
// hosts.
//
// One reconcile has the four steps of the original SIP operator, each in a file:
//
//	gather.go    read the BareMetalHosts, choose (package choose), and claim
//	extract.go   the addresses of the chosen hosts
//	deploy.go    prepare the services' namespace (namespace.go), render (render.go), apply, and assess
//	label.go     label held hosts; release leaving ones once no pod forwards to them
//
// status.go writes the outcome, once.
//
// # Invariants
//
//   - The SIPCluster whose UID is in a host's claim holds the host, if its owner permits that. The claim is
//     written under the resource version of the decision, after the finalizer and before any service. So two
//     SIPClusters, or two operators of which one has lost its lease, never hold the same host.
//   - A reconcile that changes neither a host nor a service reads hosts from the cache. Before a change, it reads
//     all hosts from the API server: no stale cache sends a service to a host of another tenant.
//   - A host loses labels and claim in one patch, once no service and no running pod forwards to it. Open
//     connections through a load balancer may delay that by ten minutes. A host in use stays, unless an
//     annotation of the SIPCluster says otherwise.
//   - Images and pull secrets change only with a bundle that is verified under the current trust policy.
//     Otherwise each service keeps its own, and new ones wait.
//   - A failed request or unreadable data takes no host, address, service or image from a SIPCluster or its
//     status. Then Ready is False.
//   - Services run in a namespace that only the operator writes: its contents are the inventory. It is named for
//     the SIPCluster, which an annotation records, and it is deleted before hosts are released.
//
// Every step is idempotent: the next reconcile continues an interrupted one.
package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// Options of the controller. Namespace and Bundles are required.
type Options struct {
	Namespace string // the operator's
	Bundles   Bundles
	// Egress are the networks that services may connect to. Without any, they reach hosts in private networks (RFC
	// 1918, RFC 4193), and no login provider: see [services.Input].
	Egress []netip.Prefix
	// Templates are an administrator's: see [services.Input].
	Templates fs.FS
	// AssignsUsers is whether the cluster assigns pods' users: see [services.Input].
	AssignsUsers bool
}

// Bundles provides the bundle that services run from.
type Bundles interface {
	// Open returns the images of the accepted bundle, and a pull secret for them as a .dockerconfigjson, or nil.
	// Errors are faults.
	Open(ctx context.Context) (images services.Images, login []byte, err error)
}

// Reconciler reconciles SIPClusters. Its fields are required.
type Reconciler struct {
	Client client.Client
	Reader client.Reader // uncached
	Hosts  client.Reader // a cache of BareMetalHosts and SIPClusters
	Writer condition.Writer
	// Cluster writes the services' objects; its inventories are inventory.SIPClusters.
	Cluster *cluster.Cluster
	Now     func() time.Time
	Grace   time.Duration // time in error before another host replaces one
	Options

	known sync.Map // by SIPCluster: *memory
}

// memory saves requests for a SIPCluster; a restart loses it.
type memory struct {
	bound   types.UID // of the services' namespace in which the operator has its permissions
	refused bool      // the API server refused an object: the next reconcile tries it again
	written map[objectKey]written
}

type object = *airship.SIPCluster

// Reconcile reconciles one SIPCluster.
func (r *Reconciler) Reconcile(ctx context.Context, sip object) (reconcile.Result, error) {
	frame := reconciler.Reconciler[object]{
		Controller: r, Writer: r.Writer, Now: r.Now,
		Finalizer: &reconciler.Finalizer[object]{Name: airship.Finalizer, Client: r.Client, Remover: r},
	}
	return frame.Reconcile(ctx, sip)
}

// pass is one reconcile of one SIPCluster.
type pass struct {
	*Reconciler
	sip object
	key types.NamespacedName
	hosts
	deployed
	known *memory
	again bool // reconcile again at once
}

// hosts are a reconcile's facts of hosts.
type hosts struct {
	// cluster is the SIPCluster that chooses hosts.
	cluster   choose.Cluster
	live      bool // hosts are from the API server itself
	extracted map[types.NamespacedName]*extracted
	choice    choose.Choice
	chosen    bool                    // choice is valid
	permitted func(*choose.Host) bool // by an annotation or a policy
	invalid   error                   // HostDeployPolicies that accept nothing because they are invalid; nil for none
	refused   error                   // claims of free hosts that the API server refused; nil for none
	// clusterName is the Cluster that may use the hosts. Another one uses those in foreign; those in shared have the
	// address of another host.
	clusterName     string
	foreign, shared map[types.NamespacedName]string
	graceEnds       time.Duration // until a host in error is replaced; 0 for none
}

type deployed struct {
	home       string                       // the services' namespace
	objects    objects                      // existing
	common     []*unstructured.Unstructured // objects of no service
	former     objects                      // of an earlier version
	apiServers []netip.AddrPort
	rendered   []services.Service
	states     []airship.ServiceStatus // in the order rendered
	waits      string                  // reason why services, or leaving hosts, wait
	unusable   error                   // why the bundle cannot be used; services keep their images
	applied    bool                    // services were applied, or failed one by one
}

func (r *Reconciler) begin(sip object) *pass {
	key := client.ObjectKeyFromObject(sip)
	known, _ := r.known.LoadOrStore(key, &memory{written: map[objectKey]written{}})
	return &pass{
		Reconciler: r, sip: sip, key: key, known: known.(*memory), //nolint:forcetypeassert,errcheck // all are
		hosts:    hosts{cluster: clusterOf(sip), extracted: map[types.NamespacedName]*extracted{}},
		deployed: deployed{objects: objects{}, home: services.Namespace(key)},
	}
}

// Pass reconciles a SIPCluster that is not being deleted.
func (r *Reconciler) Pass(ctx context.Context, sip object) (reconciler.Outcome[object], error) {
	if !slices.Contains(sip.Finalizers, airship.Finalizer) {
		return reconciler.Wait[object]{}, nil
	}
	p := r.begin(sip)
	p.live = p.known.refused // it would only read all twice, to try the same object
	err := p.run(ctx)
	if errors.Is(err, errCached) {
		p = r.begin(sip)
		p.live = true
		err = p.run(ctx)
	}
	if condition.Outdated(err) { // the facts of its decision have changed
		return nil, err
	}
	p.reportIgnored()
	return outcome{p, p.judge(err)}, nil
}

// run executes the four steps. While a host is in use, a SIPCluster that is being deleted keeps everything.
func (p *pass) run(ctx context.Context) error {
	if p.cluster.Deleting {
		if err := p.exists(ctx, "remove what is of"); err != nil {
			return err
		}
	}
	if err := p.gather(ctx); err != nil {
		return err
	}
	if waits := p.inUse() != nil; waits && p.cluster.Deleting {
		return nil // judge names them
	}
	if err := p.extract(ctx); err != nil {
		return err
	}
	infra := p.deploy(ctx)
	if errors.Is(infra, fault.ErrOutdated) {
		return infra
	}
	labels := p.label(ctx)
	return errors.Join(labels, infra, p.refused)
}

// Remove reconciles a SIPCluster that is being deleted, as if its spec were empty. While a host is in use it deletes
// nothing, unless an annotation forces it. It deletes the services' namespace with all pods, then releases the hosts.
func (r *Reconciler) Remove(ctx context.Context, sip object) (reconciler.Outcome[object], error) {
	empty := sip.DeepCopy()
	empty.Spec = airship.SIPClusterSpec{}
	p := r.begin(empty)
	p.live = true
	err := p.run(ctx)
	if condition.Outdated(err) {
		return nil, err
	}
	ready := p.judge(because(airship.ReasonUnableToDecommission, err))
	if ready.status == metav1.ConditionTrue {
		r.known.Delete(p.key)
		return reconciler.Release[object]{Note: "Removed services and labels"}, nil
	}
	return outcome{p, ready}, nil
}

// cause is an error with the reason for the condition Ready.
type cause struct {
	reason string
	err    error
}

func because(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &cause{reason: reason, err: err}
}

func (c *cause) Error() string   { return c.err.Error() }
func (c *cause) Unwrap() []error { return []error{c.err} } // so that each of several errors shows its own hint

// asked returns the fault of a request to the API server about one object. If the object was replaced or deleted, the
// next reconcile decides again.
func asked(op, subject string, err error) error {
	f := &fault.Error{Reason: fault.Unreachable, Op: op, Subject: subject, Err: err}
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		f.Reason, f.Err = fault.Conflict, fmt.Errorf("%w: %w", fault.ErrOutdated, err)
	case fault.AdmissionHint(err) != "":
		f.Reason, f.Hint = fault.Refused, fault.AdmissionHint(err)
	case apierrors.IsForbidden(err):
		f.Reason, f.Hint = fault.Forbidden, manifestsHint
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		f.Reason, f.Hint = fault.Incompatible, "see what refuses the change: the kind or an admission policy"
	}
	return f
}

const manifestsHint = "apply the manifests of this release: `vdo-bundle install-manifests BUNDLE --sip | kubectl apply -f -`"

func few(names []string) string { return fault.Few(names, 5) }
