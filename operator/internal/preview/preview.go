// Package preview makes the operator's passes over a cluster without changing it: what a
// bundle, or an upgrade of Kubernetes or of a vCenter, would mean is found out by the code that
// would do it.
//
//	p, err := preview.Make(ctx, preview.Options{Config: cfg, Config…}, preview.Wish{Reference: "registry.site/vdo:2"})
//
// A pass over the DriverBundle (package driverbundle) resolves, verifies and accepts, or
// refuses, the bundle that is asked about as if the reference were the DriverBundle's: the
// same trust policies, the operator's own floor, the same freshness. What it accepts is kept
// in memory, by the digest that was verified, and nowhere else. A pass over the VDOConfig
// (package vdoconfig) then plans from it.
//
// Of the operator's Deployment is read how it was started: its --trust-floor and its
// --plain-http. Checks of cluster and vCenters are not made: what the operator found last is
// in status.preflight.
//
// Nothing is written. That is seen to below everything else: a request that is neither a read
// nor a dry run does not leave this program.
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
)

// FindBundle is that of the operator.
var FindBundle = vdoconfig.FindBundle

type (
	// Preview is what would happen, and what would hold it back.
	Preview = vdoconfig.Preview
	// Assume is what is taken for granted of a site.
	Assume = vdoconfig.Assume
	// Move is a driver's way from one release to another.
	Move = lookahead.Move
	// Driver is what becomes of one.
	Driver = vdoconfig.PreviewDriver
)

// Options of Make; all are required.
type Options struct {
	Config    *rest.Config
	Namespace string // the operator's
	Now       func() time.Time
	UserAgent string // of requests to the mirror
}

// Wish is what is asked about. The zero value is the site as it is.
type Wish struct {
	Assume

	Reference string // of a bundle in the mirror; "": the accepted one
}

// Make makes a preview for a VDOConfig as it is in the cluster. Errors are faults: of the mirror
// and of a bundle that would not be accepted among them.
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

// Images are what the checks of the bundle look at for a VDOConfig as it is in the cluster: the
// releases that would be installed from the accepted bundle, and the nodes. Why they are not
// known is in them.
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

// reconciler makes passes that write nothing; own is for the operator's own kinds.
func (e *edges) reconciler(own client.Client, o Options) *vdoconfig.Reconciler {
	return &vdoconfig.Reconciler{
		Client: own, Reader: own, Store: e.bundles.Store, Trust: e.bundles,
		Recorder: silent{}, Now: o.Now, Checks: found{},
		Cluster: &cluster.Cluster{Client: e.client, Reader: e.client, Versions: e.versions, Ask: cluster.Asking(e.config), TrustFloor: e.bundles.FloorID},
	}
}

// Candidate verifies a bundle in the mirror as the operator would for the DriverBundle of a
// VDOConfig, and returns that as it is and as it would be. Errors are faults, as those of Make.
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
	e.config.Wrap(readsOnly)
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
	e.bundles = &driverbundle.Reconciler{Reader: e.client, Options: driverbundle.Options{
		Store: s, Now: o.Now, Floor: how.floor, FloorID: how.floorID,
	}}
	return e, nil
}

// candidate is the DriverBundle of a VDOConfig as it is, and as it would be if its reference were
// another one and had just been looked at.
func (e *edges) candidate(ctx context.Context, config *v1alpha1.VDOConfig, reference string) (is, would *v1alpha1.DriverBundle, err error) {
	if is, err = vdoconfig.FindBundle(ctx, e.client, config); err != nil {
		return nil, nil, err
	}
	would = is.DeepCopy()
	would.Spec.Reference, would.Spec.Versions, would.Spec.Suspend = reference, "", false
	// What was accepted before stays Ready for a while where a mirror is away.
	would.Status.Conditions = nil
	out, err := e.bundles.Pass(ctx, would)
	if err != nil {
		return nil, nil, err
	}
	out.Record(would)
	if ready := meta.FindStatusCondition(would.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue {
		why, reason := "it was not looked at", fault.Internal
		if ready != nil {
			why, reason = ready.Message, fault.Reason(ready.Reason)
		}
		return nil, nil, &fault.Error{Reason: reason, Op: "take", Subject: reference + " for DriverBundle " + is.Name, Err: errors.New(why)}
	}
	return is, would, nil
}

func readsOnly(next http.RoundTripper) http.RoundTripper { return readOnly{next} }

type readOnly struct{ next http.RoundTripper }

func (r readOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	read := req.Method == http.MethodGet || req.Method == http.MethodHead
	if !read && req.URL.Query().Get("dryRun") != metav1.DryRunAll {
		return nil, &fault.Error{Reason: fault.Internal, Op: "preview", Subject: req.Method + " " + req.URL.Path, Err: errors.New("a preview writes nothing")}
	}
	return r.next.RoundTrip(req)
}

// silent tells no one of what would happen.
type silent struct{}

func (silent) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

// found are the checks that the operator made: they are in the status.
type found struct{}

func (found) Look(preflight.Question) *preflight.Answer { return nil }

// instead is the cluster with another state of one DriverBundle.
type instead struct {
	client.Client

	bundle *v1alpha1.DriverBundle
}

// Get reads, or returns the other state.
func (i instead) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := i.Client.Get(ctx, key, o, opts...)
	if b, is := o.(*v1alpha1.DriverBundle); is && err == nil {
		i.put(b)
	}
	return err
}

// List lists, with the other state.
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

// started is how the operator was started, as far as it decides on bundles.
type started struct {
	floor     *trust.Policy
	floorID   string
	plainHTTP []string
}

// howStarted reads it from the operator's Deployment. One that does not run in the cluster has
// no floor that could be known here: then none is there.
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

// argumentsOf reads those of the operator's arguments that count.
func argumentsOf(c *corev1.Container) (s started, floor string) {
	fl := pflag.NewFlagSet(operatorName, pflag.ContinueOnError)
	fl.SetOutput(io.Discard)
	fl.ParseErrorsAllowlist.UnknownFlags = true
	fl.StringVar(&floor, "trust-floor", "", "")
	fl.StringArrayVar(&s.plainHTTP, "plain-http", nil, "")
	_ = fl.Parse(append(append([]string{}, c.Command...), c.Args...)) //nolint:errcheck // what is not known is passed over
	return s, floor
}

// readMounted reads a file that a container sees, as far as it is of a ConfigMap or a Secret.
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
