package catalog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// The images of every upstream release that tests have, as its manifests write
// them. Two tags of one name are two images (csi@3.3.1: the Windows registrar).
var upstreamImages = map[string]string{
	"cpi/v1.27.0": "gcr.io/cloud-provider-vsphere/cpi/release/manager:v1.27.0",
	"cpi/v1.30.2": "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.30.2",
	"cpi/v1.31.1": "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.31.1",
	"cpi/v1.33.1": "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.33.1",
	"cpi/v1.34.0": "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.34.0",
	"cpi/v1.36.0": "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.36.0",
	"csi/v2.7.3": `gcr.io/cloud-provider-vsphere/csi/release/driver:v2.7.3
		gcr.io/cloud-provider-vsphere/csi/release/syncer:v2.7.3
		k8s.gcr.io/sig-storage/csi-attacher:v3.5.0
		k8s.gcr.io/sig-storage/csi-node-driver-registrar:v2.6.2
		k8s.gcr.io/sig-storage/csi-provisioner:v3.3.0
		k8s.gcr.io/sig-storage/csi-resizer:v1.6.0
		k8s.gcr.io/sig-storage/csi-snapshotter:v6.0.1
		k8s.gcr.io/sig-storage/livenessprobe:v2.8.0
		k8s.gcr.io/sig-storage/snapshot-validation-webhook:v6.0.1`,
	"csi/v3.0.3": `gcr.io/cloud-provider-vsphere/csi/release/driver:v3.0.3
		gcr.io/cloud-provider-vsphere/csi/release/syncer:v3.0.3
		k8s.gcr.io/sig-storage/csi-attacher:v4.2.0
		k8s.gcr.io/sig-storage/csi-node-driver-registrar:v2.7.0
		k8s.gcr.io/sig-storage/csi-provisioner:v3.4.0
		k8s.gcr.io/sig-storage/csi-resizer:v1.7.0
		k8s.gcr.io/sig-storage/csi-snapshotter:v6.2.1
		k8s.gcr.io/sig-storage/livenessprobe:v2.9.0
		k8s.gcr.io/sig-storage/snapshot-validation-webhook:v6.2.1`,
	"csi/v3.1.2": `gcr.io/cloud-provider-vsphere/csi/release/driver:v3.1.2
		gcr.io/cloud-provider-vsphere/csi/release/syncer:v3.1.2
		registry.k8s.io/sig-storage/csi-attacher:v4.3.0
		registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.8.0
		registry.k8s.io/sig-storage/csi-provisioner:v3.5.0
		registry.k8s.io/sig-storage/csi-resizer:v1.8.0
		registry.k8s.io/sig-storage/csi-snapshotter:v6.2.2
		registry.k8s.io/sig-storage/livenessprobe:v2.10.0
		registry.k8s.io/sig-storage/snapshot-validation-webhook:v6.2.2`,
	"csi/v3.3.1": `gcr.io/cloud-provider-vsphere/csi/release/driver:v3.3.1
		gcr.io/cloud-provider-vsphere/csi/release/syncer:v3.3.1
		registry.k8s.io/sig-storage/csi-attacher:v4.5.1
		registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.10.0
		registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.10.1
		registry.k8s.io/sig-storage/csi-provisioner:v4.0.1
		registry.k8s.io/sig-storage/csi-resizer:v1.10.1
		registry.k8s.io/sig-storage/csi-snapshotter:v7.0.2
		registry.k8s.io/sig-storage/livenessprobe:v2.12.0
		registry.k8s.io/sig-storage/snapshot-validation-webhook:v7.0.2`,
	"csi/v3.5.1": `registry.k8s.io/csi-vsphere/driver:v3.5.1
		registry.k8s.io/csi-vsphere/syncer:v3.5.1
		registry.k8s.io/sig-storage/csi-attacher:v4.8.1
		registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0
		registry.k8s.io/sig-storage/csi-provisioner:v4.0.1
		registry.k8s.io/sig-storage/csi-resizer:v1.12.0
		registry.k8s.io/sig-storage/csi-snapshotter:v8.2.0
		registry.k8s.io/sig-storage/livenessprobe:v2.15.0
		registry.k8s.io/sig-storage/snapshot-validation-webhook:v7.0.2`,
	"csi/v3.7.3": `registry.k8s.io/csi-vsphere/driver:v3.7.3
		registry.k8s.io/csi-vsphere/syncer:v3.7.3
		registry.k8s.io/sig-storage/csi-attacher:v4.9.0
		registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0
		registry.k8s.io/sig-storage/csi-provisioner:v4.0.1
		registry.k8s.io/sig-storage/csi-resizer:v1.12.0
		registry.k8s.io/sig-storage/csi-snapshotter:v8.2.0
		registry.k8s.io/sig-storage/livenessprobe:v2.15.0
		registry.k8s.io/sig-storage/snapshot-validation-webhook:v7.0.2`,
	"external-snapshotter/v6.0.1": "gcr.io/k8s-staging-sig-storage/snapshot-controller:v5.0.1",
	"external-snapshotter/v6.2.1": "registry.k8s.io/sig-storage/snapshot-controller:v6.1.0",
	"external-snapshotter/v6.2.2": "registry.k8s.io/sig-storage/snapshot-controller:v6.2.1",
	"external-snapshotter/v7.0.2": "registry.k8s.io/sig-storage/snapshot-controller:v6.3.1",
	"external-snapshotter/v8.2.0": "registry.k8s.io/sig-storage/snapshot-controller:v8.0.1",
	"antrea/v2.5.0":               "antrea/antrea-agent-ubuntu:latest antrea/antrea-controller-ubuntu:latest",
	"antrea/v2.7.0":               "antrea/antrea-agent-ubuntu:latest antrea/antrea-controller-ubuntu:latest",
}

