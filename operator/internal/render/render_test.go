package render_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

var allDrivers = []matrix.Driver{matrix.CNI, matrix.CPI, matrix.SnapshotController, matrix.CSI}

// everyRelease runs a test for every release of every driver.
func everyRelease(t *testing.T, drivers []matrix.Driver, test func(t *testing.T, id matrix.ReleaseID)) {
	t.Helper()
	for _, d := range drivers {
		for _, id := range releases(t, d) {
			t.Run(string(d)+"@"+id.Version.String(), func(t *testing.T) { test(t, id) })
		}
	}
}

func TestEveryReleaseRenders(t *testing.T) {
	everyRelease(t, allDrivers, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		in.Cluster.Nodes = append(in.Cluster.Nodes, render.Node{Name: "win", Labels: map[string]string{"kubernetes.io/os": "windows"}})
		out := mustRender(t, in)
		for _, o := range out.Objects() {
			require.Equal(t, render.ManagedBy, o.GetLabels()[render.LabelManagedBy], o)
			require.Equal(t, string(id.Driver), o.GetLabels()[render.LabelDriver], o)
			require.Equal(t, id.Version.String(), o.GetLabels()[render.LabelVersion], o)
			texts(o.Object, "", func(path, text string) {
				require.NotContains(t, text, "${", "%s at %s", o, path)
				require.NotContains(t, text, "ENTER_YOUR", "%s at %s", o, path)
				require.NotContains(t, text, "your-vcenter", "%s at %s", o, path)
				if strings.HasSuffix(path, ".image") && o.GetKind() != "CustomResourceDefinition" && text != "image" {
					require.Regexp(t, `^mirror\.site:5000/vdo/drivers@sha256:[0-9a-f]{64}$`, text, "%s", o)
				}
				for _, host := range []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io/", "quay.io"} {
					if o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet" {
						require.NotContains(t, text, host, "%s at %s", o, path)
					}
				}
			})
		}
		mustRender(t, in) // the input is not changed by rendering
	})
}

func TestRenderingIsDeterministicWhateverTheOrderOfReleases(t *testing.T) {
	ids := []matrix.ReleaseID{
		release(t, matrix.CNI, "2.7.0"), release(t, matrix.CPI, "1.33.1"),
		release(t, matrix.SnapshotController, "8.2.0"), release(t, matrix.CSI, "3.5.1"),
	}
	in := input(t, ids...)
	first := mustRender(t, in)
	slices.Reverse(ids)
	in.Releases = ids
	for range 5 {
		require.Equal(t, first, mustRender(t, in))
	}
	var names []string
	for _, s := range first.Stages {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{"base", "config", "nodes", "snapshot", "csi-controller", "csi-node"}, names)
	require.Equal(t, []matrix.Driver{matrix.CNI, matrix.CPI}, first.Stages[2].Drivers)
}

func TestPodsPullFromTheMirrorWithItsLogin(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.SnapshotController, "8.2.0"), release(t, matrix.CSI, "3.5.1"))
	out := mustRender(t, in)
	var copies []string
	for _, o := range out.Objects() {
		if o.GetName() == render.PullSecret {
			copies = append(copies, o.GetNamespace())
			require.Equal(t, "kubernetes.io/dockerconfigjson", o.Object["type"])
		}
		if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
			continue
		}
		secrets := nested(unstructured.NestedSlice(o.Object, "spec", "template", "spec", "imagePullSecrets"))(t)
		require.Equal(t, []any{map[string]any{"name": render.PullSecret}}, secrets, o)
		texts(o.Object, "", func(path, text string) {
			if strings.HasSuffix(path, ".imagePullPolicy") {
				require.NotEqual(t, "Always", text, o)
			}
		})
	}
	require.ElementsMatch(t, []string{"kube-system", "vmware-system-csi"}, copies)

	in.PullSecret = nil
	require.Nil(t, find(mustRender(t, in), "Secret "+render.PullSecret))
}

