package render_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Images are named where the site has them, under the same digest whatever their name is.
func TestImagesAreNamedWhereTheyLie(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.SnapshotController, "8.2.0"), release(t, matrix.CSI, "3.5.1"))
	digest := regexp.MustCompile(`sha256:[0-9a-f]{64}$`)
	digests := func(names v1alpha1.ImageNames, form string) (all map[string]int) {
		all = map[string]int{}
		in.ImageNames = names
		for _, o := range mustRender(t, in).Objects() {
			pod, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
			require.NoError(t, err)
			if !found {
				continue
			}
			for _, field := range []string{"initContainers", "containers"} {
				list, _ := pod[field].([]any)
				for _, c := range list {
					name, _ := c.(map[string]any)["image"].(string)
					require.Regexp(t, form, name)
					all[digest.FindString(name)]++
				}
			}
		}
		require.Greater(t, len(all), 5)
		return all
	}
	want := digests("", `^mirror\.site:5000/vdo/drivers@sha256:`)
	require.Equal(t, want, digests(v1alpha1.ImageNamesRepository, `^mirror\.site:5000/vdo/drivers@sha256:`))
	require.Equal(t, want, digests(v1alpha1.ImageNamesPaths, `^mirror\.site:5000/vdo/drivers/(registry\.k8s\.io/(cloud-pv-vsphere|csi-vsphere|sig-storage)/[a-z-]+)@sha256:`))
	require.Equal(t, want, digests(v1alpha1.ImageNamesUpstream, `^registry\.k8s\.io/(cloud-pv-vsphere|csi-vsphere|sig-storage)/[a-z-]+@sha256:`))
}
