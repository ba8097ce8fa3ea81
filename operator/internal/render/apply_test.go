package render_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

func TestAPIServerAcceptsEverythingThatIsRendered(t *testing.T) {
	plane := must.Have(cluster.Start(context.Background(), cluster.Options{Progress: os.Stderr}))(t)
	t.Cleanup(plane.Stop)
	c := must.Have(client.New(plane.Config(), client.Options{}))(t)
	cert := must.Have(webhookcert.Issue(time.Now()))(t)
	each := func(t *testing.T, dir string, id matrix.ReleaseID) {
		in := input(t, id)
		in.Lock, in.Manifests = contentsIn(t, dir, id)
		in.Matrix = upstream.Listed(t, in.Manifests)
		withWindows(&in)
		in.Spec.StorageProvider.Webhook, in.Webhook = true, cert
		in.Spec.StorageProvider.TopologyCategories = []string{"k8s-region", "k8s-zone"}
		in.Spec.StorageProvider.CustomKubeletPath = "/data/kubelet"
		in.Spec.StorageProvider.StorageClasses = []v1alpha1.StorageClass{{Name: "gold", StoragePolicy: "Gold", Default: true}}
		in.Spec.CloudProvider.IPFamilies = []string{"ipv4", "ipv6"}
		in.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", LogLevel: v1alpha1.LogDebug, Proxy: &v1alpha1.Proxy{HTTPS: "http://proxy:1"}, Workloads: []v1alpha1.Workload{{
			Name: "vsphere-csi-node", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []v1alpha1.Container{{Name: "liveness-probe", Resources: &v1alpha1.Resources{Limits: corev1.ResourceList{"memory": resource.MustParse("64Mi")}}}},
		}}}}
		in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CSI, "DaemonSet", "vsphere-csi-node", "spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 10%}}}")}
		changeVCenter(in, func(v *render.VCenter) { v.CA = authority(t) })
		acceptsAll(t, c, mustRender(t, in))
		in.Cluster.Distribution = "openshift"
		acceptsAll(t, c, mustRender(t, in))
	}
	upstream.Each(t, func(t *testing.T, dir string) {
		everyRelease(t, allDrivers, func(t *testing.T, id matrix.ReleaseID) { each(t, dir, id) })
	})
}

func acceptsAll(t *testing.T, c client.Client, out *render.Rendered) {
	t.Helper()
	ctx := context.Background()
	for _, o := range out.Objects() {
		if o.GetKind() == "Namespace" { // what is in it needs it, in a dry run too
			if err := c.Create(ctx, o.DeepCopy()); !apierrors.IsAlreadyExists(err) {
				require.NoError(t, err)
			}
		}
		applied := o.DeepCopy()
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.DryRunAll, client.FieldOwner("test"), client.ForceOwnership)
		require.NoError(t, err, "%s", o)
	}
}
