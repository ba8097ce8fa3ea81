package render_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
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
		withWindows(&in)
		out := mustRender(t, in)
		for _, o := range out.Objects() {
			if o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet" {
				secrets := nested(unstructured.NestedSlice(o.Object, "spec", "template", "spec", "imagePullSecrets"))(t)
				require.Equal(t, []any{map[string]any{"name": render.PullSecret}}, secrets, o)
			}
			require.Equal(t, render.ManagedBy, o.GetLabels()[render.LabelManagedBy], o)
			require.Equal(t, string(id.Driver), o.GetLabels()[render.LabelDriver], o)
			require.Equal(t, id.Version.String(), o.GetLabels()[render.LabelVersion], o)
			texts(o.Object, "", func(path, text string) {
				require.NotContains(t, text, "${", "%s at %s", o, path)
				require.NotContains(t, text, "ENTER_YOUR", "%s at %s", o, path)
				require.NotContains(t, text, "your-vcenter", "%s at %s", o, path)
				require.False(t, strings.HasSuffix(path, ".imagePullPolicy") && text == "Always", "%s at %s", o, path)
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

// While an upgrade waits, each pass renders what runs and what is desired.
func TestAWaitingUpgradeDecodesNoManifestAgain(t *testing.T) {
	var both []render.Input
	for _, v := range [][]string{{"1.32.1", "7.0.2", "3.4.0"}, {"1.33.1", "8.2.0", "3.5.1"}} {
		both = append(both, input(t, release(t, matrix.CNI, "2.7.0"), release(t, matrix.CPI, v[0]),
			release(t, matrix.SnapshotController, v[1]), release(t, matrix.CSI, v[2])))
	}
	work := func(all ...render.Input) float64 {
		return testing.AllocsPerRun(3, func() {
			for _, in := range all {
				mustRender(t, in)
			}
		})
	}
	require.Less(t, work(both...), 1.2*(work(both[0])+work(both[1])))
}

func TestStages(t *testing.T) {
	ids := []matrix.ReleaseID{
		release(t, matrix.CNI, "2.7.0"), release(t, matrix.CPI, "1.33.1"),
		release(t, matrix.SnapshotController, "8.2.0"), release(t, matrix.CSI, "3.5.1"),
	}
	in := input(t, ids...)
	in.Mirrored = mirrorset.Entries{{Source: "up.example/a", Mirrors: []string{"m.site/vdo/up.example/a"}}}
	in.Spec.StorageProvider.StorageClasses = []v1alpha1.StorageClass{{Name: "gold"}}
	in.Spec.StorageProvider.Webhook = true
	in.Webhook = must.Have(webhookcert.Issue(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))(t)
	out := mustRender(t, in)
	var stages []string
	for _, s := range out.Stages {
		stage := s.Name + fmt.Sprint(s.Drivers)
		for _, g := range s.Waits {
			require.NotEmpty(t, g.Why)
			if s.Name != "base" || g.Object.Name == "volumesnapshots.snapshot.storage.k8s.io" {
				stage += ", " + string(g.Kind) + " " + g.Object.Name + strings.Join(g.Nodes, " ")
			}
		}
		stages = append(stages, stage)
	}
	require.Equal(t, []string{
		"base[cni csi snapshot-controller], Established volumesnapshots.snapshot.storage.k8s.io",
		"config[cni cpi csi snapshot-controller]",
		"mirrors[mirror-set], Exists vdo-operator",
		"nodes[cni cpi], RolledOut antrea-controller, RolledOut antrea-agent, RolledOut vsphere-cloud-controller-manager, " +
			"NodesInitialized cp-1 cp-2 cp-3",
		"snapshot[snapshot-controller]", // the storage driver needs the kinds only
		"csi-controller[csi], Exists csinodetopologies.cns.vmware.com, RolledOut vsphere-csi-controller",
		"csi-node[csi], RolledOut vsphere-csi-node",
		"classes[csi]",
		"webhook-server[csi], RolledOut vsphere-csi-webhook",
		"webhook[csi]",
	}, stages)
	slices.Reverse(ids)
	in.Releases = ids
	for range 5 {
		require.Equal(t, out, mustRender(t, in))
	}
}

// What the bundle lacks, and what the drivers would pass over without a word.
func TestWhatCannotBeRenderedIsNamed(t *testing.T) {
	const file = "csi/3.5.1/vsphere-csi-driver.yaml"
	addresses := func(a v1alpha1.NodeAddresses, families ...string) func(*render.Input) {
		return func(in *render.Input) {
			in.Spec.CloudProvider.NodeAddresses, in.Spec.CloudProvider.IPFamilies = &a, families
		}
	}
	for want, c := range map[string]struct {
		change func(*render.Input)
		reason fault.Reason
	}{
		"pin image":        {func(in *render.Input) { in.Lock.Images = in.Lock.Images[1:] }, fault.Untrusted},
		"csi@3.7.3":        {func(in *render.Input) { in.Releases[0] = release(t, matrix.CSI, "3.7.3") }, fault.NotFound},
		file:               {func(in *render.Input) { delete(in.Manifests, file) }, fault.Incomplete},
		"vsphere-csi-node": {func(in *render.Input) { in.Manifests[file] = []byte("# nothing\n") }, fault.Incomplete},
		"is not known":     {func(in *render.Input) { in.Releases[0] = release(t, "rootkit", "1.0.0") }, fault.Incompatible},

		"spec.cloudProvider is not set":   {func(in *render.Input) { in.Spec.CloudProvider = nil }, fault.InvalidInput},
		"spec.storageProvider is not set": {func(in *render.Input) { in.Spec.StorageProvider = nil }, fault.InvalidInput},
		`"10.0.0.0" is not a subnet`:      {addresses(v1alpha1.NodeAddresses{InternalSubnets: []string{"10.0.0.0"}}), fault.InvalidInput},
		`"10.0.0.0/8,a" is not a subnet`:  {addresses(v1alpha1.NodeAddresses{ExcludeExternalSubnets: []string{"10.0.0.0/8,a"}}), fault.InvalidInput},
		"fd00::/8 has no effect":          {addresses(v1alpha1.NodeAddresses{ExternalSubnets: []string{"fd00::/8"}}), fault.InvalidInput},
		"10.0.0.0/8 has no effect":        {addresses(v1alpha1.NodeAddresses{ExcludeInternalSubnets: []string{"10.0.0.0/8"}}, "ipv6"), fault.InvalidInput},
	} {
		in := input(t, release(t, matrix.CSI, "3.5.1"), release(t, matrix.CPI, "1.33.1"))
		c.change(&in)
		_, err := render.Render(in)
		require.Equal(t, c.reason, fault.ReasonOf(err), want)
		require.ErrorContains(t, err, want)
		require.NotEmpty(t, fault.HintOf(err), want)
	}
}

func TestKubeletPathIsMovedEverywhere(t *testing.T) {
	everyRelease(t, []matrix.Driver{matrix.CSI}, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		withWindows(&in)
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
	in := input(t, release(t, matrix.CNI, "2.7.0"))
	in.Spec.StorageProvider.CustomKubeletPath = "/data/k0s/kubelet"
	looks{ // Antrea's agent would not start without that folder of the node, and reads it where it is mounted
		{agent + "volumes/host-pod-resources/hostPath/path", `="/data/k0s/kubelet/pod-resources"`},
		{agent + "containers/antrea-agent/volumeMounts/host-pod-resources/mountPath", `="/var/lib/kubelet/pod-resources"`},
	}.require(t, mustRender(t, in))

	sums := map[string]bool{} // pods mount the files of a ConfigMap by subPath: they see no change
	for _, data := range []string{"{a: b}", "{a: c}"} {
		in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CNI, "ConfigMap", "antrea-config", "data: "+data)}
		for _, o := range []string{"DaemonSet antrea-agent", "Deployment antrea-controller"} {
			sums[o+at(t, mustRender(t, in), o+ofPods)] = true
		}
	}
	require.Len(t, sums, 4)
}

func TestNothingThatIsPrintedHoldsASecret(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	out := mustRender(t, in)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, in.VCenters), "s#s;w")
		require.NotContains(t, fmt.Sprintf(verb, out.Objects()), "cEBh")
		require.NotContains(t, fmt.Sprintf(verb, out.Objects()), "data:map")
	}
	for _, name := range []string{cloud, controller} {
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
		annotations := at(t, mustRender(t, in), what+ofPods)
		require.Regexp(t, render.AnnotationConfigHash+`":"[0-9a-f]{64}"`, annotations)
		return annotations
	}
	for _, w := range []string{cloud, controller} {
		before := hash(w)
		require.Equal(t, before, hash(w))
		changeVCenter(in, func(v *render.VCenter) { v.Credentials.Password += "1" })
		changed := hash(w)
		require.NotEqual(t, before, changed)
		in.HashKey = append([]byte{9}, in.HashKey...)
		require.NotEqual(t, changed, hash(w))
	}
	in.HashKey = []byte("short")
	require.Contains(t, fault.HintOf(must.Err(render.Render(in))), "delete the operator's Secret vdo-config-hash")
}

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
