package model

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
)

// scale sets the replicas of the storage driver's controller, as another tool does.
func (s *scenario) scale(replicas int32) {
	d := s.controller()
	patch := client.MergeFrom(d.DeepCopy())
	d.Spec.Replicas = &replicas
	require.NoError(s.t, s.Patch(s.ctx, d, patch, client.FieldOwner("scaler")))
}

func (s *scenario) scaled() int32 { return *s.controller().Spec.Replicas }

// Under Warn what differs is shown and stays, under Off no one looks, what is left to others stays, whoever has set it,
// and else it is repaired. A driver that is scaled to 0 so is not ready.
func TestDriftIsShownOrLeftAsTheVDOConfigSays(t *testing.T) {
	ignores := func(path string) *v1alpha1.DriftPolicy {
		return &v1alpha1.DriftPolicy{Ignore: []v1alpha1.DriftIgnore{
			{Kind: "Deployment", Name: csiController, Paths: []string{path}}}}
	}
	shown := v1alpha1.DriftStatus{Driver: "csi", Kind: "Deployment", Namespace: csiNamespace,
		Name: csiController, Fields: "spec.replicas", Manager: "scaler"}
	scene(t, installed, func(s *scenario) {
		s.healthy()
		was := s.scaled()
		for _, c := range []struct {
			policy *v1alpha1.DriftPolicy
			shown  []v1alpha1.DriftStatus
		}{
			{&v1alpha1.DriftPolicy{Mode: v1alpha1.DriftWarn}, []v1alpha1.DriftStatus{shown}},
			{&v1alpha1.DriftPolicy{Mode: v1alpha1.DriftOff}, nil},
			{ignores("/spec/replicas"), nil},
		} {
			s.configure(func(spec *asked) { spec.Drift = c.policy })
			s.look()
			for _, replicas := range []int32{was + 1, 0} {
				s.scale(replicas)
				s.play()
				s.now = s.now.Add(interval) // past all grace: what is amiss counts
				require.Empty(t, s.writes())
				require.Equal(t, replicas, s.scaled())
				require.Equal(t, c.shown, s.v.Status.Drift)
			}
			require.Equal(t, "Incomplete", s.cond("CSIReady").Reason)
			require.False(t, s.isTrue("Ready"))
		}
		d := s.controller()
		s.change(d, func() {
			d.Spec.Template.Spec.Containers[0].Image, d.Labels["vdo.vmware.com/version"] = "changed", "0"
		})
		s.look()
		d = s.controller()
		require.NotEqual(t, "changed", d.Spec.Template.Spec.Containers[0].Image, "all else is repaired")
		for _, f := range d.ManagedFields {
			if f.Manager == "vdo-operator" {
				require.NotContains(t, f.FieldsV1.GetRawString(), `"f:replicas"`, "it is the other manager's alone")
			}
		}

		s.configure(func(spec *asked) { spec.Drift = ignores("/spec/template/spec/containers/0/image") })
		s.look()
		require.Equal(t, "InvalidInput", s.cond("Applied").Reason)
		require.Equal(t, was, s.scaled(), "what is no longer left to others is ours again")
		s.configure(func(spec *asked) { spec.Drift = nil })
		s.ready()
		require.NotContains(t, describe(s.v.Status.Conditions), "Drifted=")
	})
}

// Two managers of one field would write for ever: the other one is named, and the object is
// left alone for a while, also by an operator that starts again.
func TestAManagerThatChangesAFieldEachTimeIsNamedAndLeft(t *testing.T) {
	scene(t, installed, func(s *scenario) {
		s.healthy()
		was := s.scaled()
		again := func(want int32) {
			s.scale(was + 1)
			s.look()
			require.Equal(t, want, s.scaled())
		}
		for range drift.Repairs {
			require.Empty(t, s.v.Status.Drift)
			again(was)
		}
		again(was + 1)
		require.Equal(t, "DriftContested", s.cond("Drifted").Reason)
		require.Equal(t, "scaler", s.v.Status.Drift[0].Manager)
		s.start()
		again(was + 1)
		written := s.v.ResourceVersion
		require.Equal(t, written, s.look().ResourceVersion, "nor is the status written again and again")
		s.now = s.now.Add(drift.Pause)
		again(was)
	})
}

// A patch that makes no sense changes nothing and stops no repair: what runs is repaired
// with the settings that it was last rendered with.
func TestAPatchIsAppliedAndABadOneKeepsWhatRunsAndRepairsIt(t *testing.T) {
	scene(t, installed, func(s *scenario) {
		node := v1alpha1.PatchTarget{Driver: "csi", Kind: "DaemonSet", Name: csiNode}
		is := func(owner string, debug bool) {
			require.Equal(t, owner, s.daemonSet(csiNamespace, csiNode).Annotations["site.example/owner"])
			cpi := s.daemonSet("kube-system", ccm)
			require.Equal(t, debug, slices.Contains(cpi.Spec.Template.Spec.Containers[0].Args, "--v=6"))
		}
		s.configure(func(spec *asked) {
			spec.Patches = []v1alpha1.Patch{{Target: node, Patch: "metadata: {annotations: {site.example/owner: storage}}"}}
			spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cpi", LogLevel: v1alpha1.LogDebug}}
		})
		s.ready()
		is("storage", true)

		s.configure(func(spec *asked) {
			spec.Patches[0].Patch, spec.Drivers = "spec: {template: {spec: {hostPID: true}}}", nil
		})
		s.destroyed()
		is("storage", false)
		require.False(t, s.isTrue("Ready"))
		require.Contains(t, s.cond("Resolved").Message,
			"spec.patches[0] of DaemonSet vmware-system-csi/vsphere-csi-node: sees the node's processes")

		s.configure(func(spec *asked) { spec.Patches = nil })
		s.ready()
		is("", false)
	})
}
