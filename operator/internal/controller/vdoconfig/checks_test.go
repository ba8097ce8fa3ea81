package vdoconfig

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

func pairRequested() v1alpha1.VDOConfigSpec {
	return v1alpha1.VDOConfigSpec{
		CloudProvider:   &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc"}},
		StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "vc"}}
}

// blocking is a result that keeps a driver back, and with stops its configuration too.
func blocking(d matrix.Driver, stops bool) preflight.Result {
	return preflight.Result{ID: "vm-disk-uuid", Action: preflight.BlockInstall, Drivers: []matrix.Driver{d}, Stops: stops, Found: "amiss", Remedy: "mend it"}
}

func TestWhatIsKnownOfAQuestion(t *testing.T) {
	spec := pairRequested()
	q := preflight.NewQuestion(types.NamespacedName{Name: "site"}, &spec, nil)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := &v1alpha1.PreflightStatus{Question: q.ID, Results: []v1alpha1.PreflightResult{{ID: "vm-scsi", Action: "BlockInstall", Drivers: []string{"csi"}, Found: "x"}}}
	other := &v1alpha1.PreflightStatus{Question: "other"}
	for name, c := range map[string]struct {
		was     *v1alpha1.PreflightStatus
		answer  *preflight.Answer
		pending bool
		gated   []matrix.Driver
	}{
		"nothing yet":                          {pending: true},
		"of another question":                  {was: other, answer: &preflight.Answer{Question: "other"}, pending: true},
		"an answer":                            {was: other, answer: &preflight.Answer{Question: q.ID, At: at, Results: []preflight.Result{blocking(matrix.CPI, true)}}, gated: []matrix.Driver{matrix.CPI}},
		"the status, after a restart":          {was: before, gated: []matrix.Driver{matrix.CSI}},
		"a new answer counts, not the status":  {was: before, answer: &preflight.Answer{Question: q.ID, At: at}},
		"the status, while an answer is older": {was: before, answer: &preflight.Answer{Question: "other"}, gated: []matrix.Driver{matrix.CSI}},
	} {
		t.Run(name, func(t *testing.T) {
			got := settled(c.was, q, c.answer)
			require.True(t, got.ran)
			require.Equal(t, c.pending, got.pending)
			require.Len(t, got.gates, len(c.gated))
			for _, d := range c.gated {
				require.Error(t, got.gates[d].Err)
			}
			if c.answer != nil && c.answer.Question == q.ID {
				require.Equal(t, q.ID, got.status.Question)
				require.Equal(t, at, got.status.CheckedAt.Time)
			} else {
				require.Same(t, c.was, got.status)
			}
		})
	}
}

func TestWhatMakesAnotherQuestion(t *testing.T) {
	id := func(change func(*v1alpha1.VDOConfigSpec, *preflight.Location)) string {
		spec, location := pairRequested(), preflight.Location{Name: "vc", Where: "vc.site:443 dc", Verified: true}
		change(&spec, &location)
		return preflight.NewQuestion(types.NamespacedName{}, &spec, []preflight.Location{location}).ID
	}
	same := id(func(*v1alpha1.VDOConfigSpec, *preflight.Location) {})
	require.Equal(t, "9bfe351e99c9a197", same, "a status has it: another one keeps drivers back until checks are made again")
	for name, change := range map[string]func(*v1alpha1.VDOConfigSpec, *preflight.Location){
		"topology": func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) {
			s.StorageProvider.TopologyCategories = []string{"zone"}
		},
		"a vCenter":       func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) { s.StorageProvider.VsphereCloudConfig = "other" },
		"where it is":     func(_ *v1alpha1.VDOConfigSpec, p *preflight.Location) { p.Where = "other:443" },
		"whether it is":   func(_ *v1alpha1.VDOConfigSpec, p *preflight.Location) { p.Verified = false },
		"excluded nodes":  func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) { s.ExcludedNodes = map[string]string{"a": "b"} },
		"what is allowed": func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) { s.Preflight = &v1alpha1.PreflightPolicy{} },
	} {
		require.NotEqual(t, same, id(change), name)
	}
	require.Equal(t, same, id(func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) {
		s.Interval.Duration, s.Suspend = time.Hour, true
	}))
}

