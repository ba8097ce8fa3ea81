// Package operator assembles vdo-operator: the manager with its caches and endpoints, and the controllers with the
// clients and stores that they work through.
//
// Its caches hold only what the controllers watch: the operator's own kinds, and the metadata of ConfigMaps and
// Secrets, in its own namespace. The operator reads contents of Secrets on demand, and does not cache them. A
// [cluster.View] has the few needed fields of objects that exist once for each node.
package operator

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/driverbundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/inspection"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/legacy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vspherecloudconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/metrics"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// DefaultNamespace is the operator's default namespace.
const DefaultNamespace = "vmware-system-vdo"

// leaseName is the Lease that replicas compete for.
const leaseName = "vdo-operator"

const (
	// startTimeout bounds the check of the API server before the start.
	startTimeout = 30 * time.Second
	// answerTimeout bounds each request other than a watch: a proxy may hold one forever.
	answerTimeout = 75 * time.Second
)

// Controllers is one of the program's two sets of controllers. Each has its own account, so that none may read both
// vCenter and host credentials.
type Controllers string

// All sets.
const (
	Drivers Controllers = "drivers" // VDOConfigs and their dependencies
	SIP     Controllers = "sip"     // SIPClusters
)

// Options are of an operator. The zero value has no endpoints and no leader election.
type Options struct {
	Controllers    Controllers // default Drivers
	Namespace      string      // default DefaultNamespace, or DefaultSIPNamespace
	LeaderElect    bool        // compete for a Lease
	MetricsAddress string      // ":8443"; "" or "0" for none
	MetricsCertDir string      // "" generates a certificate
	ProbeAddress   string      // ":8081"; "" or "0" for none
	PlainHTTP      []string    // hosts of mirrors without TLS
	// TrustFloor is the minimum trust policy for every bundle, besides its DriverBundle's; nil for none. TrustFloorID
	// identifies it.
	TrustFloor   *trust.Policy
	TrustFloorID string
	SIP          SIPOptions
	// OTLPEndpoint is the URL of a collector for spans of passes; "" for none.
	OTLPEndpoint string
	Log          logr.Logger
	Version      string // of the program

	// SeveralInProcess lets tests run several operators in a process: their controllers share metrics, and no other
	// metrics are served.
	SeveralInProcess bool
}

// Run runs the operator until ctx is done. A fault at the start has a hint.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if o.OTLPEndpoint != "" {
		stop, err := tracing.Start(ctx, tracing.Options{Endpoint: o.OTLPEndpoint, Version: o.Version, Namespace: o.Namespace, Log: o.Log})
		if err != nil {
			return err
		}
		defer stop()
	}
	if o.Controllers == SIP {
		return runSIP(ctx, cfg, o)
	}
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	if err := reachable(ctx, cfg, v1alpha1.GroupVersion.String(), "`vdo-bundle install-manifests BUNDLE | kubectl apply -f -`",
		v1alpha1.DriverBundle{}, v1alpha1.VsphereCloudConfig{}, v1alpha1.VDOConfig{}); err != nil {
		return err
	}
	mgr, err := newManager(ways(cfg), o, leaseName, cacheOptions(o.Namespace))
	if err != nil {
		return err
	}
	meter := metrics.New(metrics.Options{Reader: mgr.GetClient(), Namespace: o.Namespace, Version: o.Version})
	counted := meteredManager{Manager: mgr, meter: meter}
	return o.start(ctx, mgr, meter, func() error { return addControllers(counted, meter, o) })
}

// start adds the controllers, and runs the manager until ctx is done.
func (o Options) start(ctx context.Context, mgr manager.Manager, meter prometheus.Collector, add func() error) error {
	if !o.SeveralInProcess {
		if err := ctrlmetrics.Registry.Register(meter); err != nil {
			return fmt.Errorf("set up metrics: %w", err)
		}
		defer ctrlmetrics.Registry.Unregister(meter)
	}
	restored := reconciler.Restored{Reader: mgr.GetAPIReader(), Namespace: o.Namespace, Every: 5 * time.Second}
	if err := errors.Join(mgr.Add(restored), add()); err != nil {
		return fmt.Errorf("set up controllers: %w", err)
	}
	o.Log.Info("starting", "controllers", cmp.Or(o.Controllers, Drivers), "version", o.Version,
		"namespace", o.Namespace, "trustFloor", o.TrustFloor != nil)
	if err := mgr.Start(ctx); err != nil {
		return startFault(err)
	}
	o.Log.Info("stopped")
	return nil
}

