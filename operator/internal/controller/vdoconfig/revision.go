package vdoconfig

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// decided is what the facts come to: what the matrix of the accepted bundle has for them, and which groups go from what
// is current of them to that.
type decided struct {
	facts
	desired  decision // whatever gates it
	upgrades upgrades
	ungated  bool // as if nothing gated anything
}

// upgrades is what a pass knows of what was installed from, and what it decides on the upgrades to what is desired, by
// group.
type upgrades struct {
	history revision.Histories
	// current are the drivers of the revision in force, or of the one that is gone back to.
	current   map[matrix.Driver]current
	candidate *revision.Revision // all that would be current without gates, which approvals are of; nil for nothing
	verdicts  map[revision.Group]decide.Verdict
	// candidates are what comes in force of the groups of which anything may; gates are why others stay.
	candidates map[revision.Group]*revision.Revision
	gates      map[revision.Group]error
	// untrusted is why the bundle of a revision that is rolled out is not trusted any more.
	untrusted map[revision.Group]string
	oneWay    []decide.OneWay // releases that cannot be gone back from
}

// first is the verdict that is told before those on other groups.
func (r *upgrades) first() (decide.Verdict, bool) {
	var all []decide.Verdict
	for _, group := range revision.Groups {
		all = append(all, r.verdicts[group])
	}
	return decide.First(all)
}

// decide asks the matrix what is desired, the one time in a pass, and decides which groups change to that. It opens the
// bundles that drivers come from, and may go back to.
func (p *pass) decide(ctx context.Context) {
	p.desired = p.chooseReleases()
	p.checks = p.withImages()
	p.decideUpgrades(ctx)
}

func (p *pass) decideUpgrades(ctx context.Context) {
	if p.bundle == nil {
		return
	}
	r := &p.upgrades
	r.history = p.facts.inventory.Memory().Revisions
	p.upgrades.current = p.currentOfRecords(ctx, r.history.InForce()...)
	p.revoke(ctx)
	r.oneWay = p.oneWay(ctx)
	facts := p.upgradeFacts()
	if p.gateOfAll() == nil && p.desired.refused == nil {
		free := p.decided
		free.ungated = true
		r.candidate = revisionOf(free.keep(nil, free.unseen()))
		for _, group := range revision.Groups {
			part, _ := r.candidate.Of(group)
			r.history = r.history.With(group, r.history[group].Consented(facts.Policy.Approved, *r.candidate, part))
		}
	}
	facts.Whole = r.candidate
	p.decideGroups(ctx, facts)
}

// decideGroups decides on one group after the other, in order of installation: what a group needs of those before it
// is known by then.
func (p *pass) decideGroups(ctx context.Context, facts decide.Facts) {
	r := &p.upgrades
	r.verdicts, r.candidates = map[revision.Group]decide.Verdict{}, map[revision.Group]*revision.Revision{}
	for _, group := range revision.Groups {
		r.candidates[group] = p.candidate(group)
		of := facts
		of.History, of.Candidate, of.Untrusted = r.history[group], r.candidates[group], r.untrusted[group]
		of.Interlock = p.interlock(group)
		if r.verdicts[group] = p.decideGroup(ctx, of, group); r.verdicts[group].Gates() {
			p.gate(group, r.verdicts[group].Message)
		}
	}
}

// decideGroup decides on one, and has the drivers of what is gone back to be the current ones.
func (p *pass) decideGroup(ctx context.Context, facts decide.Facts, group revision.Group) decide.Verdict {
	facts.Unusable = map[string]string{}
	for {
		v := decide.Decide(facts)
		if v.Action != decide.RollBack {
			return v
		}
		target, _ := p.upgrades.history[group].Named(v.To)
		err := p.goBackTo(ctx, target)
		switch {
		case err == nil:
			return v
		case condition.Passing(err):
			v.Action, v.Message = decide.Stay, v.Message+" once it can be read: "+fault.Text(err)
			return v
		}
		facts.Unusable[target.Name()] = fault.Text(err)
	}
}

// gate has a group stay what it is, whatever was its candidate.
func (p *pass) gate(group revision.Group, why string) {
	p.upgrades.gates = joined(p.upgrades.gates, group, fault.Errorf(fault.Refused, "change", string(group),
		"until then it stays as it is", "%s", why))
	p.upgrades.candidates[group] = p.candidate(group)
}

