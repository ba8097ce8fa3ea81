package vdoconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Checks reports whether cluster and vCenters have what the drivers need.
type Checks interface {
	// Look returns the last answer for a VDOConfig, even to another question, nil for none. It starts the checks when
	// they are due, and never waits.
	Look(q preflight.Question) *preflight.Answer
}

// checks are the known results of checks, and what they gate. The zero value, without a checker, gates nothing.
type checks struct {
	// status is the recorded result; nil before the first one. Without CheckedAt it is that of the bundle's checks
	// alone.
	status *v1alpha1.PreflightStatus
	// pending is set if the present request was not checked yet.
	pending bool
	gates   map[matrix.Driver]preflight.Hold
	// kept are running drivers that a check keeps on another configuration than the requested one.
	kept          map[matrix.Driver]bool
	ran           bool // cluster and vCenters are checked
	bundleChecked bool // this pass checked the bundle's contents
}

// reported reports whether a result exists; without one the status stays unchanged.
func (c *checks) reported() bool { return c.ran || c.bundleChecked }

// checked are the drivers that checks of cluster and vCenters concern. Checks of the bundle concern all drivers.
var checked = []matrix.Driver{matrix.CPI, matrix.CSI}

// collectChecks reads the known results, and keeps the configuration of drivers that would not start with another one.
// It asks nothing for a VDOConfig without a vSphere driver, or in a frozen pass. A vCenter that has not answered yet is
// waited for: the missing answer is no fault.
func (p *pass) collectChecks(context.Context) error {
	wants, _ := preflight.WantsOf(&p.config.Spec)
	if p.Checks == nil || (!wants.CPI && !wants.CSI) {
		return nil
	}
	if p.frozen == "" {
		q, answer := p.question(), (*preflight.Answer)(nil)
		waits := func(name string) bool { return p.vcenters[name].waiting != "" }
		if !slices.ContainsFunc(render.VCenters(&p.config.Spec), waits) {
			answer = p.Checks.Look(q)
		}
		p.checks = settled(p.config.Status.Preflight, q, answer)
	}
	p.keepConfiguration()
	return nil
}

func (p *pass) question() preflight.Question {
	var places []preflight.Location
	for _, name := range slices.Sorted(slices.Values(render.VCenters(&p.config.Spec))) {
		vc := p.vcenters[name]
		places = append(places, preflight.Location{Name: name, Where: vc.where, Verified: vc.verified})
	}
	q := preflight.NewQuestion(p.name, &p.config.Spec, places)
	q.Pass = v1alpha1.Asked(p.config, v1alpha1.AnnotationRequestedAt)
	if st := p.config.Status.Preflight; st != nil && st.Question == q.ID && st.CheckedAt != nil {
		q.Handled = st.HandledReconcileAt
		q.Known, q.Gated = st.CheckedAt.Time, preflight.Worst(preflight.Listed(st)) == preflight.BlockInstall
	}
	return q
}

// settled returns the results for a question: its answer, else the status of before a restart of the operator. Results
// for another question gate nothing and permit nothing. It is pure.
func settled(was *v1alpha1.PreflightStatus, q preflight.Question, a *preflight.Answer) checks {
	c := checks{ran: true, status: was}
	switch {
	case a != nil && a.Question == q.ID:
		c.status = preflight.Status(preflight.Turned(a.Results, q.Spec.Preflight))
		c.status.Question, c.status.CheckedAt, c.status.HandledReconcileAt = q.ID, &metav1.Time{Time: a.At}, a.Pass
	case was == nil || was.Question != q.ID:
		c.pending = true
		return c
	}
	c.gates = preflight.Gate(preflight.Listed(c.status))
	return c
}

func (c *checks) keeps(d matrix.Driver) bool { return c.pending || c.gates[d].Configuration }

