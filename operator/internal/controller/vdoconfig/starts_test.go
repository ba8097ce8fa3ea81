package vdoconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
func beginning(t *testing.T, bundle, runs, inForce string) *pass {
	g := siteOf(t, bundle, runs)
	g.facts.inventory = siteOf(t, bundle, inForce).inventory
	g.vcenters[vcCloud] = vcenter{version: &g.site.VCenters[0]}
	if inForce != "" {
		rev := revision.Revision{Bundle: "mirror.site/vdo@sha256:last", Source: "site", Releases: split(inForce)}
		g.Store = shelf{"sha256:last": holding(t, "sha256:last", inForce)}
		g.remembers(healthy(rev, g.at0()))
	}
	return g
}

// again decides once more, and returns what is told first, and the histories after it.
func (p *pass) again(t *testing.T) (decide.Verdict, decision, revision.Histories) {
	t.Helper()
	p.upgrades, p.facts.gated = upgrades{}, nil
	p.decideAll(t.Context())
	d := p.resolve()
	p.decision = d
	h := p.begun(rendering{Rendered: &render.Rendered{}, decision: d})
	p.remembers(h)
	first, _ := p.upgrades.first()
	return first, d, h
}

// A group comes from another bundle with the same as soon as nothing gates it, and begins nothing.
func TestAnotherBundleWithTheSameBeginsNothing(t *testing.T) {
	g := beginning(t, pair133, pair133, pair133)
	g.spec = g.config.Spec
	all := g.facts.inventory.Memory().Revisions
	for group, h := range all {
		cur, _ := h.InForce()
		cur.Contents = map[matrix.Driver]string{}
		for _, d := range cur.Drivers() {
			id := matrix.ReleaseID{Driver: d, Version: cur.Version(d)}
			_, cur.Contents[d], _ = strings.Cut(g.bundle.contentOf(id, ""), "/")
		}
		all[group] = h.With(cur)
	}
	g.remembers(all)
	g.vcenters[vcStorage] = vcenter{gated: because(fault.Unreachable)}
	bundles := func() (of []string) {
		_, _, all := g.again(t)
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

func TestAnotherProgramIsAnotherAttempt(t *testing.T) {
	p := (&Reconciler{Now: time.Now, Program: "v1"}).newPass(&v1alpha1.VDOConfig{})
	require.Equal(t, "v1", p.attempt().Program)
	b, csi := holding(t, "", "csi@3.5.1"), releaseIDs("csi@3.5.1")[0]
	require.NotEqual(t, b.contentOf(csi, "v1"), b.contentOf(csi, "v2"))
}

func TestDriversThatAreLeftAmidACanaryAreSaidToReplaceNoPods(t *testing.T) {
	p := (&Reconciler{Now: time.Now, Cluster: &fakeCluster{}}).newPass(&v1alpha1.VDOConfig{
		Spec: v1alpha1.VDOConfigSpec{OnDelete: v1alpha1.DeleteOrphan}})
	require.Equal(t, "Left the drivers installed", p.noteAtEnd(t.Context()))
	for _, open := range []bool{false, true} {
		h := begun(revision.Revision{Releases: split(pair133)}, revision.Beginning{Canary: open})
		p.inventory = inventory.Inventory{}.WithMemory(inventory.Memory{Revisions: h, ClusterID: "x"})
		require.Contains(t, p.noteAtEnd(t.Context()), `cluster id is "x"`)
		require.Equal(t, open, strings.Contains(p.noteAtEnd(t.Context()), "OnDelete"))
	}
}

// A seen is a pass over a site, and what comes of it.
type seen struct {
	edit   func(*pass)   // before it; nil: nothing
	reason decide.Reason // that is told first
	is     string        // in force, and installed; with a +, installed alone, and with a -, in force alone
	gated  string        // drivers that are left as they are
	says   string        // why a driver is left, or what Ready says does not fit
}

// releases are the installed ones, and those in force.
func (s seen) releases() (installed, begun []string) {
	for _, id := range strings.Fields(s.is) {
		if name := strings.TrimLeft(id, "+-"); id[0] != '-' {
			installed = append(installed, name)
		}
		if name := strings.TrimLeft(id, "+-"); id[0] != '+' {
			begun = append(begun, name)
		}
	}
	return installed, begun
}

func (p *pass) cannotRead(d matrix.Driver) {
	forbidden := because(fault.Forbidden)
	p.observed.AddUnread(d, forbidden)
	p.fault(d, forbidden)
}

func (p *pass) manual() { p.config.Spec.Upgrade = v1alpha1.UpgradeManual }

// closed has no window be open before the next 29 February.
func (p *pass) closed() {
	p.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{
		Windows: []v1alpha1.UpgradeWindow{{Schedule: "0 0 29 2 *", Duration: metav1.Duration{Duration: time.Minute}}}}
}

func (p *pass) opens() { p.now = time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC) }

// newestPair is what a consent is of.
const newestPair = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.3"

// consented has a consent wait for a window.
func (p *pass) consented() {
	of := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Releases: split(newestPair)}
	p.manual()
	p.closed()
	p.config.Spec.UpgradePolicy.Approval = &v1alpha1.UpgradeApproval{Revision: of.Name(), By: "x"}
}

