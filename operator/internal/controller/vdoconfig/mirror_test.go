package vdoconfig

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// The login that works stays until the mirror has let another one in, whatever becomes of its Secret.
func TestWhichLoginPodsHave(t *testing.T) {
	given := map[string][]byte{corev1.DockerConfigJsonKey: []byte("new")}
	ready := func(status metav1.ConditionStatus) func(*v1alpha1.DriverBundle) {
		return func(b *v1alpha1.DriverBundle) {
			b.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: status, Reason: string(fault.Unauthorized), Message: "401"}}
		}
	}
	for name, c := range map[string]struct {
		given    map[string][]byte
		copied   bool // the inventory has their login
		refers   bool // pods do
		verified string
		edit     func(*v1alpha1.DriverBundle)
		want     string
		kept     bool
		gated    fault.Reason
		waiting  bool
		notes    int
	}{
		"the mirror let it in":                         {given: given, copied: true, verified: "2", want: "new"},
		"there is none, and none is needed":            {verified: v1alpha1.NoLogin},
		"it is being tried":                            {given: given, copied: true, verified: "1", want: "{}", kept: true, waiting: true},
		"it is being tried, and pods are new":          {given: given, verified: "1", waiting: true},
		"it is being tried, and the inventory is lost": {given: given, refers: true, verified: "1", want: "{}", kept: true, waiting: true},
		"the mirror refuses it": {given: given, copied: true, verified: "1", edit: ready(metav1.ConditionFalse),
			want: "{}", kept: true, gated: fault.Unauthorized},
		"nobody tries it": {given: given, copied: true, verified: "1",
			edit: func(b *v1alpha1.DriverBundle) { b.Spec.Suspend = true }, want: "{}", kept: true, gated: fault.NotFound},
		"it is gone":                       {copied: true, verified: "1", want: "{}", kept: true, gated: fault.NotFound},
		"it is gone, and none is needed":   {copied: true, verified: v1alpha1.NoLogin, want: "{}", kept: true, notes: 1},
		"it has no key":                    {given: map[string][]byte{"x": nil}, copied: true, verified: v1alpha1.NoLogin, want: "{}", kept: true, gated: fault.NotFound},
		"it is named, and was never there": {verified: v1alpha1.NoLogin, edit: func(b *v1alpha1.DriverBundle) { b.Spec.PullSecret = &v1alpha1.LocalReference{Name: "x"} }, gated: fault.NotFound},
	} {
		g := withCSI(t)
		g.Cluster = &fakeCluster{data: map[string]map[string][]byte{v1alpha1.DefaultPullSecretName: c.given}}
		g.facts.inventory = inventory.Inventory{}
		for _, key := range copies {
			if c.copied {
				id := inventory.ID{Key: key, Version: "v1"}
				g.facts.inventory = g.facts.inventory.With(inventory.Entry{ID: id, Driver: matrix.CPI})
			}
		}
		if c.refers {
			by := corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: render.PullSecret}}}
			of := corev1.PodTemplateSpec{Spec: by}
			g.observed.DaemonSets = []appsv1.DaemonSet{{Spec: appsv1.DaemonSetSpec{Template: of}}}
		}
		if g.bundle.source.Status.VerifiedLogin = c.verified; c.edit != nil {
			c.edit(g.bundle.source)
		}
		require.NoError(t, g.collectLogin(t.Context()), name)
		require.Equal(t, c.want, string(g.login.data), name)
		require.Equal(t, c.kept, g.login.kept, name)
		require.Equal(t, c.gated != "", g.facts.gated != nil, name)
		if c.gated != "" {
			require.Equal(t, c.gated, fault.ReasonOf(g.facts.gated), name)
		}
		require.Equal(t, c.waiting, g.waiting != "", name)
		require.Len(t, g.notes, c.notes, name)
	}
}

// Copies that are there stay as they are; one that is not is made from what is known.
func TestCopiesOfALoginStay(t *testing.T) {
	live, stage := plan.Live{}, render.Stage{}
	for i, key := range copies {
		o := &unstructured.Unstructured{Object: map[string]any{"data": "old"}}
		o.SetAPIVersion("v1")
		o.SetKind(key.Kind)
		o.SetNamespace(key.Namespace)
		o.SetName(key.Name)
		stage.Objects = append(stage.Objects, render.Object{Unstructured: o})
		if i == 0 {
			live[key] = &unstructured.Unstructured{Object: map[string]any{"data": "theirs"}}
		}
	}
	r := &render.Rendered{Stages: []render.Stage{stage}}
	(&facts{bundled: bundled{login: login{kept: true}}, observed: &assess.Observed{}}).adapt(r, live, drift.Rules{})
	for i, want := range []string{"theirs", "old"} {
		require.Equal(t, want, r.Stages[0].Objects[i].Object["data"])
	}
}

// Pods keep the hash that they run with while nothing differs: under another key, and after the records were lost.
func TestPodsKeepTheirHash(t *testing.T) {
	of := func(kind, data, hash string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "data": data}}
		if hash != "" {
			require.NoError(t, unstructured.SetNestedField(o.Object, hash, configHash...))
		}
		return o
	}
	recorded := withCSI(t).inventory
	for name, c := range map[string]struct {
		facts facts
		data  string
		want  string
	}{
		"another key":         {facts{installation: installation{inventory: recorded, newHash: true}}, "same", "old"},
		"no records":          {facts{}, "same", "old"},
		"no records, changed": {facts{}, "other", "new"},
		"known":               {facts{installation: installation{inventory: recorded}}, "same", "new"},
	} {
		secret, pods := of("Secret", c.data, ""), of("Deployment", "", "new")
		was := []*unstructured.Unstructured{of("Secret", "same", ""), of("Deployment", "", "old")}
		stage := render.Stage{Objects: []render.Object{{Unstructured: secret}, {Unstructured: pods}}}
		r := &render.Rendered{Stages: []render.Stage{stage}}
		c.facts.keepHashes(r, plan.Live{plan.IDOf(secret).Key: was[0], plan.IDOf(pods).Key: was[1]})
		hash, _, _ := unstructured.NestedString(pods.Object, configHash...)
		require.Equal(t, c.want, hash, name)
	}
}

func TestDriversGetTheThumbprintInSHA1(t *testing.T) {
	long, short := strings.Repeat("AB:", 31)+"AB", strings.Repeat("CD:", 19)+"CD"
	for _, c := range []struct{ spec, status, want string }{
		{long, short, short}, {long, "", long}, {short, "", short}, {"", short, ""},
	} {
		vcc := &v1alpha1.VsphereCloudConfig{Spec: v1alpha1.VsphereCloudConfigSpec{Thumbprint: c.spec}}
		vcc.Status.Thumbprint = c.status
		require.Equal(t, c.want, vcenterOf(vcc, credentials.Verified{}).Thumbprint)
	}
}

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
		g, gated := withCSI(t), requested == v1alpha1.MirrorSetWrite
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
		g := withCSI(t)
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
	g, set := withCSI(t), render.MirrorSet(nil).Unstructured
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
