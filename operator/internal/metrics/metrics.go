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
	"net"
	"regexp"
	"runtime"
	"strconv"
	"strings"
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

// Options are the settings of a Meter.
type Options struct {
	Reader    client.Reader // required: of the operator's own kinds, from a cache
	Namespace string        // required: of the resources that are counted
	Version   string        // of the program
}

// Meter holds the operator's metrics. It is a prometheus.Collector, safe for concurrent use. Make one with New.
type Meter struct {
	Options
	counts
}

// New returns a Meter with all counters at 0.
func New(o Options) *Meter {
	return &Meter{Options: o, counts: newCounts()}
}

var buildInfo = desc("vdo_build_info", "The operator's version; always 1.", "version", "goversion")

// desc describes a metric; labels are in the order of their values.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe sends the descriptions of all metrics that Collect may send.
func (m *Meter) Describe(to chan<- *prometheus.Desc) {
	to <- buildInfo
	for _, d := range siteDescs {
		to <- d
	}
	for _, v := range m.all() {
		v.Describe(to)
	}
}

// Collect sends the current metrics.
func (m *Meter) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	to <- prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, version(m.Version), runtime.Version())
	for _, v := range m.all() {
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

type counts struct {
	objects *prometheus.CounterVec
	events  *prometheus.CounterVec
	checks  *prometheus.CounterVec

	took *sync.Map // address of a vCenter: time.Duration
}

// Removal is the cause of an object's deletion, besides the causes of package plan.
const Removal = "removal"

// causes are the values of the label cause.
var causes = []string{string(plan.Configuration), string(plan.Content), string(plan.Drift), string(plan.Release), Removal}

// upgrades are the reasons of events about upgrades, by type.
var upgrades = map[string][]string{
	corev1.EventTypeNormal: {"RevisionStarted", "RevisionHealthy"}, corev1.EventTypeWarning: {"UpgradeFailed", "RolledBack"},
}

func newCounts() counts {
	c := counts{
		objects: counter("vdo_object_changes_total", "Objects of drivers that were written or deleted, by why. The cause drift is a repair.", "driver", "cause"),
		events:  counter("vdo_events_total", "Events about the operator's resources: a changed Ready condition, and what was done.", "kind", "type", "reason"),
		checks:  counter("vdo_vcenter_checks_total", "Questions to vCenters, by the reason of their failure or Succeeded.", "reason"),
		took:    &sync.Map{},
	}
	// Prometheus sees an increase only of a series that existed before it.
	for _, d := range drivers {
		for _, cause := range causes {
			c.objects.WithLabelValues(d, cause)
		}
	}
	for typ, reasons := range upgrades {
		for _, reason := range reasons {
			c.events.WithLabelValues("VDOConfig", typ, reason)
		}
	}
	c.checks.WithLabelValues("Succeeded")
	return c
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (c counts) all() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{c.objects, c.events, c.checks}
}

// ObjectChanged counts an object that was written or deleted. The cause is one of package plan's, or Removal.
func (c counts) ObjectChanged(of, cause string) {
	c.objects.WithLabelValues(of, cause).Inc()
}

// EventRecorded counts an event about a resource of the kind.
func (c counts) EventRecorded(kind, typ, why string) {
	c.events.WithLabelValues(kind, typ, why).Inc()
}

// VCenterChecked counts a check of a vCenter and stores how long it took. why is the reason of its failure, or
// "Succeeded".
func (c counts) VCenterChecked(host string, port int32, took time.Duration, why string) {
	c.checks.WithLabelValues(why).Inc()
	c.took.Store(address(host, port), took)
}

// latencies sends how long the last check of each vCenter that answers took, and drops vCenters without a resource.
func (c counts) latencies(to chan<- prometheus.Metric, all []v1alpha1.VsphereCloudConfig) {
	known := map[any]bool{}
	for i := range all {
		at := address(all[i].Spec.VcIP, all[i].Spec.Port)
		known[at] = true
		yes, sure := reachable(all[i].Status.Conditions)
		if took, ok := c.took.Load(at); ok && (yes || !sure) && !all[i].Spec.Suspend {
			gauge(to, vcenterDuration, took.(time.Duration).Seconds(), all[i].Name) //nolint:forcetypeassert // nothing else is stored
		}
	}
	c.took.Range(func(at, _ any) bool {
		if !known[at] {
			c.took.Delete(at)
		}
		return true
	})
}

// address identifies a vCenter; it is never a label.
func address(host string, port int32) string {
	return net.JoinHostPort(strings.ToLower(host), strconv.Itoa(int(port)))
}
