package render_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// Objects that rows name often.
const (
	cloud      = "DaemonSet vsphere-cloud-controller-manager"
	controller = "Deployment vsphere-csi-controller"
	plugin     = "DaemonSet vsphere-csi-node"
	windows    = "DaemonSet vsphere-csi-node-windows"
	snapshots  = "Deployment snapshot-controller"
	states     = "ConfigMap internal-feature-states.csi.vsphere.vmware.com"
	registers  = "ValidatingWebhookConfiguration validation.csi.vsphere.vmware.com"

	inPods     = " spec/template/spec/"
	ofPods     = " spec/template/metadata/annotations"
	cloudEnv   = cloud + inPods + "containers/vsphere-cloud-controller-manager/env"
	driverEnv  = controller + inPods + "containers/vsphere-csi-controller/env"
	agent      = "DaemonSet antrea-agent" + inPods
	provisions = controller + inPods + "containers/csi-provisioner/"
)

// absent is what a place that is not there has.
const absent = "-"

// at is the JSON of a place, "Kind name path/to/field", where items of lists are named by their name or
// number; of Secrets' data the text. Paths "stage" and "apply" are of the object itself, and the
// place "notes" is of all.
func at(t testing.TB, out *render.Rendered, place string) string {
	parts := strings.SplitN(place, " ", 3)
	if len(parts) == 1 {
		return strings.Join(out.Notes, "\n")
	}
	o := find(out, parts[0]+" "+parts[1])
	if o == nil {
		return absent
	}
	own := map[string]any{"stage": stageOf(out, parts[0]+" "+parts[1]), "apply": o.Apply}
	var value any = o.Object
	for _, key := range strings.Split(parts[2], "/") {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			for n := 0; err != nil && n < len(v); n++ {
				if item, _ := v[n].(map[string]any); item["name"] == key {
					i, err = n, nil
				}
			}
			require.NoError(t, err, place)
			value = v[i]
		}
		if is, ok := own[key]; ok {
			value = is
		}
		if value == nil {
			return absent
		}
	}
	if text, ok := value.(string); ok && parts[0] == "Secret" && strings.HasPrefix(parts[2], "data/") {
		return string(must.Have(base64.StdEncoding.DecodeString(text))(t))
	}
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(value))
	return strings.TrimSpace(data.String())
}

// looks are places, with what each has; "!" before what it has not, and "=" before all that it has.
type looks [][2]string

func (l looks) require(t *testing.T, out *render.Rendered) {
	for _, look := range l {
		has, want := at(t, out, look[0]), look[1]
		switch {
		case want == absent, strings.HasPrefix(want, "="):
			require.Equal(t, strings.TrimPrefix(want, "="), has, look[0])
		case strings.HasPrefix(want, "!"):
			require.NotContains(t, has, want[1:], look[0])
		default:
			require.Contains(t, has, want, look[0])
		}
	}
}

func withWindows(in *render.Input) {
	in.Cluster.Nodes = append(in.Cluster.Nodes, node("win", "kubernetes.io/os", "windows"))
}

func onNodes(nodes ...*corev1.Node) func(*render.Input) {
	return func(in *render.Input) { in.Cluster.Nodes = nodes }
}

func tainted(n *corev1.Node, key string, effect corev1.TaintEffect) *corev1.Node {
	n = n.DeepCopy()
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	return n
}

// names are what the images of all containers are called.
var (
	imageOf = regexp.MustCompile(`"image":"([^"]*)"`)
	names   = map[v1alpha1.ImageNames]string{
		v1alpha1.ImageNamesRepository: `^mirror\.site:5000/vdo/drivers@sha256:`,
		v1alpha1.ImageNamesPaths:      `^mirror\.site:5000/vdo/drivers/[a-z0-9.]+\.io/[a-z0-9/-]+@sha256:`,
		v1alpha1.ImageNamesUpstream:   `^[a-z0-9.]+\.io/[a-z0-9/-]+@sha256:`,
	}
)

