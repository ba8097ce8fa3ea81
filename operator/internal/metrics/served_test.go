package metrics_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/metrics"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// resources are what a cache has.
type resources struct {
	client.Reader
	bundles  []v1alpha1.DriverBundle
	configs  []v1alpha1.VDOConfig
	vcenters []v1alpha1.VsphereCloudConfig
	err      error
}

func (r *resources) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.DriverBundleList:
		l.Items = r.bundles
	case *v1alpha1.VDOConfigList:
		l.Items = r.configs
	case *v1alpha1.VsphereCloudConfigList:
		l.Items = r.vcenters
	default:
		return fmt.Errorf("a scrape listed %T", list)
	}
	return r.err
}

// site is one of each kind, with everything that a status can say.
func site() *resources {
	b, c, v := healthyBundle("site"), healthyConfig("site"), healthyVCenter("site")
	c.Status.Nodes = []v1alpha1.NodeStatus{
		{Name: "n1", Driver: "csi", Reason: "Incomplete", Message: "secret text"}, {Name: "n2", Driver: "csi", Reason: "Incomplete", Message: "secret text"}}
	until, later := metav1.Now(), metav1.NewTime(started.Add(time.Second))
	b.Status.AcceptedAt, c.Status.Conditions[0].LastTransitionTime = &later, later // Ready's
	c.Status.Drift = []v1alpha1.DriftStatus{{Kind: "Deployment", Name: "secret text", Until: &until}, {Kind: "ConfigMap"}, {Kind: "Role"}}
	return &resources{bundles: []v1alpha1.DriverBundle{*b}, configs: []v1alpha1.VDOConfig{*c}, vcenters: []v1alpha1.VsphereCloudConfig{*v}}
}

func newMeter(r client.Reader) *metrics.Meter {
	return metrics.New(metrics.Options{Reader: r, Namespace: "ns", Version: "v1.2.3"})
}

// gather returns what is served, by name.
func gather(t *testing.T, m *metrics.Meter) map[string]*dto.MetricFamily {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(m))
	all := must.Have(reg.Gather())(t)
	out := map[string]*dto.MetricFamily{}
	for _, f := range all {
		out[f.GetName()] = f
	}
	return out
}

