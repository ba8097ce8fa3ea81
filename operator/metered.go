package operator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vspherecloudconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/metrics"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// The wrappers in this file count at the edges, so that the controllers know nothing of metrics.

// serve registers the metrics with those of the controllers. The caller runs the returned function once the operator
// has ended. With several operators in a process, as in tests, it serves only the first one's.
func serve(m prometheus.Collector) (end func(), err error) {
	err = ctrlmetrics.Registry.Register(m)
	if taken := (prometheus.AlreadyRegisteredError{}); errors.As(err, &taken) {
		return func() {}, nil
	}
	return func() { ctrlmetrics.Registry.Unregister(m) }, err
}

// meteredCluster counts what was written to the cluster.
type meteredCluster struct {
	*cluster.Cluster
	meter *metrics.Meter
}

// Apply counts written objects.
func (c *meteredCluster) Apply(ctx context.Context, s plan.Step, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	applied, err := c.Cluster.Apply(ctx, s, live)
	if err == nil && s.Writes() && !s.Deleting {
		c.meter.ObjectChanged(string(s.Driver), string(s.Cause))
	}
	return applied, err
}

// Delete counts requested deletions.
func (c *meteredCluster) Delete(ctx context.Context, s plan.Step) error {
	err := c.Cluster.Delete(ctx, s)
	if err == nil {
		c.meter.ObjectChanged(string(s.Driver), metrics.Removal)
	}
	return err
}

// meteredCheck counts, measures and traces vCenter checks.
func meteredCheck(check vspherecloudconfig.Check, meter *metrics.Meter) vspherecloudconfig.Check {
	return func(ctx context.Context, t vcenter.Target) (found vcenter.Report, err error) {
		ctx, end := tracing.Span(ctx, "ask vCenter")
		defer func() { end(err) }()
		start := time.Now()
		if turn := t.Turn; turn != nil { // the wait for other vCenters with the same account is not this one's
			t.Turn = func(ctx context.Context, login func() error) error {
				asked := time.Now()
				waited := sync.OnceFunc(func() { start = start.Add(time.Since(asked)) })
				defer waited()
				return turn(ctx, func() error { waited(); return login() })
			}
		}
		found, err = check(ctx, t)
		reason := condition.ReasonSucceeded
		if err != nil {
			reason = string(fault.ReasonOf(err))
		}
		meter.VCenterChecked(t.Host, int32(t.Port), time.Since(start), reason) //nolint:gosec // a port
		return found, err
	}
}

// meteredManager counts the events of its controllers.
type meteredManager struct {
	manager.Manager
	meter *metrics.Meter
}

// GetEventRecorder returns a recorder that counts.
func (m meteredManager) GetEventRecorder(name string) recorder.EventRecorder {
	return meteredRecorder{EventRecorder: m.Manager.GetEventRecorder(name), scheme: m.GetScheme(), meter: m.meter}
}

type meteredRecorder struct {
	recorder.EventRecorder
	scheme *runtime.Scheme
	meter  *metrics.Meter
}

func (r meteredRecorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, eventtype, reason, action, note, args...)
	kind, err := apiutil.GVKForObject(regarding, r.scheme)
	if err != nil {
		return // the recorder does not record events of such an object either
	}
	r.meter.EventRecorded(kind.Kind, eventtype, reason)
}
