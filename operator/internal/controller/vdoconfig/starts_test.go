package vdoconfig

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

func beginning(t *testing.T, bundle, runs string) (*gatherer, func(revision.History)) {
	g := gathering(t)
	g.inventory = inventory.Inventory{}
	from, ours := withBoth(t, bundle, runs), withBoth(t, bundle, "")
	g.config, g.installed, g.versions, g.bundle, g.current = from.config, from.installed, from.versions,
		from.bundle, nil
	g.inventory = ours.inventory
	g.config.Namespace, g.now = "ns", time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	g.vcenters = map[string]vcenter{vcCloud: {version: &g.versions[0]}}
	return g, func(h revision.History) {
		memory := g.inventory.Memory()
		memory.Revisions = h
		g.inventory = g.inventory.WithMemory(memory)
	}
}

// What runs of csi cannot be read when the first revision is begun; once it can, csi 3.7.3 of
// somebody else runs, and the bundle has 3.5.1.
func TestADriverThatCouldNotBeReadComesInForceByTheRulesOfATakeOver(t *testing.T) {
	for _, inForce := range []string{"", "cpi@1.33.1"} {
		g, remember := beginning(t, pair133, "")
		if inForce != "" {
			rev := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Source: "site", Releases: split(inForce)}
			remember(revision.History{}.Begin(rev, revision.Beginning{Now: g.at0()}).Succeed(g.at0()))
		}
		g.spec = g.config.Spec
		forbidden := because(fault.Forbidden)
		g.observed.AddUnread(matrix.CSI, forbidden)
		g.fault(matrix.CSI, forbidden)
		require.NoError(t, g.gatherRevisions(t.Context()))

		d := g.resolve()
		remember(g.begun(rendering{Rendered: &render.Rendered{}, decision: d}))

		// the right is given: somebody else's 3.7.3 runs
		g.observed.Unread, g.faults = nil, nil
		g.installed = map[matrix.Driver]matrix.Version{matrix.CPI: mustVersion("1.33.1"), matrix.CSI: mustVersion("3.7.3")}
		g.revisions = revisions{}
		require.NoError(t, g.gatherRevisions(t.Context()))
		d = g.resolve()

		require.Equal(t, upgrade.DowngradeRefused, g.revisions.verdict.Reason, "csi 3.7.3 runs, chosen is %v", chosen(d))
	}
}

// inForceOf is a site where a revision of the last bundle is in force and healthy.
func inForceOf(t *testing.T, bundle, inForce string) (*gatherer, func(revision.History)) {
	g, remember := beginning(t, bundle, inForce)
	g.inventory = withBoth(t, bundle, inForce).inventory
	rev := revision.Revision{Bundle: "mirror.site/vdo@sha256:last", Source: "site", Releases: split(inForce)}
	g.Store = shelf{"sha256:last": holding(t, "sha256:last", inForce)}
	remember(revision.History{}.Begin(rev, revision.Beginning{Now: g.at0()}).Succeed(g.at0()))
	return g, remember
}

func (g *gatherer) pass(t *testing.T, remember func(revision.History)) (upgrade.Verdict, decision, revision.Record) {
	t.Helper()
	g.revisions, g.current, g.held = revisions{}, nil, nil
	require.NoError(t, g.gatherRevisions(t.Context()))
	d := g.resolve()
	h := g.begun(rendering{Rendered: &render.Rendered{}, decision: d})
	remember(h)
	cur, _ := h.InForce()
	return g.revisions.verdict, d, cur
}

// consent consents to what the bundle offers, while no window is open before the next 29 February.
func (g *gatherer) consent() revision.Revision {
	of := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Releases: split("cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3")}
	g.config.Spec.Upgrade = v1alpha1.UpgradeManual
	g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{
		Windows:  []v1alpha1.UpgradeWindow{{Schedule: "0 0 29 2 *", Duration: metav1.Duration{Duration: time.Minute}}},
		Approval: &v1alpha1.UpgradeApproval{Revision: of.Name(), By: "x"},
	}
	g.spec = g.config.Spec
	return of
}