// ways returns the operator's connection to the API server. Without a client limit in cfg, a pass reads some hundred
// objects without waiting: the API server's priority and fairness bounds the load. Every request has a timeout.
func ways(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = cmp.Or(cfg.Timeout, answerTimeout)
	if cfg.QPS == 0 {
		cfg.QPS, cfg.Burst = 100, 200
	}
	return cfg
}

func addControllers(mgr manager.Manager, meter *metrics.Meter, o Options) error {
	versions, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	refusals := reconciler.NewRefusals()
	watched, err := refusals.Cache(mgr, cacheOptions(o.Namespace)) // besides the operator's own kinds
	if err != nil {
		return err
	}
	logs, err := cluster.Logs(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	view, err := newView(mgr)
	if err != nil {
		return err
	}
	target := &meteredCluster{meter: meter, Cluster: &cluster.Cluster{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), View: view, Versions: versions, Ask: cluster.Asking(mgr.GetConfig()), Log: logs, TrustFloor: o.TrustFloorID}}
	tried := &logins.Logins{Past: vspherecloudconfig.Past(mgr.GetAPIReader(), o.Namespace)}
	writer := writerOf(mgr)
	vcenters := &vspherecloudconfig.Reconciler{
		Reader: mgr.GetAPIReader(), Writer: writer, Check: meteredCheck(meter), Logins: tried, Now: time.Now}
	checks := inspection.New(mgr.GetClient(), mgr.GetAPIReader(), tried)
	bundles := newBundles(mgr, o)
	bundles.Retained = func(ctx context.Context) ([]string, error) {
		return vdoconfig.Retained(ctx, mgr.GetAPIReader(), o.Namespace, target.LoadInventory)
	}
	installing := &vdoconfig.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: writer.Recorder, Now: time.Now,
		Cluster: target, Store: bundles.Store, Trust: bundles, Checks: checks, Refusals: refusals, Program: o.Version}
	return errors.Join(
		mgr.Add(checks), vcenters.SetupWithManager(mgr, watched), bundles.SetupWithManager(mgr, watched),
		legacy.SetupWithManager(mgr, watched),
		installing.SetupWithManager(mgr, vdoconfig.Sources{
			Nodes: view.Nodes(), CSINodes: view.CSINodes(), Answered: checks.Answered()}))
}

func writerOf(mgr manager.Manager) condition.Writer {
	return condition.Writer{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("vdo-operator")}
}

func newBundles(mgr manager.Manager, o Options) *driverbundle.Reconciler {
	return &driverbundle.Reconciler{
		Reader: mgr.GetAPIReader(), Writer: writerOf(mgr), Now: time.Now, Floor: o.TrustFloor, FloorID: o.TrustFloorID,
		Store: store.New(store.Options{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), PlainHTTP: o.PlainHTTP})}
}

// newView adds a view to the manager of objects that exist once for each node.
func newView(mgr manager.Manager) (*cluster.View, error) {
	c, err := client.NewWithWatch(reconciler.ForWatches(mgr.GetConfig()), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	view := cluster.NewView(c)
	return view, mgr.Add(view)
}

func newManager(
	cfg *rest.Config, o Options, lease string, watched cache.Options, kinds ...func(*runtime.Scheme) error,
) (manager.Manager, error) {
	scheme, err := newScheme(kinds...)
	if err != nil {
		return nil, err
	}
	if watched.HTTPClient, err = rest.HTTPClientFor(reconciler.ForWatches(cfg)); err != nil {
		return nil, startFault(err)
	}
	mgr, err := manager.New(cfg, manager.Options{
		Scheme:                        scheme,
		Logger:                        o.Log,
		Cache:                         watched,
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              lease,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true, // Run returns to a main that ends at once
		Metrics:                       metricsOptions(o),
		HealthProbeBindAddress:        o.ProbeAddress,
		Controller:                    ctrlconfig.Controller{SkipNameValidation: &o.SeveralInProcess},
	})
	if err != nil {
		return nil, startFault(err)
	}
	return mgr, errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", synced(mgr.GetCache())))
}

func newScheme(kinds ...func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range append(kinds,
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, airship.AddToScheme) {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// cacheOptions limits the caches; see the package comment.
func cacheOptions(namespace string) cache.Options {
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
	}
}

// metricsOptions serve only over TLS, and let the API server authorize readers.
func metricsOptions(o Options) metricsserver.Options {
	return metricsserver.Options{
		BindAddress:    cmp.Or(o.MetricsAddress, "0"),
		SecureServing:  true,
		CertDir:        o.MetricsCertDir,
		FilterProvider: filters.WithAuthenticationAndAuthorization,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS12
			c.NextProtos = []string{"http/1.1"} // a stream reset costs HTTP/2 servers more than their clients
		}},
	}
}

