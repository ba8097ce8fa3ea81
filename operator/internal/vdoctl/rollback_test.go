package vdoctl

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// The operator may write a status while a person answers; what somebody else changes of the same is
// told.
func TestARollbackGoesOnWhereAStatusWasWrittenMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(v *v1alpha1.VDOConfig)
		reason    fault.Reason
	}{
		"the status is written": {func(v *v1alpha1.VDOConfig) { v.Status.Kubernetes = "v1.34.1" }, ""},
		"the pin is another": {func(v *v1alpha1.VDOConfig) {
			v.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", Version: "3.6.0"}}
		}, fault.Conflict},
	} {
		scheme, err := newScheme()
		require.NoError(t, err)
		v := &v1alpha1.VDOConfig{ObjectMeta: metaOf("vdo", "site")}
		v.Status.Revision = "r-new"
		v.Status.Revisions = []v1alpha1.RevisionStatus{
			{Name: "r-old", Bundle: "mirror.site/vdo@sha256:a", Releases: "csi@3.5.1", Outcome: "Healthy"},
			{Name: "r-new", Bundle: "mirror.site/vdo@sha256:a", Releases: "csi@3.7.3", Outcome: "Healthy"}}
		b := &v1alpha1.DriverBundle{ObjectMeta: metaOf("vdo", "site")}
		b.Status.Repository, b.Status.Digest = "mirror.site/vdo", "sha256:a"
		meanwhile := c.meanwhile
		patch := func(ctx context.Context, k client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption,
		) error {
			if meanwhile != nil {
				var is v1alpha1.VDOConfig
				require.NoError(t, k.Get(ctx, client.ObjectKeyFromObject(o), &is))
				meanwhile(&is)
				meanwhile = nil
				require.NoError(t, k.Update(ctx, &is))
			}
			return k.Patch(ctx, o, p, opts...)
		}
		k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(v, b).
			WithInterceptorFuncs(interceptor.Funcs{Patch: patch}).Build()
		o := &rollbackOptions{app: &app{}}
		o.cluster.namespace = "vdo"
		w, err := o.plan(t.Context(), k, "", "jane")
		require.NoError(t, err)
		err = o.applyAgreed(t.Context(), k, w, "jane")
		require.Equal(t, c.reason, fault.ReasonOf(err), "%s: %v", name, err)
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(v), v))
		require.Equal(t, c.reason == "", v.Spec.PolicyOf("csi").Version == "3.5.1", name)
	}
}