// emptied has a node be emptied.
func (p *pass) emptied() {
	since := metav1.NewTime(p.now)
	taints := []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, TimeAdded: &since}}
	p.observed.Nodes = []*corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Unschedulable: true, Taints: taints}}}
}

// later is a site whose Kubernetes is of 1.34 since.
func (p *pass) later() { p.site.Kubernetes = mustVersion("1.34.0") }

// mixed has nodes be upgraded to it.
func (p *pass) mixed() {
	p.later()
	for _, kubelet := range []string{"v1.33.4", "v1.34.1"} {
		n := &corev1.Node{}
		n.Status.NodeInfo.KubeletVersion = kubelet
		p.observed.Nodes = append(p.observed.Nodes, n)
	}
}

func (p *pass) mixedServers(ignored string) {
	p.later()
	p.kubernetes.mixed = "the API servers are of Kubernetes v1.34.1 to v1.35.0"
	p.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{IgnoreInterlocks: []string{ignored}}
}

func (p *pass) storageAway() { p.vcenters[vcStorage] = vcenter{gated: because(fault.Unreachable)} }
func (p *pass) storageBack() { delete(p.vcenters, vcStorage) }
func (p *pass) cloudAway()   { p.vcenters[vcCloud] = vcenter{gated: because(fault.Unreachable)} }

// needing has the newest storage driver be for one cloud provider alone, which is held.
func needing(cpi string) func(*pass) {
	return func(p *pass) {
		p.cloudAway()
		for i := range p.bundle.matrix.Releases {
			if r := &p.bundle.matrix.Releases[i]; r.ReleaseID.String() == "csi@3.7.3" {
				isCPI := func(n matrix.Requirement) bool { return n.Driver == matrix.CPI }
				r.Requires = append(slices.DeleteFunc(slices.Clone(r.Requires), isCPI),
					matrix.Requirement{Driver: matrix.CPI, Version: mustVersion(cpi)})
			}
		}
	}
}