// An upgrade of csi has its consent and waits for the window; csi's vCenter is away for a moment.
func TestAConsentStaysWhileAVCenterIsAway(t *testing.T) {
	g, remember := inForceOf(t, "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3", pair133)
	of := g.consent()
	v, _, _ := g.pass(t, remember)
	require.Equal(t, upgrade.WindowClosed, v.Reason, "it has its consent")
	g.vcenters[vcStorage] = vcenter{held: because(fault.Unreachable)}
	g.pass(t, remember)
	require.Equal(t, of.Name(), g.revisions.offered.Name(), "what the consent is of stays the same")
	delete(g.vcenters, vcStorage)
	v, _, _ = g.pass(t, remember)
	require.Equal(t, upgrade.WindowClosed, v.Reason, v.Message)
}

// The bundle lacks the release of a driver that is held: all stay with the last one.
func TestWhatIsInForceIsWhatIsInstalledFrom(t *testing.T) {
	g, remember := inForceOf(t, "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3", pair133)
	g.spec = g.config.Spec
	g.vcenters[vcStorage] = vcenter{held: because(fault.Unreachable)}
	_, d, cur := g.pass(t, remember)
	assert.Equal(t, chosen(d), cur.Releases, "what is in force is what is installed")

	g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Canary: &v1alpha1.Canary{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"first": "yes"}}}}
	delete(g.vcenters, vcStorage) // it is back: csi goes from 3.5.1 to 3.7.3
	g.revisions, g.current, g.held = revisions{}, nil, nil
	require.NoError(t, g.gatherRevisions(t.Context()))
	require.True(t, g.canaryBegins() || g.revisions.verdict.Reason == upgrade.Interlocked, "csi 3.7.3 comes to all nodes at once, though the canary asks for chosen ones first")
}

// Another bundle with the same comes in force once all drivers come from it: before, nothing begins.
func TestAnotherBundleWithTheSameBeginsForAllDrivers(t *testing.T) {
	g, remember := inForceOf(t, pair133, pair133)
	g.spec = g.config.Spec
	g.vcenters[vcStorage] = vcenter{held: because(fault.Unreachable)}
	_, _, cur := g.pass(t, remember)
	require.Equal(t, "mirror.site/vdo@sha256:last", cur.Bundle)
	require.Equal(t, revision.Healthy, cur.Outcome)
	delete(g.vcenters, vcStorage)
	_, _, cur = g.pass(t, remember)
	require.Equal(t, "mirror.site/vdo@sha256:new", cur.Bundle)
	require.Empty(t, cur.Bundles)
}

// Drivers that are left installed amid a canary are left with node plugins that nobody rolls out.
func TestDriversThatAreLeftAmidACanaryAreSaidToReplaceNoPods(t *testing.T) {
	v := &v1alpha1.VDOConfig{}
	p := (&Reconciler{Now: time.Now, Cluster: configs{}}).newPass(v)
	require.Equal(t, "the drivers were left installed", p.leftInstalled(t.Context()))
	for _, open := range []bool{false, true} {
		h := revision.History{}.Begin(revision.Revision{Releases: split(pair133)}, revision.Beginning{Now: time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC), Canary: open})
		p.inventory = inventory.Inventory{}.WithMemory(inventory.Memory{Revisions: h, ClusterID: "x"})
		v.Spec.UpgradePolicy = nil
		require.Contains(t, p.leftInstalled(t.Context()), `cluster id is "x"`)
		require.NotContains(t, p.leftInstalled(t.Context()), "OnDelete")
		v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Canary: &v1alpha1.Canary{}}
		require.Equal(t, open, strings.Contains(p.leftInstalled(t.Context()), "OnDelete"))
	}
}

// A consent that was given before anything is in force stays, whatever begins before its window opens.
func TestAConsentBeforeAnythingIsInForceStays(t *testing.T) {
	for name, leaveOut := range map[string]func(g *gatherer) (back func()){
		"nothing else": func(*gatherer) func() { return func() {} },
		"unread": func(g *gatherer) func() {
			runs, forbidden := g.installed, because(fault.Forbidden)
			g.installed = map[matrix.Driver]matrix.Version{matrix.CPI: mustVersion("1.33.1")}
			g.observed.AddUnread(matrix.CSI, forbidden)
			g.fault(matrix.CSI, forbidden)
			return func() { g.observed.Unread, g.faults, g.installed = nil, nil, runs }
		},
		"held": func(g *gatherer) func() {
			g.vcenters[vcStorage] = vcenter{held: because(fault.Unreachable)}
			return func() { delete(g.vcenters, vcStorage) }
		},
		"all held": func(g *gatherer) func() { // by what is no fault of the bundle
			g.waiting = "the login is being tried at the mirror"
			return func() { g.waiting = "" }
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, remember := beginning(t, "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3", "cpi@1.33.1 csi@3.5.1")
			of, back := g.consent(), leaveOut(g)
			_, _, cur := g.pass(t, remember)
			require.Empty(t, cur.Version("csi"), "it is taken over in the window")
			back()
			v, _, _ := g.pass(t, remember)
			require.Equal(t, upgrade.WindowClosed, v.Reason, v.Message)
			g.now = time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)
			_, _, cur = g.pass(t, remember)
			require.Equal(t, of.Releases, cur.Releases)
		})
	}
}

