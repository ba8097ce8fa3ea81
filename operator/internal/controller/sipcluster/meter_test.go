package sipcluster

import (
	"context"
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

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// metered gathers what a Meter serves, by name and labels.
func metered(t *testing.T, m *Meter) (series map[string]float64, families map[string]*dto.MetricFamily, err error) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(m))
	all, err := registry.Gather()
	series, families = map[string]float64{}, map[string]*dto.MetricFamily{}
	for _, f := range all {
		families[f.GetName()] = f
		for _, one := range f.GetMetric() {
			name := f.GetName()
			for _, l := range one.GetLabel() {
				name += " " + l.GetValue()
			}
			series[name] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
		}
	}
	return series, families, err
}

// meterOf is over hosts and SIPClusters.
func meterOf(t *testing.T, objects ...client.Object) *Meter {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, airship.AddToScheme(scheme))
	scheme.AddKnownTypeWithName(HostKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(HostKind.GroupVersion().WithKind(HostKind.Kind+"List"), &unstructured.UnstructuredList{})
	return NewMeter(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), "v1.2.3")
}

func hostIn(name, claim string, operational string) *unstructured.Unstructured {
	o := hostObject(types.NamespacedName{Namespace: "m", Name: name})
	o.Object["status"] = map[string]any{"provisioning": map[string]any{"state": "available"}, "operationalStatus": operational}
	if claim != "" {
		o.SetAnnotations(map[string]string{airship.AnnotationClaim: claim})
	}
	return o
}

func ready(name string, status metav1.ConditionStatus, reason string) *airship.SIPCluster {
	return &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: name}, Status: airship.SIPClusterStatus{
		Conditions: []metav1.Condition{{Type: "Ready", Status: status, Reason: reason}},
	}}
}

// site has a host in each state, and a SIPCluster of each kind.
func site(t *testing.T) *Meter {
	t.Helper()
	labelled := hostIn("labelled", "Worker t/one", "OK")
	labelled.SetLabels(map[string]string{airship.LabelClusterNamespace: "t", airship.LabelClusterName: "one", airship.LabelNodeType: "Worker"})
	old := hostIn("old", "", "OK")
	old.SetLabels(map[string]string{airship.LabelClusterNamespace: "t", airship.LabelClusterName: "gone", airship.LabelNodeType: "Worker"})
	one, lacks := ready("one", "True", airship.ReasonSucceeded), ready("lacks", "False", airship.ReasonUnschedulable)
	one.Status.Services = []airship.ServiceStatus{{Name: "a", Ready: true}, {Name: "b"}}
	lacks.Status.Missing = []airship.MissingHosts{{Role: airship.RoleWorker, Count: 3}, {Role: "Tenant's word", Count: 1}}
	return meterOf(t, labelled, old, hostIn("free", "", "OK"), hostIn("unfit", "", "error"), hostIn("claimed", "Worker t/one", "OK"),
		hostIn("failed", "ControlPlane t/one", "error"), hostIn("gone", "Worker t/gone", "OK"), hostIn("nonsense", "x", "OK"),
		one, lacks, ready("new", "", ""), ready("odd", "False", "ATenantsWord"))
}