// series returns the values of a family by their labels, `a="x",b="y"`.
func series(f *dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		out[strings.Join(labels, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return out
}

// served is how a scrape of a site that has seen everything is answered.
func served(t *testing.T) string {
	m := newMeter(site())
	m.VCenterChecked("site", 1500*time.Millisecond, "Succeeded")
	m.ObjectChanged("csi", "drift")
	m.EventRecorded("VDOConfig", "Normal", "RevisionHealthy")
	var text bytes.Buffer
	for _, f := range gather(t, m) {
		must.Have(expfmt.MetricFamilyToText(&text, f))(t)
	}
	return text.String()
}

// Alerts hold the other values.
func TestWhatStatusesSayIsServed(t *testing.T) {
	const want = `vdo_condition{kind="VDOConfig",name="site",reason="Succeeded",status="True",type="Ready"} 1
vdo_condition_transition_timestamp_seconds{kind="VDOConfig",name="site",type="Ready"} 1
vdo_interval_seconds{kind="DriverBundle",name="site"} 600
vdo_bundle_info{digest="` + healthyDigest + `",name="site"} 1
vdo_bundle_accepted_timestamp_seconds{name="site"} 1
vdo_bundle_matrix_serial{name="site"} 7
vdo_kubernetes_info{name="site",version="1.33.4"} 1
vdo_driver_info{driver="csi",name="site",version="3.5.1",wanted="3.5.1"} 1
vdo_nodes{name="site",state="ready"} 3
vdo_node_findings{driver="csi",name="site",reason="Incomplete"} 2
vdo_drifted_objects{name="site",state="contested"} 1
vdo_drifted_objects{name="site",state="left"} 2
vdo_vcenter_info{build="24022515",name="site",version="8.0.3"} 1
vdo_vcenter_reachable{name="site"} 1
vdo_vcenter_check_duration_seconds{name="site"} 1.5
vdo_vcenter_checks_total{reason="Succeeded"} 1
vdo_object_changes_total{cause="drift",driver="csi"} 1
vdo_object_changes_total{cause="drift",driver="cpi"} 0
vdo_events_total{kind="VDOConfig",reason="RevisionHealthy",type="Normal"} 1
vdo_events_total{kind="VDOConfig",reason="RolledBack",type="Warning"} 0
`
	have := served(t)
	for line := range strings.Lines(want) {
		require.Contains(t, have, "\n"+line)
	}
}

// What the vCenter answers says whether it is there; a Secret that is missing says nothing.
func TestReachableIsWhatTheCheckFoundOut(t *testing.T) {
	for reason, want := range map[string]map[string]float64{
		"Unreachable": {`name="site"`: 0}, "Throttled": {},
		"Unauthorized": {`name="site"`: 1}, "AccountLocked": {`name="site"`: 1}, "Forbidden": {`name="site"`: 1},
		"CertificateInvalid": {`name="site"`: 1}, "Incompatible": {`name="site"`: 1},
		"NotFound": {}, "InvalidInput": {}, "Internal": {},
	} {
		r := site()
		setReady(&r.vcenters[0].Status.Conditions, metav1.ConditionFalse, reason)
		require.Equal(t, want, series(gather(t, newMeter(r))["vdo_vcenter_reachable"]), reason)
	}
	for reason, want := range map[string]map[string]float64{"Unreachable": {`name="site"`: 0}, "Throttled": {}} {
		r := site()
		set(&r.vcenters[0].Status.Conditions, v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason)
		require.Equal(t, want, series(gather(t, newMeter(r))["vdo_vcenter_reachable"]), "in the grace of "+reason)
	}
}

func TestSeriesEndWithTheirResource(t *testing.T) {
	r := site()
	m := newMeter(r)
	m.VCenterChecked("site", time.Second, "Succeeded")
	require.Contains(t, gather(t, m), "vdo_vcenter_check_duration_seconds")

	vcenters := r.vcenters
	r.bundles, r.configs, r.vcenters = nil, nil, nil
	for name := range gather(t, m) {
		require.Contains(t, []string{"vdo_build_info", "vdo_object_changes_total", "vdo_events_total", "vdo_vcenter_checks_total"}, name)
	}
	r.vcenters = vcenters
	require.NotContains(t, gather(t, m), "vdo_vcenter_check_duration_seconds", "of one that was made anew nothing is known")
}

// What a vCenter says becomes a label only where it looks like a version.
func TestAVersionThatIsNoneIsNoLabel(t *testing.T) {
	r := site()
	r.vcenters[0].Status.Version, r.vcenters[0].Status.Build = "8.0.3\n\"} ", strings.Repeat("x", 1000)
	require.Equal(t, map[string]float64{`build="other",name="site",version="other"`: 1}, series(gather(t, newMeter(r))["vdo_vcenter_info"]))
}

// An alert must not be silent because nothing is known.
func TestAScrapeFailsWhereResourcesCannotBeRead(t *testing.T) {
	r := site()
	r.err = errors.New("the cache is not started")
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(newMeter(r)))
	_, err := reg.Gather()
	require.ErrorContains(t, err, "the cache is not started")
}

// promtool's lint finds nothing: units, _total, help texts.
func TestMetricsFollowTheConventions(t *testing.T) {
	promtool := toolchain.Installed(t, "promtool")
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(served(t))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}

// started is when everything in the fixtures happened, and when promtool's time begins.
var started = time.Unix(0, 0)

const healthyDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func setReady(conds *[]metav1.Condition, status metav1.ConditionStatus, reason string) {
	set(conds, v1alpha1.ConditionReady, status, reason)
}

func set(conds *[]metav1.Condition, typ string, status metav1.ConditionStatus, reason string) {
	c := metav1.Condition{Type: typ, Status: status, Reason: reason, Message: "text"}
	c.LastTransitionTime = metav1.NewTime(started)
	meta.SetStatusCondition(conds, c)
}

func healthyBundle(name string) *v1alpha1.DriverBundle {
	b := &v1alpha1.DriverBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec:       v1alpha1.DriverBundleSpec{Interval: metav1.Duration{Duration: 10 * time.Minute}},
	}
	b.Status = v1alpha1.DriverBundleStatus{
		ObservedGeneration: 1, Digest: healthyDigest, AcceptedAt: &metav1.Time{Time: started},
		Matrix: &v1alpha1.MatrixStatus{Serial: 7, Expires: metav1.NewTime(started.AddDate(1, 0, 0))},
	}
	setReady(&b.Status.Conditions, metav1.ConditionTrue, "Succeeded")
	set(&b.Status.Conditions, v1alpha1.ConditionVerified, metav1.ConditionTrue, "Succeeded")
	set(&b.Status.Conditions, v1alpha1.ConditionFresh, metav1.ConditionTrue, "Succeeded")
	return b
}

