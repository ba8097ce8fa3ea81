// Package preview makes the operator's passes over a cluster without changing it. It shows what a bundle, or an upgrade
// of Kubernetes or of a vCenter, would change, by the code that would do it.
//
//	p, err := preview.Make(ctx, preview.Options{Config: cfg, Config…}, preview.Wish{Reference: "registry.site/vdo:2"})
//
// A pass over the DriverBundle (package driverbundle) resolves, verifies and accepts or refuses the bundle, as if the
// DriverBundle had its reference. The trust policies, the minimum trust policy and the freshness are the same. An
// accepted bundle is kept only in memory, by its verified digest. A pass over the VDOConfig (package vdoconfig) then
// plans from it.
//
// The operator's Deployment tells its --trust-floor and --plain-http. A preview does not check the cluster or vCenters:
// the operator's last results are in status.preflight.
//
// A preview writes nothing. The HTTP transport ensures it: it sends no request but reads and dry runs.
package preview

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/driverbundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/lookahead"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
)

// FindBundle is the operator's function.
var FindBundle = vdoconfig.FindBundle

type (
	// Preview has the planned changes, and what would gate them.
	Preview = vdoconfig.Preview
	// Assume has what a preview assumes of a cluster.
	Assume = vdoconfig.Assume
	// Move is a driver's change of release.
	Move = lookahead.Move
	// Driver has the planned change of one driver.
	Driver = vdoconfig.PreviewDriver
)

// Options are of Make; all are required.
type Options struct {
	Config    *rest.Config
	Namespace string // the operator's
	Now       func() time.Time
	UserAgent string // of requests to the mirror
}

// Wish is the question of a preview. The zero value is the cluster without a change.
type Wish struct {
	Assume

	Reference string // in the mirror; "": the accepted bundle
}

// Make returns a preview for a VDOConfig of the cluster. Errors are faults, also of the mirror and of a bundle that
// would not be accepted.
func Make(ctx context.Context, o Options, config *v1alpha1.VDOConfig, w Wish) (*Preview, error) {
	e, err := newEdges(ctx, o)
	if err != nil {
		return nil, err
	}
	own := e.client
	if w.Reference != "" {
		_, b, err := e.candidate(ctx, config, w.Reference)
		if err != nil {
			return nil, err
		}
		own = instead{e.client, b}
	}
	return e.reconciler(own, o).Preview(ctx, config, w.Assume)
}

// Images returns the inputs of the bundle's checks for a VDOConfig of the cluster: the releases that the accepted
// bundle would install, and the nodes. An error is in them.
func Images(ctx context.Context, o Options, config *v1alpha1.VDOConfig) *preflight.Images {
	e, err := newEdges(ctx, o)
	if err != nil {
		return &preflight.Images{Err: err}
	}
	images, err := e.reconciler(e.client, o).Images(ctx, config)
	if err != nil {
		return &preflight.Images{Err: err}
	}
	return images
}

// Unsuited returns why the operator would not go back to a revision in the cluster, "" if it would.
func Unsuited(ctx context.Context, o Options, config *v1alpha1.VDOConfig, rev revision.Revision) (string, error) {
	e, err := newEdges(ctx, o)
	if err != nil {
		return "", err
	}
	return e.reconciler(e.client, o).Unsuited(ctx, config, rev)
}

// reconciler returns a reconciler that writes nothing; own is the client for the operator's own kinds.
func (e *edges) reconciler(own client.Client, o Options) *vdoconfig.Reconciler {
	return &vdoconfig.Reconciler{
		Client: own, Reader: own, Store: e.bundles.Store, Trust: e.bundles,
		Recorder: silent{}, Now: o.Now, Checks: found{},
		Cluster: &cluster.Cluster{Client: e.client, Reader: e.client, Versions: e.versions, Ask: cluster.Asking(e.config), TrustFloor: e.bundles.FloorID},
	}
}

// Candidate verifies a bundle in the mirror as the operator would for the DriverBundle of a VDOConfig. It returns the
// DriverBundle before and after. Errors are faults, as of Make.
func Candidate(ctx context.Context, o Options, config *v1alpha1.VDOConfig, reference string) (is, would *v1alpha1.DriverBundle, err error) {
	e, err := newEdges(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	return e.candidate(ctx, config, reference)
}

type edges struct {
	config   *rest.Config
	client   client.Client
	versions discovery.DiscoveryInterface
	bundles  *driverbundle.Reconciler
}

func newEdges(ctx context.Context, o Options) (*edges, error) {
	e := &edges{config: rest.CopyConfig(o.Config)}
	e.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return readOnly{next} })
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	unreached := func(err error) error {
		return &fault.Error{Reason: fault.Unreachable, Op: "reach the cluster", Err: err, Hint: "see that the kubeconfig names it and that it answers"}
	}
	var err error
	if e.client, err = client.New(e.config, client.Options{Scheme: scheme}); err != nil {
		return nil, unreached(err)
	}
	if e.versions, err = discovery.NewDiscoveryClientForConfig(e.config); err != nil {
		return nil, unreached(err)
	}
	how, err := howStarted(ctx, e.client, o.Namespace)
	if err != nil {
		return nil, err
	}
	s := store.New(store.Options{Client: e.client, InMemory: true, PlainHTTP: how.plainHTTP, UserAgent: o.UserAgent})
	e.bundles = &driverbundle.Reconciler{Reader: e.client, Store: s, Now: o.Now, Floor: how.floor, FloorID: how.floorID}
	return e, nil
}