// revoke notes which current drivers come from a bundle that is not trusted any more, while their revision is
// rolled out: nothing new of them is applied, and the revision fails.
func (p *pass) revoke(ctx context.Context) {
	p.upgrades.untrusted = map[revision.Group]string{}
	for group, h := range p.upgrades.history {
		cur, _ := h.InForce()
		if cur.Outcome != revision.Progressing || cur.Returned {
			continue
		}
		err := p.trusts(ctx, cur.Bundle)
		if fault.ReasonOf(err) != fault.Untrusted {
			continue // it is trusted, or no one can tell
		}
		p.upgrades.untrusted[group] = fault.Text(err)
		for d, c := range p.upgrades.current {
			if revision.GroupOf(d) == group {
				c.revoked = fault.Text(err)
				p.upgrades.current[d] = c
			}
		}
	}
}

// candidate is what comes in force of a group: what is desired of it or, where something gates it, what someone
// else installed, or no one remembers, as it runs; nil where the group stays what it is. No driver counts as being at
// fault, but those of which no one knows what runs.
func (s *decided) candidate(group revision.Group) *revision.Revision {
	d := s.keep(s.gateOfAll(), s.unseen())
	for _, driver := range inOrder {
		if revision.GroupOf(driver) != group {
			continue
		}
		c, stays := d.current[driver]
		_, installed := s.site.Installed[driver]
		other, adopted := d.current[group]
		rests := d.gated[driver] != "" && (installed || !adopted || other.bundle != "")
		if (stays && c.bundle != "") || rests {
			return nil
		}
	}
	part, ok := revisionOf(d).Of(group)
	if !ok {
		return nil
	}
	return &part
}

// at0 is the time of the pass as it is written down.
func (s *facts) at0() time.Time { return s.now.UTC().Truncate(time.Second) }

// attempt is under which circumstances a revision is tried now.
func (s *facts) attempt() revision.Attempt {
	return revision.Attempt{Program: cmp.Or(s.program, program), Generation: s.config.Generation, Retry: v1alpha1.Asked(s.config, v1alpha1.AnnotationRetry)}
}

// oneWay are the releases that cannot be gone back from, as the accepted bundle's matrix
// says, and those of the bundles that drivers come from: an older bundle knows nothing of a newer release.
func (p *pass) oneWay(ctx context.Context) []decide.OneWay {
	read := []*opened{p.bundle}
	for _, cur := range p.upgrades.history.InForce() {
		o, err := p.openSource(ctx, cur.Bundle)
		if err == nil && !slices.Contains(read, o) { // one that cannot be read says nothing
			read = append(read, o)
		}
	}
	var all []decide.OneWay
	for _, o := range read {
		for _, r := range o.matrix.Releases {
			if r.OneWay != "" {
				all = append(all, decide.OneWay{ReleaseID: r.ReleaseID, Why: r.OneWay})
			}
		}
	}
	return all
}

// upgradeFacts are what package decide decides on, but for what is one group's.
func (s *decided) upgradeFacts() decide.Facts {
	spec := &s.config.Spec
	policy, _ := upgradePolicy(spec, manual(spec, s.bundle.source)) //nolint:errcheck // see findings.starts
	return decide.Facts{
		Now: s.at0(), Policy: policy, Running: s.site.Installed, Attempt: s.attempt(),
		Frozen: s.frozen, OneWay: s.upgrades.oneWay,
	}
}

// unseen are drivers that cannot be read and are not in force. Someone else's may run in another
// version: they come in force once that is known, by the rules of a take-over.
func (s *decided) unseen() map[matrix.Driver]error {
	all := maps.Clone(s.observed.Unread)
	maps.DeleteFunc(all, func(d matrix.Driver, _ error) bool { return s.revisionWith(d).Version(string(d)) != "" })
	return all
}

func policyOf(spec *v1alpha1.VDOConfigSpec) *v1alpha1.UpgradePolicy {
	return cmp.Or(spec.UpgradePolicy, &v1alpha1.UpgradePolicy{})
}

func upgradePolicy(spec *v1alpha1.VDOConfigSpec, manual bool) (decide.Policy, error) {
	from := policyOf(spec)
	p := decide.Policy{
		Manual: manual, NeverRollBack: from.Rollback == v1alpha1.RollbackNever, AllowDowngrade: from.AllowDowngrade}
	if from.Approval != nil {
		p.Approved = from.Approval.Revision
	}
	var errs []error
	for _, w := range from.Windows {
		parsed, err := decide.ParseWindow(w)
		errs = append(errs, err)
		p.Windows = append(p.Windows, parsed)
	}
	if from.Canary != nil {
		_, err := canarySelector(from.Canary)
		errs = append(errs, err)
	}
	return p, fault.Join(errs...)
}