func TestWhatIsMadeOfObjects(t *testing.T) {
	cert := must.Have(webhookcert.Issue(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))(t)
	newer := image.MustReference("registry.k8s.io/sig-storage/csi-provisioner:v5.0.0")
	a, b, c := controlPlane("a"), controlPlane("b"), controlPlane("c")
	cordoned := controlPlane("cordoned")
	cordoned.Spec.Unschedulable = true
	no := false
	for name, row := range map[string]struct {
		edit func(*render.Input)
		has  looks
	}{
		"nothing is asked for": {func(*render.Input) {}, looks{
			{windows + " kind", absent}, {provisions + "args", "!--strict-topology"}, {provisions + "args", "!--v=6"},
			{plugin + ofPods, "!" + render.AnnotationTopology}, {driverEnv, "!_PROXY"}, {cloudEnv, "!SKIP_NODE_DELETION"},
			{plugin + inPods + "affinity", "!NotIn"},
			{states + " data", `"trigger-csi-fullsync":"false"`}, {states + " apply", "Replace"}, {states + " stage", "csi-controller"},
			{snapshots + inPods + "containers/snapshot-controller/args", `"--kube-api-qps=100"`},
			{snapshots + inPods + "containers/snapshot-controller/args", `"--kube-api-burst=100"`},
			{snapshots + " stage", "snapshot"}, {provisions + "image", `"mirror.site:5000/vdo/drivers@sha256:`},
			{"CustomResourceDefinition volumesnapshots.snapshot.storage.k8s.io stage", "base"},
			{"Namespace vmware-system-csi metadata/labels", `"pod-security.kubernetes.io/enforce":"privileged"`},
			{"Role vdo-vsphere-csi-node-scc kind", absent}, {"Deployment vsphere-csi-webhook kind", absent},
			{"ImageDigestMirrorSet vdo-operator kind", absent},
			{"Secret " + render.PullSecret + " type", "kubernetes.io/dockerconfigjson"},
		}},
		"the mirror wants no login": {func(in *render.Input) { in.PullSecret = nil }, looks{
			{"Secret " + render.PullSecret + " kind", absent}, {controller + inPods + "imagePullSecrets", absent},
		}},
		"images in paths of the mirror": {func(in *render.Input) { in.ImageNames = v1alpha1.ImageNamesPaths }, looks{
			{provisions + "image", `"mirror.site:5000/vdo/drivers/`}, {provisions + "image", "io/sig-storage/csi-provisioner@sha256:"},
		}},
		"images by their names upstream": {func(in *render.Input) { in.ImageNames = v1alpha1.ImageNamesUpstream }, looks{
			{provisions + "image", "!mirror"}, {provisions + "image", "io/sig-storage/csi-provisioner@sha256:"},
		}},
		"topology": {func(in *render.Input) {
			withWindows(in)
			in.Spec.StorageProvider.TopologyCategories = []string{"k8s-region", "k8s-zone"}
		}, looks{ // a node keeps the topology that it was registered with: its plugin restarts, and not at another change
			{provisions + "args", `"--strict-topology"`}, {provisions + "args", `"--feature-gates=Topology=true"`},
			{plugin + ofPods, `"` + render.AnnotationTopology + `":"k8s-region,k8s-zone"`}, {plugin + ofPods, "!" + render.AnnotationConfigHash},
			{windows + ofPods, `"` + render.AnnotationTopology + `":"k8s-region,k8s-zone"`},
		}},
		"a feature state": {func(in *render.Input) {
			in.Spec.StorageProvider.FeatureStates = map[string]bool{"trigger-csi-fullsync": true}
		}, looks{{states + " data", `"trigger-csi-fullsync":"true"`}, {states + " data", `"false"`},
			{controller + ofPods, `"checksum/internal-feature-states.csi.vsphere.vmware.com":"`},
			{plugin + ofPods, `"checksum/internal-feature-states.csi.vsphere.vmware.com":"`}}},
		"classes": {func(in *render.Input) {
			in.Spec.StorageProvider.StorageClasses = []v1alpha1.StorageClass{
				{Name: "gold", StoragePolicy: "Gold, 2 copies", Default: true, FSType: "xfs"},
				{Name: "archive", DatastoreURL: "ds:///vmfs/volumes/vsan:1/", ReclaimPolicy: "Retain", AllowVolumeExpansion: &no},
			}
			in.Spec.StorageProvider.SnapshotClasses = []v1alpha1.SnapshotClass{{Name: "snap", Default: true, DeletionPolicy: "Retain"}}
		}, looks{
			{"StorageClass gold stage", "classes"}, {"StorageClass gold provisioner", "csi.vsphere.vmware.com"},
			{"StorageClass gold parameters", `={"csi.storage.k8s.io/fstype":"xfs","storagepolicyname":"Gold, 2 copies"}`},
			{"StorageClass gold volumeBindingMode", "Immediate"}, {"StorageClass gold allowVolumeExpansion", "true"},
			{"StorageClass gold metadata/annotations", `"storageclass.kubernetes.io/is-default-class":"true"`},
			{"StorageClass archive reclaimPolicy", "Retain"}, {"StorageClass archive allowVolumeExpansion", "false"},
			{"StorageClass archive metadata/annotations", `"storageclass.kubernetes.io/is-default-class":"false"`},
			{"VolumeSnapshotClass snap driver", "csi.vsphere.vmware.com"}, {"VolumeSnapshotClass snap deletionPolicy", "Retain"},
		}},
		"classes and topology": {func(in *render.Input) {
			in.Spec.StorageProvider.StorageClasses = []v1alpha1.StorageClass{{Name: "gold"}}
			in.Spec.StorageProvider.TopologyCategories = []string{"k8s-zone"}
		}, looks{{"StorageClass gold volumeBindingMode", "WaitForFirstConsumer"}}},
		"the webhook": {func(in *render.Input) { in.Spec.StorageProvider.Webhook, in.Webhook = true, cert }, looks{
			{"Deployment vsphere-csi-webhook stage", "webhook-server"}, {registers + " stage", `="webhook"`},
			{"Secret vsphere-webhook-certs data/tls.crt", "=" + string(cert.Cert)}, {"Secret vsphere-webhook-certs data/webhook.config", `port = "8443"`},
			{registers + " webhooks/0/clientConfig/caBundle", base64.StdEncoding.EncodeToString(cert.CA)},
			{"Deployment snapshot-validation-deployment kind", absent},
		}},
		"OpenShift": {func(in *render.Input) { in.Cluster.Distribution = "openshift" }, looks{
			{"Namespace vmware-system-csi metadata/labels", `"security.openshift.io/scc.podSecurityLabelSync":"false"`},
			{"Namespace vmware-system-csi metadata/annotations", `={"openshift.io/node-selector":""}`},
			{"Role vdo-vsphere-csi-node-scc rules/0/resourceNames", `=["privileged"]`}, {"RoleBinding vdo-vsphere-csi-node-scc roleRef/name", "vdo-vsphere-csi-node-scc"},
			{"Role vdo-cloud-controller-manager-scc rules/0/resourceNames", `=["hostnetwork-v2"]`}, {"RoleBinding vdo-cloud-controller-manager-scc kind", "RoleBinding"},
			{controller + " spec", "!runAsUser"}, {cloud + " spec", "!runAsUser"},
		}},
		"a mirror set": {func(in *render.Input) {
			in.Mirrored = mirrorset.Entries{{Source: "up.example/a", Mirrors: []string{"m.site/vdo/up.example/a", "old.site/up.example/a"}}}
		}, looks{
			{"ImageDigestMirrorSet vdo-operator apiVersion", "config.openshift.io/v1"},
			{"ImageDigestMirrorSet vdo-operator metadata", `={"labels":{"app.kubernetes.io/managed-by":"vdo-operator",` +
				`"vdo.vmware.com/driver":"` + string(drivers.MirrorSet) + `","vdo.vmware.com/version":"v1"},"name":"vdo-operator"}`},
			{"ImageDigestMirrorSet vdo-operator spec", `={"imageDigestMirrors":[{"mirrorSourcePolicy":"AllowContactingSource",` +
				`"mirrors":["m.site/vdo/up.example/a","old.site/up.example/a"],"source":"up.example/a"}]}`},
		}},

		"workers only": {onNodes(node("w")), looks{{controller + " spec/replicas", "=1"}, {"notes", "no node can hold the pods of Deployment kube-system/snapshot-controller"}}},
		"a selector that fits no node": {func(in *render.Input) {
			in.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", Workloads: []v1alpha1.Workload{
				{Name: "vsphere-csi-controller", NodeSelector: map[string]string{"disk": "none"}}}}}
		}, looks{{"notes", "disk=none"}}},
		"two":                        {onNodes(a, b), looks{{controller + " spec/replicas", "=2"}, {"notes", "!no node can hold"}}},
		"five":                       {onNodes(a, b, c, controlPlane("d"), controlPlane("e")), looks{{controller + " spec/replicas", "=3"}}},
		"one is tainted or cordoned": {onNodes(a, tainted(b, "dedicated", corev1.TaintEffectNoSchedule), cordoned), looks{{controller + " spec/replicas", "=1"}}},
		"one is unreachable":         {onNodes(a, tainted(b, "node.kubernetes.io/unreachable", corev1.TaintEffectNoExecute)), looks{{controller + " spec/replicas", "=2"}}},

		// Nodes that are not on vSphere: each of a pod's terms, of which one has to hold, excludes them.
		"excluded nodes": {func(in *render.Input) {
			withWindows(in)
			in.Spec.ExcludedNodes = map[string]string{"site/metal": "yes", "cloud": "other"}
			in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CSI, "DaemonSet", "vsphere-csi-node", `
spec: {template: {spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: a, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, values: [node-1]}]}]}}}}}}`)}
		}, looks{
			{windows + inPods + "affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms", `=[{"matchExpressions":[` + notThere + `]}]`},
			{plugin + inPods + "affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
				`=[{"matchExpressions":[{"key":"a","operator":"Exists"},` + notThere + `]},{"matchExpressions":[` + notThere +
					`],"matchFields":[{"key":"metadata.name","operator":"In","values":["node-1"]}]}]`},
			{cloudEnv, `{"name":"SKIP_NODE_DELETION","value":"true"}`},
			{"notes", "spec.excludedNodes: the cloud provider deletes no Node objects; delete those of VMs that are gone by hand"},
		}},
		"a patch that moves the snapshot-controller": {func(in *render.Input) {
			in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.SnapshotController, "Deployment", "snapshot-controller", `
spec: {template: {spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}}}}}`)}
			in.Cluster.Nodes = []*corev1.Node{node("w", "kubernetes.io/os", "linux")}
		}, looks{
			{snapshots + inPods + "affinity", `"key":"kubernetes.io/os"`}, {snapshots + inPods + "affinity", "!control-plane"},
			{"notes", "!pods of Deployment kube-system/snapshot-controller"},
		}},
		"a patch that names pull secrets": {func(in *render.Input) {
			in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CSI, "Deployment", "vsphere-csi-controller",
				"spec: {template: {spec: {imagePullSecrets: [{name: "+render.PullSecret+"}, {name: own}]}}}")}
		}, looks{
			{controller + inPods + "imagePullSecrets", `=[{"name":"own"},{"name":"` + render.PullSecret + `"}]`},
		}},
		"settings": {func(in *render.Input) {
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
			infra := tainted(controlPlane("infra"), "dedicated", corev1.TaintEffectNoSchedule)
			infra.Labels["pool"] = "infra"
			in.Cluster.Nodes = append(in.Cluster.Nodes, infra)
		}, looks{
			{provisions + "args", "--timeout=600s"}, {provisions + "args", "!--timeout=300s"}, {provisions + "args", "--extra-create-metadata"}, {provisions + "args", "--v=6"},
			{provisions + "resources", `={"limits":{"memory":"256Mi"},"requests":{"cpu":"50m"}}`},
			{provisions + "env", "!HTTPS_PROXY"}, // a sidecar talks to the API server alone
			{driverEnv, `{"name":"HTTPS_PROXY","value":"http://proxy.site:3128"}`},
			{driverEnv, `"name":"NO_PROXY","value":"$(KUBERNETES_SERVICE_HOST),`}, {driverEnv, ",vc2.site,10.0.0.0/8"},
			{driverEnv, `"LOGGER_LEVEL","value":"DEVELOPMENT"`},
			{controller + inPods + "containers/vsphere-syncer/env", "HTTPS_PROXY"},
			{plugin + inPods + "containers/vsphere-csi-node/env", `"LOGGER_LEVEL","value":"DEVELOPMENT"`},
			{controller + inPods + "priorityClassName", "site-critical"}, {controller + inPods + "nodeSelector", `"pool":"infra"`},
			{controller + " spec/replicas", "=1"}, // they fit the nodes that the settings leave
		}},
		"patches": {func(in *render.Input) {
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
				patchOf(matrix.CPI, "DaemonSet", "vsphere-cloud-controller-manager", `spec: {template: {spec: {volumes: [{name: proxy-ca, configMap: {name: proxy-ca}}]}}}`),
				patchOf(matrix.CNI, "DaemonSet", "antrea-agent", `metadata: {annotations: {a: b}}`), // which is not installed
			}
		}, looks{ // lists are merged by their keys
			{plugin + " spec/updateStrategy/rollingUpdate", `"maxUnavailable":"10%"`},
			{plugin + inPods + "containers/vsphere-csi-node/env", `{"name":"MAX_VOLUMES_PER_NODE","value":"30"}`},
			{plugin + inPods + "containers/vsphere-csi-node/env", `{"name":"X_CSI_MODE","value":"node"}`},
			{plugin + inPods + "containers/vsphere-csi-node/securityContext", `"privileged":true`},
			{plugin + inPods + "containers/vsphere-csi-node/image", "mirror.site:5000/vdo/drivers@sha256:"},
			{controller + inPods + "containers/csi-attacher/args", "--v=2"}, {cloud + inPods + "volumes", "proxy-ca"},
		}},
		"a patch with another image of the bundle": {func(in *render.Input) {
			in.Lock.Images = append(in.Lock.Images, bundle.Image{Reference: newer, Digest: image.DigestOf([]byte("newer"))})
			in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CSI, "Deployment", "vsphere-csi-controller",
				`spec: {template: {spec: {containers: [{name: csi-provisioner, image: "`+newer.String()+`"}]}}}`)}
		}, looks{{provisions + "image", repository + "@" + image.DigestOf([]byte("newer")).String()}}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range releases(t, matrix.CSI) {
				var ids []matrix.ReleaseID
				for _, d := range allDrivers[1:] {
					all := releases(t, d)
					ids = append(ids, all[i%len(all)])
				}
				in := input(t, ids...)
				row.edit(&in)
				lock := fmt.Sprint(in.Lock)
				out := mustRender(t, in)
				row.has.require(t, out)
				for _, o := range out.Objects() {
					for _, is := range imageOf.FindAllStringSubmatch(string(must.Have(json.Marshal(o.Object))(t)), -1) {
						require.Regexp(t, names[cmp.Or(in.ImageNames, v1alpha1.ImageNamesRepository)], is[1])
					}
				}
				require.Equal(t, lock, fmt.Sprint(in.Lock))
			}
		})
	}
}

// notThere excludes the nodes of the row about them.
const notThere = `{"key":"cloud","operator":"NotIn","values":["other"]},{"key":"site/metal","operator":"NotIn","values":["yes"]}`
