package metrics_test

import (
	"cmp"
	"encoding/json"
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
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/metrics"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

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
		broken(healthyVCenter("vc-slow-suspended"), func(v *v1alpha1.VsphereCloudConfig) {
			v.Spec.VcIP, v.Spec.Port, v.Spec.Suspend = "slow.site.example", 8443, true
		}, "VDOSuspended"),
		broken(healthyVCenter("vc-away"), func(v *v1alpha1.VsphereCloudConfig) {
			vcenterReady("Unreachable")(v)
			v.Spec.VcIP, v.Spec.Port = "slow.site.example", 8443
		}, "VDOVCenterUnreachable"),
		broken(healthyVCenter("vc-slow"), func(v *v1alpha1.VsphereCloudConfig) { v.Spec.VcIP, v.Spec.Port = "slow.site.example", 8443 }, "VDOVCenterSlow"),
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
	add("controller_runtime_reconcile_errors_total", `controller="matrix-configmap"`, "0+1x20") // has no status
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
	m.VCenterChecked("vc.site.example", 443, time.Second, "Succeeded")
	m.VCenterChecked("slow.site.example", 8443, 15*time.Second, "Succeeded")
	m.VCenterChecked("slow.site.example", 443, time.Second, "Succeeded") // of no resource, as the next
	m.VCenterChecked("vc.site.example", 8443, time.Second, "Succeeded")
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
		`vdo_sip_hosts{state="orphaned"} 0`, `vdo_sip_hosts{state="failed"} 5`,
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
		"VDOSIPHostsMissing":    {`vdo_sip_hosts_missing{` + one + `,role="Worker"} 2`, "," + one + `,role="Worker"`},
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
	t.Helper()
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
	t.Helper()
	return must.Have(os.ReadFile(filepath.Join(toolchain.Root(), "deploy", "monitoring", name)))(t)
}

func rules(t *testing.T, name string) monitoringv1.PrometheusRuleSpec {
	t.Helper()
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