func healthyConfig(name string) *v1alpha1.VDOConfig {
	c := &v1alpha1.VDOConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec:       v1alpha1.VDOConfigSpec{Interval: metav1.Duration{Duration: 5 * time.Minute}},
	}
	c.Status = v1alpha1.VDOConfigStatus{
		ObservedGeneration: 1, Kubernetes: "1.33.4", NodesReady: "3/3",
		Drivers: []v1alpha1.DriverStatus{
			{Driver: "cpi", Version: "1.33.1", Wanted: "1.33.1", Ready: true}, {Driver: "csi", Version: "3.5.1", Wanted: "3.5.1", Ready: true}},
	}
	for _, typ := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionCPI, v1alpha1.ConditionCSI, v1alpha1.ConditionCertificate, v1alpha1.ConditionUpgradeable,
	} {
		set(&c.Status.Conditions, typ, metav1.ConditionTrue, "Succeeded")
	}
	return c
}

func healthyVCenter(name string) *v1alpha1.VsphereCloudConfig {
	v := &v1alpha1.VsphereCloudConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec:       v1alpha1.VsphereCloudConfigSpec{Interval: metav1.Duration{Duration: 10 * time.Minute}},
	}
	v.Status = v1alpha1.VsphereCloudConfigStatus{
		ObservedGeneration: 1, Version: "8.0.3", Build: "24022515", CheckedAt: &metav1.Time{Time: started},
	}
	setReady(&v.Status.Conditions, metav1.ConditionTrue, "Succeeded")
	return v
}

// brokenResource is in the state that alerts are about.
type brokenResource struct {
	object metav1.Object
	alerts []string
}

func broken[T metav1.Object](o T, change func(T), alerts ...string) brokenResource {
	change(o)
	return brokenResource{o, alerts}
}