func TestImagesOfUpstreamManifests(t *testing.T) {
	dir := upstream.Dir(t)
	var folders []string
	for _, driver := range []string{"antrea", "cpi", "csi", "external-snapshotter"} { // others have no images of drivers
		of, err := filepath.Glob(filepath.Join(dir, driver, "v*"))
		require.NoError(t, err)
		folders = append(folders, of...)
	}
	require.Len(t, folders, len(upstreamImages))
	for _, folder := range folders {
		rel, err := filepath.Rel(dir, folder)
		require.NoError(t, err)
		t.Run(rel, func(t *testing.T) {
			want := strings.Fields(upstreamImages[filepath.ToSlash(rel)])
			require.Equal(t, want, imagesIn(t, folder))
		})
	}
}

// imagesIn returns the images of a release's folder, sorted, each once, and checks
// that no line of its files names another one.
func imagesIn(t *testing.T, folder string) []string {
	t.Helper()
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	found := map[string]bool{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(folder, f.Name()))
		require.NoError(t, err)
		uses, err := catalog.Images(f.Name(), data)
		require.NoError(t, err)
		for _, u := range uses {
			found[u.Image] = true
		}
		for line := range strings.Lines(string(data)) {
			if _, image, ok := strings.Cut(line, "image:"); ok && strings.Contains(image, ":") && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				image = strings.Trim(strings.Fields(image)[0], `"'`)
				require.True(t, found[image], "%s: %s", f.Name(), line)
			}
		}
	}
	return sorted(found)
}

