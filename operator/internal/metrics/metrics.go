// Package metrics is what the operator tells Prometheus: metrics named vdo_….
//
// They come from two places. What is, comes from the statuses of the operator's own
// kinds, read from the manager's cache at each scrape (site.go): so a series ends with
// its resource, a restart forgets none, every replica serves the same ones, and a scrape
// asks no one anything. What was done, comes from the process that did it (counts.go):
// counters, which begin at 0 with it, and how long vCenters took to answer.
//
// Labels are bounded. Names are those of resources; drivers, causes, states and reasons are
// words of this program; versions have to look like ones, and are "other" where they do not:
// a vCenter may say anything. Messages, addresses, nodes' names and users' texts
// are never labels.
//
// Where the cache cannot be read the scrape fails as a whole: an alert that is silent
// because nothing is known is worse than one that says so.
//
// The table of all metrics is in operator/docs/reference/metrics.md; a test compares it with
// what is served.
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

// Options of a Meter.
type Options struct {
	Reader    client.Reader // required: of the operator's own kinds, from a cache
	Namespace string        // required: of those that count
	Version   string        // of the program
}

// Meter holds the operator's metrics. It is a prometheus.Collector, and safe for use by
// several goroutines. Make one with New.
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

// Describe sends what Collect may send.
func (m *Meter) Describe(to chan<- *prometheus.Desc) {
	to <- buildInfo
	for _, d := range siteDescs {
		to <- d
	}
	for _, v := range m.all() {
		v.Describe(to)
	}
}

// Collect sends the metrics as they are now.
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

// version returns what a vCenter or an API server calls its version, or "other" where it does not
// look like one.
func version(s string) string {
	if s == "" || versionForm.MatchString(s) {
		return s
	}
	return "other"
}