// faults are resources, each with exactly the alerts that it fires.
func faults() []brokenResource {
	no, bundleReady := metav1.ConditionFalse, func(reason string) func(*v1alpha1.DriverBundle) {
		return func(b *v1alpha1.DriverBundle) { setReady(&b.Status.Conditions, metav1.ConditionFalse, reason) }
	}
	vcenterReady := func(reason string) func(*v1alpha1.VsphereCloudConfig) {
		return func(v *v1alpha1.VsphereCloudConfig) { setReady(&v.Status.Conditions, metav1.ConditionFalse, reason) }
	}
	// says is a VDOConfig with a condition.
	says := func(name, kind, reason string, alerts ...string) brokenResource {
		change := func(c *v1alpha1.VDOConfig) { set(&c.Status.Conditions, kind, no, reason) }
		return broken(healthyConfig(name), change, alerts...)
	}
	expires := func(days int) func(*v1alpha1.DriverBundle) {
		return func(b *v1alpha1.DriverBundle) { b.Status.Matrix.Expires = metav1.NewTime(started.AddDate(0, 0, days)) }
	}
	return append(everyReason(), []brokenResource{
		broken(healthyBundle("refused-and-suspended"), func(b *v1alpha1.DriverBundle) { bundleReady("Superseded")(b); b.Spec.Suspend = true }, "VDOSuspended"),
		broken(healthyBundle("untrusted"), func(b *v1alpha1.DriverBundle) { set(&b.Status.Conditions, v1alpha1.ConditionVerified, no, "Untrusted") }, "VDOBundleUntrusted"),
		broken(healthyBundle("expires"), expires(10), "VDOMatrixExpiresSoon"),
		broken(healthyBundle("expired"), expires(-1), "VDOMatrixExpired"),
		broken(healthyBundle("expired-and-accepted"), func(b *v1alpha1.DriverBundle) { expires(-1)(b); b.Spec.AcceptOlder = b.Status.Digest }),
		broken(healthyBundle("changed"), func(b *v1alpha1.DriverBundle) { b.Status.ObservedGeneration = 0 }, "VDOSpecNotActedOn"),

		broken(healthyConfig("progressing"), func(c *v1alpha1.VDOConfig) { setReady(&c.Status.Conditions, metav1.ConditionUnknown, "Progressing") }, "VDOConfigNotReady"),
		broken(healthyConfig("unhealthy"), func(c *v1alpha1.VDOConfig) {
			c.Status.Drivers[1].Ready = false
			setReady(&c.Status.Conditions, no, "Incomplete")
			set(&c.Status.Conditions, v1alpha1.ConditionUpgraded, metav1.ConditionUnknown, "Progressing")
		}, "VDOConfigNotReady", "VDODriverNotReady"),
		broken(healthyConfig("rolling"), func(c *v1alpha1.VDOConfig) {
			c.Status.Drivers[1].Version, c.Spec.Suspend = "", true
		}, "VDORolloutStuck", "VDOSuspended"),
		broken(healthyConfig("csi-is-tried"), func(c *v1alpha1.VDOConfig) {
			c.Spec.DryRun, c.Status.NodesReady, c.Status.Drivers[0].Ready = true, "0/3", false
			c.Status.Drivers[1].Version, c.Status.Drivers[1].Ready = "", false
		}, "VDODriverNotReady", "VDOSuspended"),
		broken(healthyConfig("upgrades"), func(c *v1alpha1.VDOConfig) {
			setReady(&c.Status.Conditions, metav1.ConditionUnknown, "Progressing")
			set(&c.Status.Conditions, v1alpha1.ConditionUpgraded, metav1.ConditionUnknown, "Progressing")
		}),
		broken(healthyConfig("csi-soaks-and-cpi-rolls"), func(c *v1alpha1.VDOConfig) {
			c.Status.Drivers[0].Version, c.Status.Drivers[1].Version = "1.33.0", "3.5.0"
			c.Status.Rollout = &v1alpha1.RolloutStatus{HealthySince: &metav1.Time{Time: started}}
		}, "VDORolloutStuck"),
		broken(healthyConfig("withdrawn"), func(c *v1alpha1.VDOConfig) { c.Status.Drivers[0].Withdrawn = "CVE" }, "VDODriverWithdrawn"),
		broken(healthyConfig("nodes"), func(c *v1alpha1.VDOConfig) {
			c.Status.NodesReady = "2/3"
			c.Status.Nodes = []v1alpha1.NodeStatus{{Name: "n1", Driver: "csi", Reason: "Incomplete", Message: "text"}}
		}, "VDONodesNotReady"),
		broken(healthyConfig("contested"), func(c *v1alpha1.VDOConfig) {
			c.Status.Drift = []v1alpha1.DriftStatus{{Driver: "csi", Kind: "Deployment", Name: "d", Repairs: 5, Until: &metav1.Time{Time: started}}}
		}, "VDODriftContested"),
		says("preflight", v1alpha1.ConditionPreflight, "BlockInstall", "VDOPreflightBlocks"),
		says("rolled-back", v1alpha1.ConditionUpgraded, "RolledBack", "VDOUpgradeFailed"),
		says("failed-and-stays", v1alpha1.ConditionUpgraded, "Failed", "VDOUpgradeFailed"),
		says("approval", v1alpha1.ConditionUpgraded, "NotApproved", "VDOUpgradeWaits"),
		says("interlocked", v1alpha1.ConditionUpgraded, "Interlocked", "VDOUpgradeWaits"),
		says("downgrade", v1alpha1.ConditionUpgraded, "DowngradeRefused", "VDOUpgradeWaits"),
		says("of-another-version", v1alpha1.ConditionUpgraded, "Unknown", "VDOUpgradeWaits"),
		says("window", v1alpha1.ConditionUpgraded, "WindowClosed"), // it waits for what comes by itself
		says("ahead", v1alpha1.ConditionUpgradeable, "Incompatible", "VDONotUpgradeable"),
		says("certificate", v1alpha1.ConditionCertificate, "Expiring", "VDOWebhookCertificateExpires"),

		broken(healthyVCenter("vc-certificate-suspended"), func(v *v1alpha1.VsphereCloudConfig) { vcenterReady("CertificateInvalid")(v); v.Spec.Suspend = true }, "VDOSuspended"),
		broken(healthyVCenter("vc-slow-suspended"), func(v *v1alpha1.VsphereCloudConfig) { v.Spec.Suspend = true }, "VDOSuspended"),
		broken(healthyVCenter("vc-slow-away"), vcenterReady("Unreachable"), "VDOVCenterUnreachable"),
		broken(healthyVCenter("vc-slow"), func(*v1alpha1.VsphereCloudConfig) {}, "VDOVCenterSlow"),
		broken(healthyVCenter("vc-forgotten"), func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CheckedAt = &metav1.Time{Time: started.Add(-2 * time.Hour)}
		}, "VDOVCenterNotChecked"),
		broken(healthyVCenter("vc-forgotten-suspended"), func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CheckedAt, v.Spec.Suspend = &metav1.Time{Time: started.Add(-2 * time.Hour)}, true
		}, "VDOSuspended"),
		broken(healthyVCenter("vc-patient"), func(v *v1alpha1.VsphereCloudConfig) {
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
		fault.Unreachable:  "VDOVCenterUnreachable",
		fault.Unauthorized: "VDOVCenterLoginRefused", fault.AccountLocked: "VDOVCenterLoginRefused", fault.Forbidden: "VDOVCenterLoginRefused",
	}
	for _, r := range fault.Reasons() {
		name, no := strings.ToLower(string(r)), metav1.ConditionFalse
		all = append(all,
			broken(healthyBundle("b-"+name), func(b *v1alpha1.DriverBundle) { setReady(&b.Status.Conditions, no, string(r)) }, cmp.Or(bundleAlerts[r], "VDOBundleRefused")),
			broken(healthyConfig("c-"+name), func(c *v1alpha1.VDOConfig) { setReady(&c.Status.Conditions, no, string(r)) }, "VDOConfigNotReady"),
			broken(healthyVCenter("v-"+name), func(v *v1alpha1.VsphereCloudConfig) { setReady(&v.Status.Conditions, no, string(r)) }, cmp.Or(vcenterAlerts[r], "VDOVCenterNotUsable")))
	}
	return all
}

// samples are series for promtool, of two replicas: a counter rises by its value each minute.
func samples(t *testing.T, m *metrics.Meter) (all []map[string]string) {
	t.Helper()
	add := func(name, labels, values string) {
		for _, pod := range []string{"a", "b"} {
			all = append(all, map[string]string{"values": values, "series": fmt.Sprintf(
				"%s{%s,namespace=\"vmware-system-vdo\",pod=%q,instance=%q}", name, labels, pod, pod)})
		}
	}
	for name, family := range gather(t, m) {
		for labels, value := range series(family) {
			step := 0.0
			if strings.HasSuffix(name, "_total") {
				step = value
			}
			add(name, labels, fmt.Sprintf("%f+%fx20", value, step))
		}
	}
	const controller = `controller="vdoconfig"`
	add("controller_runtime_reconcile_errors_total", controller, "0+1x20")
	add("controller_runtime_reconcile_errors_total", `controller="matrix-configmap"`, "1+0x16 2+0x3") // after the longest backoff
	add("controller_runtime_reconcile_time_seconds_bucket", controller+`,le="+Inf"`, "0+1x20")
	add("controller_runtime_reconcile_time_seconds_bucket", controller+`,le="1"`, "0+1x20")
	add("rest_client_requests_total", `code="200"`, "0+1x20")
	add("process_resident_memory_bytes", `job="vdo"`, "1+0x20")
	add("process_cpu_seconds_total", `job="vdo"`, "0+1x20")
	return all
}

// evaluation is a promql_expr_test of promtool, at the end of the samples.
func evaluation(expr string, want ...map[string]any) map[string]any {
	return map[string]any{"expr": expr, "eval_time": "20m", "exp_samples": want}
}

var label = regexp.MustCompile(`\$labels\.([a-z_]+)`)

// Prometheus's own engine evaluates the rules over what two replicas serve: each alert fires where
// it has to, once and nowhere else, with the labels that its texts name; each query of the
// dashboard has an answer.
func TestAlertsAndDashboard(t *testing.T) {
	all := &resources{bundles: []v1alpha1.DriverBundle{*healthyBundle("site")},
		configs: []v1alpha1.VDOConfig{*healthyConfig("site")}, vcenters: []v1alpha1.VsphereCloudConfig{*healthyVCenter("site")}}
	var firing []map[string]any
	fired := map[string]bool{"VDOOperatorDown": true} // below
	fires := func(alert, labels string) {
		fired[alert] = true
		firing = append(firing, map[string]any{"labels": fmt.Sprintf("{alertname=%q%s}", alert, labels), "value": 1})
	}
	for _, f := range faults() {
		switch o := f.object.(type) {
		case *v1alpha1.DriverBundle:
			all.bundles = append(all.bundles, *o)
		case *v1alpha1.VDOConfig:
			all.configs = append(all.configs, *o)
		case *v1alpha1.VsphereCloudConfig:
			all.vcenters = append(all.vcenters, *o)
		}
		for _, alert := range f.alerts {
			fires(alert, fmt.Sprintf(",name=%q", f.object.GetName()))
		}
	}
	fires("VDODriftRepeats", "")
	fires("VDOPassesFail", "")
	firing[len(firing)-1]["value"] = 2 // controllers
	m := newMeter(all)
	m.VCenterChecked("site", time.Second, "Succeeded")
	for _, slow := range []string{"vc-slow", "vc-slow-suspended", "vc-slow-away", "of-no-resource"} {
		m.VCenterChecked(slow, 15*time.Second, "Succeeded")
	}
	m.ObjectChanged("csi", "drift")
	m.EventRecorded("VDOConfig", "Warning", "Incompatible")
	f := rules(t, "rules.yaml")
	require.Equal(t, slices.Sorted(maps.Keys(byAlert(f))), slices.Sorted(maps.Keys(fired)), "each alert is fired here")

	evaluations := []map[string]any{
		evaluation(`count by (name, alertname) (ALERTS{alertstate="firing"})`, firing...),
		evaluation(`ALERTS{pod!=""}`), evaluation(`ALERTS{namespace!="vmware-system-vdo"}`),
	}
	for name, r := range byAlert(f) {
		for _, l := range label.FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
			evaluations = append(evaluations, evaluation(fmt.Sprintf(`ALERTS{alertname=%q,%s=""}`, name, l[1])))
		}
	}
	var shown dashboard
	require.NoError(t, json.Unmarshal(monitoring(t, "dashboard.json"), &shown))
	for _, panel := range shown.Panels {
		for _, target := range panel.Targets {
			require.Equal(t, "${datasource}", target.Datasource["uid"], panel.Title)
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			evaluations = append(evaluations, evaluation(fmt.Sprintf("absent((%s) == (%s))", expr, expr))) // nothing equals NaN
		}
	}
	down := []map[string]any{{"labels": `ALERTS{alertname="VDOOperatorDown",alertstate="firing",severity="critical"}`, "value": 1}}
	promtool(t, f, map[string]any{"interval": "1m", "input_series": samples(t, m), "promql_expr_test": evaluations},
		map[string]any{"interval": "1m", "promql_expr_test": []map[string]any{evaluation("ALERTS", down...)}})
}

