package vdoconfig

import (
	"cmp"
	"context"
	"slices"
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// beginning is a site with what runs, and where a revision of the last bundle is in force and healthy, "" for none.
func beginning(t *testing.T, bundle, runs, inForce string) (*pass, func(revision.Histories)) {
	g := gathering(t)
	from := withBoth(t, bundle, runs)
	g.config, g.installed, g.versions, g.bundle, g.current = from.config, from.installed, from.versions,
		from.bundle, nil
	g.site.inventory, g.config.Namespace = withBoth(t, bundle, inForce).inventory, "ns"
	g.vcenters = map[string]vcenter{vcCloud: {version: &g.versions[0]}}
	remember := func(h revision.Histories) {
		memory := g.site.inventory.Memory()
		memory.Revisions = h
		g.site.inventory = g.site.inventory.WithMemory(memory)
	}
	if inForce != "" {
		rev := revision.Revision{Bundle: "mirror.site/vdo@sha256:last", Source: "site", Releases: split(inForce)}
		g.Store = shelf{"sha256:last": holding(t, "sha256:last", inForce)}
		remember(healthy(rev, g.at0()))
	}
	return g, remember
}

// What runs of csi cannot be read when the first revision is begun; once it can, csi 3.7.3 of
// somebody else runs, and the bundle has 3.5.1.
func TestADriverThatCouldNotBeReadComesInForceByTheRulesOfATakeOver(t *testing.T) {
	for _, inForce := range []string{"", "cpi@1.33.1"} {
		g, remember := beginning(t, pair133, "", "")
		if inForce != "" {
			rev := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Source: "site", Releases: split(inForce)}
			remember(healthy(rev, g.at0()))
		}
		g.spec = g.config.Spec
		forbidden := because(fault.Forbidden)
		g.observed.AddUnread(matrix.CSI, forbidden)
		g.fault(matrix.CSI, forbidden)
		g.decide(t.Context())

		d := g.resolve()
		remember(g.begun(rendering{Rendered: &render.Rendered{}, decision: d}))

		// the right is given: somebody else's 3.7.3 runs
		g.observed.Unread, g.faults = nil, nil
		g.installed = map[matrix.Driver]matrix.Version{matrix.CPI: mustVersion("1.33.1"), matrix.CSI: mustVersion("3.7.3")}
		g.revisions = revisions{}
		g.decide(t.Context())
		d = g.resolve()

		require.Equal(t, decide.DowngradeRefused, g.revisions.verdicts[matrix.CSI].Reason, "csi 3.7.3 runs, chosen is %v", chosen(d))
	}
}

// again decides once more, and returns what is told first, and the histories after it.
func (p *pass) again(t *testing.T, remember func(revision.Histories)) (decide.Verdict, decision, revision.Histories) {
	t.Helper()
	p.revisions, p.current, p.site.held = revisions{}, nil, nil
	p.decide(t.Context())
	d := p.resolve()
	h := p.begun(rendering{Rendered: &render.Rendered{}, decision: d})
	remember(h)
	first, _ := p.revisions.first()
	return first, d, h
}

// consent consents to what the bundle offers, while no window is open before the next 29 February.
func (p *pass) consent() revision.Revision {
	of := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Releases: split("cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3")}
	p.config.Spec.Upgrade = v1alpha1.UpgradeManual
	p.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{
		Windows:  []v1alpha1.UpgradeWindow{{Schedule: "0 0 29 2 *", Duration: metav1.Duration{Duration: time.Minute}}},
		Approval: &v1alpha1.UpgradeApproval{Revision: of.Name(), By: "x"},
	}
	p.spec = p.config.Spec
	return of
}