// What is begun is what is installed, and is begun once. What someone else installed in another version stays as it is
// until it may be adopted; a consent stays until its window opens, whatever is away or begins before; each group has
// its own gates, and all else goes on as far as its own rules let it.
func TestWhatBeginsAndWhatWaits(t *testing.T) {
	const older, asItRuns = "cpi@1.33.0", "cpi@1.33.1 csi@3.5.1"
	const since, of134 = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.7.0", "cpi@1.34.0 snapshot-controller@8.2.0 csi@3.7.3"
	const unread = "cpi@1.33.1 +snapshot-controller@8.2.0"
	const oldCSI = "csi@3.3.1 runs, and does not fit: serves 1.28 to 1.30, not 1.33"
	const half = "cpi@1.34.0 snapshot-controller@8.2.0 csi@3.7.0"
	const oldCPI = "cpi@1.33.1 runs, and does not fit: a cpi serves its own minor, not 1.34"
	const storage, all = "csi snapshot-controller", "cpi csi snapshot-controller"
	const older133 = "cpi@1.33.0 snapshot-controller@8.2.0 csi@3.5.1"
	const newer133 = older133 + " cpi@1.33.1 csi@3.7.3"
	const refused, notApproved = decide.DowngradeRefused, decide.NotApproved
	const closed, locked = decide.WindowClosed, decide.Interlocked
	readAgain := func(p *pass) {
		p.observed.Unread, p.faults = nil, nil
		p.site.Installed = map[matrix.Driver]matrix.Version{matrix.CPI: mustVersion("1.33.1"), matrix.CSI: mustVersion("3.7.3")}
	}
	unreadCSI := func(p *pass) { p.cannotRead(matrix.CSI) }
	retain := func(p *pass) {
		p.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "snapshot-controller", Policy: "disabled"}}
		p.retained = map[matrix.Driver]string{matrix.SnapshotController: "others need it"}
	}
	pinned := func(p *pass) { p.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", Version: "2.7.3"}} }
	unrequested := func(p *pass) { p.config.Spec.StorageProvider = nil }
	gone := func(p *pass) {
		p.facts.inventory = siteOf(t, "", "cpi@1.33.1").inventory.WithMemory(p.facts.inventory.Memory())
	}
	for name, c := range map[string]struct {
		bundle, runs, inForce string
		passes                []seen
	}{
		"it is newer than all of the bundle": {pair133, "csi@3.7.3", "", []seen{{nil, refused, "cpi@1.33.1", storage, ""}}},
		"nobody consented, by the DriverBundle": {both, "csi@3.5.1", "", []seen{{func(p *pass) {
			p.bundle.source.Annotations = map[string]string{v1alpha1.AnnotationUpgrade: "Manual"}
		}, notApproved, asItRuns, "snapshot-controller", ""}}},
		"it is the same": {pair133, "csi@3.5.1 cpi@1.33.1", "", []seen{{(*pass).closed, "", pair133, "", ""}}},
		"it is older":    {both, "csi@3.5.1", "", []seen{{nil, "", newestPair, "", ""}}},

		"in force, a node is emptied": {newestPair, "cpi@1.33.0 csi@3.3.1", older, []seen{
			{(*pass).emptied, locked, "cpi@1.33.1", storage, oldCSI}}},

		"csi could not be read, and is newer": {pair133, "", "", []seen{
			{unreadCSI, "", unread, "csi", ""}, {readAgain, refused, "cpi@1.33.1", storage, ""}}},
		"the bundle lacks what is held": {newestPair, pair133, pair133, []seen{{(*pass).storageAway, "", pair133, "", ""}}},

		"a consent, unread meanwhile": {newestPair, asItRuns, "", []seen{
			{func(p *pass) {
				p.consented()
				p.site.Installed = map[matrix.Driver]matrix.Version{matrix.CPI: mustVersion("1.33.1")}
				unreadCSI(p)
			}, "", unread, "csi", ""},
			{func(p *pass) {
				readAgain(p)
				p.site.Installed[matrix.CSI] = mustVersion("3.5.1")
			}, closed, "cpi@1.33.1", storage, ""},
			{(*pass).opens, "", newestPair, "", ""}}},
		"a consent, held meanwhile": {newestPair, asItRuns, "", []seen{
			{func(p *pass) { p.consented(); p.storageAway() }, "", "cpi@1.33.1", storage, ""},
			{(*pass).storageBack, closed, "cpi@1.33.1", storage, ""}, {(*pass).opens, "", newestPair, "", ""}}},
		"a consent, and nobody asks for what cannot be read": {newestPair, asItRuns, "", []seen{
			{func(p *pass) {
				p.consented()
				p.opens()
				p.cannotRead(matrix.CNI)
			}, "", newestPair, "cni", ""}}},

		"a snapshot-controller only stays for others": {newestPair, pair133, pair133, []seen{
			{retain, "", "cpi@1.33.1 +snapshot-controller@8.2.0 csi@3.7.3", "", ""}}},
		"and nobody consented": {newestPair, pair133, pair133, []seen{
			{func(p *pass) { retain(p); p.manual() }, notApproved, pair133, "", ""}}},
		"nobody consented, and it cannot be read": {newestPair, asItRuns, asItRuns, []seen{{func(p *pass) {
			p.manual()
			p.cannotRead(matrix.SnapshotController)
		}, notApproved, asItRuns, "snapshot-controller", ""}}},

		"storage's vCenter is away": {newer133, older133, older133, []seen{{(*pass).storageAway, "", pair133, "", ""}}},
		"cpi's vCenter is away": {newer133, older133, older133, []seen{
			{(*pass).cloudAway, "", "cpi@1.33.0 snapshot-controller@8.2.0 csi@3.7.3", "", ""}}},
		"it is away, and nothing is installed": {newer133, "", "", []seen{
			{(*pass).cloudAway, "", "", all, "csi:it needs the provider IDs of nodes, which cpi sets … Unreachable"}}},
		"it is away, and storage is installed": {newer133, "snapshot-controller@8.2.0 csi@3.5.1", "", []seen{
			{(*pass).cloudAway, "", "snapshot-controller@8.2.0 csi@3.7.3", "cpi", ""}}},
		"it is away, and what is asked for is storage alone": {newer133, "", "", []seen{{func(p *pass) {
			p.cloudAway()
			p.config.Spec.CloudProvider = nil
		}, "", "snapshot-controller@8.2.0 csi@3.7.3", "", ""}}},
		"it is away, and storage is for another cpi": {newer133, older133, older133, []seen{
			{needing("1.33.1"), "", older133, "", ""}}},
		"it is away, and storage is for cpi as it is": {newer133, older133, older133, []seen{
			{needing("1.33.0"), "", "cpi@1.33.0 snapshot-controller@8.2.0 csi@3.7.3", "", ""}}},

		"a vCenter is away that no driver uses": {newestPair, "", "", []seen{{func(p *pass) {
			p.vcenters["another"] = vcenter{gated: because(fault.Unreachable)}
		}, "", newestPair, "", ""}}},
		"storage's is away, and storage is not asked for": {newestPair, "", "", []seen{
			{func(p *pass) { p.storageAway(); unrequested(p) }, "", "cpi@1.33.1", "", ""}}},

		"a pin fits no more": {both, "csi@3.5.1 cpi@1.32.1", "", []seen{
			{pinned, "", "csi@3.5.1", "cpi snapshot-controller", "remove the pin of csi: without it csi@3.7.3 fits; " +
				" … Incompatible … cpi:cpi@1.32.1 is installed and no bundle that can be read holds it … cpi@1.32.1 runs, and does not fit"}}},
		"a pin fits no more, and nothing runs": {both, "", "", []seen{{pinned, "", "", all, "Incompatible … remove the pin of csi"}}},

		"storage is not requested": {pair133, pair133, pair133, []seen{
			{unrequested, "", "cpi@1.33.1 -snapshot-controller@8.2.0 -csi@3.5.1", "", ""},
			{gone, "", "cpi@1.33.1", "", ""}}},

		"Kubernetes is newer": {of134, since, since, []seen{{(*pass).later, "", of134, "", ""}}},
		"no release fits a vCenter": {since + " " + of134, since, since, []seen{
			{func(p *pass) { p.later(); p.site.VCenters[0].Version = mustVersion("6.7.0") }, "", since, "",
				"csi@3.7.0 runs, and does not fit: needs vSphere 7.0.0 and later, not vCenter vc 6.7.0"}}},
		"nodes change: cpi goes on, and csi follows": {half + " csi@3.7.3", since, since, []seen{
			{(*pass).mixed, locked, half, "", ""}, {func(p *pass) { p.observed.Nodes = nil }, "", of134, "", ""}}},
		"a vCenter changes too": {half + " csi@3.7.3", since, since, []seen{
			{func(p *pass) {
				p.mixed()
				memory := p.facts.inventory.Memory()
				memory.Seen = []revision.VCenter{{Name: vcCloud, Version: "8.0.3", Changed: p.at0()}}
				p.facts.inventory = p.facts.inventory.WithMemory(memory)
			}, locked, since, "", oldCPI}}},
		"nothing but csi is upgraded": {since + " csi@3.7.3", since, since, []seen{
			{func(p *pass) { p.mixed(); p.site.Kubernetes = mustVersion("1.33.4") }, locked, since, "", ""}}},
		"API servers are of mixed minors": {of134, since, since, []seen{
			{func(p *pass) { p.mixedServers("Nodes") }, locked, since, "", oldCPI},
			{func(p *pass) { p.mixedServers("APIServers") }, "", of134, "", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := beginning(t, c.bundle, c.runs, c.inForce)
			for i, s := range c.passes {
				if s.edit != nil {
					s.edit(g)
				}
				g.spec = g.config.Spec
				for range 2 {
					first, d, h := g.again(t)
					require.Equal(t, s.reason, first.Reason, "%d: %s", i, first.Message)
					installed, begun := s.releases()
					require.Equal(t, installed, chosen(d), i)
					require.Equal(t, begun, inForce(h), i)
					var gated []string
					for driver := range d.gated {
						gated = append(gated, string(driver))
					}
					require.ElementsMatch(t, split(s.gated), gated, i)
					ready := g.phase(&g.config.Status).Err
					fits := !strings.Contains(s.says, "does not fit")
					require.Equal(t, fits, fault.ReasonOf(ready) != fault.Incompatible, "%d: %v", i, ready)
					_, why := g.unresolved()
					told := fmt.Sprint(ready, fault.ReasonOf(why), fault.ReasonOf(d.refused), fault.Text(d.refused), d.gated)
					for _, text := range strings.Split(s.says, " … ") {
						require.Contains(t, told, text, i)
					}
					for _, id := range d.releases {
						g.site.Installed[id.Driver] = id.Version
					}
					for driver := range g.retained {
						require.Equal(t, "mirror.site/vdo@sha256:last", d.bundleOf(driver).reference(), i)
					}
				}
			}
		})
	}
}

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
		"spec.upgradePolicy.canary.nodeSelector chooses no node: correct it, or label a node":      {nil, []*corev1.Pod{pod}, ""},
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
		s.upgrades.history = begun(revision.Revision{Releases: []string{"csi@3.5.1"}}, revision.Beginning{})
		got := s.interlock(matrix.CSI)
		require.Equal(t, want == "", got == "", got)
		require.Contains(t, got, want)
		s.upgrades.history = nil
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
		gated    drivers // of cni and csi, which are installed, and cpi, which is not
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
		p := siteOf(t, "", "cni@2.3.0 csi@3.5.1")
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
			require.Equal(t, slices.Contains(c.gated, d), p.mustWait(step), "%s: %s", name, d)
		}
		for what := range c.waits {
			require.Contains(t, p.outcome.next.waits, what, name)
		}
	}
}

