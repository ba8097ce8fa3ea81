package catalog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// Every line of an upstream manifest that names an image is found, and nothing else. Two
// tags of one name are two images (csi@3.3.1: the Windows registrar).
func TestImagesOfUpstreamManifests(t *testing.T) {
	dir, read := upstream.Dir(t), 0
	for _, driver := range []string{"antrea", "cpi", "csi", "external-snapshotter"} { // others have no images of drivers
		files := must.Have(filepath.Glob(filepath.Join(dir, driver, "v*", "*")))(t)
		for _, file := range files {
			data := must.Have(os.ReadFile(file))(t)
			uses := must.Have(catalog.Images(file, data))(t)
			found, named := map[string]bool{}, map[string]bool{}
			for _, u := range uses {
				found[u.Image] = true
			}
			for line := range strings.Lines(string(data)) {
				_, image, ok := strings.Cut(line, "image:")
				if ok && strings.Contains(image, ":") && !strings.HasPrefix(strings.TrimSpace(line), "#") {
					named[strings.Trim(strings.Fields(image)[0], `"'`)] = true
				}
			}
			require.Equal(t, named, found, file)
			read += len(found)
		}
	}
	require.Greater(t, read, 60)
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
spec: {versions: [{schema: {openAPIV3Schema: {properties: {image: {type: string}, containers: {type: array}}}}}]}
---
kind: Gateway
metadata: {name: g}
spec: {proxy: {containers: [{name: c, image: custom}]}}
`
	uses := must.Have(catalog.Images("all.yaml", []byte(data)))(t)
	var got []string
	for _, u := range uses {
		got = append(got, u.Image+" <- "+u.Where)
	}
	require.Equal(t, []string{
		"main <- Pod p, container c",
		"ephemeral <- Pod p, ephemeralContainer e",
		"init <- Pod p, initContainer i",
		"volume <- Pod p, volume v",
		"deployment <- Deployment d, container c",
		"cron <- CronJob j, container c",
		"template <- PodTemplate t, container c",
		"windows <- DaemonSet w, container c",
		"custom <- Gateway g, container c",
	}, got)
}

func TestBadManifestsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"no YAML":     {"a: [", "read manifest f.yaml: document 1: yaml: line 1: did not find expected node content"},
		"no object":   {"- a\n- b", "read manifest f.yaml: json: cannot unmarshal array into Go value of type map[string]interface {}"},
		"twice a key": {"kind: Pod\nkind: Pod", `read manifest f.yaml: document 1: yaml: unmarshal errors: line 2: key "kind" already set in map`},
		"no image":    {"kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a}, {image: ''}]}", "read manifest f.yaml: Pod p, container a: names no image\nread manifest f.yaml: Pod p, container number 2: names no image"},
		"bomb":        {bomb(), "read manifest f.yaml: document 1: yaml: document contains excessive aliasing"},
		"large":       {strings.Repeat("#", matrix.MaxManifestSize+1), "read manifest f.yaml: larger than 8388608 bytes"},
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
	text := "a0: &a0 [" + strings.Repeat("x,", 500) + "]\n"
	for i := range 8 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 10))
	}
	return text
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