// running is a site on which both drivers run, with what they were configured with.
func running(t *testing.T, was v1alpha1.VDOConfigSpec, vcenters map[string]string) *pass {
	t.Helper()
	g := &pass{result: result{decided: *siteOf(t, pairRequested(), "", "cpi@1.33.1 csi@3.5.1")}}
	g.spec, g.vcenters = g.config.Spec, map[string]vcenter{"vc": {where: "a vc.site:443 dc", verified: true}}
	g.facts.inventory = g.decided.inventory.WithMemory(inventory.Memory{
		CloudProvider: was.CloudProvider, StorageProvider: was.StorageProvider, VCenters: vcenters})
	return g
}

// A replaced vCenter's place is recorded once the cloud provider's checks have passed: until then it deletes no Nodes.
func TestTheLocationOfAReplacedVCenterWaitsForTheChecks(t *testing.T) {
	was := map[string]string{"vc": "b vc.site:443 dc"}
	g := running(t, pairRequested(), was)
	g.vcenters["vc"] = vcenter{where: "a vc.site:443 dc", verified: true, replaced: true}
	r := rendering{spec: g.spec}
	r.decision.releases = []matrix.ReleaseID{{Driver: matrix.CPI, Version: mustVersion("1.33.1")}}
	g.checks.gates = preflight.Gate([]preflight.Result{blocking(matrix.CPI, false)})
	require.Equal(t, was, g.placesNow(was, r))
	g.checks.gates = nil
	require.Equal(t, "a vc.site:443 dc", g.placesNow(was, r)["vc"])
}

func TestADriverThatWouldNotStartKeepsWhatItRunsWith(t *testing.T) {
	const none, settings, location = "", "its settings", "its vCenter's place"
	with := func(d matrix.Driver, r preflight.Result) checks {
		return checks{ran: true, gates: preflight.Gate([]preflight.Result{r}), kept: nil}
	}
	for name, c := range map[string]struct {
		checks checks
		was    func(*v1alpha1.VDOConfigSpec)
		where  string
		keeps  string // of the storage driver
		frozen string
	}{
		"it is only repaired":                    {was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.Webhook = true }, keeps: settings, frozen: "it is being deleted"},
		"likewise, and the vCenter is another":   {where: "old.site:443 dc", keeps: location, frozen: "it is being deleted"},
		"nobody checks":                          {was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.TopologyCategories = []string{"zone"} }},
		"nothing else is asked for":              {checks: with(matrix.CSI, blocking(matrix.CSI, true))},
		"it would not start":                     {checks: with(matrix.CSI, blocking(matrix.CSI, true)), was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.TopologyCategories = []string{"zone"} }, keeps: settings},
		"it would, and a release is held":        {checks: with(matrix.CSI, blocking(matrix.CSI, false)), was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.TopologyCategories = []string{"zone"} }},
		"it is not known yet":                    {checks: checks{ran: true, pending: true}, was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.Webhook = true }, keeps: settings},
		"the other driver would not start":       {checks: with(matrix.CPI, blocking(matrix.CPI, true)), was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.Webhook = true }},
		"the vCenter is another one":             {checks: with(matrix.CSI, blocking(matrix.CSI, true)), where: "old.site:443 dc", keeps: location},
		"another one of the same name":           {checks: checks{ran: true, pending: true}, where: "b vc.site:443 dc", keeps: location},
		"it was not noted which one":             {checks: checks{ran: true, pending: true}, where: "vc.site:443 dc"},
		"the vCenter is another one, and passed": {checks: checks{ran: true}, where: "old.site:443 dc"},
	} {
		t.Run(name, func(t *testing.T) {
			was := pairRequested()
			if c.was != nil {
				c.was(&was)
			}
			vcenters := map[string]string{"vc": "a vc.site:443 dc"}
			if c.where != "" {
				vcenters["vc"] = c.where
			}
			g := running(t, was, vcenters)
			g.checks, g.frozen = c.checks, c.frozen
			g.keepConfiguration()
			requested := pairRequested()
			if c.keeps == settings {
				requested = was
			}
			require.Equal(t, requested.StorageProvider, g.spec.StorageProvider)
			require.Equal(t, pairRequested().CloudProvider, g.spec.CloudProvider)
			require.Equal(t, c.keeps != none, g.checks.kept[matrix.CSI])
			require.Equal(t, c.keeps == location, g.keepsConfiguration(matrix.CSI, &g.spec))
			require.Equal(t, pairRequested(), g.config.Spec, "what is asked for is not changed")

			r := rendering{spec: g.spec, decision: decision{releases: []matrix.ReleaseID{{Driver: matrix.CSI, Version: mustVersion("3.5.1")}}}}
			if c.keeps == location {
				require.Equal(t, vcenters, g.placesNow(vcenters, r), "it is remembered until it is handed on")
			} else {
				require.Equal(t, "a vc.site:443 dc", g.placesNow(vcenters, r)["vc"])
			}
		})
	}
}

