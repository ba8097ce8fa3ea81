package sipcluster

import (
	"context"
	"fmt"
	"runtime"
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

const scrapeTimeout = 5 * time.Second

var (
	sipBuildInfo = desc("vdo_sip_build_info", "The version of the operator for SIPClusters; always 1.", "version", "goversion")
	sipHosts     = desc("vdo_sip_hosts", "BareMetalHosts by state: free, unfit, claimed, labelled, failed (and held) or orphaned (claimed for a SIPCluster that does not hold it).", "state")
	sipReady     = desc("vdo_sip_ready", "Whether a SIPCluster is Ready.", "sipcluster")
	sipMissing   = desc("vdo_sip_hosts_missing", "Hosts that a SIPCluster lacks.", "sipcluster", "role")
	sipServices  = desc("vdo_sip_services", "Services of a SIPCluster, by whether they serve: ready or not_ready.", "sipcluster", "state")

	hostStates = []string{"free", "unfit", "claimed", "labelled", "failed", "orphaned"}
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Meter is the prometheus.Collector of the operator for SIPClusters. Each scrape reads the caches, so that a series
// ends with its resource. The scrape fails if they cannot be read.
type Meter struct {
	reader  client.Reader // of SIPClusters and hosts, from a cache
	version string
}

// NewMeter returns a Meter. The reader must serve SIPClusters and BareMetalHosts.
func NewMeter(reader client.Reader, version string) *Meter {
	return &Meter{reader: reader, version: version}
}

// Describe sends the descriptions of all metrics.
func (m *Meter) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sipBuildInfo, sipHosts, sipReady, sipMissing, sipServices} {
		to <- d
	}
}

// Collect sends the current metrics.
func (m *Meter) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	gauge(to, sipBuildInfo, 1, m.version, runtime.Version())
	var sips airship.SIPClusterList
	var hosts choose.BareMetalHostList
	for _, list := range []client.ObjectList{&sips, &hosts} {
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
		states[stateOf(&choose.Host{BareMetalHost: &hosts.Items[i]}, known)]++
	}
	for _, state := range hostStates {
		gauge(to, sipHosts, states[state], state)
	}
	collectClusters(to, sips.Items)
}

// stateOf returns a host's state, one of hostStates.
func stateOf(h *choose.Host, known map[types.NamespacedName]choose.Cluster) string {
	by, role := h.Holder()
	switch {
	case by == (types.NamespacedName{}) && h.Unfit() == "":
		return "free"
	case by == (types.NamespacedName{}):
		return "unfit"
	case !known[by].Holds(h):
		return "orphaned"
	case h.Failed() != "":
		return "failed"
	case h.Labelled(by, role):
		return "labelled"
	}
	return "claimed"
}

func collectClusters(to chan<- prometheus.Metric, sips []airship.SIPCluster) {
	for i := range sips {
		s := &sips[i]
		name, ready, serving := s.Namespace+"/"+s.Name, 0, 0
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		if c != nil && c.ObservedGeneration == s.Generation && c.Status == metav1.ConditionTrue {
			ready = 1
		}
		gauge(to, sipReady, ready, name)
		missing := map[airship.Role]int32{}
		for _, m := range s.Status.Missing {
			missing[m.Role] = m.Count
		}
		for _, role := range []airship.Role{airship.RoleControlPlane, airship.RoleWorker} {
			gauge(to, sipMissing, missing[role], name, string(role))
		}
		for _, one := range s.Status.Services {
			if one.Ready {
				serving++
			}
		}
		gauge(to, sipServices, serving, name, "ready")
		gauge(to, sipServices, len(s.Status.Services)-serving, name, "not_ready")
	}
}

func gauge[N int | int32](to chan<- prometheus.Metric, d *prometheus.Desc, value N, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
}