func TestWhatTheBundleDoesNotHoldIsNamed(t *testing.T) {
	const file = "csi/3.5.1/vsphere-csi-driver.yaml"
	for want, c := range map[string]struct {
		change func(*render.Input)
		reason fault.Reason
	}{
		"pin image":        {func(in *render.Input) { in.Lock.Images = in.Lock.Images[1:] }, fault.Untrusted},
		"csi@3.7.3":        {func(in *render.Input) { in.Releases[0] = release(t, matrix.CSI, "3.7.3") }, fault.NotFound},
		file:               {func(in *render.Input) { delete(in.Manifests, file) }, fault.Incomplete},
		"vsphere-csi-node": {func(in *render.Input) { in.Manifests[file] = []byte("# nothing\n") }, fault.Incomplete},
		"is not known":     {func(in *render.Input) { in.Releases[0] = release(t, "rootkit", "1.0.0") }, fault.Incompatible},
	} {
		in := input(t, release(t, matrix.CSI, "3.5.1"))
		c.change(&in)
		_, err := render.Render(in)
		require.Equal(t, c.reason, fault.ReasonOf(err), want)
		require.ErrorContains(t, err, want)
		require.NotEmpty(t, fault.HintOf(err), want)
	}
}

func TestSpecWithoutTheDriversSettingsIsNamed(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	in.Spec.CloudProvider, in.Spec.StorageProvider = nil, nil
	_, err := render.Render(in)
	require.ErrorContains(t, err, "spec.cloudProvider")
	require.ErrorContains(t, err, "spec.storageProvider")
}

func TestReplicasFitTheControlPlane(t *testing.T) {
	tainted := controlPlane("cp-x")
	tainted.Taints = append(tainted.Taints, corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule})
	cordoned := controlPlane("cp-y")
	cordoned.Unschedulable = true
	notReady := controlPlane("cp-z")
	notReady.Taints = append(notReady.Taints, corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute})
	cases := map[string]struct {
		nodes []render.Node
		want  int64
		noted bool
	}{
		"none":              {nil, 1, true},
		"one":               {[]render.Node{controlPlane("a")}, 1, false},
		"two":               {[]render.Node{controlPlane("a"), controlPlane("b")}, 2, false},
		"five":              {[]render.Node{controlPlane("a"), controlPlane("b"), controlPlane("c"), controlPlane("d"), controlPlane("e")}, 3, false},
		"tainted, cordoned": {[]render.Node{controlPlane("a"), tainted, cordoned}, 1, false},
		"unreachable":       {[]render.Node{controlPlane("a"), notReady}, 2, false},
		"workers only":      {[]render.Node{{Name: "w", Labels: map[string]string{"kubernetes.io/os": "linux"}}}, 1, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			everyRelease(t, []matrix.Driver{matrix.CSI}, func(t *testing.T, id matrix.ReleaseID) {
				in := input(t, id)
				in.Cluster.Nodes = c.nodes
				out := mustRender(t, in)
				controller := object(t, out, "Deployment vsphere-csi-controller").Object
				got := nested(unstructured.NestedInt64(controller, "spec", "replicas"))(t)
				require.Equal(t, c.want, got)
				require.Equal(t, c.noted, strings.Contains(strings.Join(out.Notes, "\n"), "no node can hold"), out.Notes)
			})
		})
	}
}