func TestHostsAndServicesAreMetered(t *testing.T) {
	m := site(t)
	m.claimLost()
	(*Meter)(nil).claimLost()
	series, _, err := metered(t, m)
	require.NoError(t, err)
	maps.DeleteFunc(series, func(name string, _ float64) bool { return strings.HasPrefix(name, "vdo_sip_build_info") })
	require.Equal(t, map[string]float64{
		"vdo_sip_hosts free": 1, "vdo_sip_hosts unfit": 1, "vdo_sip_hosts claimed": 1, "vdo_sip_hosts labelled": 1, "vdo_sip_hosts failed": 1, "vdo_sip_hosts orphaned": 3,
		"vdo_sip_clusters ReconciliationSucceeded True": 1, "vdo_sip_clusters Unschedulable False": 1, "vdo_sip_clusters other False": 1, "vdo_sip_clusters other other": 1,
		"vdo_sip_clusters_untold": 0, "vdo_sip_claims_lost_total": 1,
		"vdo_sip_ready t/one": 1, "vdo_sip_ready t/lacks": 0, "vdo_sip_ready t/new": 0, "vdo_sip_ready t/odd": 0,
		"vdo_sip_services t/one ready": 1, "vdo_sip_services t/one not_ready": 1,
		"vdo_sip_services t/lacks ready": 0, "vdo_sip_services t/lacks not_ready": 0, "vdo_sip_services t/new ready": 0,
		"vdo_sip_services t/new not_ready": 0, "vdo_sip_services t/odd ready": 0, "vdo_sip_services t/odd not_ready": 0,
		"vdo_sip_hosts_missing Worker t/lacks": 3, "vdo_sip_hosts_missing ControlPlane t/lacks": 0,
		"vdo_sip_hosts_missing Worker t/one": 0, "vdo_sip_hosts_missing ControlPlane t/one": 0, "vdo_sip_hosts_missing Worker t/new": 0,
		"vdo_sip_hosts_missing ControlPlane t/new": 0, "vdo_sip_hosts_missing Worker t/odd": 0, "vdo_sip_hosts_missing ControlPlane t/odd": 0,
	}, series)
}

// However many SIPClusters tenants make, the number of series has an end, and all are counted.
func TestSeriesAreBounded(t *testing.T) {
	var many []client.Object
	for i := range maxTold + 7 {
		many = append(many, ready(fmt.Sprintf("t%05d", i), "True", airship.ReasonSucceeded))
	}
	series, _, err := metered(t, meterOf(t, many...))
	require.NoError(t, err)
	require.InDelta(t, 7, series["vdo_sip_clusters_untold"], 0)
	require.InDelta(t, maxTold+7, series["vdo_sip_clusters ReconciliationSucceeded True"], 0)
	require.Less(t, len(series), 5*maxTold+20)
}

func TestAScrapeFailsWhereHostsCannotBeRead(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, airship.AddToScheme(scheme))
	reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{List: errList})
	_, _, err := metered(t, NewMeter(reader, "v1"))
	require.ErrorContains(t, err, "the cache is not filled")
}

// monitoring are files of deploy/sip/monitoring.
func monitoring(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(toolchain.Root(), "deploy", "sip", "monitoring", name))
	require.NoError(t, err)
	return data
}

