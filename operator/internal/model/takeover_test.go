package model

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// byKubectl applies an object as `kubectl apply` does.
func (s *scenario) byKubectl(o *unstructured.Unstructured) *unstructured.Unstructured {
	applied, err := o.MarshalJSON()
	require.NoError(s.t, err)
	o.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(applied)})
	require.NoError(s.t, s.Create(s.ctx, o, client.FieldOwner("kubectl-client-side-apply")))
	return o
}

// upstreamStorage installs the storage driver of upstream's manifest, with settings of the site's own. It returns what
// it made, by "Kind name".
func (s *scenario) upstreamStorage(version string) map[string]*unstructured.Unstructured {
	made := map[string]*unstructured.Unstructured{}
	id, err := matrix.ParseReleaseID("csi@" + version)
	require.NoError(s.t, err)
	data, err := upstream.Read("", id, "vsphere-csi-driver.yaml")
	require.NoError(s.t, err)
	objects, err := cluster.Objects(data)
	require.NoError(s.t, err)
	for _, o := range objects {
		switch o.GetKind() {
		case "ConfigMap":
			require.NoError(s.t, unstructured.SetNestedField(o.Object, "true", "data", "trigger-csi-fullsync"))
		case "DaemonSet":
			at := []string{"spec", "template", "metadata", "annotations", "by-hand"}
			require.NoError(s.t, unstructured.SetNestedField(o.Object, "yes", at...))
		}
		made[o.GetKind()+" "+o.GetName()] = s.byKubectl(o)
	}
	return made
}

func TestTheStorageDriverOfUpstreamsManifestIsTakenOver(t *testing.T) {
	scene(t, nothing, func(s *scenario) {
		made := s.upstreamStorage("3.3.1")
		meta := metav1.ObjectMeta{Namespace: csiNamespace, Name: "vsphere-config-secret"}
		s.put(&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"csi-vsphere.conf": "[Global]\n" +
			"cluster-id = \"by-hand\"\n[VirtualCenter \"vc1.site.example\"]\nuser = \"u@vsphere.local\"\npassword = \"x\"\n"}})
		s.volumeEvent("made")
		s.ready()
		for _, name := range []string{
			"CSIDriver csi.vsphere.vmware.com", "Deployment " + csiController, "DaemonSet " + csiNode,
		} {
			was := made[name]
			is := get(s, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": was.GetAPIVersion(), "kind": was.GetKind()}}, was.GetNamespace(), was.GetName())
			require.Equal(t, was.GetUID(), is.GetUID(), "%s is changed in place", name)
			require.Equal(t, "3.5.1", is.GetLabels()["vdo.vmware.com/version"], name)
			_, exists, _ := unstructured.NestedString(is.Object, "spec", "template", "metadata", "annotations", "by-hand")
			require.False(t, exists, "what the release does not have is gone: %s", name)
			for _, m := range is.GetManagedFields() {
				require.NotEqual(t, "kubectl-client-side-apply", m.Manager, name)
			}
		}
		s.told("trigger-csi-fullsync: true becomes false")
		for range 2 {
			conf := get(s, &corev1.Secret{}, csiNamespace, "vsphere-config-secret")
			require.Contains(t, string(conf.Data["csi-vsphere.conf"]), "by-hand", "the volumes are known by it")
			s.drop(conf)
			s.look()
		}
	})
}

// deprecatedCloud is a cloud provider as upstream's deprecated manifests install it: its DaemonSet
// has the name of ours, another selector, and its configuration in another ConfigMap, in INI.
func (s *scenario) deprecatedCloud() *unstructured.Unstructured {
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: "cloud-config"}
	s.put(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"vsphere.conf": "[Global]\ndatacenters = \"site/prod/east, site/west\"\n\n" +
		"[VirtualCenter \"" + s.site.vc.Host + "\"]\n\n[Labels]\nregion = \"r\"\nzone = \"z\"\n"}})
	objects, err := cluster.Objects([]byte(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: kube-system, name: ` + ccm + `, labels: {k8s-app: ` + ccm + `}}
spec:
  selector: {matchLabels: {k8s-app: ` + ccm + `}}
  template:
    metadata: {labels: {k8s-app: ` + ccm + `}}
    spec:
      containers:
      - name: ` + ccm + `
        image: registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.30.2
        args: [--v=2, --cloud-provider=vsphere, --cloud-config=/etc/cloud/vsphere.conf]
        volumeMounts: [{name: config, mountPath: /etc/cloud, readOnly: true}]
      volumes: [{name: config, configMap: {name: cloud-config}}]
`))
	require.NoError(s.t, err)
	return s.byKubectl(objects[0])
}

// The cloud provider of upstream's deprecated manifests has a selector that cannot be changed: it is recreated, with
// nothing lost of where it looks for nodes and of what was set by hand, whatever happens between its delete and its
// return.
func TestTheCloudProviderOfUpstreamsDeprecatedManifestsIsTakenOver(t *testing.T) {
	scene(t, nothing, func(s *scenario) {
		old := s.deprecatedCloud()
		s.anew = essentials["cpi"][0].Key
		searches := func(datacenters ...string) {
			vc := s.cloudConfig()
			vc.Spec.Datacenters = datacenters
			s.put(vc)
			s.pass(passVCenter)
		}
		says := func(text string) {
			require.Contains(t, describe(s.v.Status.Conditions), text)
		}
		stays := func(why string) {
			s.look()
			require.Equal(t, old.GetUID(), s.daemonSet("kube-system", ccm).UID)
			says(why)
		}
		narrower := "would not look in " + s.site.vc.Host + "/site/west any more, and delete the Nodes"

		s.configure(func(spec *asked) { spec.StorageProvider = nil })
		s.pass(passBundle, passVCenter, passDrivers)
		stays(narrower)
		searches("site/prod/east", "site/west")
		s.meets(func(req *http.Request, _ string) int {
			if req.Method != http.MethodDelete && strings.Contains(req.URL.Path, "/daemonsets") {
				return http.StatusUnprocessableEntity
			}
			return 0
		})
		stays("refused by the test")
		require.Contains(t, s.planned(), "conflict DaemonSet/"+ccm)
		s.meets(nil)
		s.look()
		require.True(t, s.gone(&appsv1.DaemonSet{}, "kube-system", ccm), "it waits for no pod")

		s.drop(get(s, &corev1.ConfigMap{}, "kube-system", "cloud-config"))
		s.start()
		s.vcenterEvent("fails")
		s.now = s.now.Add(interval)
		s.pass(passVCenter)
		s.look()
		require.NotContains(t, s.events.String(), "Repaired")
		ds := s.daemonSet("kube-system", ccm)
		require.NotEqual(t, old.GetUID(), ds.UID)
		require.Equal(t, map[string]string{"name": ccm}, ds.Spec.Selector.MatchLabels)
		s.site.vc.Mend()
		searches("site/prod/east")
		s.until("it would lose sight of nodes", func() bool { return !s.isTrue("Resolved") || !s.isTrue("Applied") })
		says(narrower)
		conf := get(s, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config")
		require.Contains(t, conf.Data["vsphere.conf"], "site/west")

		searches("site/prod/east", "site/west")
		s.ready()
		ds = s.daemonSet("kube-system", ccm)
		for _, e := range ds.Spec.Template.Spec.Containers[0].Env {
			require.NotEqual(t, "SKIP_NODE_DELETION", e.Name, "all that it looked for is known")
		}
		s.told("[labels] region")
		s.told("[labels] zone")
		s.told("upstream's deprecated manifests installed it")
	})
}
