package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func patchOf(d matrix.Driver, kind, name, text string) v1alpha1.Patch {
	return v1alpha1.Patch{Target: v1alpha1.PatchTarget{Driver: string(d), Kind: kind, Name: name}, Patch: text}
}

// containerOf returns a container of a rendered workload.
func containerOf(t testing.TB, out *render.Rendered, workload, name string) map[string]any {
	t.Helper()
	o := object(t, out, workload).Object
	list := nested(unstructured.NestedSlice(o, "spec", "template", "spec", "containers"))(t)
	for _, item := range list {
		if c := item.(map[string]any); c["name"] == name {
			return c
		}
	}
	t.Fatalf("%s has no container %s", workload, name)
	return nil
}

// variables are a container's, by name.
func variables(c map[string]any) map[string]any {
	all := map[string]any{}
	list, _ := c["env"].([]any)
	for _, item := range list {
		e := item.(map[string]any)
		all[e["name"].(string)] = e["value"]
	}
	return all
}

func TestSettingsReachThePodsOfEveryRelease(t *testing.T) {
	everyRelease(t, []matrix.Driver{matrix.CSI}, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		in.Spec.Drivers = []v1alpha1.DriverPolicy{{
			Driver: "csi", LogLevel: v1alpha1.LogDebug,
			Proxy: &v1alpha1.Proxy{HTTPS: "http://proxy.site:3128", NoProxy: []string{"vc2.site", "10.0.0.0/8"}},
			Workloads: []v1alpha1.Workload{{
				Name: "vsphere-csi-controller", NodeSelector: map[string]string{"pool": "infra"}, PriorityClassName: "site-critical",
				Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
				Containers: []v1alpha1.Container{{
					Name: "csi-provisioner", Args: []string{"--timeout=600s", "--default-fstype=xfs", "--extra-create-metadata"},
					Resources: &v1alpha1.Resources{
						Requests: corev1.ResourceList{"cpu": resource.MustParse("50m")},
						Limits:   corev1.ResourceList{"memory": resource.MustParse("256Mi")},
					},
				}},
			}},
		}}
		infra := controlPlane("cp-infra")
		infra.Labels["pool"] = "infra"
		infra.Taints = append(infra.Taints, corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
		in.Cluster.Nodes = append(in.Cluster.Nodes, infra)
		out := mustRender(t, in)
		const controller = "Deployment vsphere-csi-controller"
		args := containerArgs(t, out, controller, "csi-provisioner")
		require.Contains(t, args, "--timeout=600s")
		require.NotContains(t, args, "--timeout=300s", "a flag of the manifest gets the value in its place")
		require.Contains(t, args, "--extra-create-metadata")
		require.Contains(t, args, "--v=6")
		c := containerOf(t, out, controller, "csi-provisioner")
		require.Equal(t, map[string]any{"requests": map[string]any{"cpu": "50m"}, "limits": map[string]any{"memory": "256Mi"}}, c["resources"])
		require.NotContains(t, variables(c), "HTTPS_PROXY", "a sidecar talks to the API server alone")
		for _, name := range []string{"vsphere-csi-controller", "vsphere-syncer"} {
			env := variables(containerOf(t, out, controller, name))
			require.Equal(t, "http://proxy.site:3128", env["HTTPS_PROXY"])
			require.Contains(t, env["NO_PROXY"], "$(KUBERNETES_SERVICE_HOST)")
			require.Contains(t, env["NO_PROXY"], ",vc2.site,10.0.0.0/8")
			require.Equal(t, "DEVELOPMENT", env["LOGGER_LEVEL"])
		}
		require.Equal(t, "DEVELOPMENT", variables(containerOf(t, out, "DaemonSet vsphere-csi-node", "vsphere-csi-node"))["LOGGER_LEVEL"])
		spec := nested(unstructured.NestedMap(object(t, out, controller).Object, "spec", "template", "spec"))(t)
		require.Equal(t, "site-critical", spec["priorityClassName"])
		require.Equal(t, "infra", spec["nodeSelector"].(map[string]any)["pool"])
		replicas := nested(unstructured.NestedInt64(object(t, out, controller).Object, "spec", "replicas"))(t)
		require.Equal(t, int64(1), replicas, "replicas fit the nodes that the settings leave")
	})
}

