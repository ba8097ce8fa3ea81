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

// decided are the facts with the decision: the releases of the accepted bundle's matrix, and which groups change to
// them.
type decided struct {
	facts
	desired  decision // without gates
	upgrades upgrades
	ungated  bool // decide as if no gate existed
}

// upgrades are the sources of the installed drivers, and the decision on upgrades by group.
type upgrades struct {
	history revision.Histories
	// current are the drivers of the current revision, or of the target of a rollback.
	current   map[matrix.Driver]current
	candidate *revision.Revision // the revision without gates, which approvals name; nil if none
	verdicts  map[revision.Group]decide.Verdict
	// candidates are the next revisions of the groups that may change; gates are why others stay.
	candidates map[revision.Group]*revision.Revision
	gates      map[revision.Group]error
	// untrusted is why the bundle of a revision in rollout is no longer trusted.
	untrusted map[revision.Group]string
	oneWay    []decide.OneWay // releases with irreversible upgrades
}

func (r *upgrades) first() (decide.Verdict, bool) {
	var all []decide.Verdict
	for _, group := range revision.Groups {
		all = append(all, r.verdicts[group])
	}
	return decide.First(all)
}

// decide asks the matrix for the desired releases, once per pass, and decides which groups change to them. It opens the
// bundles of installed drivers and of possible rollbacks.
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
	r.current = p.currentOfRecords(ctx, r.history.InForce()...)
	for d := range p.retained {
		if _, known := r.current[d]; !known {
			p.currentOfRetained(ctx, d)
		}
	}
	p.revoke(ctx)
	r.oneWay = p.oneWay(ctx)
	facts := p.upgradeFacts()
	if p.gateOfAll() == nil && p.desired.refused == nil {
		free := p.decided
		free.ungated = true
		r.candidate = free.revisionOf(free.keep(nil, free.unseen()))
		for _, group := range revision.Groups {
			part, _ := r.candidate.Of(group)
			r.history = r.history.With(group, r.history[group].Consented(facts.Policy.Approved, *r.candidate, part))
		}
	}
	facts.Whole = r.candidate
	p.decideGroups(ctx, facts)
}

// currentOfRetained makes the newest record with a retained driver's running version its source: the group's current
// revision may be without it.
func (p *pass) currentOfRetained(ctx context.Context, d matrix.Driver) {
	for _, rec := range slices.Backward(p.upgrades.history[revision.GroupOf(d)].Records) {
		if rec.Healthy.IsZero() || rec.Version(d).String() != p.site.Installed[d].String() {
			continue
		}
		if c, ok := p.currentOfRecords(ctx, rec)[d]; ok {
			if p.upgrades.current[d] = c; c.from != nil {
				return
			}
		}
	}
}

// decideGroups decides on the groups in order of installation, since a group depends on earlier ones.
func (p *pass) decideGroups(ctx context.Context, facts decide.Facts) {
	r := &p.upgrades
	r.verdicts, r.candidates = map[revision.Group]decide.Verdict{}, map[revision.Group]*revision.Revision{}
	for _, group := range revision.Groups {
		r.candidates[group] = p.candidate(group)
		of := facts
		of.History, of.Candidate, of.Untrusted = r.history[group], r.candidates[group], r.untrusted[group]
		of.Interlock = p.interlock(group)
		v := p.decideGroup(ctx, of, group)
		if r.verdicts[group] = v; v.Gates() {
			r.gates = joined(r.gates, group, fault.Errorf(fault.Refused, "change", string(group),
				"until then it does not change", "%s", v.Message))
			r.candidates[group] = p.candidate(group)
		}
	}
}

// decideGroup decides on one group, and makes the drivers of a rollback the current ones.
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