// What is deleted to be recreated is no drift while it is not there, which some VDOConfigs leave as it is, unless it
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

// A group of which a driver belongs to someone else, or cannot be rendered, begins nothing, and its approval is not
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
		g := beginning(t, "cpi@1.34.0 snapshot-controller@8.2.0 csi@3.7.3", pair133, pair133)
		g.later()
		g.spec = g.config.Spec
		g.decideAll(t.Context())
		r := rendering{Rendered: &render.Rendered{}, decision: g.resolve()}
		edit(g, &r)
		h := g.begun(r)
		require.Equal(t, []string{"cpi@1.34.0", "snapshot-controller@8.2.0", "csi@3.5.1"}, inForce(h), name)
		g.remembers(h)
		_, _, h = g.again(t)
		require.Equal(t, []string{"cpi@1.34.0", "snapshot-controller@8.2.0", "csi@3.7.3"}, inForce(h), name)
	}
}

func TestARollbackMayStartWithItsEarlierSettings(t *testing.T) {
	g := withCSI(t)
	r := rendering{refused: joined(nil, matrix.CSI, because(fault.InvalidInput))}
	for action, may := range map[decide.Action]bool{decide.RollBack: true, decide.Proceed: false} {
		g.upgrades.verdicts = map[revision.Group]decide.Verdict{matrix.CSI: {Action: action}}
		require.Equal(t, may, g.mayStart(matrix.CSI, r))
	}
}