// A driver that cannot be read and that nobody asks for is no part of what has its consent.
func TestAConsentIsNotHeldUpByADriverThatNobodyAsksFor(t *testing.T) {
	for _, runs := range []string{"", "cpi@1.33.1 csi@3.5.1"} {
		g, remember := beginning(t, "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3", runs)
		of := g.consent()
		g.config.Spec.UpgradePolicy.Windows = nil
		forbidden := because(fault.Forbidden)
		g.observed.AddUnread(matrix.CNI, forbidden)
		g.fault(matrix.CNI, forbidden)
		v, _, cur := g.pass(t, remember)
		require.Equal(t, of.Releases, cur.Releases, v.Message)
	}
}

// An upgrade from cpi@1.33.1 and csi@3.7.0, once Kubernetes is of 1.34.
func TestWhatAnUpgradeWaitsFor(t *testing.T) {
	const older, newer = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.0", "cpi@1.34.0 snapshot-controller@8.2.0 csi@3.7.3"
	const oldCPI = "cpi@1.33.1 runs, and does not fit: a cpi serves its own minor, not 1.34"
	const half = "cpi@1.34.0 snapshot-controller@8.2.0 csi@3.7.0"
	nodes := func(g *gatherer) {
		for _, kubelet := range []string{"v1.33.4", "v1.34.1"} {
			n := &corev1.Node{}
			n.Status.NodeInfo.KubeletVersion = kubelet
			g.observed.Nodes = append(g.observed.Nodes, n)
		}
	}
	vcenterToo := func(g *gatherer) {
		nodes(g)
		g.inventory = g.inventory.WithMemory(inventory.Memory{
			Seen: []revision.VCenter{{Name: vcCloud, Version: "8.0.3", Changed: g.at0()}}, Revisions: g.inventory.Memory().Revisions})
	}
	csiAlone := func(g *gatherer) {
		nodes(g)
		g.kubernetes.version = mustVersion("1.33.4")
	}
	oldVCenter := func(g *gatherer) { g.versions[0].Version = mustVersion("6.7.0") }
	mixed := func(ignored string) func(g *gatherer) {
		return func(g *gatherer) {
			g.kubernetes.mixed = "the API servers are of Kubernetes v1.34.1 to v1.35.0"
			g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{IgnoreInterlocks: []string{ignored}}
		}
	}
	for name, c := range map[string]struct {
		bundle string
		edit   func(g *gatherer)
		want   string
		reason upgrade.Reason
		unfit  string // what Ready says
	}{
		"nothing changes": {newer, func(*gatherer) {}, newer, "", ""},
		"no release fits a vCenter": {older + " " + newer, oldVCenter, older, "",
			"csi@3.7.0 runs, and does not fit: needs vSphere 7.0.0 and later, not vCenter vc-cloud 6.7.0"},
		"nodes change: cpi goes on":           {half + " csi@3.7.3", nodes, half, upgrade.Interlocked, ""},
		"the bundle lacks the csi that waits": {newer, nodes, half, upgrade.Interlocked, ""},
		"a vCenter changes too":               {half + " csi@3.7.3", vcenterToo, older, upgrade.Interlocked, oldCPI},
		"nothing but csi is upgraded":         {older + " csi@3.7.3", csiAlone, older, upgrade.Interlocked, ""},
		"API servers are of mixed minors":     {newer, mixed("Nodes"), older, upgrade.Interlocked, oldCPI},
		"they are, and nobody minds":          {newer, mixed("APIServers"), newer, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, remember := inForceOf(t, c.bundle, older)
			var err error
			g.kubernetes.version, err = matrix.ParseKubernetes("1.34")
			require.NoError(t, err)
			c.edit(g)
			g.spec = g.config.Spec
			for range 2 { // in the pass that begins something, and after it
				v, d, cur := g.pass(t, remember)
				require.Equal(t, c.reason, v.Reason, v.Message)
				require.Equal(t, split(c.want), chosen(d))
				require.Equal(t, split(c.want), cur.Releases)
				require.Equal(t, c.want == older, strings.HasSuffix(cur.Bundle, "@sha256:last"))
				p := result{config: g.config, site: g.site, decision: d}
				ready := p.phase(&g.config.Status)
				require.Equal(t, c.unfit != "", ready.Err != nil)
				if c.unfit != "" {
					require.Equal(t, fault.Incompatible, fault.ReasonOf(ready.Err))
					require.ErrorContains(t, ready.Err, c.unfit)
				}
				for _, id := range d.releases {
					g.installed[id.Driver] = id.Version
				}
			}
			if c.want == half { // csi follows
				g.observed.Nodes = nil
				_, d, _ := g.pass(t, remember)
				require.Equal(t, split(newer), chosen(d))
			}
		})
	}
}