// The bundle lacks the release of a driver that is held: all stay with the last one.
func TestWhatIsInForceIsWhatIsInstalledFrom(t *testing.T) {
	g, remember := beginning(t, "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3", pair133, pair133)
	g.spec = g.config.Spec
	g.vcenters[vcStorage] = vcenter{held: because(fault.Unreachable)}
	_, d, cur := g.again(t, remember)
	assert.Equal(t, chosen(d), inForce(cur), "what is in force is what is installed")

	g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Canary: &v1alpha1.Canary{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"first": "yes"}}}}
	delete(g.vcenters, vcStorage) // it is back: csi goes from 3.5.1 to 3.7.3
	g.revisions, g.current, g.site.held = revisions{}, nil, nil
	g.decide(t.Context())
	require.True(t, g.canaryBegins(matrix.CSI) || g.revisions.verdicts[matrix.CSI].Reason == decide.Interlocked, "csi 3.7.3 comes to all nodes at once, though the canary asks for chosen ones first")
}

// A group comes from another bundle with the same as soon as nothing gates it, and begins nothing.
func TestAnotherBundleWithTheSameBeginsNothing(t *testing.T) {
	g, remember := beginning(t, pair133, pair133, pair133)
	g.spec = g.config.Spec
	all := g.site.inventory.Memory().Revisions
	for group, h := range all {
		cur, _ := h.InForce()
		cur.Contents = map[string]string{}
		for _, d := range cur.Drivers() {
			id := matrix.ReleaseID{Driver: matrix.Driver(d), Version: mustVersion(cur.Version(d))}
			_, cur.Contents[d], _ = strings.Cut(g.bundle.made(id), "/")
		}
		all[group] = h.With(cur)
	}
	remember(all)
	g.vcenters[vcStorage] = vcenter{held: because(fault.Unreachable)}
	bundles := func() (of []string) {
		_, _, all := g.again(t, remember)
		for _, cur := range all.InForce() {
			require.Equal(t, revision.Healthy, cur.Outcome)
			of = append(of, strings.TrimPrefix(cur.Bundle, "mirror.site/vdo@sha256:"))
		}
		return of
	}
	require.Equal(t, []string{"new", "last"}, bundles())
	delete(g.vcenters, vcStorage)
	require.Equal(t, []string{"new", "new"}, bundles())
}

// The history of what was removed is forgotten.
func TestTheHistoryOfWhatWasRemovedIsForgotten(t *testing.T) {
	g, remember := beginning(t, pair133, pair133, pair133)
	memory := g.site.inventory.Memory()
	g.config.Spec.StorageProvider, g.spec.StorageProvider = nil, nil
	_, _, all := g.again(t, remember)
	require.Len(t, all, 2, "its objects are there")
	for _, e := range g.site.inventory.Entries() {
		if e.Driver != matrix.CPI {
			g.site.inventory = g.site.inventory.Without(e.Key)
		}
	}
	g.site.inventory = g.site.inventory.WithMemory(memory)
	_, _, all = g.again(t, remember)
	require.Equal(t, []string{"cpi@1.33.1"}, inForce(all))
	require.Len(t, all, 1)
}

// Drivers that are left installed amid a canary are left with node plugins that nobody rolls out.
func TestDriversThatAreLeftAmidACanaryAreSaidToReplaceNoPods(t *testing.T) {
	v := &v1alpha1.VDOConfig{}
	p := (&Reconciler{Now: time.Now, Cluster: configs{}}).newPass(v)
	require.Equal(t, "the drivers were left installed", p.leftInstalled(t.Context()))
	for _, open := range []bool{false, true} {
		h := begun(revision.Revision{Releases: split(pair133)}, revision.Beginning{Canary: open})
		p.inventory = inventory.Inventory{}.WithMemory(inventory.Memory{Revisions: h, ClusterID: "x"})
		v.Spec.UpgradePolicy = nil
		require.Contains(t, p.leftInstalled(t.Context()), `cluster id is "x"`)
		require.NotContains(t, p.leftInstalled(t.Context()), "OnDelete")
		v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Canary: &v1alpha1.Canary{}}
		require.Equal(t, open, strings.Contains(p.leftInstalled(t.Context()), "OnDelete"))
	}
}

