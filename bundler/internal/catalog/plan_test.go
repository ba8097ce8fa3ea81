package catalog_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// release makes a release of literal manifest files.
func release(t *testing.T, id string, overrides []matrix.ImageOverride, files map[string]string) (matrix.Release, catalog.Files) {
	parsed := must.Have(matrix.ParseReleaseID(id))(t)
	r := matrix.Release{ReleaseID: parsed, Images: overrides}
	out := catalog.Files{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data := []byte(files[name])
		r.Manifests = append(r.Manifests, matrix.Manifest{
			Name: name, URL: "https://example.com/" + name, Size: int64(len(data)), SHA256: image.DigestOf(data).Hex(),
		})
		out[bundle.Release{Driver: parsed.Driver, Version: parsed.Version}.Path(bundle.File{Name: name})] = data
	}
	return r, out
}

func pod(images ...string) string {
	var b strings.Builder
	b.WriteString("kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n")
	for i, name := range images {
		fmt.Fprintf(&b, "  - {name: c%d, image: %q}\n", i, name)
	}
	return b.String()
}

func TestReferencesAreOverriddenNormalisedAndMoved(t *testing.T) {
	a, files := release(t, "cni@2.5.0", []matrix.ImageOverride{{From: "antrea/agent:latest", To: "antrea/agent:v2.5.0", Basis: "the tree names\n  a floating tag"}},
		map[string]string{"a.yaml": pod("antrea/agent:latest", "busybox")})
	b, more := release(t, "csi@2.7.3", nil,
		map[string]string{"b.yaml": pod("gcr.io/cloud-provider-vsphere/csi/release/driver:v2.7.3", "k8s.gcr.io/sig-storage/x:v1", "k8s.gcr.io/sig-storage/x:v2", "docker.io/library/busybox:latest")})
	maps.Copy(files, more)
	plan := must.Have(catalog.Read([]matrix.Release{a, b}, files))(t)

	var got []string
	for _, i := range plan.Images {
		got = append(got, fmt.Sprintf("%s | %s | %s | %s", i.Reference, cmp.Or(i.Source, i.Reference), i.Reason, strings.Join(i.UsedBy, ",")))
	}
	require.Equal(t, []string{
		"docker.io/antrea/agent:v2.5.0 | docker.io/antrea/agent:v2.5.0 | the manifest names antrea/agent:latest; the tree names a floating tag | cni@2.5.0",
		"docker.io/library/busybox:latest | docker.io/library/busybox:latest |  | cni@2.5.0,csi@2.7.3",
		"gcr.io/cloud-provider-vsphere/csi/release/driver:v2.7.3 | registry.k8s.io/csi-vsphere/driver:v2.7.3 | gcr.io/cloud-provider-vsphere was deleted in September 2024 | csi@2.7.3",
		"k8s.gcr.io/sig-storage/x:v1 | registry.k8s.io/sig-storage/x:v1 | k8s.gcr.io has been frozen since 2023 | csi@2.7.3",
		"k8s.gcr.io/sig-storage/x:v2 | registry.k8s.io/sig-storage/x:v2 | k8s.gcr.io has been frozen since 2023 | csi@2.7.3",
	}, got)

	require.Equal(t, map[string]string{"antrea/agent:latest": "docker.io/antrea/agent:v2.5.0", "busybox": "docker.io/library/busybox:latest"}, plan.Releases[0].Images)
}

func TestALongReasonIsCutBetweenLetters(t *testing.T) {
	for _, basis := range []string{strings.Repeat("ä", 600), "x" + strings.Repeat("ä", 600)} {
		r, files := release(t, "cni@2.5.0", []matrix.ImageOverride{{From: "a:latest", To: "a:v2", Basis: basis}},
			map[string]string{"a.yaml": pod("a:latest")})
		plan := must.Have(catalog.Read([]matrix.Release{r}, files))(t)
		require.True(t, utf8.ValidString(plan.Images[0].Reason))
	}
}

func TestTwoReleasesMayReplaceOneFloatingTagByTwoImages(t *testing.T) {
	var releases []matrix.Release
	files := catalog.Files{}
	for _, v := range []string{"2.5.0", "2.7.0"} {
		r, f := release(t, "cni@"+v, []matrix.ImageOverride{{From: "antrea/agent:latest", To: "antrea/agent:v" + v, Basis: "floating"}},
			map[string]string{"a.yaml": pod("antrea/agent:latest")})
		releases = append(releases, r)
		maps.Copy(files, f)
	}
	plan := must.Have(catalog.Read(releases, files))(t)
	require.Len(t, plan.Images, 2)
	require.Equal(t, "docker.io/antrea/agent:v2.5.0", plan.Images[0].Reference.String())
	require.Equal(t, "docker.io/antrea/agent:v2.7.0", plan.Images[1].Reference.String())
}

