package metrics

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

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