// candidate returns the DriverBundle of a VDOConfig, and the same after a pass with another reference.
func (e *edges) candidate(ctx context.Context, config *v1alpha1.VDOConfig, reference string) (is, would *v1alpha1.DriverBundle, err error) {
	if is, err = vdoconfig.FindBundle(ctx, e.client, config); err != nil {
		return nil, nil, err
	}
	would = is.DeepCopy()
	would.Spec.Reference, would.Spec.Versions, would.Spec.Suspend = reference, "", false
	// Otherwise an earlier accepted bundle stays Ready for a while if the mirror is away.
	would.Status.Conditions = nil
	out, err := e.bundles.Pass(ctx, would)
	if err != nil {
		return nil, nil, err
	}
	out.Record(would)
	if ready := meta.FindStatusCondition(would.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue {
		why, reason := "it was not checked", fault.Internal
		if ready != nil {
			why, reason = ready.Message, fault.Reason(ready.Reason)
		}
		return nil, nil, &fault.Error{Reason: reason, Op: "take", Subject: reference + " for DriverBundle " + is.Name, Err: errors.New(why)}
	}
	return is, would, nil
}

type readOnly struct{ next http.RoundTripper }

func (r readOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	read := req.Method == http.MethodGet || req.Method == http.MethodHead
	if !read && req.URL.Query().Get("dryRun") != metav1.DryRunAll {
		return nil, &fault.Error{Reason: fault.Internal, Op: "preview", Subject: req.Method + " " + req.URL.Path, Err: errors.New("a preview writes nothing")}
	}
	return r.next.RoundTrip(req)
}

// silent drops events.
type silent struct{}

func (silent) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

// found makes no checks: the operator's results are in the status.
type found struct{}

func (found) Look(preflight.Question) *preflight.Answer { return nil }

// instead is a client with another state of one DriverBundle.
type instead struct {
	client.Client

	bundle *v1alpha1.DriverBundle
}

// Get reads an object, or returns the other state.
func (i instead) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := i.Client.Get(ctx, key, o, opts...)
	if b, is := o.(*v1alpha1.DriverBundle); is && err == nil {
		i.put(b)
	}
	return err
}

// List lists objects, with the other state.
func (i instead) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := i.Client.List(ctx, list, opts...)
	if all, is := list.(*v1alpha1.DriverBundleList); is && err == nil {
		for n := range all.Items {
			i.put(&all.Items[n])
		}
	}
	return err
}

func (i instead) put(b *v1alpha1.DriverBundle) {
	if b.UID == i.bundle.UID {
		i.bundle.DeepCopyInto(b)
	}
}

const operatorName = "vdo-operator"

// started are the operator's arguments that affect bundles.
type started struct {
	floor     *trust.Policy
	floorID   string
	plainHTTP []string
}

// howStarted reads the arguments from the operator's Deployment. An operator outside of the cluster has no floor that
// a preview can know: then it has none.
func howStarted(ctx context.Context, c client.Reader, namespace string) (started, error) {
	var d appsv1.Deployment
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: operatorName}, &d)
	if apierrors.IsNotFound(err) {
		return started{}, nil
	}
	if err != nil {
		return started{}, clusterstate.Fault("read how the operator was started", err)
	}
	pod := &d.Spec.Template.Spec
	for i := range pod.Containers {
		s, floor := argumentsOf(&pod.Containers[i])
		if floor != "" {
			read := func(file string) ([]byte, error) {
				return readMounted(ctx, c, namespace, file, pod, &pod.Containers[i])
			}
			if s.floor, s.floorID, err = driverbundle.ReadFloor(floor, read); err != nil {
				return s, err
			}
		}
		if floor != "" || len(s.plainHTTP) > 0 {
			return s, nil
		}
	}
	return started{}, nil
}

// argumentsOf returns the arguments of a container that affect bundles.
func argumentsOf(c *corev1.Container) (s started, floor string) {
	fl := pflag.NewFlagSet(operatorName, pflag.ContinueOnError)
	fl.SetOutput(io.Discard)
	fl.ParseErrorsAllowlist.UnknownFlags = true
	fl.StringVar(&floor, "trust-floor", "", "")
	fl.StringArrayVar(&s.plainHTTP, "plain-http", nil, "")
	_ = fl.Parse(append(append([]string{}, c.Command...), c.Args...)) //nolint:errcheck // what is not known is passed over
	return s, floor
}

// readMounted reads a file in a container if it is mounted from a ConfigMap or a Secret.
func readMounted(
	ctx context.Context, c client.Reader, namespace, file string, pod *corev1.PodSpec, in *corev1.Container,
) ([]byte, error) {
	ref, found := source.Mounted(file, pod, in)
	err := errors.New("nothing is mounted there that can be read from here: neither of a ConfigMap nor of a Secret")
	if found {
		var read source.Value
		if read, err = source.Key(ctx, c, source.Desired{Namespace: namespace, Ref: ref}); err == nil {
			return read.Bytes, nil
		}
	}
	return nil, &fault.Error{Reason: fault.Refused, Op: "read the operator's --trust-floor", Subject: file, Err: err,
		Hint: "mount it from a ConfigMap or a Secret that you may read"}
}