// One broken node keeps storage from no other.
func TestOneInitializedNodeIsEnough(t *testing.T) {
	tainted := []corev1.Taint{{Key: assess.TaintUninitialized}}
	node := func(name string, taints []corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	o := &assess.Observed{Nodes: []*corev1.Node{node("a", tainted), node("b", nil), node("c", tainted)}}
	require.True(t, initialized(o, []string{"a", "b"}))
	require.False(t, initialized(o, []string{"a", "c"}))
	require.True(t, initialized(o, nil))
}

// What is gone back to is the last that was healthy, though its bundle cannot be read for a moment.
func TestARollbackWaitsForABundleThatCannotBeRead(t *testing.T) {
	g, cur := withRevision(t)
	older := cur.Revision
	older.Bundle = "mirror.site/vdo@sha256:older"
	h := revision.History{}.Start(older, revision.Beginning{}).Succeed(g.at0())
	h = h.Start(cur.Revision, revision.Beginning{}).Succeed(g.at0().Add(time.Hour))
	next := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Releases: []string{"csi@3.7.3"}}
	h = h.Start(next, revision.Beginning{}).Fail("it crashes", revision.Attempt{}, g.at0())
	g.remembers(revision.Histories{matrix.CSI: h})
	g.bundle = holding(t, "sha256:new", "csi@3.7.3") // nothing of it can be installed
	g.Store = shelf{
		"sha256:older": holding(t, "sha256:older", "csi@3.5.1"), "sha256:new": g.bundle,
		"sha256:last": holding(t, "sha256:last", "csi@3.5.1"),
	}
	g.Trust = nobody{"sha256:last": true, "sha256:new": true, "sha256:older": true}
	for away, to := range map[bool]string{true: "", false: cur.Name()} {
		if g.tried = nil; away {
			unread := func() (*opened, error) { return nil, because(fault.Unreachable) }
			g.tried = map[string]func() (*opened, error){cur.Bundle: unread}
		}
		g.upgrades = upgrades{}
		g.decideAll(t.Context())
		v := g.upgrades.verdicts[matrix.CSI]
		require.Equal(t, away, v.Action == decide.Stay && v.Gates(), v.Message)
		require.True(t, away || v.To == to, v.To)
	}
}

