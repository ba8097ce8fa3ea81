package metrics_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/metrics"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// failing is a resource whose passes fail.
const failing = "passes-fail"

// endpoint is a manager that serves the metrics of a namespace's resources, as the
// operator does, over a real API server.
type endpoint struct {
	client  client.Client
	ns      string
	meter   *metrics.Meter
	address string
	asked   atomic.Int64 // requests of the cache and its like for the operator's kinds
	stop    func()
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	cfg := cluster.Config(t)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	e := &endpoint{ns: cluster.Namespace(t, cfg), address: free(t)}
	var err error
	e.client, err = client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	counted := rest.CopyConfig(cfg)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, &e.asked} })
	mgr, err := manager.New(counted, manager.Options{
		Scheme: scheme, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{e.ns: {}}},
		Metrics: metricsserver.Options{BindAddress: e.address, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization},
	})
	require.NoError(t, err)
	e.meter = metrics.New(metrics.Options{Reader: mgr.GetClient(), Namespace: e.ns, Version: "v1.2.3"})
	require.NoError(t, ctrlmetrics.Registry.Register(e.meter))
	t.Cleanup(func() { ctrlmetrics.Registry.Unregister(e.meter) })
	require.NoError(t, builder.ControllerManagedBy(mgr).Named("driverbundle").For(&v1alpha1.DriverBundle{}).
		WithOptions(controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](200*time.Millisecond, 200*time.Millisecond)}).
		Complete(reconcile.Func(func(_ context.Context, q reconcile.Request) (reconcile.Result, error) {
			if q.Name == failing {
				return reconcile.Result{}, errors.New("the status cannot be written")
			}
			return reconcile.Result{}, nil
		})))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	e.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(e.stop)
	require.True(t, mgr.GetCache().WaitForCacheSync(ctx))
	return e
}

// counting counts requests about the operator's kinds and about nodes.
type counting struct {
	next  http.RoundTripper
	asked *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/apis/"+v1alpha1.GroupVersion.Group) || strings.HasPrefix(r.URL.Path, "/api/") {
		c.asked.Add(1)
	}
	return c.next.RoundTrip(r)
}

// put makes a resource with its status.
func (e *endpoint) put(t *testing.T, o client.Object) {
	t.Helper()
	o.SetNamespace(e.ns)
	status := o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy
	require.NoError(t, e.client.Create(t.Context(), o))
	status.SetResourceVersion(o.GetResourceVersion())
	require.NoError(t, e.client.Status().Update(t.Context(), status), "%s", o.GetName())
}

// reader gives an account the rights of deploy/monitoring/scrape.yaml, and returns its
// token and one of an account without them.
func (e *endpoint) reader(t *testing.T) (token, stranger string) {
	t.Helper()
	for _, file := range []string{filepath.Join("deploy", "rbac.yaml"), filepath.Join("deploy", "monitoring", "scrape.yaml")} {
		for _, u := range objects(t, filepath.Join(toolchain.Root(), file)) {
			if u.GetName() == "vdo-operator-metrics-reader" {
				require.NoError(t, e.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.ForceOwnership))
			}
		}
	}
	require.NoError(t, client.IgnoreAlreadyExists(e.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}})))
	account := func(name string) string {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: name}}
		require.NoError(t, client.IgnoreAlreadyExists(e.client.Create(t.Context(), sa)))
		req := &authenticationv1.TokenRequest{}
		require.NoError(t, e.client.SubResource("token").Create(t.Context(), sa, req))
		return req.Status.Token
	}
	return account("prometheus-k8s"), account("stranger")
}

func objects(t *testing.T, path string) (all []*unstructured.Unstructured) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for dec := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := dec.Decode(&u.Object); errors.Is(err, io.EOF) {
			return all
		} else if require.NoError(t, err, path); len(u.Object) > 0 {
			all = append(all, u)
		}
	}
}

// endpointOf returns the endpoint of the ServiceMonitor.
func endpointOf(t *testing.T) map[string]any {
	t.Helper()
	for _, u := range objects(t, filepath.Join(toolchain.Root(), "deploy", "monitoring", "scrape.yaml")) {
		if u.GetKind() == "ServiceMonitor" {
			list, _, err := unstructured.NestedSlice(u.Object, "spec", "endpoints")
			require.NoError(t, err)
			require.Len(t, list, 1)
			return list[0].(map[string]any)
		}
	}
	t.Fatal("there is no ServiceMonitor")
	return nil
}

