package vdoconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// A storage driver that was removed during its rollout was never healthy and has no revision, so that its next
// installation is none of an upgrade. Its namespace is kept.
func TestARemovedDriverHasNoRevision(t *testing.T) {
	g, _ := withRevision(t)
	bad := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Source: "site", Releases: []string{"csi@3.7.3"}}
	all := revision.Histories{matrix.CSI: g.upgrades.history[matrix.CSI].Start(bad, revision.Beginning{Now: g.at0()})}
	kept := inventory.Of(inventory.Entry{ID: core("Namespace", "", render.CSINamespace), UID: "u", Driver: matrix.CSI, Release: "csi@3.5.1"})
	g.facts.inventory = kept.WithMemory(inventory.Memory{Revisions: all})
	g.inventory, g.site.Installed = g.facts.inventory, map[matrix.Driver]matrix.Version{}
	g.bundle, g.outcome.report, g.config.Spec.StorageProvider = holding(t, "sha256:new", "csi@3.7.3 snapshot-controller@8.2.0"), &assess.Report{}, nil
	for range 5 {
		g.now = g.now.Add(time.Minute)
		g.decideAll(t.Context())
		all, _ = g.afterLook(all)
	}
	cur, _ := all[matrix.CSI].Named(bad.Name())
	require.Zero(t, cur.Healthy, cur.Outcome)
	require.Empty(t, inForce(g.begun(rendering{Rendered: &render.Rendered{}, decision: g.resolve()})))
}

// Drivers that share a namespace share its pull secret: a conflict of one leaves the others' pods with it.
func TestThePullSecretOfABlockedDriverServesOthers(t *testing.T) {
	login := stepOf(plan.Create, matrix.CPI, "Secret", render.PullSecret)
	login.Object, login.Stage = &unstructured.Unstructured{Object: map[string]any{}}, render.StageConfig
	pods := stepOf(plan.Create, matrix.SnapshotController, "Deployment", "snapshot-controller")
	pods.Group, pods.Object = "apps", login.Object
	for _, other := range []error{nil, because(fault.Conflict)} {
		p := (&Reconciler{Cluster: &fakeCluster{}, Now: time.Now}).newPass(&v1alpha1.VDOConfig{})
		p.outcome.plan = &plan.Plan{Steps: []plan.Step{login, pods}}
		a := &applier{pass: p, failed: map[matrix.Driver]error{}}
		a.blocked = joined(a.blocked, matrix.CPI, because(fault.Conflict))
		if other != nil {
			a.blocked = joined(a.blocked, matrix.SnapshotController, other)
		}
		require.NoError(t, a.stage(t.Context(), render.Stage{Name: render.StageConfig}))
		e, has := p.inventory.Get(login.Key)
		require.Equal(t, other == nil, has)
		require.False(t, p.inventory.Has(matrix.CPI), e)
	}
}

func TestWhatHoldsARemoval(t *testing.T) {
	unfit := func(s *decided) {
		s.desired = decision{from: s.bundle, gated: map[matrix.Driver]string{}, refused: because(fault.Incompatible)}
	}
	for name, c := range map[string]struct {
		edit    func(s *decided)
		removes bool
		reason  fault.Reason
	}{
		"the bundle has expired": {func(s *decided) { s.starts = because(fault.Expired) }, true, fault.Expired},
		"it is untrusted":        {func(s *decided) { s.gated = because(fault.Untrusted) }, false, fault.Untrusted},
		"no release fits":        {unfit, true, fault.Incompatible},
		"and it is requested": {func(s *decided) {
			s.config.Spec.StorageProvider = &v1alpha1.StorageProvider{}
			unfit(s)
		}, false, fault.Incompatible},
		"another driver's rendering is refused": {func(s *decided) {
			s.config.Spec.CloudProvider, s.hash = &v1alpha1.CloudProvider{}, make([]byte, 32)
			s.desired = decision{from: s.bundle, gated: map[matrix.Driver]string{}, releases: releaseIDs("cpi@1.33.1")}
		}, true, fault.NotFound},
		"a pin that cannot be read may request it": {func(s *decided) {
			s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cni", Version: "01.2.3"}}
			s.desired = s.chooseReleases()
		}, false, fault.InvalidInput},
	} {
		s, id := withCSI(t), core("ServiceAccount", "ns", "x")
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetUID("u")
		k := &fakeCluster{live: plan.Live{id.Key: o}}
		s.config.Spec.StorageProvider, s.spec.StorageProvider, s.bundleGated = nil, nil, true
		s.facts.inventory = inventory.Of(inventory.Entry{ID: id, UID: "u", Driver: matrix.CSI, Release: "csi@3.5.1"})
		c.edit(s)
		s.observed = &assess.Observed{}
		p := &pass{Reconciler: &Reconciler{Cluster: k, Now: time.Now, Recorder: events.NewFakeRecorder(9)},
			result: result{decided: *s, inventory: s.facts.inventory}}
		p.kept.keyIn = hashSecret
		require.NoError(t, p.install(t.Context()), name)
		require.Equal(t, c.removes, k.deleted, name)
		_, why := p.unresolved()
		require.Equal(t, c.reason, fault.ReasonOf(why), name)
	}
}