// The snapshot-controller stays while there are snapshots of other storage drivers, whether no one asks for ours any
// more or the VDOConfig is deleted. Orphan leaves no driver that the spec no longer requests.
func TestTheSnapshotControllerStaysForOtherDrivers(t *testing.T) {
	modes := map[int]v1alpha1.DeleteMode{
		0: "", 1: "", 2: v1alpha1.DeleteRemove, 3: v1alpha1.DeleteOrphan, 500: v1alpha1.DeleteRefuse,
	}
	for n, mode := range modes {
		g := withCSI(t)
		g.Cluster = &fakeCluster{snapshots: n}
		g.facts.inventory = siteOf(t, "", pair133).inventory
		off := v1alpha1.DriverPolicy{Driver: "csi", Policy: "disabled"}
		g.config.Spec.Drivers, g.config.Spec.OnDelete = []v1alpha1.DriverPolicy{off}, mode
		needed, err := g.needed(t.Context(), g.notRequested())
		require.NoError(t, err)
		require.Equal(t, n > 0, strings.Contains(needed[matrix.SnapshotController], "(counted up to 500)"))
		g.retained = needed
		leave := g.retentions()
		require.Equal(t, n > 0, leave[matrix.SnapshotController].Action == plan.Keep)
		require.Empty(t, leave[matrix.CSI])

		g.inventory = g.facts.inventory
		leave, err = g.staying(t.Context())
		require.NoError(t, err)
		require.Equal(t, n > 0, leave[matrix.SnapshotController].Action == plan.Forget)
		require.Equal(t, mode != v1alpha1.DeleteRemove, leave[matrix.CNI].Action == plan.Forget)
		for _, on := range []v1alpha1.DriverPolicy{{Policy: "lts"}, {Version: "8.2.0"}} {
			on.Driver = "snapshot-controller"
			g.config.Spec.Drivers = []v1alpha1.DriverPolicy{off, on}
			require.NotContains(t, g.notRequested(), matrix.SnapshotController, "it was asked for by name")
		}
	}
}