// A fault is a resource in the state that alerts are about.
type brokenResource struct {
	object client.Object
	alerts []string
}

func brokenBundle(name string, change func(*v1alpha1.DriverBundle), alerts ...string) brokenResource {
	b := healthyBundle(name)
	change(b)
	return brokenResource{b, alerts}
}

func brokenConfig(name string, change func(*v1alpha1.VDOConfig), alerts ...string) brokenResource {
	c := healthyConfig(name)
	change(c)
	return brokenResource{c, alerts}
}

func brokenVCenter(name string, change func(*v1alpha1.VsphereCloudConfig), alerts ...string) brokenResource {
	v := healthyVCenter(name)
	change(v)
	return brokenResource{v, alerts}
}

// faults are resources, each with exactly the alerts that it fires.
func faults() []brokenResource {
	no, bundleReady := metav1.ConditionFalse, func(reason string) func(*v1alpha1.DriverBundle) {
		return func(b *v1alpha1.DriverBundle) { setReady(&b.Status.Conditions, metav1.ConditionFalse, reason) }
	}
	vcenterReady := func(reason string) func(*v1alpha1.VsphereCloudConfig) {
		return func(v *v1alpha1.VsphereCloudConfig) { setReady(&v.Status.Conditions, metav1.ConditionFalse, reason) }
	}
	expires := func(days int) func(*v1alpha1.DriverBundle) {
		return func(b *v1alpha1.DriverBundle) { b.Status.Matrix.Expires = metav1.NewTime(started.AddDate(0, 0, days)) }
	}
	return append(everyReason(), []brokenResource{
		brokenBundle("refused-and-suspended", func(b *v1alpha1.DriverBundle) { bundleReady("Superseded")(b); b.Spec.Suspend = true }, "VDOSuspended"),
		brokenBundle("untrusted", func(b *v1alpha1.DriverBundle) { set(&b.Status.Conditions, v1alpha1.ConditionVerified, no, "Untrusted") }, "VDOBundleUntrusted"),
		brokenBundle("expires", expires(10), "VDOMatrixExpiresSoon"),
		brokenBundle("expired", expires(-1), "VDOMatrixExpired"),
		brokenBundle("changed", func(b *v1alpha1.DriverBundle) { b.Status.ObservedGeneration = 0 }, "VDOSpecNotActedOn"),

		brokenConfig("progressing", func(c *v1alpha1.VDOConfig) { setReady(&c.Status.Conditions, metav1.ConditionUnknown, "Progressing") }, "VDOConfigNotReady"),
		brokenConfig("unhealthy", func(c *v1alpha1.VDOConfig) {
			c.Status.Drivers[1].Ready = false
			setReady(&c.Status.Conditions, no, "Incomplete")
		}, "VDOConfigNotReady", "VDODriverNotReady"),
		brokenConfig("rolling", func(c *v1alpha1.VDOConfig) { c.Status.Drivers[1].Version = "3.5.0" }, "VDORolloutStuck"),
		brokenConfig("withdrawn", func(c *v1alpha1.VDOConfig) { c.Status.Drivers[0].Withdrawn = "CVE" }, "VDODriverWithdrawn"),
		brokenConfig("nodes", func(c *v1alpha1.VDOConfig) {
			c.Status.NodesReady = "2/3"
			c.Status.Nodes = []v1alpha1.NodeStatus{{Name: "n1", Driver: "csi", Reason: "Incomplete", Message: "text"}}
		}, "VDONodesNotReady"),
		brokenConfig("contested", func(c *v1alpha1.VDOConfig) {
			c.Status.Drift = []v1alpha1.DriftStatus{{Driver: "csi", Kind: "Deployment", Name: "d", Repairs: 5, Until: &metav1.Time{Time: started}}}
		}, "VDODriftContested"),
		brokenConfig("preflight", func(c *v1alpha1.VDOConfig) {
			set(&c.Status.Conditions, v1alpha1.ConditionPreflight, no, "BlockInstall")
		}, "VDOPreflightBlocks"),
		brokenConfig("rolled-back", func(c *v1alpha1.VDOConfig) { set(&c.Status.Conditions, v1alpha1.ConditionUpgraded, no, "RolledBack") }, "VDOUpgradeFailed"),
		brokenConfig("failed-and-stays", func(c *v1alpha1.VDOConfig) { set(&c.Status.Conditions, v1alpha1.ConditionUpgraded, no, "Failed") }, "VDOUpgradeFailed"),
		brokenConfig("approval", func(c *v1alpha1.VDOConfig) { set(&c.Status.Conditions, v1alpha1.ConditionUpgraded, no, "NotApproved") }, "VDOUpgradeWaits"),
		brokenConfig("window", func(c *v1alpha1.VDOConfig) {
			set(&c.Status.Conditions, v1alpha1.ConditionUpgraded, no, "WindowClosed")
		}), // it waits for what comes by itself
		brokenConfig("ahead", func(c *v1alpha1.VDOConfig) {
			set(&c.Status.Conditions, v1alpha1.ConditionUpgradeable, no, "Incompatible")
		}, "VDONotUpgradeable"),
		brokenConfig("certificate", func(c *v1alpha1.VDOConfig) { set(&c.Status.Conditions, v1alpha1.ConditionCertificate, no, "Expiring") }, "VDOWebhookCertificateExpires"),

		brokenVCenter("vc-certificate-suspended", func(v *v1alpha1.VsphereCloudConfig) { vcenterReady("CertificateInvalid")(v); v.Spec.Suspend = true }, "VDOSuspended"),
		brokenVCenter("vc-slow", func(v *v1alpha1.VsphereCloudConfig) { v.Spec.VcIP = "slow.site.example" }, "VDOVCenterSlow"),
		brokenVCenter("vc-forgotten", func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CheckedAt = &metav1.Time{Time: started.Add(-2 * time.Hour)}
		}, "VDOVCenterNotChecked"),
		brokenVCenter("vc-forgotten-suspended", func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CheckedAt, v.Spec.Suspend = &metav1.Time{Time: started.Add(-2 * time.Hour)}, true
		}, "VDOSuspended"),
		brokenVCenter("vc-patient", func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CheckedAt, v.Spec.Interval = &metav1.Time{Time: started.Add(-2 * time.Hour)}, metav1.Duration{Duration: time.Hour}
		}),
	}...)
}