func TestSettingsThatFitNothingAreNamed(t *testing.T) {
	workload := func(w v1alpha1.Workload) v1alpha1.DriverPolicy {
		return v1alpha1.DriverPolicy{Driver: "csi", Workloads: []v1alpha1.Workload{w}}
	}
	controller := func(c v1alpha1.Container) v1alpha1.DriverPolicy {
		return workload(v1alpha1.Workload{Name: "vsphere-csi-controller", Containers: []v1alpha1.Container{c}})
	}
	cases := map[string]struct {
		policy v1alpha1.DriverPolicy
		want   string
		hint   string
	}{
		"no such workload":       {workload(v1alpha1.Workload{Name: "csi-controller"}), `no Deployment or DaemonSet "csi-controller"`, "vsphere-csi-controller"},
		"no such container":      {controller(v1alpha1.Container{Name: "provisioner"}), `no container "provisioner"`, "csi-provisioner"},
		"no flag":                {controller(v1alpha1.Container{Name: "csi-provisioner", Args: []string{"rm -rf"}}), "not a flag", ""},
		"against the manifest":   {workload(v1alpha1.Workload{Name: "vsphere-csi-node", NodeSelector: map[string]string{"kubernetes.io/os": "windows"}}), "selects nodes by kubernetes.io/os=linux", ""},
		"a driver without proxy": {v1alpha1.DriverPolicy{Driver: "snapshot-controller", Proxy: &v1alpha1.Proxy{HTTPS: "http://p:1"}}, "asks no vCenter", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, release(t, matrix.SnapshotController, "8.2.0"), release(t, matrix.CSI, "3.5.1"))
			in.Spec.Drivers = []v1alpha1.DriverPolicy{c.policy}
			_, err := render.Render(in)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "spec.drivers["+c.policy.Driver+"]")
			require.Contains(t, fault.HintOf(err), c.hint)
			require.NotEmpty(t, fault.HintOf(err))
			var failed render.Failed
			require.ErrorAs(t, err, &failed, "the other drivers go on")
			require.Len(t, failed, 1)
		})
	}
}

func TestPatchesChangeUpstreamsObjects(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	in.Spec.Patches = []v1alpha1.Patch{
		patchOf(matrix.CSI, "DaemonSet", "vsphere-csi-node", `
spec:
  updateStrategy: {rollingUpdate: {maxUnavailable: 10%}}
  template:
    metadata: {annotations: {site.example/owner: storage}}
    spec:
      containers:
      - name: vsphere-csi-node
        env: [{name: MAX_VOLUMES_PER_NODE, value: "30"}]
        securityContext: {seccompProfile: {type: RuntimeDefault}}
`),
		patchOf(matrix.CSI, "Deployment", "vsphere-csi-controller", `[
  {"op": "test", "path": "/spec/template/spec/containers/0/name", "value": "csi-attacher"},
  {"op": "replace", "path": "/spec/template/spec/containers/0/args/0", "value": "--v=2"},
  {"op": "add", "path": "/spec/template/spec/tolerations/-", "value": {"key": "gpu", "operator": "Exists"}}]`),
		patchOf(matrix.CPI, "DaemonSet", "vsphere-cloud-controller-manager", `spec: {template: {spec: {volumes: [{name: proxy-ca, configMap: {name: proxy-ca}}], containers: [{name: vsphere-cloud-controller-manager, volumeMounts: [{name: proxy-ca, mountPath: /opt/site/proxy}]}]}}}`),
		patchOf(matrix.CNI, "DaemonSet", "antrea-agent", `metadata: {annotations: {a: b}}`), // which is not installed
	}
	out := mustRender(t, in)
	node := object(t, out, "DaemonSet vsphere-csi-node").Object
	update := nested(unstructured.NestedMap(node, "spec", "updateStrategy", "rollingUpdate"))(t)
	require.Equal(t, "10%", update["maxUnavailable"])
	c := containerOf(t, out, "DaemonSet vsphere-csi-node", "vsphere-csi-node")
	require.Equal(t, "30", variables(c)["MAX_VOLUMES_PER_NODE"])
	require.Equal(t, "node", variables(c)["X_CSI_MODE"], "lists are merged by their keys")
	require.Equal(t, true, c["securityContext"].(map[string]any)["privileged"])
	require.Regexp(t, `^mirror\.site:5000/vdo/drivers@sha256:`, c["image"])
	require.Contains(t, containerArgs(t, out, "Deployment vsphere-csi-controller", "csi-attacher"), "--v=2")
	require.Contains(t, fmt.Sprint(object(t, out, "DaemonSet vsphere-cloud-controller-manager").Object), "proxy-ca")
	require.Equal(t, out, mustRender(t, in), "rendering again gives the same: upstream's objects are not changed")
	in.Spec.Patches = nil
	node = object(t, mustRender(t, in), "DaemonSet vsphere-csi-node").Object
	require.NotContains(t, fmt.Sprint(node), "MAX_VOLUMES_PER_NODE:30")
}