// keepConfiguration replaces requested settings by those that drivers run with. It does so if the drivers would not
// start with the requested ones, the checks have not answered, or the pass is frozen. Verified credentials still reach
// the drivers: a rotated password is no other configuration.
func (p *pass) keepConfiguration() {
	p.checks.kept = map[matrix.Driver]bool{}
	for _, d := range checked {
		was := withProvider(p.spec, p.remembered(), d)
		differs := !reflect.DeepEqual(was, p.spec) || len(p.moved(d, &p.spec)) > 0
		keeps := p.frozen != "" || p.checks.keeps(d)
		if differs && keeps && p.runs(d) && slices.Contains(p.requested(), d) {
			p.spec, p.checks.kept[d] = was, true
		}
	}
}

// withProvider returns a spec with the provider of a driver from another spec, if that has one.
func withProvider(spec, from v1alpha1.VDOConfigSpec, d matrix.Driver) v1alpha1.VDOConfigSpec {
	switch d {
	case matrix.CPI:
		spec.CloudProvider = cmp.Or(from.CloudProvider, spec.CloudProvider)
	case matrix.CSI:
		spec.StorageProvider = cmp.Or(from.StorageProvider, spec.StorageProvider)
	}
	return spec
}

// moved returns the vCenters of a driver whose UUID or requested datacenters differ from its last configuration.
// Records of earlier operators have no UUID.
func (s *facts) moved(d matrix.Driver, spec *v1alpha1.VDOConfigSpec) []string {
	was := s.inventory.Memory().VCenters
	return slices.DeleteFunc(slices.Clone(vCentersOf(d, spec)), func(name string) bool {
		return was[name] == "" || strings.HasSuffix(" "+s.vcenters[name].where, " "+was[name])
	})
}

// keepsConfiguration reports whether a driver's configuration in the cluster stays, since another vCenter answers.
func (s *facts) keepsConfiguration(d matrix.Driver, spec *v1alpha1.VDOConfigSpec) bool {
	return (s.frozen != "" || s.checks.ran && s.checks.keeps(d)) && len(s.moved(d, spec)) > 0
}

// unproven reports whether another vCenter answers than that of the drivers' last configuration. It counts until it is
// accepted and the cloud provider's checks have passed.
func (s *facts) unproven(name string) bool {
	vc := s.vcenters[name]
	unchecked := s.frozen != "" || s.checks.pending || s.checks.gates[matrix.CPI].Err != nil
	return vc.another || vc.replaced && unchecked && slices.Contains(vCentersOf(matrix.CPI, &s.spec), name)
}

// placesNow returns the places of vCenters in the drivers' present configuration.
func (s *facts) placesNow(was map[string]string, r rendering) map[string]string {
	now := map[string]string{}
	maps.Copy(now, was)
	for _, d := range checked {
		if r.decision.version(d) == "" || r.refused[d] != nil || r.blocked[d] != nil || s.keepsConfiguration(d, &r.spec) {
			continue
		}
		for _, name := range vCentersOf(d, &r.spec) {
			if vc := s.vcenters[name]; vc.verified && !s.unproven(name) {
				now[name] = vc.where
			}
		}
	}
	named := render.VCenters(&r.spec)
	maps.DeleteFunc(now, func(name, _ string) bool { return !slices.Contains(named, name) })
	if len(now) == 0 {
		return nil
	}
	return now
}

const beingChecked = "it is being checked whether cluster and vCenters have what the drivers need"

// preflightCondition returns the condition of the checks. It stays unchanged if the pass ended before them.
func (p *result) preflightCondition() metav1.Condition {
	const typ = v1alpha1.ConditionPreflight
	c := p.facts.checks
	switch {
	case !c.reported() && p.facts.observed == nil:
		return metav1.Condition{}
	case c.pending && len(c.gates) == 0:
		return condition.Pending(typ, beingChecked)
	case c.status == nil:
		return condition.Absent(typ)
	}
	out := condition.Judged(typ, nil, checkSummary(c.status))
	if len(c.gates) > 0 {
		out.Status, out.Reason = metav1.ConditionFalse, c.status.Verdict
	}
	if c.pending {
		out.Message += "; " + beingChecked
	}
	return out
}