// everyReason are resources that are not Ready, one for each reason that there is: none is
// without an alert, and none has two.
func everyReason() (all []brokenResource) {
	bundleAlerts := map[fault.Reason]string{
		fault.Unreachable: "VDOMirrorUnusable", fault.Throttled: "VDOMirrorUnusable", fault.Unauthorized: "VDOMirrorUnusable",
		fault.Forbidden: "VDOMirrorUnusable", fault.CertificateInvalid: "VDOMirrorUnusable", fault.NotFound: "VDOMirrorUnusable",
	}
	vcenterAlerts := map[fault.Reason]string{
		fault.Unreachable: "VDOVCenterUnreachable", fault.Throttled: "VDOVCenterUnreachable",
		fault.Unauthorized: "VDOVCenterLoginRefused", fault.AccountLocked: "VDOVCenterLoginRefused", fault.Forbidden: "VDOVCenterLoginRefused",
	}
	for _, r := range fault.Reasons() {
		name, no := strings.ToLower(string(r)), metav1.ConditionFalse
		all = append(all,
			brokenBundle("b-"+name, func(b *v1alpha1.DriverBundle) { setReady(&b.Status.Conditions, no, string(r)) }, cmp.Or(bundleAlerts[r], "VDOBundleRefused")),
			brokenConfig("c-"+name, func(c *v1alpha1.VDOConfig) { setReady(&c.Status.Conditions, no, string(r)) }, "VDOConfigNotReady"),
			brokenVCenter("v-"+name, func(v *v1alpha1.VsphereCloudConfig) { setReady(&v.Status.Conditions, no, string(r)) }, cmp.Or(vcenterAlerts[r], "VDOVCenterNotUsable")))
	}
	return all
}

