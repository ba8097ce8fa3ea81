package vdoconfig

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
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
	from := func(b *opened, leads, gated bool, own mirrorset.Entries) (s facts) {
		s.bundle, s.bundleGated, s.sets.leads, s.sets.own = b, gated, leads, own
		return s
	}
	const both, old, cpi, older = "up.example/csi -> new.site/vdo/up.example/csi old.site/vdo/up.example/csi", "up.example/csi -> old.site/vdo/up.example/csi",
		"gone.example/cpi -> old.site/vdo/gone.example/cpi", "gone.example/older -> old.site/vdo/gone.example/older"
	other := with("new.site/vdo", v1alpha1.ImageNamesPaths, map[matrix.Driver]string{matrix.CSI: "up.example/csi:2"})
	require.Equal(t, v1alpha1.ImageNamesPaths, other.origin().ImageNames, "as pods are rendered")
	odd := with("new.site/vdo", v1alpha1.ImageNamesUpstream, map[matrix.Driver]string{matrix.CSI: "[::1]:5000/csi:1", matrix.CPI: "gone.example/cpi:1"})
	for name, c := range map[string]struct {
		site facts
		from *opened
		want []string
	}{
		"nobody asks for it":                               {from(accepted, false, false, was), accepted, nil},
		"the first bundle":                                 {from(accepted, true, false, nil), accepted, []string{"up.example/csi -> new.site/vdo/up.example/csi"}},
		"an upgrade waits":                                 {from(accepted, true, false, was), runs, []string{cpi, older, both}},
		"the accepted one is held":                         {from(accepted, true, true, was), runs, []string{cpi, older, old}},
		"it is held, and runs":                             {from(accepted, true, true, nil), accepted, []string{"up.example/csi -> new.site/vdo/up.example/csi"}},
		"pods have other names":                            {from(other, true, false, was), other, nil},
		"pods of what runs have upstream's":                {from(other, true, false, nil), runs, []string{cpi, old}},
		"an image with no place in the mirror is left out": {from(odd, true, false, nil), odd, []string{"gone.example/cpi -> new.site/vdo/gone.example/cpi"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			entries, _ := c.site.ownEntries([]*opened{c.from})
			for _, e := range entries {
				got = append(got, e.Source+" -> "+strings.Join(e.Mirrors, " "))
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestLeadingTheNodesIsRefusedWhereThereIsNoOpenShift(t *testing.T) {
	for _, requested := range []v1alpha1.MirrorSetMode{v1alpha1.MirrorSetWrite, "Check"} {
		g, gated := gathering(t), requested == v1alpha1.MirrorSetWrite
		g.Cluster, g.config.Spec.OpenShift = &fakeCluster{}, &v1alpha1.OpenShift{MirrorSet: requested}
		require.NoError(t, g.collectOpenShift(t.Context()))
		require.Equal(t, gated, g.facts.gated != nil)
		require.False(t, g.sets.leads)
		if gated {
			require.Equal(t, fault.Refused, fault.ReasonOf(g.facts.gated))
			require.Contains(t, fault.HintOf(g.facts.gated), "take spec.openShift.mirrorSet out of the VDOConfig")
		}
		g.Cluster = &fakeCluster{unasked: because(fault.Unreachable)}
		collects := map[bool]func(context.Context) error{true: g.collectOpenShift, false: g.collect}[gated]
		require.Equal(t, fault.Unreachable, fault.ReasonOf(collects(t.Context())), "it may be OpenShift")
	}
}

// An upgrade waits for pools only where its pods name images as upstream does, and says which right it lacks.
func TestWhatOfTheMirrorSetAnUpgradeWaitsFor(t *testing.T) {
	set := render.MirrorSet(nil).Unstructured
	for name, c := range map[string]struct {
		names  v1alpha1.ImageNames
		unread error
		says   string
	}{
		"nodes take it up":      {v1alpha1.ImageNamesUpstream, nil, "MachineConfigPool worker"},
		"pools may not be read": {v1alpha1.ImageNamesUpstream, because(fault.Forbidden), "the operator cannot read whether nodes have applied ImageDigestMirrorSet vdo-operator"},
		"pods do not need it":   {v1alpha1.ImageNamesRepository, because(fault.Forbidden), ""},
	} {
		g := gathering(t)
		g.Cluster, g.bundle.source.Spec.ImageNames = &fakeCluster{unread: c.unread}, c.names
		require.Empty(t, g.othersChange(true), "there is no set")
		require.NoError(t, g.collectPools(t.Context(), set), name)
		for ignored, says := range map[string]string{"Nodes": c.says, "MachineConfigPools": ""} {
			g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{IgnoreInterlocks: []string{ignored}}
			got := g.othersChange(true)
			require.Equal(t, says == "", got == "", "%s: %s", name, got)
			require.Contains(t, got, says, name)
		}
		require.Empty(t, g.othersChange(false), "nothing is in force")
		require.True(t, g.sets.rolls, name)
	}
}

// Whose labels someone has taken away is the operator's by its UID all the same.
func TestTheMirrorSetIsKnownByItsRecordOrItsLabels(t *testing.T) {
	g, set := gathering(t), render.MirrorSet(nil).Unstructured
	set.SetUID("u")
	require.False(t, g.isOwn(nil))
	require.True(t, g.isOwn(set), "by its labels")
	set.SetLabels(nil)
	require.False(t, g.isOwn(set))
	g.facts.inventory = g.facts.inventory.With(inventory.Entry{ID: plan.IDOf(set), UID: "u", Driver: drivers.MirrorSet})
	require.True(t, g.isOwn(set))
	set.SetUID("another")
	require.False(t, g.isOwn(set))
}

func TestAnUpgradeWaitsForTheMirrorSetToBeWritten(t *testing.T) {
	leads := mirrorset.Entries{{Source: "up.example/csi", Mirrors: []string{"new.site/vdo/up.example/csi"}}}
	for says, own := range map[string]mirrorset.Entries{
		"": leads,
		"the set is written first, and lacks mirrors of: up.example/csi": nil,
	} {
		s := facts{sets: mirrorSets{leads: true, mirrors: &preflight.Mirrors{Own: "the set"}, own: own}}
		images := map[matrix.Driver]string{matrix.CSI: "up.example/csi:2"}
		s.bundle = with("new.site/vdo", v1alpha1.ImageNamesUpstream, images)
		require.Equal(t, says, s.poolsChange())
	}
}
