package vdoconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// What a cloud provider is configured with is what its DaemonSet mounts, wherever that is. Where
// that cannot be read no one knows where it looks for nodes.
func TestTheConfigurationThatTheCloudProviderMountsIsFound(t *testing.T) {
	const conf = "[VirtualCenter \"vc1.site.example\"]\ndatacenters = \"dc, dc2\"\n"
	const ours, none = "[VirtualCenter \"vc1.site.example\"]\ndatacenters = \"dc\"\n", "global:\n  port: 443\n"
	found := []string{"vc1.site.example/dc", "vc1.site.example/dc2"}
	volume := func(source corev1.VolumeSource) []corev1.Volume {
		return []corev1.Volume{{Name: "conf", VolumeSource: source}}
	}
	configMap := func(name string, items ...corev1.KeyToPath) []corev1.Volume {
		return volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}})
	}
	remembered := inventory.Inventory{}.WithMemory(inventory.Memory{CloudProvider: &v1alpha1.CloudProvider{}, Searched: []string{"vc1.site.example"}})
	for name, c := range map[string]struct {
		volumes  []corev1.Volume // of its DaemonSet; nil where there is none
		args     []string        // of its container
		edit     func(*decided)
		searched []string
		config   string
		found    bool // it is someone else's
		unsure   bool
	}{
		"upstream's":                       {volumes: configMap("vsphere-cloud-config"), config: ours, found: true, searched: found[:1]},
		"upstream's that names no vCenter": {volumes: configMap("vsphere-cloud-config"), config: none, found: true, unsure: true},
		"ours":                             {volumes: configMap("vsphere-cloud-config"), edit: func(s *decided) { s.inventory = remembered }, config: ours, searched: []string{"vc1.site.example"}},
		"upstream's deprecated":            {volumes: configMap("cloud-config"), config: conf, found: true, searched: found},
		"likewise, seen before":            {volumes: configMap("cloud-config"), edit: func(s *decided) { s.inventory = remembered }, config: conf, found: true, searched: []string{"vc1.site.example"}},
		"under another key":                {volumes: configMap("other", corev1.KeyToPath{Key: "x", Path: "vsphere.conf"}), config: conf, found: true, searched: found},
		"in a Secret":                      {volumes: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "conf"}}), config: conf, found: true, searched: found},
		"on the node":                      {volumes: volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubernetes"}}), unsure: true},
		"in a ConfigMap that is gone":      {volumes: configMap("gone"), unsure: true},
		"none is named":                    {volumes: configMap("vsphere-cloud-config"), args: []string{"--v=2"}},
		"named by the next argument":       {volumes: configMap("cloud-config"), args: []string{"--cloud-config", "/etc/cloud/vsphere.conf"}, config: conf, found: true, searched: found},
	} {
		g := &pass{Reconciler: &Reconciler{Cluster: &fakeCluster{
			maps:    map[string]map[string]string{"cloud-config": {"vsphere.conf": conf}, "other": {"x": conf}},
			secrets: map[string]map[string][]byte{"conf": {"vsphere.conf": []byte(conf)}},
		}}, result: result{decided: *withCSI(t)}}
		g.observed, g.facts.inventory = &assess.Observed{}, inventory.Inventory{}
		g.config.Status = v1alpha1.VDOConfigStatus{}
		if c.config == ours || c.config == none {
			g.Cluster.(*fakeCluster).maps["vsphere-cloud-config"] = map[string]string{"vsphere.conf": c.config}
		}
		if c.args == nil {
			c.args = []string{"--v=2", "--cloud-config=/etc/cloud/vsphere.conf"}
		}
		if c.volumes != nil {
			g.observed.DaemonSets = []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager"},
				Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: c.volumes, Containers: []corev1.Container{{
					Args: c.args, VolumeMounts: []corev1.VolumeMount{{Name: "conf", MountPath: "/etc/cloud/"}}}}}}}}}
		}
		if c.edit != nil {
			c.edit(&g.decided)
		}
		g.spec.CloudProvider = &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc"}}
		require.NoError(t, g.collectExisting(t.Context(), nil), name)
		require.Equal(t, c.config, string(g.cluster.CloudConfig), name)
		require.Equal(t, c.found, len(g.cluster.ExistingCloudConfig) > 0, name)
		require.Equal(t, c.unsure, g.cluster.UnsureOfNodes, name)
		require.Equal(t, c.unsure, len(g.notes) > 0, name)
		require.ElementsMatch(t, c.searched, g.cluster.Searched, name)

		// While the configuration that is there is kept, where it looks stays known.
		var now inventory.Memory
		g.searchedNow(&now, rendering{Rendered: &render.Rendered{Cloud: &render.Cloud{}}}, true)
		require.ElementsMatch(t, c.searched, now.Searched, name)
	}
}