func TestEveryPlaceOfAnImageIsFound(t *testing.T) {
	data := `
apiVersion: v1
kind: List
items:
- kind: Pod
  metadata: {name: p}
  spec:
    initContainers: [{name: i, image: init}]
    containers: [{name: c, image: main}]
    ephemeralContainers: [{name: e, image: ephemeral}]
    volumes: [{name: v, image: {reference: volume}}, {name: w, emptyDir: {}}]
- kind: DeploymentList
  items:
  - kind: Deployment
    metadata: {name: d}
    spec: {template: {spec: {containers: [{name: c, image: deployment}]}}}
---
---
# only a comment
---
kind: CronJob
metadata: {name: j}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: cron}]}}}}}
---
kind: PodTemplate
metadata: {name: t}
template: {spec: {containers: [{name: c, image: template}]}}
---
kind: DaemonSet
metadata: {name: w}
spec:
  template:
    spec: &spec
      nodeSelector: {kubernetes.io/os: windows}
      containers: [{name: c, image: windows}]
---
kind: CustomResourceDefinition
spec: {versions: [{schema: {openAPIV3Schema: {properties: {image: {type: string}}}}}]}
`
	uses, err := catalog.Images("all.yaml", []byte(data))
	require.NoError(t, err)
	var got []string
	for _, u := range uses {
		got = append(got, u.Image+" <- "+u.Where)
	}
	require.Equal(t, []string{
		"init <- Pod p, initContainer i",
		"main <- Pod p, container c",
		"ephemeral <- Pod p, ephemeralContainer e",
		"volume <- Pod p, volume v",
		"deployment <- Deployment d, container c",
		"cron <- CronJob j, container c",
		"template <- PodTemplate t, container c",
		"windows <- DaemonSet w, container c",
	}, got)
}

func TestBadManifestsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"no YAML":       {"a: [", "read manifest f.yaml: document 1: line 1: did not find expected node content"},
		"no object":     {"- a\n- b", "read manifest f.yaml: document 1: is not an object: a mapping with string keys is expected"},
		"twice a key":   {"kind: Pod\nkind: Pod", `read manifest f.yaml: document 1: unmarshal errors: line 2: mapping key "kind" already defined at line 1`},
		"no image":      {"kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a}, {image: ''}]}", "read manifest f.yaml: Pod p, container a: names no image\nPod p, container number 2: names no image"},
		"no containers": {"kind: Pod\nmetadata: {name: p}\nspec: {containers: {}}", "read manifest f.yaml: Pod p: containers is not a list"},
		"deep":          {strings.Repeat("[", 200), "read manifest f.yaml: document 1: line 1: did not find expected node content"},
		"nested":        {"a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), "read manifest f.yaml: document 1: line 1: nested deeper than 100"},
		"many aliases":  {"a: &a x\nb: [" + strings.Repeat("*a,", 101) + "]", "read manifest f.yaml: document 1: line 2: more than 100 aliases"},
		"bomb":          {bomb(), "read manifest f.yaml: document 1: document contains excessive aliasing"},
		"many":          {strings.Repeat("---\na: b\n", 1001), "read manifest f.yaml: more than 1000 documents"},
		"large":         {strings.Repeat("#", catalog.MaxManifestSize+1), "read manifest f.yaml: larger than 8388608 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := catalog.Images("f.yaml", []byte(c.data))
			require.EqualError(t, err, c.want)
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			require.Contains(t, fault.HintOf(err), "check the matrix's URL and sha256")
		})
	}
}

// bomb is a document of few aliases that stands for very many nodes.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [" + strings.Repeat("x,", 500) + "]\n")
	for i := 1; i < 9; i++ {
		prev := "*a" + string(rune('0'+i-1))
		b.WriteString("a" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" + strings.Repeat(prev+",", 10) + "]\n")
	}
	return b.String()
}

func FuzzImages(f *testing.F) {
	for _, seed := range []string{"kind: Pod\nspec: {containers: [{image: a}]}", "kind: List\nitems: [1, {kind: List, items: []}]", bomb(), "a: &a [*a]", "--- \n...\n---", "? {a: b}\n: c", "<<: {a: b}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		uses, err := catalog.Images("f", data)
		for _, u := range uses {
			if u.Image == "" && err == nil {
				t.Fatal("an empty image without an error")
			}
		}
	})
}
