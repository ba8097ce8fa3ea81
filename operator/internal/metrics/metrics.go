// Package metrics serves the operator's Prometheus metrics, named vdo_….
//
// State comes from the statuses of the operator's own kinds, read from the manager's cache at each scrape (site.go).
// So a series ends with its resource, a restart loses none, and every replica serves the same ones. A scrape sends no
// request. Actions come from the process that did them: counters, which begin at 0 with the process, and
// the duration of vCenter checks.
//
// Labels are bounded. Names are those of resources; drivers, causes, states and reasons are words of this program. A
// version that does not look like one becomes "other", since a vCenter may return any text. Messages, addresses, node
// names and users' texts are never labels.
//
// The whole scrape fails if the cache cannot be read: an alert that is silent for lack of data is worse than an error.
//
// The table of all metrics, operator/docs/reference/metrics.md, is generated from the calls of desc and counter.
package metrics

import (
	"context"
	"regexp"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

// scrapeTimeout bounds the wait for caches that are not filled yet.
const scrapeTimeout = 5 * time.Second

var buildInfo = desc("vdo_build_info", "The operator's version; always 1.", "version", "goversion")

// descs are all that desc made.
var descs []*prometheus.Desc

// desc describes a metric; labels are in the order of their values.
func desc(name, help string, labels ...string) *prometheus.Desc {
	descs = append(descs, prometheus.NewDesc(name, help, labels, nil))
	return descs[len(descs)-1]
}

// Options are the settings of a Meter.
type Options struct {
	Reader    client.Reader // required: of the operator's own kinds, from a cache
	Namespace string        // required: of the resources that are counted
	Version   string        // of the program
}

// Meter holds the operator's metrics. It is a prometheus.Collector, safe for concurrent use. Make one with New.
type Meter struct {
	Options
	objects, events, checks *prometheus.CounterVec

	took sync.Map // name of a VsphereCloudConfig: time.Duration
}

// New returns a Meter with all counters at 0.
func New(o Options) *Meter {
	m := &Meter{
		Options: o,
		objects: counter("vdo_object_changes_total", "Objects of drivers that were written or deleted, by why. The cause drift is a repair.", "driver", "cause"),
		events:  counter("vdo_events_total", "Events about the operator's resources: a changed Ready condition, and what was done.", "kind", "type", "reason"),
		checks:  counter("vdo_vcenter_checks_total", "Questions to vCenters, by the reason of their failure or Succeeded.", "reason"),
	}
	// Prometheus sees an increase only of a series that existed before it.
	for _, d := range drivers {
		for _, cause := range causes {
			m.objects.WithLabelValues(d, cause)
		}
	}
	for typ, reasons := range upgrades {
		for _, reason := range reasons {
			m.events.WithLabelValues("VDOConfig", typ, reason)
		}
	}
	m.checks.WithLabelValues("Succeeded")
	return m
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (m *Meter) counters() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{m.objects, m.events, m.checks}
}

// Describe sends the descriptions of all metrics that Collect may send.
func (m *Meter) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
	for _, v := range m.counters() {
		v.Describe(to)
	}
}

// Collect sends the current metrics.
func (m *Meter) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	to <- prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, version(m.Version), runtime.Version())
	for _, v := range m.counters() {
		v.Collect(to)
	}
	s, err := read(ctx, m.Reader, m.Namespace)
	if err != nil {
		to <- prometheus.NewInvalidMetric(buildInfo, err)
		return
	}
	s.collect(to)
	m.latencies(to, s.vcenters.Items)
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

var versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}$`)

// drivers are the values of the label driver.
var drivers = []string{string(matrix.CNI), string(matrix.CPI), string(matrix.CSI), string(matrix.SnapshotController)}

// version returns the version that a vCenter or an API server reports, or "other" if it does not look like one.
func version(s string) string {
	if s == "" || versionForm.MatchString(s) {
		return s
	}
	return "other"
}

// Removal is the cause of an object's deletion, besides the causes of package plan.
const Removal = "removal"

// causes are the values of the label cause.
var causes = []string{string(plan.Configuration), string(plan.Content), string(plan.Drift), string(plan.Release), Removal}

// upgrades are the reasons of events about upgrades, by type.
var upgrades = map[string][]string{
	corev1.EventTypeNormal: {"RevisionStarted", "RevisionHealthy"}, corev1.EventTypeWarning: {"UpgradeFailed", "RolledBack"},
}

// ObjectChanged counts an object that was written or deleted. The cause is one of package plan's, or Removal.
func (m *Meter) ObjectChanged(of, cause string) {
	m.objects.WithLabelValues(of, cause).Inc()
}

// EventRecorded counts an event about a resource of the kind.
func (m *Meter) EventRecorded(kind, typ, why string) {
	m.events.WithLabelValues(kind, typ, why).Inc()
}

// VCenterChecked counts a check of a VsphereCloudConfig and stores how long it took. why is the reason of its failure,
// or "Succeeded".
func (m *Meter) VCenterChecked(name string, took time.Duration, why string) {
	m.checks.WithLabelValues(why).Inc()
	m.took.Store(name, took)
}

// latencies sends how long the last check of each vCenter that answers took, and drops vCenters without a resource.
func (m *Meter) latencies(to chan<- prometheus.Metric, all []v1alpha1.VsphereCloudConfig) {
	known := map[any]bool{}
	for i := range all {
		name := all[i].Name
		known[name] = true
		yes, sure := reachable(all[i].Status.Conditions)
		if took, ok := m.took.Load(name); ok && (yes || !sure) && !all[i].Spec.Suspend {
			gauge(to, vcenterDuration, took.(time.Duration).Seconds(), name) //nolint:forcetypeassert // nothing else is stored
		}
	}
	m.took.Range(func(name, _ any) bool {
		if !known[name] {
			m.took.Delete(name)
		}
		return true
	})
}