func TestKubeletPathIsMovedEverywhere(t *testing.T) {
	everyRelease(t, []matrix.Driver{matrix.CSI}, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		in.Cluster.Nodes = append(in.Cluster.Nodes, render.Node{Name: "win", Labels: map[string]string{"kubernetes.io/os": "windows"}})
		count := func(name string, fragments ...string) int {
			n := 0
			texts(object(t, mustRender(t, in), "DaemonSet "+name).Object, "", func(_, text string) {
				for _, f := range fragments {
					n += strings.Count(text, f)
				}
			})
			return n
		}
		linux, windows := count("vsphere-csi-node", "/var/lib/kubelet"), count("vsphere-csi-node-windows", `\var\lib\kubelet`, `\\var\\lib\\kubelet`)
		require.GreaterOrEqual(t, linux, 6)
		require.GreaterOrEqual(t, windows, 5)
		in.Spec.StorageProvider.CustomKubeletPath = "/data/k0s/kubelet/" // the slash means nothing
		require.Zero(t, count("vsphere-csi-node", "/var/lib/kubelet"))
		require.Equal(t, linux, count("vsphere-csi-node", "/data/k0s/kubelet"))
		require.Zero(t, count("vsphere-csi-node-windows", `\var\lib\kubelet`, `\\var\\lib\\kubelet`))
		require.Equal(t, windows, count("vsphere-csi-node-windows", `\data\k0s\kubelet`, `\\data\\k0s\\kubelet`))
	})
}

func TestWindowsPluginComesWithTheFirstWindowsNode(t *testing.T) {
	in := input(t, release(t, matrix.CSI, "3.5.1"))
	require.Nil(t, find(mustRender(t, in), "DaemonSet vsphere-csi-node-windows"))
	in.Cluster.Nodes = append(in.Cluster.Nodes, render.Node{Name: "win", Labels: map[string]string{"kubernetes.io/os": "windows"}})
	require.NotNil(t, find(mustRender(t, in), "DaemonSet vsphere-csi-node-windows"))
}

func TestTopologyFlagsOnlyWithCategories(t *testing.T) {
	everyRelease(t, []matrix.Driver{matrix.CSI}, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		args := func() []string {
			return containerArgs(t, mustRender(t, in), "Deployment vsphere-csi-controller", "csi-provisioner")
		}
		require.NotContains(t, args(), "--strict-topology")
		in.Spec.StorageProvider.TopologyCategories = []string{"k8s-region", "k8s-zone"}
		require.Contains(t, args(), "--strict-topology")
		require.Contains(t, args(), "--feature-gates=Topology=true")
	})
}

func containerArgs(t *testing.T, out *render.Rendered, workload, name string) []string {
	t.Helper()
	return nested(unstructured.NestedStringSlice(containerOf(t, out, workload, name), "args"))(t)
}

func TestSnapshotControllerIsPinnedToTheControlPlane(t *testing.T) {
	everyRelease(t, []matrix.Driver{matrix.SnapshotController}, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		out := mustRender(t, in)
		args := containerArgs(t, out, "Deployment snapshot-controller", "snapshot-controller")
		require.Contains(t, args, "--kube-api-qps=100")
		require.Contains(t, args, "--kube-api-burst=100")
		require.Equal(t, "snapshot", stageOf(out, "Deployment snapshot-controller"))
		require.Equal(t, "base", stageOf(out, "CustomResourceDefinition volumesnapshots.snapshot.storage.k8s.io"))
		require.True(t, object(t, out, "CustomResourceDefinition volumesnapshots.snapshot.storage.k8s.io").Keep)
		in.Cluster.Nodes = []render.Node{{Name: "w"}}
		require.Contains(t, strings.Join(mustRender(t, in).Notes, "\n"), "no node can hold")
	})
	for _, set := range []func(*render.Cluster){
		func(c *render.Cluster) { c.ForeignSnapshotController = true },
		func(c *render.Cluster) { c.Distribution = "openshift" },
	} {
		in := input(t, release(t, matrix.SnapshotController, "8.2.0"))
		set(&in.Cluster)
		out := mustRender(t, in)
		require.Empty(t, out.Stages)
		require.Len(t, out.Notes, 1)
	}
}