// Each alert about tenant clusters fires for what it is about, with the labels that its texts name, and not for what is
// well.
func TestAlertsOfTenantClusters(t *testing.T) {
	const one = `sipcluster="t/one"`
	well := []string{
		`vdo_sip_build_info{version="1"} 1`, `vdo_sip_ready{` + one + `} 1`, `vdo_sip_services{` + one + `,state="not_ready"} 0`,
		`vdo_sip_services{` + one + `,state="ready"} 4`, `vdo_sip_hosts_missing{` + one + `,role="Worker"} 0`,
		`vdo_sip_hosts{state="orphaned"} 0`, `vdo_sip_hosts{state="failed"} 0`, `vdo_sip_hosts{state="free"} 5`,
		`controller_runtime_reconcile_errors_total{controller="sipcluster"} 9`,
	}
	fires := func(series []string, alerts ...string) map[string]any {
		input, want := []any{}, []map[string]any{}
		for _, line := range series {
			name, value, _ := strings.Cut(line, " ")
			input = append(input, map[string]any{"series": name, "values": value + "+0x20"})
		}
		for _, alert := range alerts {
			want = append(want, map[string]any{"labels": alert, "value": 1})
		}
		firing := evaluation(`count by (alertname, sipcluster, role) (ALERTS{alertstate="firing"})`, want...)
		return map[string]any{"interval": "1m", "input_series": input, "promql_expr_test": []any{firing}}
	}
	tests := []map[string]any{fires(well), fires(nil, `{alertname="VDOSIPOperatorDown"}`)}
	alerts := []string{"VDOSIPOperatorDown"}
	for alert, bad := range map[string]struct{ series, labels string }{
		"VDOSIPClusterNotReady": {`vdo_sip_ready{` + one + `} 0`, "," + one},
		"VDOSIPServiceNotReady": {`vdo_sip_services{` + one + `,state="not_ready"} 1`, "," + one},
		"VDOSIPPassesFail":      {`controller_runtime_reconcile_errors_total{controller="sipcluster"} 0 0 1`, ""},
		"VDOSIPHostsMissing":    {`vdo_sip_hosts_missing{` + one + `,role="Worker"} 2`, "," + one + `,role="Worker"`},
		"VDOSIPHostsFailed":     {`vdo_sip_hosts{state="failed"} 1`, ""},
		"VDOSIPHostsOrphaned":   {`vdo_sip_hosts{state="orphaned"} 1`, ""},
	} {
		name, _, _ := strings.Cut(bad.series, " ")
		series := slices.DeleteFunc(slices.Clone(well), func(s string) bool { return strings.HasPrefix(s, name) })
		tests = append(tests, fires(append(series, bad.series), fmt.Sprintf("{alertname=%q%s}", alert, bad.labels)))
		alerts = append(alerts, alert)
	}
	f := rules(t, "../sip/monitoring/rules.yaml")
	require.ElementsMatch(t, slices.Collect(maps.Keys(byAlert(f))), alerts)
	promtool(t, f, tests...)
}