func TestALeftWebhookIsNoInstalledDriver(t *testing.T) {
	for _, c := range []struct{ wanted, ours bool }{{}, {wanted: true}, {ours: true}} {
		s := withCSI(t)
		s.config.Spec.StorageProvider.Webhook = c.wanted
		p := &pass{result: result{decided: *s}}
		if c.ours {
			p.inventory = inventory.Of(inventory.Entry{ID: webhookDeployment})
		}
		require.NoError(t, p.observe(t.Context(), (&fakeCluster{}).Observe))
		_, counts := installed(p.observed, inventory.Inventory{})[matrix.CSI]
		require.Equal(t, c.wanted || c.ours, counts, c)
	}
}

func TestADriverThatNothingCanRepairIsAFault(t *testing.T) {
	for _, dry := range []bool{false, true} {
		s := withCSI(t)
		lost := s.upgrades.current[matrix.CSI]
		lost.from, lost.err = nil, because(fault.NotFound)
		s.upgrades.current[matrix.CSI], s.gated, s.config.Spec.DryRun = lost, because(fault.Expired), dry
		s.desired = s.chooseReleases()
		p := &pass{Reconciler: &Reconciler{Cluster: &fakeCluster{}, Now: time.Now, Recorder: events.NewFakeRecorder(9)},
			result: result{decided: *s, inventory: s.inventory}}
		p.kept.keyIn = hashSecret
		require.ErrorContains(t, p.install(t.Context()), "repair csi@3.5.1: why", dry)
	}
}

func TestAForbiddenDeletionIsRepeatedLater(t *testing.T) {
	forbids := &fakeCluster{refusal: because(fault.Forbidden)}
	p := (&Reconciler{Now: time.Now, Cluster: forbids}).newPass(&v1alpha1.VDOConfig{})
	err := p.prune(t.Context(), []plan.Step{stepOf(plan.Prune, matrix.CSI, "ClusterRole", "x")})
	require.Equal(t, fault.Forbidden, fault.ReasonOf(err))
	require.False(t, p.outcome.again)
}

// Drift that spec.drift leaves keeps no canary node from being seen, and what is deleted is not being made.
func TestDriftThatIsLeftIsNoChange(t *testing.T) {
	s := withCSI(t)
	s.config.Spec.Drift = &v1alpha1.DriftPolicy{Mode: v1alpha1.DriftWarn}
	s.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Canary: &v1alpha1.Canary{}}
	p := &pass{result: result{decided: *s, inventory: s.inventory}}
	e := s.inventory.Entries()[0]
	left := plan.Step{Action: plan.Create, ID: e.ID, Driver: matrix.CSI, Release: e.Release, Cause: plan.Drift,
		Object: &unstructured.Unstructured{}}
	changed := stepOf(plan.Change, matrix.CSI, "DaemonSet", "vsphere-csi-node")
	changed.Cause, changed.Stage = plan.Drift, render.StageCSINode
	p.outcome.plan = &plan.Plan{Steps: []plan.Step{left, changed}}
	require.False(t, p.missing()[0].BeingMade)
	require.Equal(t, `no node matches the canary selector ""`, p.canaries().Why)
	p.outcome.plan.Changing = map[matrix.Driver]bool{matrix.CSI: true}
	require.True(t, p.missing()[0].BeingMade, "a changed driver is applied whole")
}

func TestADryRunWarnsOfTheCertificate(t *testing.T) {
	cert, _, err := webhookcert.Ensure(nil, nil, time.Now().Add(-80*24*time.Hour))
	require.NoError(t, err)
	secret := &unstructured.Unstructured{Object: map[string]any{}}
	secret.SetLabels(map[string]string{render.LabelManagedBy: render.ManagedBy, render.LabelDriver: "csi"})
	setSecretData(secret, render.WebhookData(cert))
	live := plan.Live{webhookSecret.Key: secret, webhookRegistration.Key: secret}
	p := (&Reconciler{Now: time.Now, Cluster: &fakeCluster{live: live}}).newPass(
		&v1alpha1.VDOConfig{Spec: v1alpha1.VDOConfigSpec{DryRun: true}})
	require.NoError(t, p.keepCertificate(t.Context(), false))
	require.Equal(t, reasonExpiring, p.certificateCondition().Reason)

	// A removal that cannot begin, since the inventory cannot be read, blocks no renewal.
	cert, _, err = webhookcert.Ensure(nil, nil, p.now)
	require.NoError(t, err)
	setSecretData(secret, render.WebhookData(cert))
	damaged := &fakeCluster{live: live, corrupt: because(fault.Corrupt)}
	r := &Reconciler{Now: p.Now, Cluster: damaged, Client: gathering(t).Client}
	out, err := r.Remove(t.Context(), &v1alpha1.VDOConfig{})
	require.NoError(t, err)
	is, ok := out.(result)
	require.True(t, ok)
	require.Equal(t, metav1.ConditionTrue, is.certificateCondition().Status)
}
