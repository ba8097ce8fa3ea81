package sipcluster

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

const (
	// maxTold is how many SIPClusters have series of their own: tenants may make any number.
	maxTold       = 1000
	scrapeTimeout = 5 * time.Second
	other         = "other"
)

var (
	sipBuildInfo = desc("vdo_sip_build_info", "The version of the operator for SIPClusters; always 1.", "version", "goversion")
	sipHosts     = desc("vdo_sip_hosts", "BareMetalHosts by state: free, unfit, claimed, labelled, failed (and held) or orphaned (held for a SIPCluster that is not there).", "state")
	sipClusters  = desc("vdo_sip_clusters", "SIPClusters by the status and reason of their condition Ready.", "status", "reason")
	sipUntold    = desc("vdo_sip_clusters_untold", "SIPClusters that have no series of their own, since there are too many.")
	sipReady     = desc("vdo_sip_ready", "Whether a SIPCluster is Ready.", "sipcluster")
	sipMissing   = desc("vdo_sip_hosts_missing", "Hosts that a SIPCluster lacks.", "sipcluster", "role")
	sipServices  = desc("vdo_sip_services", "Services of a SIPCluster, by whether they serve: ready or not_ready.", "sipcluster", "state")

	hostStates = []string{"free", "unfit", "claimed", "labelled", "failed", "orphaned"}
	reasons    = []string{
		airship.ReasonProgressing, airship.ReasonUnschedulable, airship.ReasonInfraServiceFailure,
		airship.ReasonUnableToApplyLabels, airship.ReasonUnableToDecommission, airship.ReasonSucceeded,
	}
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Meter is what the operator for SIPClusters tells Prometheus. What is comes at each scrape from
// the caches, so that a series ends with its resource; where these cannot be read the scrape
// fails. Labels are names of SIPClusters, for so many of them, and words of lists in this
// program. It is a prometheus.Collector.
type Meter struct {
	reader  client.Reader // of SIPClusters and hosts, from a cache
	version string
	lost    prometheus.Counter
}

// NewMeter returns a Meter. The reader has SIPClusters and BareMetalHosts.
func NewMeter(reader client.Reader, version string) *Meter {
	return &Meter{reader: reader, version: version, lost: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "vdo_sip_claims_lost_total", Help: "Claims of hosts that were refused because the host, or the SIPCluster, had changed.",
	})}
}

// claimLost counts one. A nil Meter counts nothing.
func (m *Meter) claimLost() {
	if m != nil {
		m.lost.Inc()
	}
}

// Describe sends what Collect may send.
func (m *Meter) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sipBuildInfo, sipHosts, sipClusters, sipUntold, sipReady, sipMissing, sipServices, m.lost.Desc()} {
		to <- d
	}
}

// Collect sends the metrics as they are now.
func (m *Meter) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	gauge(to, sipBuildInfo, 1, m.version, runtime.Version())
	to <- m.lost
	var sips airship.SIPClusterList
	hosts := hostList()
	for _, list := range []client.ObjectList{&sips, hosts} {
		if err := m.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			to <- prometheus.NewInvalidMetric(sipBuildInfo, fmt.Errorf("list %T: %w", list, err))
			return
		}
	}
	known := map[types.NamespacedName]choose.Cluster{}
	for i := range sips.Items {
		known[client.ObjectKeyFromObject(&sips.Items[i])] = clusterOf(&sips.Items[i])
	}
	states := map[string]int{}
	for i := range hosts.Items {
		states[stateOf(readHost(&hosts.Items[i]), known)]++
	}
	for _, state := range hostStates {
		gauge(to, sipHosts, float64(states[state]), state)
	}
	collectClusters(to, sips.Items)
}

// stateOf is a host's state, of hostStates.
func stateOf(h *host, known map[types.NamespacedName]choose.Cluster) string {
	by, role := h.Holder()
	switch {
	case by == (types.NamespacedName{}) && h.Unfit() == "":
		return "free"
	case by == (types.NamespacedName{}):
		return "unfit"
	case !known[by].Holds(h.Host):
		return "orphaned"
	case h.Failed() != "":
		return "failed"
	case h.Labelled(by, role):
		return "labelled"
	}
	return "claimed"
}

func collectClusters(to chan<- prometheus.Metric, sips []airship.SIPCluster) {
	sips = slices.Clone(sips)
	slices.SortFunc(sips, func(a, b airship.SIPCluster) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	type readiness struct{ status, reason string }
	counts := map[readiness]int{}
	for i := range sips {
		s := &sips[i]
		is := readiness{string(metav1.ConditionUnknown), airship.ReasonProgressing}
		if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.ObservedGeneration == s.Generation {
			is = readiness{oneOf(string(c.Status), string(metav1.ConditionTrue), string(metav1.ConditionFalse), string(metav1.ConditionUnknown)), oneOf(c.Reason, reasons...)}
		}
		counts[is]++
		if i < maxTold {
			collectCluster(to, s, is.status == string(metav1.ConditionTrue))
		}
	}
	for is, n := range counts {
		gauge(to, sipClusters, float64(n), is.status, is.reason)
	}
	gauge(to, sipUntold, float64(max(0, len(sips)-maxTold)))
}

func collectCluster(to chan<- prometheus.Metric, s *airship.SIPCluster, ready bool) {
	name := s.Namespace + "/" + s.Name
	missing := map[airship.Role]int32{}
	for _, m := range s.Status.Missing {
		missing[m.Role] = m.Count
	}
	for _, role := range []airship.Role{airship.RoleControlPlane, airship.RoleWorker} {
		gauge(to, sipMissing, float64(missing[role]), name, string(role))
	}
	serving := 0
	for _, one := range s.Status.Services {
		if one.Ready {
			serving++
		}
	}
	gauge(to, sipServices, float64(serving), name, "ready")
	gauge(to, sipServices, float64(len(s.Status.Services)-serving), name, "not_ready")
	value := 0.0
	if ready {
		value = 1
	}
	gauge(to, sipReady, value, name)
}

func oneOf(s string, words ...string) string {
	if slices.Contains(words, s) {
		return s
	}
	return other
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}