// The table of the README is what is served, with types, labels and help texts.
func TestTheTableOfSIPMetricsIsWhatIsServed(t *testing.T) {
	_, families, err := metered(t, site(t))
	require.NoError(t, err)
	table := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(vdo_\\w+)` (.*)$").FindAllStringSubmatch(string(monitoring(t, "README.md")), -1) {
		table[row[1]] = row[2]
	}
	served := map[string]string{}
	for name, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		served[name] = fmt.Sprintf("| %s | %s | %s |", strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), strings.TrimSuffix(f.GetHelp(), "."))
	}
	require.Equal(t, served, table)
}

type alertRule struct {
	Alert       string            `json:"alert"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Each alert fires for what it is about after its time, and not for what is well.
func TestAlertsOfTenantClusters(t *testing.T) {
	promtool := toolchain.Installed(t, "promtool")
	var file struct {
		Spec struct {
			Groups []struct {
				Name  string      `json:"name"`
				Rules []alertRule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(monitoring(t, "rules.yaml"), &file))
	var raw struct {
		Spec any `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(monitoring(t, "rules.yaml"), &raw))
	dir := t.TempDir()
	data, err := yaml.Marshal(raw.Spec)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), data, 0o600))

	// What each alert is about; everything else of the site is well.
	bad := map[string]string{
		"VDOSIPOperatorDown": "", "VDOSIPClusterNotReady": `vdo_sip_ready{sipcluster="t/one"} 0`, "VDOSIPServiceNotReady": `vdo_sip_services{sipcluster="t/one",state="not_ready"} 1`,
		"VDOSIPHostsMissing": `vdo_sip_hosts_missing{sipcluster="t/one",role="Worker"} 2`, "VDOSIPHostsOrphaned": `vdo_sip_hosts{state="orphaned"} 1`,
		"VDOSIPClaimsLost": `vdo_sip_claims_lost_total 0+1`,
	}
	well := []string{`vdo_sip_build_info{version="1"} 1`, `vdo_sip_ready{sipcluster="t/one"} 1`, `vdo_sip_services{sipcluster="t/one",state="not_ready"} 0`, `vdo_sip_services{sipcluster="t/one",state="ready"} 4`,
		`vdo_sip_hosts_missing{sipcluster="t/one",role="Worker"} 0`, `vdo_sip_hosts{state="orphaned"} 0`, `vdo_sip_hosts{state="failed"} 5`, `vdo_sip_claims_lost_total 0`}
	var rules []alertRule
	for _, g := range file.Spec.Groups {
		rules = append(rules, g.Rules...)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(bad)), names(alertNames(rules)))
	var tests []any
	for _, broken := range append(slices.Sorted(maps.Keys(bad)), "none") {
		input := well
		if broken == "VDOSIPOperatorDown" {
			input = nil
		} else if line, found := bad[broken]; found {
			name, _, _ := strings.Cut(line, " ")
			input = append(slices.DeleteFunc(slices.Clone(well), func(s string) bool { return strings.HasPrefix(s, name) }), line)
		}
		var alerts []any
		for _, r := range rules {
			one := map[string]any{"eval_time": "2h", "alertname": r.Alert, "exp_alerts": []any{}}
			if r.Alert == broken {
				one["exp_alerts"] = []any{map[string]any{"exp_labels": labelsOf(bad[broken], r), "exp_annotations": annotationsOf(t, r, bad[broken])}}
			}
			alerts = append(alerts, one)
		}
		tests = append(tests, map[string]any{"name": broken, "interval": "1m", "input_series": seriesOf(input), "alert_rule_test": alerts})
	}
	data, err = yaml.Marshal(map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": tests})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "test.yaml"), data, 0o600))
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"}, {"test", "rules", "test.yaml"}} {
		cmd := exec.Command(promtool, args...) //nolint:gosec // of the machine
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

func errList(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
	return errors.New("the cache is not filled")
}

func alertNames(rules []alertRule) map[string]string {
	out := map[string]string{}
	for _, r := range rules {
		out[r.Alert] = ""
	}
	return out
}

// seriesOf are series that stay as they are, or grow, for three hours.
func seriesOf(lines []string) []any {
	out := []any{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, " ")
		if !strings.Contains(value, "+") {
			value += "+0"
		}
		out = append(out, map[string]any{"series": name, "values": value + "x180"})
	}
	return out
}

var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// labelsOf are those of an alert about a series.
func labelsOf(line string, r alertRule) map[string]string {
	out := map[string]string{"severity": r.Labels["severity"]}
	for _, m := range label.FindAllStringSubmatch(line, -1) {
		if m[1] != "state" {
			out[m[1]] = m[2]
		}
	}
	return out
}

// annotationsOf are those that a person gets: without anything left to fill in.
func annotationsOf(t *testing.T, r alertRule, line string) map[string]string {
	t.Helper()
	_, value, _ := strings.Cut(line, " ")
	if value == "0+1" {
		value = "60"
	}
	fill := strings.NewReplacer("{{ $value }}", value, "{{ $value | humanize }}", value, "{{ $labels.sipcluster }}", "t/one", "{{ $labels.role }}", "Worker")
	out := map[string]string{}
	for k, v := range r.Annotations {
		out[k] = fill.Replace(v)
		require.NotContains(t, out[k], "{{", r.Alert)
	}
	require.NotEmpty(t, out["summary"], r.Alert)
	require.NotEmpty(t, out["description"], r.Alert)
	return out
}