// promtool checks rules, and evaluates tests of them, without the time that a condition has to last.
func promtool(t *testing.T, f monitoringv1.PrometheusRuleSpec, tests ...map[string]any) {
	program, dir := toolchain.Installed(t, "promtool"), t.TempDir()
	for _, g := range f.Groups {
		for i := range g.Rules {
			g.Rules[i].For = nil
		}
	}
	for name, content := range map[string]any{
		"rules.yaml": f, "tests.yaml": map[string]any{"rule_files": []string{"rules.yaml"}, "tests": tests},
	} {
		data := must.Have(yaml.Marshal(content))(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"}, {"test", "rules", "tests.yaml"},
	} {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// Each alert has a severity, says what is wrong, and links to its section of the runbooks.
func TestEachAlertHasARunbook(t *testing.T) {
	text, all := string(monitoring(t, "../docs/runbooks.md")), byAlert(rules(t, "rules.yaml"))
	maps.Copy(all, byAlert(rules(t, "../sip/monitoring/rules.yaml")))
	for name, r := range all {
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
		require.Contains(t, all, m[1], "a runbook of no alert")
	}
}

func monitoring(t *testing.T, name string) []byte {
	return must.Have(os.ReadFile(filepath.Join(toolchain.Root(), "deploy", "monitoring", name)))(t)
}

func rules(t *testing.T, name string) monitoringv1.PrometheusRuleSpec {
	var of monitoringv1.PrometheusRule
	require.NoError(t, yaml.Unmarshal(monitoring(t, name), &of))
	require.NotEmpty(t, of.Spec.Groups)
	return of.Spec
}

// byAlert are the rules by alert.
func byAlert(f monitoringv1.PrometheusRuleSpec) map[string]monitoringv1.Rule {
	out := map[string]monitoringv1.Rule{}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			out[r.Alert] = r
		}
	}
	return out
}

// dashboard is what the test reads of the dashboard.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct {
			Expr       string
			Datasource map[string]string
		}
	}
}