func TestNamespacesAdmitThePodsAndOpenShiftGetsTheLeastThatDoes(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	out := mustRender(t, in)
	require.Nil(t, find(out, "Role vdo-vsphere-csi-node-scc"))
	ns := object(t, out, "Namespace vmware-system-csi")
	require.Equal(t, "privileged", ns.GetLabels()["pod-security.kubernetes.io/enforce"])
	require.True(t, ns.Keep)
	in.Cluster.Distribution = "openshift"
	out = mustRender(t, in)
	require.Equal(t, "false", object(t, out, "Namespace vmware-system-csi").GetLabels()["security.openshift.io/scc.podSecurityLabelSync"])
	for name, scc := range map[string]string{"vdo-vsphere-csi-node-scc": "privileged", "vdo-cloud-controller-manager-scc": "hostnetwork-v2"} {
		rules := nested(unstructured.NestedSlice(object(t, out, "Role "+name).Object, "rules"))(t)
		require.Equal(t, []any{scc}, rules[0].(map[string]any)["resourceNames"])
		require.NotNil(t, find(out, "RoleBinding "+name))
	}
	for _, w := range []string{"Deployment vsphere-csi-controller", "DaemonSet vsphere-cloud-controller-manager"} {
		texts(object(t, out, w).Object, "", func(_, text string) { require.NotEqual(t, "runAsUser", text, w) })
	}
}

func TestStagesWaitForWhatTheNextOneNeeds(t *testing.T) {
	out := mustRender(t, input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.SnapshotController, "8.2.0"), release(t, matrix.CSI, "3.5.1")))
	gates := map[string][]string{}
	for _, s := range out.Stages {
		for _, g := range s.Gates {
			text := string(g.Kind) + " " + g.Object.Name
			if len(g.Nodes) > 0 {
				text += fmt.Sprint(g.Nodes)
			}
			gates[s.Name] = append(gates[s.Name], text)
			require.NotEmpty(t, g.Why)
		}
	}
	require.Contains(t, gates["base"], "Established volumesnapshots.snapshot.storage.k8s.io")
	require.ElementsMatch(t, []string{"RolledOut vsphere-cloud-controller-manager", "NodesInitialized [cp-1 cp-2 cp-3]"}, gates["nodes"])
	require.Empty(t, gates["snapshot"], "the storage driver needs the kinds only")
	require.ElementsMatch(t, []string{"RolledOut vsphere-csi-controller", "Exists csinodetopologies.cns.vmware.com"}, gates["csi-controller"])
	require.Equal(t, []string{"RolledOut vsphere-csi-node"}, gates["csi-node"])
}

func TestNothingThatIsPrintedHoldsASecret(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	out := mustRender(t, in)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, in.VCenters), "s#s;w")
		require.NotContains(t, fmt.Sprintf(verb, out.Objects()), "cEBh")
		require.NotContains(t, fmt.Sprintf(verb, out.Objects()), "data:map")
	}
	for _, name := range []string{"DaemonSet vsphere-cloud-controller-manager", "Deployment vsphere-csi-controller"} {
		texts(object(t, out, name).Object, "", func(_, text string) { require.NotContains(t, text, "s#s;w") })
	}
	changeVCenter(in, func(v *render.VCenter) {
		v.Credentials = render.Credentials{Username: "no-domain", Password: "canary\x00password"}
	})
	_, err := render.Render(in)
	require.Error(t, err)
	require.NotContains(t, fault.Text(err), "canary")
}

func TestConfigHashFollowsTheConfigurationAndItsKey(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	hash := func(what string) string {
		a := podAnnotations(t, mustRender(t, in), what)
		require.Len(t, a[render.AnnotationConfigHash], 64)
		return a[render.AnnotationConfigHash]
	}
	workloads := []string{"DaemonSet vsphere-cloud-controller-manager", "Deployment vsphere-csi-controller"}
	for _, w := range workloads {
		before := hash(w)
		require.Equal(t, before, hash(w))
		changeVCenter(in, func(v *render.VCenter) { v.Credentials.Password += "1" })
		changed := hash(w)
		require.NotEqual(t, before, changed)
		in.HashKey = append([]byte{9}, in.HashKey...)
		require.NotEqual(t, changed, hash(w))
	}
	in.HashKey = []byte("short")
	_, err := render.Render(in)
	require.Error(t, err)
}
