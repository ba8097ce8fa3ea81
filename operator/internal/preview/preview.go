// Package preview makes the operator's passes over a cluster without changing it. It shows what a bundle, or an upgrade
// of Kubernetes or of a vCenter, would change, by the code that would do it.
//
//	o, err := preview.New(ctx, cfg, namespace, "vdoctl/1.0", time.Now)
//	p, err := o.Plan(ctx, config, preview.Wish{Reference: "registry.site/vdo:2"})
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
	"cmp"
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
)

// FindBundle is the operator's function.
var FindBundle = vdoconfig.FindBundle

// Preview has the planned changes, and what would gate them.
type Preview = vdoconfig.Preview

// Wish is the question of a preview. The zero value is the cluster without a change.
type Wish struct {
	vdoconfig.Assume

	Reference string // in the mirror; "": the accepted bundle
}

// Operator makes passes over a cluster. Its errors are faults, also of the mirror and of a bundle that would not be
// accepted.
type Operator struct {
	*vdoconfig.Reconciler

	bundles *driverbundle.Reconciler
}

// New returns the operator of a namespace; agent names the program to the mirror.
func New(ctx context.Context, cfg *rest.Config, namespace, agent string, now func() time.Time) (*Operator, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return readOnly{next} })
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	versions, errVersions := discovery.NewDiscoveryClientForConfig(cfg)
	if err = cmp.Or(err, errVersions); err != nil {
		return nil, fault.Errorf(fault.Unreachable, "reach the cluster", "",
			"see that the kubeconfig names it and that it answers", "%w", err)
	}
	how, err := howStarted(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	s := store.New(store.Options{Client: c, InMemory: true, PlainHTTP: how.plainHTTP, UserAgent: agent})
	bundles := &driverbundle.Reconciler{Reader: c, Store: s, Now: now, Floor: how.floor, FloorID: how.floorID}
	site := &cluster.Cluster{Client: c, Reader: c, Versions: versions, Ask: cluster.Asking(cfg),
		TrustFloor: how.floorID}
	return &Operator{bundles: bundles, Reconciler: &vdoconfig.Reconciler{Client: c, Reader: c, Cluster: site, Store: s,
		Trust: bundles, Recorder: silent{}, Now: now, Checks: found{}}}, nil
}

// Plan returns a preview for a VDOConfig of the cluster.
func (o *Operator) Plan(ctx context.Context, config *v1alpha1.VDOConfig, w Wish) (*Preview, error) {
	r := *o.Reconciler
	if w.Reference != "" {
		_, b, err := o.Candidate(ctx, config, w.Reference)
		if err != nil {
			return nil, err
		}
		own := instead{r.Client, b}
		r.Client, r.Reader = own, own
	}
	return r.Preview(ctx, config, w.Assume)
}

// Candidate verifies a bundle in the mirror for the DriverBundle of a VDOConfig. It returns the DriverBundle, and the
// same after a pass with that reference.
func (o *Operator) Candidate(
	ctx context.Context, config *v1alpha1.VDOConfig, reference string,
) (is, would *v1alpha1.DriverBundle, err error) {
	if is, err = FindBundle(ctx, o.Reader, config); err != nil {
		return nil, nil, err
	}
	would = is.DeepCopy()
	would.Spec.Reference, would.Spec.Versions, would.Spec.Suspend = reference, "", false
	// Otherwise an earlier accepted bundle stays Ready for a while if the mirror is away.
	would.Status.Conditions = nil
	out, err := o.bundles.Pass(ctx, would)
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
