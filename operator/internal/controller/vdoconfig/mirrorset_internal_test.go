package vdoconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// with is a bundle in a repository whose releases have images.
func with(repository string, names v1alpha1.ImageNames, images map[matrix.Driver]string) *opened {
	o := &opened{source: &v1alpha1.DriverBundle{}, contents: &bundle.Contents{Lock: &bundle.Lock{}}}
	o.source.Status.Repository, o.source.Status.Digest = repository, "sha256:"+strings.Repeat("a", 64)
	o.source.Spec.ImageNames = names
	for d, i := range images {
		o.contents.Lock.Releases = append(o.contents.Lock.Releases, bundle.Release{Driver: d, Images: map[string]string{"written": i}})
	}
	return o
}

// Nodes are led for what the accepted bundle has, for what is installed from, and for all that
// they were led for before; of the operator's own image and of services they pull nothing so.
func TestNodesAreLedForWhatComesAndForWhatWas(t *testing.T) {
	accepted := with("new.site/vdo", v1alpha1.ImageNamesUpstream, map[matrix.Driver]string{matrix.CSI: "up.example/csi:2", bundle.Operator: "up.example/operator:1"})
	runs := with("old.site/vdo", v1alpha1.ImageNamesUpstream, map[matrix.Driver]string{matrix.CSI: "up.example/csi:1", matrix.CPI: "gone.example/cpi:1"})
	was := mirrorset.Entries{{Source: "gone.example/older", Mirrors: []string{"old.site/vdo/gone.example/older"}}}
	set := inventory.Entry{ID: plan.IDOf(render.MirrorSet(nil).Unstructured), Driver: drivers.MirrorSet}
	remembered, deleted := inventory.Of(set).WithMemory(inventory.Memory{Mirrored: was}), inventory.Inventory{}.WithMemory(inventory.Memory{Mirrored: was})
	const both, old, cpi, older = "up.example/csi -> new.site/vdo/up.example/csi old.site/vdo/up.example/csi", "up.example/csi -> old.site/vdo/up.example/csi",
		"gone.example/cpi -> old.site/vdo/gone.example/cpi", "gone.example/older -> old.site/vdo/gone.example/older"
	other := with("new.site/vdo", v1alpha1.ImageNamesPaths, map[matrix.Driver]string{matrix.CSI: "up.example/csi:2"})
	odd := with("new.site/vdo", v1alpha1.ImageNamesUpstream, map[matrix.Driver]string{matrix.CSI: "[::1]:5000/csi:1", matrix.CPI: "gone.example/cpi:1"})
	for name, c := range map[string]struct {
		site site
		from *opened
		want []string
	}{
		"nobody asks for it":                               {site{bundle: accepted, inventory: remembered}, accepted, nil},
		"the first bundle":                                 {site{leads: true, bundle: accepted}, accepted, []string{"up.example/csi -> new.site/vdo/up.example/csi"}},
		"an upgrade waits":                                 {site{leads: true, bundle: accepted, inventory: remembered}, runs, []string{cpi, older, both}},
		"the set was deleted":                              {site{leads: true, bundle: accepted, inventory: deleted}, accepted, []string{"up.example/csi -> new.site/vdo/up.example/csi"}},
		"the accepted one is held":                         {site{leads: true, bundle: accepted, bundleHeld: true, inventory: remembered}, runs, []string{cpi, older, old}},
		"it is held, and runs":                             {site{leads: true, bundle: accepted, bundleHeld: true}, accepted, []string{"up.example/csi -> new.site/vdo/up.example/csi"}},
		"pods have other names":                            {site{leads: true, bundle: other, inventory: remembered}, other, nil},
		"pods of what runs have upstream's":                {site{leads: true, bundle: other}, runs, []string{cpi, old}},
		"an image with no place in the mirror is left out": {site{leads: true, bundle: odd}, odd, []string{"gone.example/cpi -> new.site/vdo/gone.example/cpi"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range c.site.mirrored([]*opened{c.from}) {
				got = append(got, e.Source+" -> "+strings.Join(e.Mirrors, " "))
			}
			require.Equal(t, c.want, got)
		})
	}
}

// What nodes were led for is remembered as long as there is the set, once it was applied: a bundle
// that is not trusted any more before it is leaves nothing behind.
func TestWhatNodesWereLedForIsRememberedWithTheSet(t *testing.T) {
	was, now := mirrorset.Entries{{Source: "was"}}, mirrorset.Entries{{Source: "now"}}
	id := inventory.ID{Key: inventory.Key{Group: mirrorset.Digests.Group, Kind: mirrorset.Digests.Kind, Name: render.MirrorSetName}, Version: "v1"}
	applied := func(with mirrorset.Entries) inventory.Inventory {
		content, err := contentOfMirrorSet(with)
		require.NoError(t, err)
		return inventory.Of(inventory.Entry{ID: id, Driver: drivers.MirrorSet, Content: content})
	}
	require.Equal(t, now, mirroredNow(was, rendering{mirrored: now}, applied(now)))
	require.Equal(t, was, mirroredNow(was, rendering{mirrored: now}, applied(was)))
	require.Equal(t, was, mirroredNow(was, rendering{}, applied(was)))
	require.Empty(t, mirroredNow(was, rendering{mirrored: now}, inventory.Of()))
}