func TestAPatchMayNameAnotherImageOfTheBundle(t *testing.T) {
	in := input(t, release(t, matrix.CSI, "3.5.1"))
	other := image.MustReference("registry.k8s.io/sig-storage/csi-provisioner:v5.0.0")
	in.Lock.Images = append(in.Lock.Images, bundle.Image{Reference: other, Digest: image.DigestOf([]byte("newer"))})
	in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CSI, "Deployment", "vsphere-csi-controller",
		`spec: {template: {spec: {containers: [{name: csi-provisioner, image: "registry.k8s.io/sig-storage/csi-provisioner:v5.0.0"}]}}}`)}
	c := containerOf(t, mustRender(t, in), "Deployment vsphere-csi-controller", "csi-provisioner")
	require.Equal(t, repository+"@"+image.DigestOf([]byte("newer")).String(), c["image"])
	require.NotContains(t, in.Lock.Releases[0].Images, other.String(), "the bundle's lock stays as it is")
}

// What a patch may not do, each with the patch that tries it; more of the ceiling: TestHostileManifestsAreRefused.
func TestPatchesKeepTheObjectAndTheCeiling(t *testing.T) {
	pod := func(text string) string { return "spec: {template: {spec: {" + text + "}}}" }
	container := func(name, text string) string { return pod("containers: [{name: " + name + ", " + text + "}]") }
	const controller, attacher = "Deployment vsphere-csi-controller", "csi-attacher"
	cases := map[string]struct{ target, patch, want string }{
		"an image that is not in the bundle": {controller, container(attacher, "image: evil.example/attacher:v1"), `image "evil.example/attacher:v1", which the bundle does not hold`},
		"a container of another image":       {controller, container("helper", "image: busybox"), "which the bundle does not hold"},
		"privileged":                         {controller, container(attacher, "securityContext: {privileged: true}"), "container csi-attacher is privileged"},
		"a container less":                   {controller, container("csi-provisioner", "$patch: delete"), "takes container csi-provisioner away"},
		"a selector":                         {controller, "spec: {selector: {matchLabels: {a: b}}}", "changes the selector"},
		"a label that is selected by":        {controller, "spec: {template: {metadata: {labels: {app: other}}}}", "changes the label app"},
		"another name":                       {controller, "metadata: {name: other}", "makes another object of it"},
		"another namespace":                  {controller, "metadata: {namespace: kube-system}", "makes another object of it"},
		"its deletion":                       {controller, "$patch: delete", "another object"},
		"a finalizer":                        {controller, "metadata: {finalizers: [a.b/c]}", "finalizers"},
		"a port to the outside":              {"Service vsphere-csi-controller", "spec: {type: LoadBalancer}", "is of type LoadBalancer"},
		"tokens of other pods":               {"CSIDriver csi.vsphere.vmware.com", "spec: {tokenRequests: [{audience: x}]}", "tokens of other pods"},

		"no such object":                {"Deployment csi-controller", "metadata: {}", "has no Deployment csi-controller"},
		"in no such namespace":          {"Deployment kube-system/vsphere-csi-controller", "metadata: {}", "csi@3.5.1 has no Deployment kube-system/vsphere-csi-controller"},
		"a field that there is not":     {controller, "spec: {replicass: 2}", "replicass"},
		"a field of pods that is not":   {controller, pod("tolerationss: []"), "tolerationss"},
		"a test that fails":             {controller, `[{"op": "test", "path": "/spec/replicas", "value": 7}]`, "test"},
		"a path that there is not":      {controller, `[{"op": "replace", "path": "/spec/nope", "value": 7}]`, "nope"},
		"an operation that there isn't": {controller, `[{"op": "explode", "path": "/spec"}]`, "explode"},
		"no patch":                      {controller, "just text", "neither a map nor a list"},
		"no YAML":                       {controller, "a: [", "yaml"},
		"copies without end":            {controller, "[" + strings.Repeat(`{"op": "copy", "from": "/spec/template", "path": "/spec/template/x"},`, 100) + `{"op": "test", "path": "/kind", "value": "Deployment"}]`, "Unable to complete the copy, the accumulated size increase of copy"},
		"settings of ours":              {"ConfigMap internal-feature-states.csi.vsphere.vmware.com", "data: {a: b}", "made from spec.storageProvider"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
			kind, object, _ := strings.Cut(c.target, " ")
			namespace, name, found := strings.Cut(object, "/")
			if !found {
				namespace, name = "", object
			}
			in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CSI, kind, name, c.patch)}
			in.Spec.Patches[0].Target.Namespace = namespace
			_, err := render.Render(in)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "spec.patches[0]")
			for _, f := range fault.All(err) {
				require.NotEmpty(t, f.Hint)
				require.NotEqual(t, fault.Internal, f.Reason)
			}
			var failed render.Failed
			require.ErrorAs(t, err, &failed)
			require.Len(t, failed, 1, "the other driver goes on")
		})
	}
}