// A real Prometheus scrapes what the real collector makes of resources on a real API
// server, twice as if there were two replicas. Each alert fires where it has to, once and
// nowhere else, and ends with its cause; each query of the dashboard has an answer.
func TestAlertsAndDashboardInARealPrometheus(t *testing.T) {
	e := newEndpoint(t)
	token, stranger := e.reader(t)
	require.Eventually(t, func() bool { return e.get(t, "") == http.StatusUnauthorized }, time.Minute, 50*time.Millisecond)
	require.Equal(t, http.StatusForbidden, e.get(t, stranger))
	require.Eventually(t, func() bool { return e.get(t, token) == http.StatusOK }, time.Minute, 100*time.Millisecond)
	_, port, err := net.SplitHostPort(e.address)
	require.NoError(t, err)
	replica := func(host, pod string) map[string]any {
		return map[string]any{"targets": []string{net.JoinHostPort(host, port)}, "labels": map[string]string{"namespace": "vmware-system-vdo", "pod": pod, "service": "vdo-operator-metrics"}}
	}
	p := startPrometheus(t, scrape{endpoint: endpointOf(t), token: token, targets: []map[string]any{replica("127.0.0.1", "a"), replica("localhost", "b")}}, rules(t).atOnce(t))

	for _, o := range []client.Object{healthyBundle("site"), healthyConfig("site"), healthyVCenter("site")} {
		e.put(t, o)
	}
	e.meter.VCenterChecked("vc.site.example", 443, time.Second, "Succeeded")
	require.Eventually(t, func() bool {
		got, err := p.query(`vdo_vcenter_check_duration_seconds{name="site"}`)
		return err == nil && len(got) == 2
	}, time.Minute, 200*time.Millisecond, "both replicas are scraped")
	e.expect(t, p, map[string][]string{})
	asked, scrapes := e.asked.Load(), p.scrapes(t)
	require.Eventually(t, func() bool { return p.scrapes(t) > scrapes+4 }, time.Minute, 100*time.Millisecond)
	require.Equal(t, asked, e.asked.Load(), "scrapes ask the API server for no resource")

	want := map[string][]string{}
	broken := faults()
	for _, f := range broken {
		e.put(t, f.object)
		if len(f.alerts) > 0 {
			want[f.object.GetName()] = f.alerts
		}
	}
	e.put(t, healthyBundle(failing))
	e.meter.VCenterChecked("slow.site.example", 443, 15*time.Second, "Succeeded")
	for range 20 {
		e.meter.ObjectChanged("csi", "drift")
	}
	e.meter.EventRecorded("VDOConfig", "Warning", "Incompatible")
	want[""] = []string{"VDODriftRepeats", "VDOPassesFail"}
	e.expect(t, p, want)

	fired := map[string]bool{"VDOOperatorDown": true} // below
	for _, alerts := range want {
		for _, a := range alerts {
			fired[a] = true
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(rules(t).all())), slices.Sorted(maps.Keys(fired)), "each alert is fired here")
	e.annotations(t, p)
	panels(t, p)

	for _, f := range broken {
		require.NoError(t, e.client.Delete(t.Context(), f.object))
	}
	e.expect(t, p, map[string][]string{"": want[""]})
	e.stop()
	require.Eventually(t, func() bool {
		got, err := p.firing()
		return err == nil && slices.Contains(got[""], "VDOOperatorDown")
	}, time.Minute, 200*time.Millisecond)
}

// get asks for the metrics as an account, and returns 0 where nobody answers.
func (e *endpoint) get(t *testing.T, token string) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "https://"+e.address+"/metrics", http.NoBody)
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	h := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	res, err := h.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}

// expect waits until exactly these alerts fire, by resource, and goes on doing so for
// some evaluations.
func (e *endpoint) expect(t *testing.T, p *prom, want map[string][]string) {
	t.Helper()
	for _, alerts := range want {
		slices.Sort(alerts)
	}
	var got map[string][]string
	same := 0
	for deadline := time.Now().Add(time.Minute); same < 4; time.Sleep(time.Second) {
		var err error
		got, err = p.firing()
		require.NoError(t, err)
		for _, alerts := range got {
			slices.Sort(alerts)
		}
		if same++; !maps.EqualFunc(got, want, slices.Equal) {
			same = 0
			if time.Now().After(deadline) {
				require.Equal(t, want, got)
			}
		}
	}
}