// revoke notes current drivers whose bundle lost its trust during their rollout: nothing new of them is applied, and
// the revision fails.
func (p *pass) revoke(ctx context.Context) {
	p.upgrades.untrusted = map[revision.Group]string{}
	for group, h := range p.upgrades.history {
		cur, _ := h.InForce()
		if cur.Outcome != revision.Progressing || cur.Returned {
			continue
		}
		err := p.trusts(ctx, cur.Bundle)
		if fault.ReasonOf(err) != fault.Untrusted {
			continue // trusted, or unknown
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

// candidate returns the next revision of a group: the desired one or, if gated, the running drivers that are foreign or
// have no record. It is nil if the group stays unchanged. It ignores faults of drivers, except an unreadable version.
// If the group has a record, [facts.unsure] gates the change instead.
func (s *decided) candidate(group revision.Group) *revision.Revision {
	d := s.keep(s.gateOfAll(), s.unseen())
	isRecorded := !s.revisionWith(group).Version(group).IsZero()
	for _, driver := range s.requested() {
		if revision.GroupOf(driver) != group || isRecorded && s.observed.Unread[driver] != nil {
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
	part, ok := s.revisionOf(d).Of(group)
	if !ok {
		return nil
	}
	return &part
}

// at0 returns the time of the pass in the precision of the API.
func (s *facts) at0() time.Time { return s.now.UTC().Truncate(time.Second) }

func (s *facts) attempt() revision.Attempt {
	return revision.Attempt{Program: s.program, Generation: s.config.Generation, Retry: v1alpha1.Asked(s.config, v1alpha1.AnnotationRetry)}
}

// oneWay returns the releases with irreversible upgrades. The matrixes of the accepted bundle and of installed drivers'
// bundles list them: an older bundle does not know newer releases.
func (p *pass) oneWay(ctx context.Context) []decide.OneWay {
	read := []*opened{p.bundle}
	for _, cur := range p.upgrades.history.InForce() {
		o, err := p.openSource(ctx, cur.Bundle)
		if err == nil && !slices.Contains(read, o) { // an unreadable one has none
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

// upgradeFacts returns package decide's input, without that of a single group.
func (s *decided) upgradeFacts() decide.Facts {
	spec := &s.config.Spec
	policy, _ := upgradePolicy(spec, manual(spec, s.bundle.source)) //nolint:errcheck // see findings.starts
	return decide.Facts{
		Now: s.at0(), Policy: policy, Running: s.running(), Attempt: s.attempt(),
		Frozen: s.frozen, OneWay: s.upgrades.oneWay,
	}
}

// running returns the versions of the drivers that run, the zero value for an unknown one.
func (s *facts) running() map[matrix.Driver]matrix.Version {
	all := map[matrix.Driver]matrix.Version{}
	for _, w := range s.observed.All() {
		if !w.Foreign {
			all[w.Driver] = matrix.Version{}
		}
	}
	maps.Copy(all, s.site.Installed)
	return all
}

// unseen returns drivers that are unreadable and not current. A foreign one may run in another version: it becomes
// current once that is known, by the rules of adoption.
func (s *decided) unseen() map[matrix.Driver]error {
	all := maps.Clone(s.observed.Unread)
	maps.DeleteFunc(all, func(d matrix.Driver, _ error) bool { return !s.revisionWith(d).Version(d).IsZero() })
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

// revisionWith returns the current revision of a driver's group, the zero one without any.
func (s *decided) revisionWith(d matrix.Driver) revision.Record {
	cur, _ := s.upgrades.history[revision.GroupOf(d)].InForce()
	return cur
}

// revisionOf returns the revision that a decision would install, of all groups. A driver that only stays for others is
// none of it.
func (s *facts) revisionOf(d decision) *revision.Revision {
	rev := &revision.Revision{Bundle: d.from.reference(), Source: d.from.source.Name}
	rev.Contents = map[matrix.Driver]string{}
	contents, requested := s.content(d), s.requested()
	for _, id := range d.releases {
		if !slices.Contains(requested, id.Driver) {
			continue
		}
		rev.Releases = append(rev.Releases, id.String())
		if _, is, ok := strings.Cut(contents[id.Driver], "/"); ok {
			rev.Contents[id.Driver] = is
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

// mayStart reports whether all drivers of a group were rendered as decided. A rollback may use its earlier settings.
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
	runs := func(d matrix.Driver) bool { return exists(d) && s.runs(d) } // its Namespace and CRDs stay in the inventory
	switch {
	case v.Action == decide.RollBack:
		if why := u.untrusted[group]; why != "" {
			h = h.Fail(why, s.attempt(), s.at0())
		}
		return h.RollBack(v.To, s.at0())
	case candidate == nil:
		if !slices.ContainsFunc(s.requested(), exists) && !slices.ContainsFunc(inOrder, runs) {
			return revision.History{} // the group was removed
		}
		return h
	case v.Starts, !installed: // or an adoption in the running version
		return h.Start(*candidate, revision.Beginning{
			Now: s.at0(), Attempt: s.attempt(), Approval: s.approval(h, *candidate), Before: s.before(),
			Canary: s.canaryStarts(group)})
	}
	return h.Moved(*candidate)
}

// approval returns the approval of a starting revision; under Automatic too, where a downgrade needs one.
func (s *facts) approval(h revision.History, starts revision.Revision) *revision.Approval {
	given := policyOf(&s.config.Spec).Approval
	if given == nil || !h.Consent.Covers(starts) {
		return nil
	}
	return &revision.Approval{By: given.By, Seen: s.at0()}
}

const defaultHistoryLimit = 3

func historyLimit(spec *v1alpha1.VDOConfigSpec) int {
	return int(ptr.Deref(policyOf(spec).RevisionHistoryLimit, defaultHistoryLimit))
}

// Retained returns the bundles of current revisions, of possible rollbacks and of repairs. An inventory has them before
// anything of a revision is written; the status has them if the inventory was lost.
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