// Where no node can be first, an upgrade waits and says why.
func TestAnUpgradeWaitsForNodesThatCanBeFirst(t *testing.T) {
	app, role := map[string]string{"app": "node"}, map[string]string{"role": "first"}
	meta := metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-csi-node", UID: "1", Labels: app}
	pod := &corev1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: corev1.PodSpec{NodeName: "n1"}}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: meta.Name, UID: "1", Controller: new(true)}}
	for want, c := range map[string]struct {
		role   map[string]string
		pods   []*corev1.Pod
		ignore string
	}{
		"": {role, []*corev1.Pod{pod}, "/spec/replicas"},
		"spec.upgradePolicy.canary.nodeSelector chooses no node":                                   {nil, []*corev1.Pod{pod}, ""},
		"spec.upgradePolicy.canary.nodeSelector chooses nodes without a pod of the storage driver": {role, nil, ""},
		"spec.drift.ignore leaves how the storage driver's pods are replaced to others":            {role, []*corev1.Pod{pod}, "/spec/updateStrategy/rollingUpdate"},
	} {
		s := withCSI(t)
		first := &v1alpha1.Canary{NodeSelector: metav1.LabelSelector{MatchLabels: role}}
		s.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Canary: first}
		left := v1alpha1.DriftIgnore{Kind: "DaemonSet", Paths: []string{c.ignore}}
		s.config.Spec.Drift = &v1alpha1.DriftPolicy{Ignore: []v1alpha1.DriftIgnore{left}}
		s.observed = &assess.Observed{
			Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: c.role}}}, Pods: c.pods,
			DaemonSets: []appsv1.DaemonSet{{ObjectMeta: meta,
				Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}}}},
		}
		cur := revision.Record{Revision: revision.Revision{Releases: []string{"csi@3.5.1"}}}
		got := s.interlocks(cur)[matrix.CSI]
		require.Equal(t, want == "", got == "", got)
		require.Contains(t, got, want)
		require.Empty(t, s.interlocks(revision.Record{})[matrix.CSI], "nothing is in force")
	}
}

// What upstream's manifest left of a driver that a check keeps back stays, and nothing waits for it: the
// revision is healthy. It was said to have failed after its deadline, though all ran.
func TestNothingWaitsForALeftoverOfADriverThatIsKeptBack(t *testing.T) {
	for _, held := range []bool{true, false} {
		g := gathering(t)
		a := &applier{pass: &pass{Reconciler: g.Reconciler, result: result{config: g.config, site: g.site}}}
		if held {
			a.site.checks = checks{made: true, holds: preflight.Gate([]preflight.Result{blocking(matrix.CSI, false)})}
		}
		step := stepOf(plan.Prune, matrix.CSI, "DaemonSet", "vsphere-csi-node-windows")
		a.outcome.plan = &plan.Plan{Steps: []plan.Step{step}}
		a.outcome.changed = 1 // in this pass nothing goes
		require.NoError(t, a.removals(t.Context()))
		require.Equal(t, held, a.outcome.gate == "", a.outcome.gate)
	}
}
