package render_test

import (
	"context"
	"crypto/rand"
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
)

// Every object of every release is accepted by a real API server, with every
// optional part switched on.
func TestAPIServerAcceptsEverythingThatIsRendered(t *testing.T) {
	plane, err := cluster.Start(context.Background(), cluster.Options{Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(plane.Stop)
	c, err := client.New(plane.Config(), client.Options{})
	require.NoError(t, err)
	cert, err := webhookcert.Issue(time.Now(), rand.Reader)
	require.NoError(t, err)
	everyRelease(t, allDrivers, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		in.Cluster.Nodes = append(in.Cluster.Nodes, render.Node{Name: "win", Labels: map[string]string{"kubernetes.io/os": "windows"}})
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
		one := in.VCenters["vc-one"]
		one.CA = authority(t)
		in.VCenters["vc-one"] = one
		acceptsAll(t, c, mustRender(t, in))
		in.Cluster.Distribution = "openshift"
		acceptsAll(t, c, mustRender(t, in))
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
