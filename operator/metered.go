package operator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vspherecloudconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/metrics"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

// What is counted is counted at the edges, where it happens, so that the controllers
// know nothing of metrics.

// serve registers the metrics with those of the controllers. Call the function returned
// when the operator has ended. Of several operators in a process the first one's are served.
func serve(m *metrics.Meter, several bool) (end func(), err error) {
	err = ctrlmetrics.Registry.Register(m)
	if taken := (prometheus.AlreadyRegisteredError{}); several && errors.As(err, &taken) {
		return func() {}, nil
	}
	return func() { ctrlmetrics.Registry.Unregister(m) }, err
}

// meteredCluster counts what was written to the cluster.
type meteredCluster struct {
	*cluster.Cluster
	meter    *metrics.Meter
	complete completes
}

// Apply counts objects that were written.
func (c *meteredCluster) Apply(ctx context.Context, s plan.Step, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	applied, err := c.Cluster.Apply(ctx, s, live)
	if err == nil && s.Writes() && !s.Deleting {
		c.meter.ObjectChanged(string(s.Driver), string(s.Cause))
	}
	return applied, err
}

// Delete counts objects whose deletion was asked for.
func (c *meteredCluster) Delete(ctx context.Context, s plan.Step) error {
	err := c.Cluster.Delete(ctx, s)
	if err == nil {
		c.meter.ObjectChanged(string(s.Driver), metrics.Removal)
	}
	return err
}

// LoadInventory notes which versions were rolled out until now.
func (c *meteredCluster) LoadInventory(ctx context.Context, of types.NamespacedName) (inventory.Inventory, error) {
	inv, err := c.Cluster.LoadInventory(ctx, of)
	if err == nil {
		c.complete.swap(of, &inv)
	}
	return inv, err
}

// SaveInventory counts the versions that are rolled out since.
func (c *meteredCluster) SaveInventory(ctx context.Context, of types.NamespacedName, inv inventory.Inventory) error {
	if err := c.Cluster.SaveInventory(ctx, of, inv); err != nil {
		return err
	}
	before := c.complete.swap(of, &inv)
	for _, d := range inv.Drivers() {
		if was, is := before[d], inv.Complete(d); is != "" && is != was {
			c.meter.RolledOut(string(d), rollout(was, is))
		}
	}
	return nil
}

// DeleteInventory forgets what was noted of it.
func (c *meteredCluster) DeleteInventory(ctx context.Context, of types.NamespacedName) error {
	err := c.Cluster.DeleteInventory(ctx, of)
	if err == nil {
		c.complete.swap(of, nil)
	}
	return err
}

// completes are the versions rolled out, by the inventory that was read or saved last.
// The zero value is ready.
type completes struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[matrix.Driver]string
}

// swap remembers an inventory's, or with nil none, and returns those of before.
func (c *completes) swap(of types.NamespacedName, inv *inventory.Inventory) (before map[matrix.Driver]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.of[of]
	if inv == nil {
		delete(c.of, of)
		return before
	}
	now := map[matrix.Driver]string{}
	for _, d := range inv.Drivers() {
		now[d] = inv.Complete(d)
	}
	if c.of == nil {
		c.of = map[types.NamespacedName]map[matrix.Driver]string{}
	}
	c.of[of] = now
	return before
}

// rollout tells which way a version went.
func rollout(was, is string) metrics.Rollout {
	from, err1 := matrix.ParseVersion(was)
	to, err2 := matrix.ParseVersion(is)
	switch {
	case err1 != nil || err2 != nil:
		return metrics.Install
	case to.LessThan(from):
		return metrics.Downgrade
	}
	return metrics.Upgrade
}

// meteredChecker counts questions to vCenters, and measures them.
type meteredChecker struct {
	vspherecloudconfig.Checker
	meter *metrics.Meter
}

func (c meteredChecker) Check(ctx context.Context, q vspherecloudconfig.Request) (vspherecloudconfig.Found, error) {
	start := time.Now()
	found, err := c.Checker.Check(ctx, q)
	reason := condition.ReasonSucceeded
	if err != nil {
		reason = string(fault.ReasonOf(err))
	}
	c.meter.VCenterChecked(q.Spec.VcIP, q.Spec.Port, time.Since(start), reason)
	return found, err
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
		return // the recorder has no event of what it cannot name either
	}
	r.meter.EventRecorded(kind.Kind, eventtype, reason)
}
