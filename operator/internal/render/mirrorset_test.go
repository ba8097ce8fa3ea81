package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// The set is one object of its own, placed before whatever pulls, and what comes next waits for
// it; where nobody asks for it there is none.
func TestTheMirrorSetComesBeforeWhatPulls(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	require.Nil(t, find(mustRender(t, in), "ImageDigestMirrorSet vdo-operator"))
	in.Mirrored = mirrorset.Entries{{Source: "up.example/a", Mirrors: []string{"m.site/vdo/up.example/a", "old.site/up.example/a"}}, {Source: "up.example/b", Mirrors: []string{"m.site/vdo/up.example/b"}}}
	out := mustRender(t, in)
	set := object(t, out, "ImageDigestMirrorSet vdo-operator")
	require.Equal(t, map[string]any{
		"apiVersion": "config.openshift.io/v1", "kind": "ImageDigestMirrorSet",
		"metadata": map[string]any{"name": "vdo-operator", "labels": map[string]any{
			"app.kubernetes.io/managed-by": "vdo-operator", "vdo.vmware.com/driver": "mirror-set", "vdo.vmware.com/version": "v1"}},
		"spec": map[string]any{"imageDigestMirrors": []any{
			map[string]any{"source": "up.example/a", "mirrors": []any{"m.site/vdo/up.example/a", "old.site/up.example/a"}, "mirrorSourcePolicy": "AllowContactingSource"},
			map[string]any{"source": "up.example/b", "mirrors": []any{"m.site/vdo/up.example/b"}, "mirrorSourcePolicy": "AllowContactingSource"},
		}},
	}, set.Object)
	require.Equal(t, drivers.MirrorSet, set.Driver)
	before := true
	for _, s := range out.Stages {
		if s.Name == render.StageMirrors {
			before = false
			require.Equal(t, []render.Gate{{Kind: render.Exists, Object: render.RefOf(set.Unstructured), Why: "the nodes find the drivers' images by it"}}, s.Gates)
			require.Equal(t, []matrix.Driver{drivers.MirrorSet}, s.Drivers)
		}
		for _, o := range s.Objects {
			_, pods, err := unstructured.NestedMap(o.Object, "spec", "template")
			require.NoError(t, err)
			require.False(t, before && pods, "%s comes before the set", o)
		}
	}
	require.False(t, before)
}