// annotations are filled in, and name what the alert is about.
func (e *endpoint) annotations(t *testing.T, p *prom) {
	t.Helper()
	var data struct {
		Alerts []struct{ Labels, Annotations map[string]string }
	}
	require.NoError(t, p.get("/api/v1/alerts", nil, &data))
	for _, a := range data.Alerts {
		text := a.Annotations["summary"] + a.Annotations["description"]
		require.NotContains(t, text, "<no value>", a.Labels)
		require.NotContains(t, text, "error expanding", a.Labels)
		require.NotContains(t, text, "  ", "%s: a label is empty", a.Labels)
		if name := a.Labels["name"]; name != "" {
			require.Contains(t, text, " "+name, "%s", a.Labels)
			require.Equal(t, "vmware-system-vdo", a.Labels["namespace"])
		}
		require.NotContains(t, a.Labels, "pod")
	}
}

// panels asks for what each panel of the dashboard shows.
func panels(t *testing.T, p *prom) {
	t.Helper()
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			got, err := p.query(expression(target.Expr))
			require.NoError(t, err, "%s: %s", panel.Title, target.Expr)
			require.NotEmpty(t, got, "%s: %s", panel.Title, target.Expr)
			require.True(t, slices.ContainsFunc(got, func(s sample) bool { return s.value() != "NaN" }), "%s: %s", panel.Title, target.Expr)
		}
	}
}

// Each alert has a severity, says what is wrong, and links to its section of the runbooks.
func TestEachAlertHasARunbook(t *testing.T) {
	text := string(monitoring(t, "../docs/runbooks.md"))
	for name, r := range rules(t).all() {
		require.Contains(t, []string{"info", "warning", "critical"}, r.Labels["severity"], name)
		require.Equal(t, "https://github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/blob/main/deploy/docs/runbooks.md#"+strings.ToLower(name),
			r.Annotations["runbook_url"])
		require.NotEmpty(t, r.Annotations["summary"], name)
		require.NotEmpty(t, r.Annotations["description"], name)
		_, section, found := strings.Cut(text, "\n## "+name+"\n")
		require.True(t, found, name)
		section, _, _ = strings.Cut(section, "\n## ")
		for _, part := range []string{"**Meaning.**", "**Check.**", "**Resolution.**"} {
			require.Contains(t, section, part, name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^## (\S+)$`).FindAllStringSubmatch(text, -1) {
		require.Contains(t, rules(t).all(), m[1], "a runbook of no alert")
	}
}

func TestRulesAreValid(t *testing.T) {
	promtool := toolchain.Installed(t, "promtool")
	path := filepath.Join(t.TempDir(), "rules.yaml")
	f := rules(t)
	data := f.atOnce(t)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	out, err := exec.Command(promtool, "check", "rules", "--lint=all", "--lint-fatal", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

var metricName = regexp.MustCompile(`\bvdo_[a-z_]+\b`)

// What Grafana needs of a dashboard that was written elsewhere, and nothing of the
// place where it was written.
func TestTheDashboardWorksAnywhere(t *testing.T) {
	d := readDashboard(t)
	require.Equal(t, "vdo-operator", d.UID)
	require.Equal(t, []struct{ Name, Type, Query string }{{"datasource", "datasource", "prometheus"}}, d.Templating.List)
	require.NotContains(t, string(monitoring(t, "dashboard.json")), "http")
	served := gather(t, func() *metrics.Meter {
		m := newMeter(site())
		m.VCenterChecked("vc.site.example", 443, time.Second, "Succeeded")
		m.EventRecorded("VDOConfig", "Normal", "RolledOut")
		return m
	}())
	ids, used := map[int]bool{}, string(monitoring(t, "rules.yaml"))
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels with id %d", p.ID)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos["x"]+p.GridPos["w"], 24, p.Title)
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.Equal(t, "${datasource}", target.Datasource["uid"], p.Title)
			used += "\n" + target.Expr
		}
	}
	for _, name := range metricName.FindAllString(used, -1) {
		require.Contains(t, served, name, "rules and dashboard use what is served")
	}
}