// checkSummary returns "30 checks passed; vm-disk-uuid (BlockInstall): …", and names where the rest is.
func checkSummary(st *v1alpha1.PreflightStatus) string {
	const most = 5
	text := fmt.Sprintf("%d checks passed", st.Passed)
	for i := range st.Results[:min(len(st.Results), most)] {
		r := &st.Results[i]
		text += fmt.Sprintf("; %s (%s): %s", r.ID, r.Action, r.Found)
	}
	if len(st.Results) > 0 {
		text += "; status.preflight says where, and what to do"
	}
	return text
}

// withImages returns all results, with those of the bundle's images against the cluster, which need no vCenter. It
// checks nothing while the pass is frozen. It is pure.
func (s *decided) withImages() checks {
	if s.frozen != "" {
		return s.checks
	}
	var found []preflight.Result
	if images := s.images(); images != nil {
		found = preflight.Turned(preflight.CheckImages(images), s.config.Spec.Preflight)
	}
	return s.checks.with(found)
}

// with returns all results after the bundle's checks: new ones replace the old, next to the last ones of cluster and
// vCenters. Before these answer the present request, only a lack in the bundle gates. It is pure.
func (c checks) with(found []preflight.Result) checks {
	c.bundleChecked = true
	answered := c.ran && !c.pending
	switch {
	case c.status != nil && c.status.CheckedAt != nil:
		c.status = preflight.Merged(c.status, found)
	case len(found) > 0:
		c.status = preflight.Status(found)
	case !answered:
		c.status = nil
	}
	if c.gates = preflight.Gate(found); answered {
		c.gates = preflight.Gate(preflight.Listed(c.status))
	}
	return c
}

// collectMirrors reads the mirror configuration of upstream image names, if pods use such names. Unreadable
// configuration is a finding.
func (p *pass) collectMirrors(ctx context.Context) error {
	if p.frozen != "" || p.bundle == nil || p.site.Distribution != openshift || !p.namesUpstream() {
		return nil
	}
	p.sets.mirrors = &preflight.Mirrors{Repository: p.bundle.source.Status.Repository, Bundle: p.bundle.reference()}
	if p.sets.leads {
		p.sets.mirrors.Rules = p.sets.rules
		p.countOwnSet(ctx, p.sets.mirrors)
		return nil
	}
	p.sets.mirrors.Rules, p.sets.mirrors.Err = p.Cluster.MirrorRules(ctx)
	return nil
}

// images returns the images of the releases that would be installed without any gate of a check, and the nodes; nil
// without a bundle. It is pure.
func (s *decided) images() *preflight.Images {
	if s.bundle == nil {
		return nil
	}
	out := &preflight.Images{Platforms: s.bundle.contents.Platforms, Nodes: s.cluster.Nodes, Mirrors: s.sets.mirrors}
	free := *s
	free.checks, free.upgrades.gates = checks{}, nil
	chosen := free.keep(nil, nil)
	chosen.releases = slices.DeleteFunc(chosen.releases,
		func(id matrix.ReleaseID) bool { return chosen.bundleOf(id.Driver) != s.bundle })
	out.Workloads = render.Workloads(render.Input{
		Origin: s.bundle.origin(), Releases: chosen.releases, Spec: s.spec, Cluster: s.cluster,
	})
	return out
}

// Images returns the input of the bundle's checks in a pass over the VDOConfig. It writes nothing.
func (r *Reconciler) Images(ctx context.Context, config *v1alpha1.VDOConfig) (*preflight.Images, error) {
	p := r.newPass(config)
	if err := p.look(ctx); err != nil {
		return nil, err
	}
	return p.images(), nil
}
