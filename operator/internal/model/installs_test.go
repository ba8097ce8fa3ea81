package model

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// A dry run shows the whole of an installation and writes nothing of it, no finalizer either; then the same VDOConfig
// installs. What is in order is neither written nor told again, and nothing is written while it is suspended.
func TestADryRunShowsWhatIsInstalledAfterIt(t *testing.T) {
	scene(t, nothing, func(s *scenario) {
		s.configure(func(spec *asked) { spec.DryRun = true })
		s.pass(passBundle, passVCenter)
		require.Empty(t, s.writes())
		require.Empty(t, s.writes())
		require.Empty(t, s.left())
		require.Empty(t, s.v.Finalizers)
		require.Subset(t, s.planned(), []string{"create DaemonSet/" + ccm, "create Deployment/" + csiController})
		require.Equal(t, pair, s.v.Status.Plan.Releases)
		require.Contains(t, s.cond(v1alpha1.ConditionApplied).Message, "spec.dryRun is set")
		require.Equal(t, "DryRun", s.cond("Suspended").Reason)

		s.configure(func(spec *asked) { spec.DryRun = false })
		s.ready()
		require.Empty(t, s.planned())
		require.Equal(t, []string{"1.33.1", "3.5.1"}, []string{s.driver("cpi").Version, s.driver("csi").Version})
		require.Equal(t, "4/4", s.v.Status.NodesReady)
		require.Equal(t, "False", string(s.cond("Upgradeable").Status), "the bundle has no CPI for 1.34")
		repository := s.site.Host + "/" + repository + "@sha256:"
		require.Contains(t, s.daemonSet("kube-system", ccm).Spec.Template.Spec.Containers[0].Image, repository)
		require.Equal(t, int32(1), *s.controller().Spec.Replicas, "no more than control-plane nodes")
		s.healthy()
		s.told("Installed: Created DaemonSet kube-system/" + ccm + " of cpi@1.33.1: ")
		require.Regexp(s.t, `Rolled out revision \S+: snapshot-controller@8.2.0, csi@3.5.1`, s.events.String())

		version := s.look().ResourceVersion
		told := s.events.String()
		require.Empty(t, s.writes(), "a pass over what is in order writes nothing")
		require.Equal(t, told, s.events.String())
		require.Equal(t, version, s.v.ResourceVersion)

		s.configure(func(spec *asked) { spec.DryRun = true })
		drifted := get(s, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")
		s.change(drifted, func() { drifted.Labels["vdo.vmware.com/version"] = "0.0.1" })
		require.Empty(t, s.writes())
		require.Equal(t, []string{"change ServiceAccount/cloud-controller-manager"}, s.planned())
		require.Equal(t, "drift", s.v.Status.Plan.Steps[0].Cause)
		s.configure(func(spec *asked) { spec.DryRun, spec.Suspend = false, true })
		s.drop(get(s, &storagev1.CSIDriver{}, "", drivers.CSIDriver))
		require.Empty(t, s.writes())
		require.Contains(t, s.cond("CSIReady").Message, "CSIDriver csi.vsphere.vmware.com: is not there")
	})
}

// Rights that are missing in one driver's place are a fault of that driver's, and what cannot be seen is not
// forgotten.
func TestMissingRightsInOnePlaceConcernItsDriverAlone(t *testing.T) {
	scene(t, installed, func(s *scenario) {
		known := s.inventory().Len()
		s.drop(get(s, &rbacv1.RoleBinding{}, csiNamespace, "vdo-operator"))
		s.byHand("cpi", 1)
		s.until("they are missed", func() bool { return !s.isTrue("Applied") })
		get(s, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
		require.True(t, s.isTrue("CPIReady"))
		require.Contains(t, s.cond("Applied").Message, "forbidden")
		require.Contains(t, s.cond("Applied").Message, csiNamespace)
		require.Equal(t, known, s.inventory().Len())
		s.rights()
		s.ready()
		s.denied = nil
	})
}

// finding finds something amiss in cluster and vCenters; nil: no one has answered yet.
type finding []preflight.Result

func (f finding) Look(q preflight.Question) *preflight.Answer {
	if f == nil {
		return nil
	}
	return &preflight.Answer{Question: q.ID, At: time.Now(), Results: f}
}

// A preview has the gates of the pass, also where no driver gets another version. What cannot be made is told
// before it.
func TestAPreviewSaysWhatHoldsBackWhatHasTheSameVersion(t *testing.T) {
	scene(t, installed, func(s *scenario) {
		previewed := func() (string, string) {
			p, err := s.op.drivers.Preview(t.Context(), s.reread(), vdoconfig.Assume{})
			require.NoError(t, err)
			require.Empty(t, p.Path[0].Moves)
			var held []string
			for _, h := range p.Gated {
				held = append(held, h.Driver+": "+h.Message)
			}
			return strings.Join(held, "\n"), strings.Join(p.Warnings, "\n")
		}
		held, warned := previewed()
		require.Empty(t, held+warned)

		category := preflight.Result{ID: "topology-category", Action: preflight.BlockInstall, Stops: true,
			Drivers: []matrix.Driver{matrix.CSI}, Found: "no category k8s-zone"}
		s.op.drivers.Checks = finding{category}
		s.configure(func(spec *asked) { spec.StorageProvider.TopologyCategories = []string{"k8s-zone"} })
		held, _ = previewed()
		require.Contains(t, held, "no category k8s-zone")
		s.op.drivers.Checks = finding(nil)
		held, warned = previewed()
		require.Contains(t, held, "it is being checked")
		require.Contains(t, warned, "vdoctl check runs them")

		s.op.drivers.Checks = nil
		s.configure(func(spec *asked) {
			spec.StorageProvider.TopologyCategories = nil
			spec.StorageProvider.FeatureStates = map[string]bool{"unknown": true}
		})
		held, _ = previewed()
		require.Contains(t, held, `no feature state "unknown"`)
	})
}

// late is a cluster of which listing shows, while it is behind, that nothing is rolled out, which what is watched
// does not show yet.
type late struct {
	vdoconfig.Cluster
	behind bool
	listed int
}

func (l *late) ObserveListed(ctx context.Context) (assess.Observed, error) {
	l.listed++
	o, err := l.Cluster.ObserveListed(ctx)
	for i := range o.DaemonSets {
		if st := &o.DaemonSets[i].Status; l.behind {
			st.NumberAvailable, st.UpdatedNumberScheduled, st.DesiredNumberScheduled = 0, 0, 1
		}
	}
	return o, err
}

// Neither is anything removed nor a revision called healthy by what is watched alone: all of it is listed before.
func TestWhatIsNotTakenBackIsListedBefore(t *testing.T) {
	scene(t, installed, func(s *scenario) {
		was, l := s.healthy(), &late{Cluster: s.op.drivers.Cluster, behind: true}
		s.op.drivers.Cluster = l
		s.retag(bundleNewer)
		s.until("another revision is looked at", func() bool {
			is := current(s.v)
			require.False(t, is.Name != was && is.Outcome == "Healthy", "it is not rolled out")
			return is.Name != was && l.listed >= 2
		})
		l.behind = false
		s.healthy()

		l.behind, l.listed = true, 0
		s.configure(func(spec *asked) { spec.StorageProvider = nil })
		s.until("the removal is looked at", func() bool { s.controller(); return l.listed >= 2 })
		l.behind = false
		s.until("it is gone", func() bool { return s.gone(&appsv1.Deployment{}, csiNamespace, csiController) })
	})
}
