package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func TestFeatureStatesAreThoseOfTheReleaseButForWhatIsAskedFor(t *testing.T) {
	everyRelease(t, []matrix.Driver{matrix.CSI}, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		states := func() map[string]string {
			out := mustRender(t, in)
			o := object(t, out, "ConfigMap "+render.FeatureStates)
			require.Equal(t, render.Replace, o.Apply)
			require.Equal(t, "csi-controller", stageOf(out, "ConfigMap "+render.FeatureStates))
			data := nested(unstructured.NestedStringMap(o.Object, "data"))(t)
			return data
		}
		was := states()
		require.Equal(t, "false", was["trigger-csi-fullsync"])
		in.Spec.StorageProvider.FeatureStates = map[string]bool{"trigger-csi-fullsync": true}
		is := states()
		require.Equal(t, "true", is["trigger-csi-fullsync"])
		is["trigger-csi-fullsync"] = "false"
		require.Equal(t, was, is)
		in.Spec.StorageProvider.FeatureStates = map[string]bool{"trigger-fullsync": true}
		_, err := render.Render(in)
		require.ErrorContains(t, err, `no feature state "trigger-fullsync"`)
		require.Contains(t, fault.HintOf(err), "trigger-csi-fullsync")
	})
}

// A node keeps the topology that it was registered with: its plugin restarts after the
// controller knows the categories, and not without need.
func TestTopologySwitchedOnRestartsControllerAndNodePlugins(t *testing.T) {
	in := input(t, release(t, matrix.CSI, "3.5.1"))
	in.Cluster.Nodes = append(in.Cluster.Nodes, render.Node{Name: "win", Labels: map[string]string{"kubernetes.io/os": "windows"}})
	annotations := func(what string) map[string]string { return podAnnotations(t, mustRender(t, in), what) }
	controller := annotations("Deployment vsphere-csi-controller")
	require.NotContains(t, annotations("DaemonSet vsphere-csi-node"), render.AnnotationTopology)
	in.Spec.StorageProvider.TopologyCategories = []string{"k8s-region", "k8s-zone"}
	require.NotEqual(t, controller, annotations("Deployment vsphere-csi-controller"))
	for _, node := range []string{"DaemonSet vsphere-csi-node", "DaemonSet vsphere-csi-node-windows"} {
		require.Equal(t, "k8s-region,k8s-zone", annotations(node)[render.AnnotationTopology])
	}
	changeVCenter(in, func(v *render.VCenter) { v.Credentials.Password = "another" })
	require.Equal(t, map[string]string{render.AnnotationTopology: "k8s-region,k8s-zone"}, annotations("DaemonSet vsphere-csi-node"))
}

func TestClassesComeAfterTheDriverThatServesThem(t *testing.T) {
	in := input(t, release(t, matrix.SnapshotController, "8.2.0"), release(t, matrix.CSI, "3.5.1"))
	no := false
	p := in.Spec.StorageProvider
	p.StorageClasses = []v1alpha1.StorageClass{
		{Name: "gold", StoragePolicy: "Gold, 2 copies", Default: true, FSType: "xfs"},
		{Name: "archive", DatastoreURL: "ds:///vmfs/volumes/vsan:1/", ReclaimPolicy: "Retain", AllowVolumeExpansion: &no},
	}
	p.SnapshotClasses = []v1alpha1.SnapshotClass{{Name: "snap", Default: true, DeletionPolicy: "Retain"}}
	out := mustRender(t, in)
	gold := object(t, out, "StorageClass gold")
	require.True(t, gold.Keep)
	require.Equal(t, map[string]any{"storagepolicyname": "Gold, 2 copies", "csi.storage.k8s.io/fstype": "xfs"}, gold.Object["parameters"])
	require.Equal(t, "csi.vsphere.vmware.com", gold.Object["provisioner"])
	require.Equal(t, "Immediate", gold.Object["volumeBindingMode"])
	require.Equal(t, true, gold.Object["allowVolumeExpansion"])
	require.Equal(t, "true", gold.GetAnnotations()["storageclass.kubernetes.io/is-default-class"])
	archive := object(t, out, "StorageClass archive")
	require.Equal(t, []any{"Retain", false, "false"}, []any{archive.Object["reclaimPolicy"], archive.Object["allowVolumeExpansion"], archive.GetAnnotations()["storageclass.kubernetes.io/is-default-class"]})
	snap := object(t, out, "VolumeSnapshotClass snap")
	require.Equal(t, []any{"csi.vsphere.vmware.com", "Retain"}, []any{snap.Object["driver"], snap.Object["deletionPolicy"]})
	require.Equal(t, "classes", stageOf(out, "StorageClass gold"))
	require.Equal(t, "classes", out.Stages[len(out.Stages)-1].Name)

	p.TopologyCategories = []string{"k8s-zone"}
	gold = object(t, mustRender(t, in), "StorageClass gold")
	require.Equal(t, "WaitForFirstConsumer", gold.Object["volumeBindingMode"])
}