// revisionWith is the current revision of a driver's group, the zero one where there is none.
func (s *decided) revisionWith(d matrix.Driver) revision.Record {
	cur, _ := s.upgrades.history[revision.GroupOf(d)].InForce()
	return cur
}

// revisionOf is what a decision would install, of all groups.
func revisionOf(d decision) *revision.Revision {
	rev := &revision.Revision{Bundle: d.from.reference(), Source: d.from.source.Name, Contents: map[string]string{}}
	contents := content(d)
	for _, id := range d.releases {
		rev.Releases = append(rev.Releases, id.String())
		if _, is, ok := strings.Cut(contents[id.Driver], "/"); ok {
			rev.Contents[string(id.Driver)] = is
		}
	}
	return rev
}

func (s *decided) begun(r rendering) revision.Histories {
	out := s.upgrades.history
	for _, group := range revision.Groups {
		h := out[group]
		if s.frozen == "" && s.mayStart(group, r) {
			h = s.begunOf(group, h)
			if cur, ok := h.InForce(); ok && r.decision.from != nil && r.decision.from.reference() == cur.Bundle {
				h = h.WithImageNames(r.decision.from.source.Spec.ImageNames)
			}
			h = h.Bounded(historyLimit(&s.config.Spec))
		}
		out = out.With(group, h)
	}
	return out
}

// mayStart tells whether all drivers of a group can be what was decided. What is gone back to may have the settings
// that it had.
func (s *decided) mayStart(group revision.Group, r rendering) bool {
	back := s.upgrades.verdicts[group].Action == decide.RollBack
	for _, d := range inOrder {
		_, left := r.decision.gated[d]
		refused, blocked := r.refused[d] != nil && (left || !back), r.blocked[d] != nil && !back
		if revision.GroupOf(d) == group && (refused || blocked) {
			return false
		}
	}
	return true
}

func (s *decided) begunOf(group revision.Group, h revision.History) revision.History {
	u := &s.upgrades
	v, candidate := u.verdicts[group], u.candidates[group]
	_, installed := h.InForce()
	exists := func(d matrix.Driver) bool { return revision.GroupOf(d) == group }
	switch {
	case v.Action == decide.RollBack:
		if why := u.untrusted[group]; why != "" {
			h = h.Fail(why, s.at0())
		}
		return h.RollBack(v.To, s.at0())
	case candidate == nil:
		if !slices.ContainsFunc(s.requested(), exists) && !slices.ContainsFunc(s.inventory.Drivers(), exists) {
			return revision.History{} // it was removed
		}
		return h
	case v.Starts, !installed: // or it is adopted as it runs
		return h.Start(*candidate, revision.Beginning{
			Now: s.at0(), Attempt: s.attempt(), Approval: s.approval(h, *candidate), Before: s.before(),
			Canary: s.canaryStarts(group)})
	}
	return h.Moved(*candidate)
}

// approval is who consented to what is begun.
func (s *facts) approval(h revision.History, starts revision.Revision) *revision.Approval {
	given := policyOf(&s.config.Spec).Approval
	isOf := h.Consent != nil && h.Consent.Revision == starts.Name()
	if given == nil || !isOf || !manual(&s.config.Spec, s.bundle.source) {
		return nil
	}
	return &revision.Approval{By: given.By, Seen: s.at0()}
}

const defaultHistoryLimit = 3

func historyLimit(spec *v1alpha1.VDOConfigSpec) int {
	return int(ptr.Deref(policyOf(spec).RevisionHistoryLimit, defaultHistoryLimit))
}

// Retained returns the bundles of revisions that are in force or may be gone back to, and those that drivers are
// repaired from. An inventory has them before anything of a revision is written; the status has them where the inventory
// was lost.
func Retained(
	ctx context.Context, c client.Reader, namespace string,
	load func(context.Context, types.NamespacedName) (cluster.Loaded, error),
) ([]string, error) {
	var all v1alpha1.VDOConfigList
	if err := c.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, clusterstate.Fault("list VDOConfigs", err)
	}
	var bundles []string
	for i := range all.Items {
		config := &all.Items[i]
		bundles = append(bundles, config.Status.Bundle)
		for _, r := range config.Status.Revisions {
			if r.Current || r.Outcome == string(revision.Healthy) {
				bundles = append(bundles, r.Bundle)
			}
		}
		kept, err := load(ctx, client.ObjectKeyFromObject(config))
		if err != nil && fault.ReasonOf(err) != fault.Corrupt {
			return nil, err
		}
		for _, h := range kept.Memory().Revisions {
			for _, r := range h.Retained(historyLimit(&config.Spec)) {
				bundles = append(bundles, r.Bundle)
			}
		}
	}
	return bundles, nil
}
