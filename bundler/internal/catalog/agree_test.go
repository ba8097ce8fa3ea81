package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

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