// synced returns a check that succeeds once the caches are filled.
func synced(c cache.Cache) healthz.Checker {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), time.Second)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}
}

// reachable checks that the API server answers and has the kinds of a group, so that a fault is reported early and in
// words. It also checks the fields of the given kinds. The hint for missing kinds or fields is apply.
func reachable(ctx context.Context, cfg *rest.Config, group, apply string, kinds ...any) error {
	bounded := rest.CopyConfig(cfg)
	bounded.Timeout = startTimeout
	d, err := discovery.NewDiscoveryClientForConfig(bounded)
	if err != nil {
		return &fault.Error{Reason: fault.InvalidInput, Op: "connect to", Subject: cfg.Host, Err: err, Hint: "correct the kubeconfig"}
	}
	err = d.RESTClient().Get().AbsPath("/apis/" + group).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fault.Errorf(fault.NotFound, "ask the API server", cfg.Host, "apply the CRDs: "+apply,
			"it does not have the kinds of %s", group)
	}
	if err != nil {
		return clusterstate.Fault("ask the API server "+cfg.Host, err)
	}
	for _, kind := range kinds {
		if err := hasFields(ctx, d.RESTClient(), apply, kind); err != nil {
			return err
		}
	}
	return nil
}

// leaseLost is the text of the manager's error if the lease was not renewed in time: the error has no type.
const leaseLost = "leader election lost"

// startFault returns the fault of an error of the manager.
func startFault(err error) error {
	f := &fault.Error{Reason: fault.Internal, Op: "run", Subject: "the manager", Err: err, Hint: "see what the log says before it, then start it again"}
	switch {
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EACCES):
		f.Hint = "see that the addresses of --metrics-bind-address and --health-probe-bind-address are free"
	case meta.IsNoMatchError(err):
		f.Reason, f.Hint = fault.NotFound, "apply the operator's manifests: `vdo-bundle install-manifests BUNDLE | kubectl apply -f -`"
	case err.Error() == leaseLost:
		f.Reason, f.Hint = fault.Unreachable, "its Lease could not be renewed: see that the API server answers, that the operator's namespace and the Lease in it are there, and that no other one has taken it; then start it again"
	}
	return f
}

// The wrappers in this file count at the edges, so that the controllers know nothing of metrics.

// meteredCluster counts what was written to the cluster.
type meteredCluster struct {
	*cluster.Cluster
	meter *metrics.Meter
}

// Apply counts written objects.
func (c *meteredCluster) Apply(ctx context.Context, s plan.Step, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	applied, err := c.Cluster.Apply(ctx, s, live)
	if err == nil && s.Writes() && !s.Deleting {
		c.meter.ObjectChanged(string(s.Driver), string(s.Cause))
	}
	return applied, err
}

// Delete counts requested deletions.
func (c *meteredCluster) Delete(ctx context.Context, s plan.Step) error {
	err := c.Cluster.Delete(ctx, s)
	if err == nil {
		c.meter.ObjectChanged(string(s.Driver), metrics.Removal)
	}
	return err
}

// meteredCheck counts, measures and traces vCenter checks.
func meteredCheck(meter *metrics.Meter) vspherecloudconfig.Check {
	return func(ctx context.Context, t vcenter.Target) (found vcenter.Report, err error) {
		ctx, end := tracing.Span(ctx, "ask vCenter")
		defer func() { end(err) }()
		found, err = vcenter.Check(ctx, t)
		reason := cmp.Or(string(fault.ReasonOf(err)), condition.ReasonSucceeded)
		meter.VCenterChecked(t.Trust.Name, found.Took, reason)
		return found, err
	}
}

// meteredManager counts the events of its controllers.
type meteredManager struct {
	manager.Manager
	meter *metrics.Meter
}

// GetEventRecorder returns a recorder that counts.
func (m meteredManager) GetEventRecorder(name string) recorder.EventRecorder {
	return meteredRecorder{EventRecorder: m.Manager.GetEventRecorder(name), scheme: m.GetScheme(), meter: m.meter}
}

type meteredRecorder struct {
	recorder.EventRecorder
	scheme *runtime.Scheme
	meter  *metrics.Meter
}

func (r meteredRecorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, eventtype, reason, action, note, args...)
	kind, err := apiutil.GVKForObject(regarding, r.scheme)
	if err != nil {
		return // the recorder does not record events of such an object either
	}
	r.meter.EventRecorded(kind.Kind, eventtype, reason)
}