func TestReadReportsAllProblems(t *testing.T) {
	r, files := release(t, "csi@3.5.1", []matrix.ImageOverride{
		{From: "gone:v1", To: "other:v1"}, {From: "twice:v1", To: "a:v1"}, {From: "docker.io/library/twice:v1", To: "b:v1"},
		{From: "bad:v1", To: "BAD"},
	}, map[string]string{
		"bad.yaml": "a: [", "changed.yaml": pod("x"), "missing.yaml": pod("y"), "ref.yaml": pod("UPPER/case", "twice:v1", "bad:v1"),
	})
	files["csi/3.5.1/changed.yaml"] = []byte(pod("z"))
	delete(files, "csi/3.5.1/missing.yaml")
	_, err := catalog.Read([]matrix.Release{r}, files)
	messages := strings.Split(fmt.Sprint(err), "\n")
	require.Len(t, messages, 7)
	require.Equal(t, `manifest csi/3.5.1/ref.yaml: Pod p, container c0: parse image reference "UPPER/case": "UPPER/case" is not a repository path: lower-case letters, digits and . _ - between slashes`, messages[0])
	require.Equal(t, `manifest csi/3.5.1/ref.yaml: Pod p, container c2: parse image reference "BAD": "library/BAD" is not a repository path: lower-case letters, digits and . _ - between slashes`, messages[1])
	require.Equal(t, `override image "docker.io/library/twice:v1" of csi@3.5.1: it replaces nothing in the manifests of the release`, messages[2])
	require.Equal(t, `override image "gone:v1" of csi@3.5.1: it replaces nothing in the manifests of the release`, messages[3])
	require.Equal(t, `read manifest csi/3.5.1/bad.yaml: document 1: yaml: line 1: did not find expected node content`, messages[4])
	require.Contains(t, messages[5], `read manifest csi/3.5.1/changed.yaml: has `)
	require.Contains(t, messages[6], `read manifest csi/3.5.1/missing.yaml: has 0 bytes `)
}

// Every release of the default matrix whose manifests tests have gives a plan, and
// the matrix's own sizes and digests are those of the files.
func TestDefaultMatrixReadsUpstream(t *testing.T) {
	dir := upstream.Dir(t)
	doc := must.Have(matrix.Parse(matrix.DefaultName, matrix.Default()))(t)
	read := 0
	for _, r := range doc.Releases {
		files := upstreamFiles(t, dir, r)
		if files == nil {
			continue
		}
		read++
		plan, err := catalog.Read([]matrix.Release{r}, files)
		require.NoError(t, err, r.ReleaseID)
		for _, i := range plan.Images {
			where := cmp.Or(i.Source, i.Reference).String()
			require.NotRegexp(t, `:latest|staging|^gcr\.io/cloud-provider-vsphere|^k8s\.gcr\.io`, where, r.ReleaseID)
			if r.Driver == matrix.SnapshotController {
				require.Equal(t, "registry.k8s.io/sig-storage/snapshot-controller:v"+r.Version.String(), where)
			}
		}
	}
	require.Greater(t, read, 15)
}

// upstreamFiles returns a release's files, or nil where tests have none.
func upstreamFiles(t *testing.T, dir string, r matrix.Release) catalog.Files {
	t.Helper()
	files := catalog.Files{}
	for _, m := range r.Manifests {
		data, err := upstream.Read(dir, r.ReleaseID, m.Name)
		if err != nil {
			return nil
		}
		files[bundle.Release{Driver: r.Driver, Version: r.Version}.Path(bundle.File{Name: m.Name})] = data
	}
	return files
}

func TestALockHoldsTheImagesOfItsManifests(t *testing.T) {
	rules := []matrix.ImageOverride{{From: "antrea/agent:latest", To: "antrea/agent:v2.5.0", Basis: "floating"}}
	const floating, busybox = "antrea/agent:latest", "docker.io/library/busybox:latest"
	const agent = "docker.io/antrea/agent:v2.5.0"
	r, files := release(t, "cni@2.5.0", rules, map[string]string{
		"a.yaml": pod(floating, "busybox", "busybox"), "b.yaml": pod("busybox"),
	})
	locked := bundle.Release{
		Driver: r.Driver, Version: r.Version, Manifests: []bundle.File{{Name: "a.yaml"}, {Name: "b.yaml"}},
	}
	for name, c := range map[string]struct {
		images map[string]string
		reason fault.Reason
		want   string
	}{
		"all":      {images: map[string]string{floating: agent, "busybox": busybox}},
		"and more": {images: map[string]string{floating: agent, "busybox": busybox, "more": busybox}},
		"one absent": {map[string]string{floating: agent}, fault.Incomplete,
			"the lock lacks the image busybox, which b.yaml names (Pod p, container c0)"},
		"override not applied": {map[string]string{floating: busybox, "busybox": busybox}, fault.Corrupt,
			"the lock has " + busybox + " for the image antrea/agent:latest of a.yaml, not " + agent},
	} {
		t.Run(name, func(t *testing.T) {
			locked.Images = c.images
			err := catalog.Agree(locked, rules, files)
			require.Equal(t, c.reason, fault.ReasonOf(err), "%v", err)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.NotEmpty(t, fault.HintOf(err))
			}
		})
	}
}
