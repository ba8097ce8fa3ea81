package operator

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vspherecloudconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
)

// What is traced besides passes is traced at the edges, where the time goes.

// tracedCluster has a span of each step against the API server.
type tracedCluster struct{ vdoconfig.Cluster }

func (c tracedCluster) Observe(ctx context.Context) (assess.Observed, error) {
	ctx, end := tracing.Span(ctx, "observe")
	o, err := c.Cluster.Observe(ctx)
	end(err)
	return o, err
}

func (c tracedCluster) ObserveListed(ctx context.Context) (assess.Observed, error) {
	ctx, end := tracing.Span(ctx, "observe past what is watched")
	o, err := c.Cluster.ObserveListed(ctx)
	end(err)
	return o, err
}

func (c tracedCluster) Read(ctx context.Context, ids []inventory.ID) (plan.Live, map[inventory.Key]error, error) {
	ctx, end := tracing.Span(ctx, "read")
	live, refused, err := c.Cluster.Read(ctx, ids)
	end(err)
	return live, refused, err
}

func (c tracedCluster) DryRun(ctx context.Context, objects []render.Object, live plan.Live) (map[inventory.Key]plan.Outcome, error) {
	ctx, end := tracing.Span(ctx, "dry run")
	out, err := c.Cluster.DryRun(ctx, objects, live)
	end(err)
	return out, err
}

func (c tracedCluster) Apply(ctx context.Context, s plan.Step, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx, end := tracing.Span(ctx, "apply", "object", s.Key.String(), "driver", string(s.Driver), "action", string(s.Action), "cause", string(s.Cause))
	out, err := c.Cluster.Apply(ctx, s, live)
	end(err)
	return out, err
}

func (c tracedCluster) Delete(ctx context.Context, s plan.Step) error {
	ctx, end := tracing.Span(ctx, "delete", "object", s.Key.String(), "driver", string(s.Driver))
	err := c.Cluster.Delete(ctx, s)
	end(err)
	return err
}

func (c tracedCluster) SaveInventory(ctx context.Context, of types.NamespacedName, inv inventory.Inventory, was cluster.Loaded) (cluster.Loaded, error) {
	ctx, end := tracing.Span(ctx, "write inventory")
	saved, err := c.Cluster.SaveInventory(ctx, of, inv, was)
	end(err)
	return saved, err
}

// tracedStore has a span of each bundle that is read.
type tracedStore struct{ vdoconfig.Store }

func (s tracedStore) Contents(ctx context.Context, b *v1alpha1.DriverBundle) (*bundle.Contents, error) {
	ctx, end := tracing.Span(ctx, "read bundle", "name", b.Name, "digest", b.Status.Digest)
	c, err := s.Store.Contents(ctx, b)
	end(err)
	return c, err
}

// tracedChecker has a span of each question to a vCenter, which names none.
type tracedChecker struct{ vspherecloudconfig.Checker }

func (c tracedChecker) Check(ctx context.Context, q vspherecloudconfig.Request) (vspherecloudconfig.Found, error) {
	ctx, end := tracing.Span(ctx, "ask vCenter")
	found, err := c.Checker.Check(ctx, q)
	end(err)
	return found, err
}
