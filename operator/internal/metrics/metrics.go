// Package metrics serves the operator's Prometheus metrics, named vdo_….
//
// State comes from the statuses of the operator's own kinds, read from the manager's cache at each scrape (site.go).
// So a series ends with its resource, a restart loses none, and every replica serves the same ones. A scrape sends no
// request. Actions come from the process that did them (counts.go): counters, which begin at 0 with the process, and
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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
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