// A consent stays, whatever begins, or is away for a moment, before its window opens; also one that was given
// before anything is in force.
func TestAConsentStaysUntilItsWindowOpens(t *testing.T) {
	const bundle = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3"
	held := func(g *pass) func() {
		g.vcenters[vcStorage] = vcenter{held: because(fault.Unreachable)}
		return func() { delete(g.vcenters, vcStorage) }
	}
	unread := func(g *pass) func() {
		runs, forbidden := g.installed, because(fault.Forbidden)
		g.installed = map[matrix.Driver]matrix.Version{matrix.CPI: mustVersion("1.33.1")}
		g.observed.AddUnread(matrix.CSI, forbidden)
		g.fault(matrix.CSI, forbidden)
		return func() { g.observed.Unread, g.faults, g.installed = nil, nil, runs }
	}
	waits := func(g *pass) func() { // for what is no fault of the bundle
		g.waiting = "the login is being tried at the mirror"
		return func() { g.waiting = "" }
	}
	for name, c := range map[string]struct {
		inForce  string
		leaveOut func(g *pass) (back func())
	}{
		"nothing else":        {"", func(*pass) func() { return func() {} }},
		"unread":              {"", unread},
		"held":                {"", held},
		"all held":            {"", waits},
		"held, once it is in": {pair133, held},
	} {
		t.Run(name, func(t *testing.T) {
			g, remember := beginning(t, bundle, cmp.Or(c.inForce, "cpi@1.33.1 csi@3.5.1"), c.inForce)
			of := g.consent()
			back := c.leaveOut(g)
			_, _, cur := g.again(t, remember)
			if c.inForce != "" {
				require.Equal(t, of.Name(), g.revisions.offered.Name(), "what the consent is of stays the same")
			}
			require.NotContains(t, inForce(cur), "csi@3.7.3", "it begins in the window")
			back()
			v, _, _ := g.again(t, remember)
			require.Equal(t, decide.WindowClosed, v.Reason, v.Message)
			g.now = time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)
			_, _, cur = g.again(t, remember)
			require.Equal(t, of.Releases, inForce(cur))
		})
	}
}

// A driver that cannot be read and that nobody asks for is no part of what has its consent.
func TestAConsentIsNotHeldUpByADriverThatNobodyAsksFor(t *testing.T) {
	for _, runs := range []string{"", "cpi@1.33.1 csi@3.5.1"} {
		g, remember := beginning(t, "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3", runs, "")
		of := g.consent()
		g.config.Spec.UpgradePolicy.Windows = nil
		forbidden := because(fault.Forbidden)
		g.observed.AddUnread(matrix.CNI, forbidden)
		g.fault(matrix.CNI, forbidden)
		v, _, cur := g.again(t, remember)
		require.Equal(t, of.Releases, inForce(cur), v.Message)
	}
}

