package render_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func workload(t *testing.T, all []render.Workload, name string) render.Workload {
	t.Helper()
	i := slices.IndexFunc(all, func(w render.Workload) bool { return w.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

// What is said of pods before they are installed is what is rendered: settings and excluded
// nodes count, and vCenters, logins and certificates need not be there.
func TestWorkloadsAreThoseThatAreRendered(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.SnapshotController, "8.2.0"), release(t, matrix.CSI, "3.5.1"))
	in.VCenters, in.HashKey, in.Spec.StorageProvider.Webhook = nil, nil, true
	in.Spec.ExcludedNodes = map[string]string{"place": "elsewhere"}
	in.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", Workloads: []v1alpha1.Workload{{Name: "vsphere-csi-node", NodeSelector: map[string]string{"kubernetes.io/arch": "amd64"}}}}}
	all := render.Workloads(in)
	var names []string
	for _, w := range all {
		names = append(names, w.Kind+" "+w.Name)
	}
	require.ElementsMatch(t, []string{"DaemonSet vsphere-cloud-controller-manager", "Deployment snapshot-controller", "Deployment vsphere-csi-controller",
		"DaemonSet vsphere-csi-node", "DaemonSet vsphere-csi-node-windows"}, names)

	node := workload(t, all, "vsphere-csi-node")
	require.Equal(t, "csi@3.5.1", node.Release)
	require.Equal(t, matrix.CSI, node.Driver)
	var images []string
	for _, i := range node.Images {
		images = append(images, i.Upstream)
		require.Equal(t, in.Lock.Images[slices.IndexFunc(in.Lock.Images, func(l bundle.Image) bool { return l.Digest == i.Digest })].Reference.Repository(), i.Upstream)
	}
	require.Equal(t, []string{"registry.k8s.io/csi-vsphere/driver", "registry.k8s.io/sig-storage/csi-node-driver-registrar", "registry.k8s.io/sig-storage/livenessprobe"}, images)

	labels := func(more ...string) map[string]string {
		m := map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	master := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		workload string
		node     render.Node
		reaches  bool
	}{
		"a worker":                         {"vsphere-csi-node", render.Node{Labels: labels()}, true},
		"a cordon keeps no daemon away":    {"vsphere-csi-node", render.Node{Labels: labels(), Unschedulable: true}, true},
		"another processor, by setting":    {"vsphere-csi-node", render.Node{Labels: labels("kubernetes.io/arch", "arm64")}, false},
		"an excluded node":                 {"vsphere-csi-node", render.Node{Labels: labels("place", "elsewhere")}, false},
		"Windows, for Linux pods":          {"vsphere-csi-node", render.Node{Labels: labels("kubernetes.io/os", "windows")}, false},
		"Windows":                          {"vsphere-csi-node-windows", render.Node{Labels: labels("kubernetes.io/os", "windows")}, true},
		"Linux, for Windows pods":          {"vsphere-csi-node-windows", render.Node{Labels: labels()}, false},
		"a worker, for the controller":     {"vsphere-csi-controller", render.Node{Labels: labels()}, false},
		"control plane":                    {"vsphere-csi-controller", render.Node{Labels: labels("node-role.kubernetes.io/control-plane", ""), Taints: []corev1.Taint{master}}, true},
		"a control plane that is cordoned": {"vsphere-csi-controller", render.Node{Labels: labels("node-role.kubernetes.io/control-plane", ""), Unschedulable: true}, false},
		"the cloud provider":               {"vsphere-cloud-controller-manager", render.Node{Labels: labels("node-role.kubernetes.io/control-plane", ""), Taints: []corev1.Taint{master}}, true},
	} {
		w := workload(t, all, c.workload)
		require.Equal(t, c.reaches, w.Reach()(&c.node), name)
	}

	in.Spec.Drivers[0].Workloads[0].Name = "none"
	for _, w := range render.Workloads(in) {
		require.NotEqual(t, matrix.CSI, w.Driver, "it cannot be rendered, and the others can")
	}
	require.NotEmpty(t, render.Workloads(in))
}
