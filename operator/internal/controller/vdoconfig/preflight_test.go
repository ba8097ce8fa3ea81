package vdoconfig_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// passing finds nothing amiss in cluster and vCenters.
type passing struct{}

func (passing) Look(q preflight.Question) *preflight.Answer { return finding{}.Look(q) }

// finding finds something amiss in cluster and vCenters.
type finding []preflight.Result

func (f finding) Look(q preflight.Question) *preflight.Answer {
	return &preflight.Answer{Question: q.ID, At: metav1.Now().Time, Results: f}
}

// unanswered has asked nobody yet.
type unanswered struct{}

func (unanswered) Look(preflight.Question) *preflight.Answer { return nil }

// allFor has all images of a bundle be for some platforms.
func allFor(c *bundle.Contents, platforms ...image.Platform) *bundle.Contents {
	c.Platforms = map[image.Digest][]image.Platform{}
	for _, i := range c.Lock.Images {
		c.Platforms[i.Digest] = platforms
	}
	return c
}

// A preview has the gates of the pass, also where no driver gets another version: a bundle that
// was built anew, and another setting, are held back by what the checks find. What cannot be made is told before it.
func TestAPreviewSaysWhatHoldsBackWhatHasTheSameVersion(t *testing.T) {
	w, v := installed(t)
	previewed := func(a vdoconfig.Assume) (string, *vdoconfig.Preview) {
		t.Helper()
		p, err := w.r.Preview(t.Context(), v, a)
		require.NoError(t, err)
		var held []string
		for _, h := range p.Held {
			held = append(held, h.Driver+": "+h.Message+"\n")
		}
		return strings.Join(held, ""), p
	}
	held, p := previewed(vdoconfig.Assume{})
	require.Empty(t, held)
	require.Empty(t, p.Warnings)

	arm := image.Platform{OS: "linux", Architecture: "arm64"}
	w.offer(nextDigest, strings.Fields(pair)...)
	w.store.of[nextDigest] = allFor(rebuilt(t, strings.Fields(pair)...), arm)
	held, p = previewed(vdoconfig.Assume{})
	require.Empty(t, p.Route[0].Moves)
	for _, of := range []string{"cpi: check image-platform: cpi@", "csi: check image-platform: snapshot-controller@",
		"csi: check image-platform: csi@"} {
		require.Contains(t, held, of)
	}

	w.offer(nextDigest, strings.Fields(pair)...)
	w.r.Checks = finding{{ID: "topology-category", Action: preflight.BlockInstall, Stops: true, Drivers: []matrix.Driver{matrix.CSI}, Found: "no category k8s-zone"}}
	w.change(v, func() { v.Spec.StorageProvider.TopologyCategories = []string{"k8s-zone"} })
	held, _ = previewed(vdoconfig.Assume{})
	require.Contains(t, held, "no category k8s-zone")
	w.r.Checks = unanswered{}
	held, p = previewed(vdoconfig.Assume{})
	require.Contains(t, held, "it is being checked")
	require.Contains(t, strings.Join(p.Warnings, "\n"), "vdoctl check makes them")

	w.r.Checks = nil
	w.change(v, func() {
		v.Spec = pairSpec()
		v.Spec.StorageProvider.FeatureStates = map[string]bool{"unknown": true}
	})
	held, _ = previewed(vdoconfig.Assume{})
	require.Contains(t, held, `no feature state "unknown"`)
}
