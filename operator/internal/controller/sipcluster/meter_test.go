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
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
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

func hostIn(name, claim string, operational string) *choose.BareMetalHost {
	o := &choose.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "m", Name: name}}
	o.Status.Provisioning.State, o.Status.OperationalStatus = "available", operational
	if claim != "" {
		o.Annotations = map[string]string{airship.AnnotationClaim: claim}
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
	labelled, old := hostIn("labelled", "Worker t/one", "OK"), hostIn("old", "", "OK")
	for name, o := range map[string]*choose.BareMetalHost{"one": labelled, "gone": old} {
		o.Labels = map[string]string{
			airship.LabelClusterNamespace: "t", airship.LabelClusterName: name, airship.LabelNodeType: "Worker",
		}
	}
	one, lacks := ready("one", "True", airship.ReasonSucceeded), ready("lacks", "False", airship.ReasonUnschedulable)
	one.Status.Services = []airship.ServiceStatus{{Name: "a", Ready: true}, {Name: "b"}}
	lacks.Status.Missing = []airship.MissingHosts{{Role: airship.RoleWorker, Count: 3}, {Role: "Tenant's word", Count: 1}}
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(airship.AddToScheme(scheme), choose.AddToScheme(scheme)))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(labelled, old, hostIn("free", "", "OK"), hostIn("unfit", "", "error"), hostIn("claimed", "Worker t/one", "OK"),
		hostIn("failed", "ControlPlane t/one", "error"), hostIn("gone", "Worker t/gone", "OK"), hostIn("nonsense", "x", "OK"),
		one, lacks, &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "new"}})
	return NewMeter(c.Build(), "v1.2.3")
}

func TestHostsAndServicesAreMetered(t *testing.T) {
	m := site(t)
	series, _, err := metered(t, m)
	require.NoError(t, err)
	maps.DeleteFunc(series, func(name string, _ float64) bool { return strings.HasPrefix(name, "vdo_sip_build_info") })
	require.Equal(t, map[string]float64{
		"vdo_sip_hosts free": 1, "vdo_sip_hosts unfit": 1, "vdo_sip_hosts claimed": 1, "vdo_sip_hosts labelled": 1, "vdo_sip_hosts failed": 1, "vdo_sip_hosts orphaned": 3,
		"vdo_sip_ready t/one": 1, "vdo_sip_ready t/lacks": 0, "vdo_sip_ready t/new": 0,
		"vdo_sip_services t/one ready": 1, "vdo_sip_services t/one not_ready": 1,
		"vdo_sip_services t/lacks ready": 0, "vdo_sip_services t/lacks not_ready": 0, "vdo_sip_services t/new ready": 0,
		"vdo_sip_services t/new not_ready":     0,
		"vdo_sip_hosts_missing Worker t/lacks": 3, "vdo_sip_hosts_missing ControlPlane t/lacks": 0,
		"vdo_sip_hosts_missing Worker t/one": 0, "vdo_sip_hosts_missing ControlPlane t/one": 0, "vdo_sip_hosts_missing Worker t/new": 0,
		"vdo_sip_hosts_missing ControlPlane t/new": 0,
	}, series)
}

func TestAScrapeFailsWhereHostsCannotBeRead(t *testing.T) {
	failing := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("the cache is not filled")
	}}
	_, _, err := metered(t, NewMeter(interceptor.NewClient(fake.NewClientBuilder().Build(), failing), "v1"))
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

// Each alert fires for what it is about, with the labels that its texts name, and not for what is well.
func TestAlertsOfTenantClusters(t *testing.T) {
	const one = `sipcluster="t/one"`
	well := []string{
		`vdo_sip_build_info{version="1"} 1`, `vdo_sip_ready{` + one + `} 1`, `vdo_sip_services{` + one + `,state="not_ready"} 0`,
		`vdo_sip_services{` + one + `,state="ready"} 4`, `vdo_sip_hosts_missing{` + one + `,role="Worker"} 0`,
		`vdo_sip_hosts{state="orphaned"} 0`, `vdo_sip_hosts{state="failed"} 5`,
	}
	fires := func(series []string, alerts ...string) map[string]any {
		input, want := []any{}, []any{}
		for _, line := range series {
			name, value, _ := strings.Cut(line, " ")
			if !strings.Contains(value, "+") {
				value += "+0"
			}
			input = append(input, map[string]any{"series": name, "values": value + "x180"})
		}
		for _, alert := range alerts {
			want = append(want, map[string]any{"labels": alert, "value": 1})
		}
		return map[string]any{"interval": "1m", "input_series": input, "promql_expr_test": []any{map[string]any{
			"expr":      `count by (alertname, sipcluster, role) (ALERTS{alertstate="firing"})`,
			"eval_time": "2h", "exp_samples": want,
		}}}
	}
	tests, alerts := []any{fires(well), fires(nil, `{alertname="VDOSIPOperatorDown"}`)}, []string{"VDOSIPOperatorDown"}
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
	text, exists := string(monitoring(t, "rules.yaml")), []string{}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(text, -1) {
		exists = append(exists, m[1])
	}
	require.ElementsMatch(t, exists, alerts)

	var rules struct {
		Spec any `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(monitoring(t, "rules.yaml"), &rules))
	dir := t.TempDir()
	for name, v := range map[string]any{"rules.yaml": rules.Spec, "test.yaml": map[string]any{
		"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": tests,
	}} {
		data, err := yaml.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"}, {"test", "rules", "test.yaml"}} {
		cmd := exec.Command(toolchain.Installed(t, "promtool"), args...) //nolint:gosec // of the machine
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