// After a restart of the operator the status alone tells that something is kept back, and so
// that it is looked at again soon.
func TestAQuestionTellsWhatItsAnswerKeptBack(t *testing.T) {
	for action, want := range map[preflight.Action]bool{preflight.Warn: false, preflight.BlockInstall: true} {
		g := &pass{result: result{decided: *withCSI(t)}}
		q := g.question()
		require.False(t, q.Gated)
		at := metav1.NewTime(g.now)
		g.config.Status.Preflight = &v1alpha1.PreflightStatus{Question: q.ID, CheckedAt: &at, Results: []v1alpha1.PreflightResult{{ID: "vm-disk-uuid", Action: action.String()}}}
		require.Equal(t, want, g.question().Gated, action)
		g.config.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "now"}
		g.config.Status.Preflight.HandledReconcileAt = "before"
		q = g.question()
		require.Equal(t, []string{"now", "before"}, []string{q.Pass, q.Handled})
		g.config.Status.Preflight.Question = "another"
		require.False(t, g.question().Gated, action)
	}
}

// What the bundle lacks keeps drivers back whether or not anybody has looked at cluster and
// vCenters, and is never told as if someone had.
func TestWhatTheBundleLacksCountsWhateverElseIsKnown(t *testing.T) {
	lacks := preflight.Result{ID: "image-platform", Action: preflight.BlockInstall, Drivers: []matrix.Driver{matrix.CNI, matrix.CPI}, Found: "for other nodes"}
	passes := preflight.Result{ID: "image-platform", Found: "ok"}
	warned := preflight.Result{ID: "vm-snapshots", Action: preflight.Warn, Found: "the VM has snapshots"}
	at := metav1.Now()
	before := &v1alpha1.PreflightStatus{Question: "other", CheckedAt: &at, Passed: 7, Verdict: "Warn", Results: []v1alpha1.PreflightResult{{ID: "vm-snapshots", Action: "Warn", Found: "x"}}}
	alone := &v1alpha1.PreflightStatus{Verdict: "BlockInstall", Results: []v1alpha1.PreflightResult{{ID: "image-platform", Action: "BlockInstall"}}}
	for name, c := range map[string]struct {
		checks    checks
		found     []preflight.Result
		listed    []string // nil where there is no status
		passed    int
		condition string // status, reason
		says      string
		gated     []matrix.Driver
	}{
		"no driver of vSphere, amiss":      {checks{}, []preflight.Result{lacks}, []string{"image-platform"}, 0, "False BlockInstall", "0 checks passed; image-platform", []matrix.Driver{matrix.CNI, matrix.CPI}},
		"no driver of vSphere, well":       {checks{}, []preflight.Result{passes}, []string{}, 1, "True Succeeded", "1 checks passed", nil},
		"no driver of vSphere, no bundle":  {checks{}, nil, nil, 0, " ", "", nil},
		"nobody has answered yet, amiss":   {checks{ran: true, pending: true}, []preflight.Result{lacks}, []string{"image-platform"}, 0, "False BlockInstall", "0 checks passed; image-platform (BlockInstall): for other nodes; status.preflight says where, and what to do; it is being checked", []matrix.Driver{matrix.CNI, matrix.CPI, matrix.CSI}},
		"nobody has answered yet, well":    {checks{ran: true, pending: true}, []preflight.Result{passes}, []string{}, 1, "Unknown Progressing", "it is being checked", []matrix.Driver{matrix.CPI, matrix.CSI}},
		"it was amiss, and nobody answers": {checks{ran: true, pending: true, status: alone}, []preflight.Result{passes}, []string{}, 1, "Unknown Progressing", "it is being checked", []matrix.Driver{matrix.CPI, matrix.CSI}},
		"another question, amiss":          {checks{ran: true, pending: true, status: before}, []preflight.Result{lacks}, []string{"image-platform", "vm-snapshots"}, 7, "False BlockInstall", "it is being checked", []matrix.Driver{matrix.CNI, matrix.CPI, matrix.CSI}},
		"another question, well":           {checks{ran: true, pending: true, status: before}, []preflight.Result{passes}, []string{"vm-snapshots"}, 7, "Unknown Progressing", "it is being checked", []matrix.Driver{matrix.CPI, matrix.CSI}},
		"all was checked, warned":          {checks{ran: true, status: preflight.Status([]preflight.Result{passes, warned})}, nil, []string{"vm-snapshots"}, 1, "True Succeeded", "1 checks passed; vm-snapshots (Warn): the VM has snapshots; status.preflight says where, and what to do", nil},
		"all was checked, amiss":           {checks{ran: true, status: before}, []preflight.Result{lacks}, []string{"image-platform", "vm-snapshots"}, 7, "False BlockInstall", "7 checks passed; image-platform", []matrix.Driver{matrix.CNI, matrix.CPI}},
	} {
		t.Run(name, func(t *testing.T) {
			s := requesting(&v1alpha1.VDOConfig{Spec: pairRequested()})
			s.observed, s.checks = &assess.Observed{}, c.checks.with(c.found)
			if st := s.checks.status; c.listed == nil {
				require.Nil(t, st)
			} else {
				require.Equal(t, c.passed, st.Passed)
				listed := []string{}
				for _, r := range st.Results {
					listed = append(listed, r.ID)
				}
				require.Equal(t, c.listed, listed)
			}
			got := (&result{decided: s}).preflightCondition()
			require.Equal(t, c.condition, string(got.Status)+" "+got.Reason)
			require.Contains(t, got.Message, c.says)
			s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cni", Policy: "latest"}}
			gated := map[matrix.Driver]bool{}
			for _, h := range s.driverHolds() {
				gated[h.driver] = true
			}
			require.ElementsMatch(t, c.gated, slices.Collect(maps.Keys(gated)))
		})
	}
}

type questions int

func (n *questions) Look(preflight.Question) *preflight.Answer { *n++; return nil }

func TestChecksBeginOnceEachVCenterHasAnswered(t *testing.T) {
	asked := new(questions)
	p := &pass{Reconciler: &Reconciler{Checks: asked}, result: result{decided: *withCSI(t)}}
	for want, waiting := range []string{"VsphereCloudConfig vc is being checked", ""} {
		p.vcenters = map[string]vcenter{"vc": {waiting: waiting}}
		require.NoError(t, p.collectChecks(t.Context()))
		require.EqualValues(t, want, *asked)
		require.True(t, p.checks.pending)
	}
}