// An upgrade from cpi@1.33.1 and csi@3.7.0, once Kubernetes is of 1.34.
func TestWhatAnUpgradeWaitsFor(t *testing.T) {
	const older, newer = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.0", "cpi@1.34.0 snapshot-controller@8.2.0 csi@3.7.3"
	const oldCPI = "cpi@1.33.1 runs, and does not fit: a cpi serves its own minor, not 1.34"
	const half = "cpi@1.34.0 snapshot-controller@8.2.0 csi@3.7.0"
	nodes := func(g *pass) {
		for _, kubelet := range []string{"v1.33.4", "v1.34.1"} {
			n := &corev1.Node{}
			n.Status.NodeInfo.KubeletVersion = kubelet
			g.observed.Nodes = append(g.observed.Nodes, n)
		}
	}
	vcenterToo := func(g *pass) {
		nodes(g)
		g.site.inventory = g.site.inventory.WithMemory(inventory.Memory{
			Seen: []revision.VCenter{{Name: vcCloud, Version: "8.0.3", Changed: g.at0()}}, Revisions: g.site.inventory.Memory().Revisions})
	}
	csiAlone := func(g *pass) {
		nodes(g)
		g.kubernetes.version = mustVersion("1.33.4")
	}
	oldVCenter := func(g *pass) { g.versions[0].Version = mustVersion("6.7.0") }
	mixed := func(ignored string) func(g *pass) {
		return func(g *pass) {
			g.kubernetes.mixed = "the API servers are of Kubernetes v1.34.1 to v1.35.0"
			g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{IgnoreInterlocks: []string{ignored}}
		}
	}
	for name, c := range map[string]struct {
		bundle string
		edit   func(g *pass)
		want   string
		reason decide.Reason
		unfit  string // what Ready says
	}{
		"nothing changes": {newer, func(*pass) {}, newer, "", ""},
		"no release fits a vCenter": {older + " " + newer, oldVCenter, older, "",
			"csi@3.7.0 runs, and does not fit: needs vSphere 7.0.0 and later, not vCenter vc-cloud 6.7.0"},
		"nodes change: cpi goes on":           {half + " csi@3.7.3", nodes, half, decide.Interlocked, ""},
		"the bundle lacks the csi that waits": {newer, nodes, half, decide.Interlocked, ""},
		"a vCenter changes too":               {half + " csi@3.7.3", vcenterToo, older, decide.Interlocked, oldCPI},
		"nothing but csi is upgraded":         {older + " csi@3.7.3", csiAlone, older, decide.Interlocked, ""},
		"API servers are of mixed minors":     {newer, mixed("Nodes"), older, decide.Interlocked, oldCPI},
		"they are, and nobody minds":          {newer, mixed("APIServers"), newer, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, remember := beginning(t, c.bundle, older, older)
			var err error
			g.kubernetes.version, err = matrix.ParseKubernetes("1.34")
			require.NoError(t, err)
			c.edit(g)
			g.spec = g.config.Spec
			for range 2 { // in the pass that begins something, and after it
				v, d, cur := g.again(t, remember)
				require.Equal(t, c.reason, v.Reason, v.Message)
				require.Equal(t, split(c.want), chosen(d))
				require.Equal(t, split(c.want), inForce(cur))
				p := result{site: g.site, decision: d}
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
				_, d, _ := g.again(t, remember)
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
		s.revisions.history = begun(revision.Revision{Releases: []string{"csi@3.5.1"}}, revision.Beginning{})
		got := s.interlock(matrix.CSI)
		require.Equal(t, want == "", got == "", got)
		require.Contains(t, got, want)
		s.revisions.history = nil
		require.Empty(t, s.interlock(matrix.CSI), "nothing is in force")
	}
}

// What is waited for holds its own group up and, until it is installed or upgraded, what comes after it.
func TestWhatIsWaitedForHoldsItsOwnGroupUp(t *testing.T) {
	type drivers = []matrix.Driver
	cni, cpi, csi := matrix.CNI, matrix.CPI, matrix.CSI
	all := drivers{cni, cpi, csi}
	for name, c := range map[string]struct {
		waits    map[string]drivers
		cause    plan.Cause
		returned bool    // csi is gone back to
		held     drivers // of cni and csi, which are installed, and cpi, which is not
	}{
		"nothing":                    {nil, plan.Release, false, nil},
		"the mirror":                 {map[string]drivers{"m": nil}, plan.Configuration, false, drivers{cni, cpi, csi}},
		"the mirror, and a repair":   {map[string]drivers{"m": nil}, plan.Drift, false, nil},
		"cni, and an upgrade":        {map[string]drivers{"x": {cni}}, plan.Release, false, drivers{cni, cpi, csi}},
		"cni, and what goes back":    {map[string]drivers{"x": {cni}}, plan.Release, true, drivers{cni, cpi}},
		"cni, and what is made anew": {map[string]drivers{"x": {cni}}, plan.Release, false, drivers{cni, cpi}},
		"cni, and a password":        {map[string]drivers{"x": {cni}}, plan.Configuration, false, drivers{cni, cpi}},
		"cni and all":                {map[string]drivers{"x": {cni}, "m": nil}, plan.Release, true, all},
		"cni and csi":                {map[string]drivers{"x": {cni}, "y": {csi}}, plan.Release, true, all},
		"the snapshot-controller":    {map[string]drivers{"x": {matrix.SnapshotController}}, plan.Release, true, all},
	} {
		p := &result{site: *withBoth(t, "", "cni@2.3.0 csi@3.5.1")}
		cur := revision.Record{Number: 1, Returned: c.returned}
		of := revision.History{Current: 1, Records: []revision.Record{cur}}
		p.inventory = p.inventory.WithMemory(inventory.Memory{Revisions: revision.Histories{csi: of}})
		for what, of := range c.waits {
			p.wait(what, of...)
		}
		for _, d := range all {
			step := stepOf(plan.Change, d, "Secret", "x")
			step.Cause, step.Release = c.cause, "a release"
			if d == csi && strings.HasSuffix(name, "made anew") {
				p.inventory = p.inventory.With(inventory.Entry{ID: step.ID, Driver: d, Release: step.Release})
			}
			require.Equal(t, slices.Contains(c.held, d), p.heldUp(step), "%s: %s", name, d)
		}
		for what := range c.waits {
			require.Contains(t, p.outcome.gate, what, name)
		}
	}
}

// What is deleted to be made anew is no drift while it is not there, which some VDOConfigs leave as it is, unless it
// was drift that is repaired so.
func TestWhatIsMadeAnewIsNoDriftMeanwhile(t *testing.T) {
	for _, cause := range []plan.Cause{plan.Release, plan.Content, plan.Configuration, plan.Drift} {
		for _, kind := range []string{"RoleBinding", "DaemonSet"} {
			step := stepOf(plan.Recreate, matrix.CSI, kind, "x")
			step.Cause, step.Release = cause, "csi@3.5.1"
			was := inventory.Entry{ID: step.ID, UID: "1", Driver: step.Driver,
				Release: step.Release, Rendered: "before"}
			now, _ := beforehand(inventory.Of(was), step)
			e, _ := now.Get(step.Key)
			require.Equal(t, cause == plan.Drift, e.Rendered == "before", "%s %s", cause, kind)
			require.Equal(t, step.Release, e.Release)
		}
	}
}

// A group of which a driver belongs to somebody else, or cannot be rendered, begins nothing, and its approval is not
// used up; the other groups go on.
func TestAGroupThatCannotBeWrittenBeginsNothing(t *testing.T) {
	conflict := plan.Step{Action: plan.Conflict, Driver: matrix.SnapshotController, Err: because(fault.Conflict)}
	for name, edit := range map[string]func(p *pass, r *rendering){
		"it cannot be rendered": func(_ *pass, r *rendering) {
			r.refused = joined(nil, matrix.CSI, because(fault.InvalidInput))
		},
		"it is somebody else's": func(p *pass, r *rendering) {
			p.outcome.plan = &plan.Plan{Steps: []plan.Step{conflict}}
			r.blocked = p.blocked()
			require.Len(t, r.blocked, 2, "the storage driver too")
		},
	} {
		g, remember := beginning(t, "cpi@1.34.0 snapshot-controller@8.2.0 csi@3.7.3", pair133, pair133)
		var err error
		g.kubernetes.version, err = matrix.ParseKubernetes("1.34")
		require.NoError(t, err)
		g.spec = g.config.Spec
		_, d, _ := g.again(t, func(revision.Histories) {})
		r := rendering{Rendered: &render.Rendered{}, decision: d}
		p := &pass{Reconciler: g.Reconciler, result: result{site: g.site, inventory: g.site.inventory}}
		edit(p, &r)
		h := p.site.begun(r)
		require.Equal(t, []string{"cpi@1.34.0", "snapshot-controller@8.2.0", "csi@3.5.1"}, inForce(h), name)
		remember(h)
		_, _, h = g.again(t, remember)
		require.Equal(t, []string{"cpi@1.34.0", "snapshot-controller@8.2.0", "csi@3.7.3"}, inForce(h), name)
	}
}

// What is gone back to is the last that was healthy, though its bundle cannot be read for a moment.
func TestARollbackWaitsForABundleThatCannotBeRead(t *testing.T) {
	g, cur := withRevision(t)
	older := cur.Revision
	older.Bundle = "mirror.site/vdo@sha256:older"
	h := revision.History{}.Begin(older, revision.Beginning{}).Succeed(g.at0())
	h = h.Begin(cur.Revision, revision.Beginning{}).Succeed(g.at0().Add(time.Hour))
	next := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Releases: []string{"csi@3.7.3"}}
	h = h.Begin(next, revision.Beginning{}).Fail("it crashes", g.at0())
	memory := g.site.inventory.Memory()
	memory.Revisions = revision.Histories{matrix.CSI: h}
	g.site.inventory = g.site.inventory.WithMemory(memory)
	g.Store = shelf{
		"sha256:older": holding(t, "sha256:older", "csi@3.5.1"), "sha256:new": g.bundle,
		"sha256:last": holding(t, "sha256:last", "csi@3.5.1"),
	}
	g.Trust = nobody{"sha256:last": true, "sha256:new": true, "sha256:older": true}
	for away, to := range map[bool]string{true: "", false: cur.Name()} {
		if g.tried = nil; away {
			g.tried = map[string]tried{cur.Bundle: {err: because(fault.Unreachable)}}
		}
		g.revisions, g.current = revisions{}, nil
		g.decide(t.Context())
		v := g.revisions.verdicts[matrix.CSI]
		require.Equal(t, away, v.Action == decide.Stay && v.Gates(), v.Message)
		require.True(t, away || v.To == to, v.To)
	}
}

// snapshots is a cluster with VolumeSnapshotContents of other drivers.
type snapshots struct {
	Cluster
	n int
}

func (s snapshots) OthersSnapshots(context.Context) (int, error)       { return s.n, nil }
func (s snapshots) Volumes(context.Context) (volumes, on int, _ error) { return 0, 0, nil }

// The snapshot-controller stays while there are snapshots of other storage drivers, whether nobody asks for ours any
// more or the VDOConfig is deleted.
func TestTheSnapshotControllerStaysForOtherDrivers(t *testing.T) {
	modes := map[int]v1alpha1.DeleteMode{0: "", 1: "", 2: v1alpha1.DeleteRemove, 500: v1alpha1.DeleteRefuse}
	for n, mode := range modes {
		g := gathering(t)
		g.Cluster = snapshots{n: n}
		g.site.inventory = withBoth(t, "", pair133).inventory
		g.config.Spec.StorageProvider, g.config.Spec.OnDelete = nil, mode
		needed, err := g.neededByOthers(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, n > 0, needed[matrix.SnapshotController] != "")
		g.retained = needed
		leave := g.leaving()
		require.Equal(t, n > 0, leave[matrix.SnapshotController].Action == plan.Keep)
		require.Empty(t, leave[matrix.CSI])

		p := &pass{Reconciler: g.Reconciler, result: result{site: g.site, inventory: g.site.inventory}}
		leave, err = p.leftBehind(t.Context())
		require.NoError(t, err)
		require.Equal(t, n > 0, leave[matrix.SnapshotController].Action == plan.Forget)
		require.Equal(t, mode != v1alpha1.DeleteRemove, leave[matrix.CNI].Action == plan.Forget)
	}
}
