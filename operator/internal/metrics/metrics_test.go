package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	until := metav1.Now()
	c.Status.Drift = []v1alpha1.DriftStatus{{Kind: "Deployment", Name: "secret text", Until: &until}, {Kind: "ConfigMap"}, {Kind: "Role"}}
	return &resources{bundles: []v1alpha1.DriverBundle{*b}, configs: []v1alpha1.VDOConfig{*c}, vcenters: []v1alpha1.VsphereCloudConfig{*v}}
}

func newMeter(r client.Reader) *metrics.Meter {
	return metrics.New(metrics.Options{Reader: r, Namespace: "ns", Version: "v1.2.3"})
}

// gather returns what is served, by name.
func gather(t *testing.T, m *metrics.Meter) map[string]*dto.MetricFamily {
	t.Helper()
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

func TestWhatStatusesSayIsServed(t *testing.T) {
	m := newMeter(site())
	m.VCenterChecked("VC.site.example", 443, 1500*time.Millisecond, "Succeeded")
	m.ObjectChanged("csi", "drift")
	m.EventRecorded("VDOConfig", "Normal", "RevisionHealthy")
	got := gather(t, m)
	for name, want := range map[string]map[string]float64{
		"vdo_condition": {
			`kind="VDOConfig",name="site",reason="Succeeded",status="True",type="Ready"`:       1,
			`kind="DriverBundle",name="site",reason="Succeeded",status="True",type="Ready"`:    1,
			`kind="DriverBundle",name="site",reason="Succeeded",status="True",type="Verified"`: 1,
		},
		"vdo_condition_transition_timestamp_seconds":  {`kind="VDOConfig",name="site",type="Ready"`: float64(started.Unix())},
		"vdo_generations_behind":                      {`kind="VDOConfig",name="site"`: 0},
		"vdo_suspended":                               {`kind="DriverBundle",name="site"`: 0},
		"vdo_interval_seconds":                        {`kind="DriverBundle",name="site"`: 600},
		"vdo_bundle_info":                             {`digest="` + healthyDigest + `",name="site"`: 1},
		"vdo_bundle_accepted_timestamp_seconds":       {`name="site"`: float64(started.Unix())},
		"vdo_bundle_matrix_serial":                    {`name="site"`: 7},
		"vdo_bundle_matrix_expires_timestamp_seconds": {`name="site"`: float64(started.AddDate(1, 0, 0).Unix())},
		"vdo_kubernetes_info":                         {`name="site",version="1.33.4"`: 1},
		"vdo_driver_info":                             {`driver="csi",name="site",version="3.5.1",wanted="3.5.1"`: 1},
		"vdo_driver_ready":                            {`driver="cpi",name="site"`: 1},
		"vdo_driver_rollout_pending":                  {`driver="cpi",name="site"`: 0},
		"vdo_nodes":                                   {`name="site",state="ready"`: 3, `name="site",state="not_ready"`: 0},
		"vdo_node_findings":                           {`driver="csi",name="site",reason="Incomplete"`: 2},
		"vdo_drifted_objects":                         {`name="site",state="contested"`: 1, `name="site",state="left"`: 2},
		"vdo_vcenter_info":                            {`build="24022515",name="site",version="8.0.3"`: 1},
		"vdo_vcenter_reachable":                       {`name="site"`: 1},
		"vdo_vcenter_check_duration_seconds":          {`name="site"`: 1.5},
		"vdo_vcenter_checks_total":                    {`reason="Succeeded"`: 1},
		"vdo_object_changes_total":                    {`cause="drift",driver="csi"`: 1, `cause="drift",driver="cpi"`: 0},
		"vdo_events_total": {`kind="VDOConfig",reason="RevisionHealthy",type="Normal"`: 1,
			`kind="VDOConfig",reason="RolledBack",type="Warning"`: 0},
	} {
		have := series(got[name])
		for labels, value := range want {
			require.Contains(t, have, labels, name)
			require.InDelta(t, value, have[labels], 0.001, "%s{%s}", name, labels)
		}
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
		conds := &r.vcenters[0].Status.Conditions
		setReady(conds, metav1.ConditionFalse, reason)
		require.Equal(t, want, series(gather(t, newMeter(r))["vdo_vcenter_reachable"]), reason)
		set(conds, v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason) // as of a fault that can pass
		require.Equal(t, want, series(gather(t, newMeter(r))["vdo_vcenter_reachable"]), reason)
	}
}

func TestSeriesEndWithTheirResource(t *testing.T) {
	r := site()
	m := newMeter(r)
	m.VCenterChecked("vc.site.example", 443, time.Second, "Succeeded")
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
	m := newMeter(site())
	m.VCenterChecked("vc.site.example", 443, time.Second, "Succeeded")
	m.EventRecorded("VDOConfig", "Normal", "RevisionHealthy")
	var text bytes.Buffer
	for _, f := range gather(t, m) {
		must.Have(expfmt.MetricFamilyToText(&text, f))(t)
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = &text
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
		Spec:       v1alpha1.VsphereCloudConfigSpec{VcIP: "vc.site.example", Port: 443, Interval: metav1.Duration{Duration: 10 * time.Minute}},
	}
	v.Status = v1alpha1.VsphereCloudConfigStatus{
		ObservedGeneration: 1, Version: "8.0.3", Build: "24022515", CheckedAt: &metav1.Time{Time: started},
	}
	setReady(&v.Status.Conditions, metav1.ConditionTrue, "Succeeded")
	return v
}
