package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

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
	require.NoError(t, errors.Join(airship.AddToScheme(scheme), choose.AddToScheme("v1beta1")(scheme)))
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

func TestTheTableOfSIPMetricsIsWhatIsServed(t *testing.T) {
	_, families, err := metered(t, site(t))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(toolchain.Root(), "deploy", "sip", "monitoring", "README.md"))
	require.NoError(t, err)
	table := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(vdo_\\w+)` (.*)$").FindAllStringSubmatch(string(text), -1) {
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