// A snapshot-controller of others serves in any version, such as RKE2's: ours goes, and comes back once
// theirs has gone.
// Another driver of theirs is a conflict.
func TestASnapshotControllerOfOthersServes(t *testing.T) {
	const ours = "snapshot-controller"
	for others, want := range map[string][]string{
		"rke2-snapshot-controller vsphere-cpi": {"csi"}, "vsphere-cpi": {ours, "csi"},
	} {
		s := siteOf(t, ours+"@8.2.0 csi@3.5.1", ours+"@8.2.0")
		s.config.Spec.CloudProvider = nil
		for _, name := range strings.Fields(others) {
			meta := metav1.ObjectMeta{Namespace: "kube-system", Name: name}
			s.observed.Deployments = append(s.observed.Deployments, appsv1.Deployment{ObjectMeta: meta})
			s.observed.DaemonSets = append(s.observed.DaemonSets, appsv1.DaemonSet{ObjectMeta: meta})
		}
		conflicts, _ := s.others()
		require.Len(t, conflicts, 1)
		seen := siteOf(t, "", "")
		seen.Cluster = &fakeCluster{observed: s.observed}
		seen.retained = map[matrix.Driver]string{matrix.SnapshotController: "volumes use it"}
		require.NoError(t, seen.collect(t.Context()))
		require.Equal(t, seen.site.SnapshotsServed, len(seen.retained) == 0, "theirs serves the volumes too")
		s.site.SnapshotsServed = seen.site.SnapshotsServed
		s.decision = resolved(s)
		var rows, judged []string
		for _, d := range s.drivers(&assess.Report{}) {
			rows = append(rows, d.Driver)
		}
		for _, d := range s.judged() {
			judged = append(judged, string(d))
		}
		require.Equal(t, want, rows)
		require.Equal(t, want, judged)
		require.Equal(t, len(want) == 1, strings.Contains(s.chosen(), "another one runs in the cluster"), s.chosen())
	}
}

func TestARemovalThatEndedButForTheFinalizerEnds(t *testing.T) {
	last := []v1alpha1.DriverStatus{{Driver: "snapshot-controller", Version: "8.2.0"}}
	ends := func(bundle string, last []v1alpha1.DriverStatus, snapshots int) bool {
		v := &v1alpha1.VDOConfig{Status: v1alpha1.VDOConfigStatus{Bundle: bundle, Drivers: last}}
		r := &Reconciler{Now: time.Now, Cluster: &fakeCluster{snapshots: snapshots}}
		done, err := r.newPass(v).clear(t.Context(), nil)
		require.Equal(t, done, err == nil)
		return done
	}
	require.True(t, ends("b", last, 1), "snapshots keep it")
	require.False(t, ends("b", last, 0), "the inventory is lost")
	require.True(t, ends("", last, 0), "others installed it")
	require.True(t, ends("b", nil, 0), "it went before")
}
