package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func patchOf(d matrix.Driver, kind, name, text string) v1alpha1.Patch {
	return v1alpha1.Patch{Target: v1alpha1.PatchTarget{Driver: string(d), Kind: kind, Name: name}, Patch: text}
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
		"no such feature state":  {v1alpha1.DriverPolicy{}, `no feature state "trigger-fullsync"`, "trigger-csi-fullsync"},
		"no such workload":       {workload(v1alpha1.Workload{Name: "csi-controller"}), `no Deployment or DaemonSet "csi-controller"`, "vsphere-csi-controller"},
		"no such container":      {controller(v1alpha1.Container{Name: "provisioner"}), `no container "provisioner"`, "csi-provisioner"},
		"no flag":                {controller(v1alpha1.Container{Name: "csi-provisioner", Args: []string{"rm -rf"}}), "not a flag", ""},
		"against the manifest":   {workload(v1alpha1.Workload{Name: "vsphere-csi-node", NodeSelector: map[string]string{"kubernetes.io/os": "windows"}}), "selects nodes by kubernetes.io/os=linux", ""},
		"a driver without proxy": {v1alpha1.DriverPolicy{Driver: "snapshot-controller", Proxy: &v1alpha1.Proxy{HTTPS: "http://p:1"}}, "asks no vCenter", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, release(t, matrix.SnapshotController, "8.2.0"), release(t, matrix.CSI, "3.5.1"))
			field := "spec.drivers[" + c.policy.Driver + "]"
			if in.Spec.Drivers = []v1alpha1.DriverPolicy{c.policy}; c.policy.Driver == "" {
				field, in.Spec.StorageProvider.FeatureStates = "spec.storageProvider.featureStates", map[string]bool{"trigger-fullsync": true}
			}
			_, err := render.Render(in)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, field)
			require.Contains(t, fault.HintOf(err), c.hint)
			require.NotEmpty(t, fault.HintOf(err))
			var failed render.Failed
			require.ErrorAs(t, err, &failed, "the other drivers go on")
			require.Len(t, failed, 1)
		})
	}
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

		"no such object":               {"Deployment csi-controller", "metadata: {}", "has no Deployment csi-controller"},
		"in no such namespace":         {"Deployment kube-system/vsphere-csi-controller", "metadata: {}", "csi@3.5.1 has no Deployment kube-system/vsphere-csi-controller"},
		"a field that there is not":    {controller, "spec: {replicass: 2}", "replicass"},
		"a name that is a list":        {controller, container("[csi-attacher]", "tty: true"), "does not fit the object"},
		"an order of what has no keys": {controller, pod("$setElementOrder/tolerations: [{key: a}]"), "does not fit the object"},
		"a test that fails":            {controller, `[{"op": "test", "path": "/spec/replicas", "value": 7}]`, "test"},
		"no patch":                     {controller, "just text", "neither a map nor a list"},
		"no YAML":                      {controller, "a: [", "yaml"},
		"copies without end":           {controller, "[" + strings.Repeat(`{"op": "copy", "from": "/spec/template", "path": "/spec/template/x"},`, 100) + `{"op": "test", "path": "/kind", "value": "Deployment"}]`, "Unable to complete the copy, the accumulated size increase of copy"},
		"settings of ours":             {"ConfigMap internal-feature-states.csi.vsphere.vmware.com", "data: {a: b}", "made from spec.storageProvider"},
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

func workload(t *testing.T, all []render.Workload, name string) render.Workload {
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

	plugin := workload(t, all, "vsphere-csi-node")
	require.Equal(t, "csi@3.5.1", plugin.Release)
	require.Equal(t, matrix.CSI, plugin.Driver)
	var images []string
	for _, i := range plugin.Images {
		images = append(images, i.Upstream)
		require.Equal(t, in.Lock.Images[slices.IndexFunc(in.Lock.Images, func(l bundle.Image) bool { return l.Digest == i.Digest })].Reference.Repository(), i.Upstream)
	}
	require.Equal(t, []string{"registry.k8s.io/csi-vsphere/driver", "registry.k8s.io/sig-storage/csi-node-driver-registrar", "registry.k8s.io/sig-storage/livenessprobe"}, images)

	of := func(more ...string) *corev1.Node {
		return node("", append([]string{"kubernetes.io/os", "linux", "kubernetes.io/arch", "amd64"}, more...)...)
	}
	const role = "node-role.kubernetes.io/control-plane"
	plane := tainted(of(role, ""), role, corev1.TaintEffectNoSchedule)
	worker, aside := of(), plane.DeepCopy()
	worker.Spec.Unschedulable, aside.Spec.Unschedulable = true, true
	for name, c := range map[string]struct {
		workload string
		node     *corev1.Node
		reaches  bool
	}{
		"a worker":                         {"vsphere-csi-node", of(), true},
		"a cordon keeps no daemon away":    {"vsphere-csi-node", worker, true},
		"another processor, by setting":    {"vsphere-csi-node", of("kubernetes.io/arch", "arm64"), false},
		"an excluded node":                 {"vsphere-csi-node", of("place", "elsewhere"), false},
		"Windows, for Linux pods":          {"vsphere-csi-node", of("kubernetes.io/os", "windows"), false},
		"Windows":                          {"vsphere-csi-node-windows", of("kubernetes.io/os", "windows"), true},
		"Linux, for Windows pods":          {"vsphere-csi-node-windows", of(), false},
		"a worker, for the controller":     {"vsphere-csi-controller", of(), false},
		"control plane":                    {"vsphere-csi-controller", plane, true},
		"a control plane that is cordoned": {"vsphere-csi-controller", aside, false},
		"the cloud provider":               {"vsphere-cloud-controller-manager", plane, true},
	} {
		w := workload(t, all, c.workload)
		require.Equal(t, c.reaches, w.Reach()(c.node), name)
	}

	in.Spec.Drivers[0].Workloads[0].Name = "none"
	for _, w := range render.Workloads(in) {
		require.NotEqual(t, matrix.CSI, w.Driver, "it cannot be rendered, and the others can")
	}
	require.NotEmpty(t, render.Workloads(in))
}
