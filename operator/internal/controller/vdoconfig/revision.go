package vdoconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// revisions is what a pass knows of what was installed from, and what it decides on the
// upgrade to what was chosen.
type revisions struct {
	history   revision.History
	candidate *revision.Revision // what comes in force, where it may; nil where nothing was chosen
	offered   *revision.Revision // what was chosen, as if upgrades were automatic
	verdict   upgrade.Verdict
	approved  bool // spec.upgradePolicy.approval is of the candidate
	// kept is in force instead of what the bundle would give, and why; nil where nothing is.
	kept *revision.Record
	from *opened // that kept is read from
	why  string
}

// gatherRevisions decides whether what was chosen may take the place of what is in force,
// and opens what is in force instead. It is last: it asks what the rest was gathered for.
func (g *gatherer) gatherRevisions(ctx context.Context) error {
	if g.bundle == nil {
		return nil
	}
	r := &g.revisions
	r.history = g.historyOf()
	facts, err := g.upgradeFacts()
	if err != nil {
		g.hold(err)
		facts.Candidate = nil
	}
	r.candidate, r.offered = facts.Candidate, facts.Candidate
	for {
		r.verdict = upgrade.Decide(facts)
		if r.verdict.Action != upgrade.RollBack {
			break
		}
		target, _ := r.history.Named(r.verdict.To)
		err := g.keepTarget(ctx, target)
		if err == nil {
			r.why = r.verdict.Message
			return nil
		}
		facts.Unusable[target.Name()] = fault.Text(err)
	}
	return g.keepInForce(ctx, facts)
}

// keepInForce opens the revision in force where nothing else may take its place. Where it
// cannot be opened nothing new is installed at all.
func (g *gatherer) keepInForce(ctx context.Context, facts upgrade.Facts) error {
	r := &g.revisions
	cur, installed := r.history.InForce()
	switch {
	case !installed, r.verdict.Action == upgrade.Proceed:
		return nil
	case r.verdict.Reason == upgrade.NotApproved && g.needsNoConsent(ctx, facts, cur):
		return nil
	case !r.verdict.Holds() && !cur.Returned && cur.Outcome != revision.Failed:
		return nil // what is held back for other reasons is decided on release by release
	}
	err := g.keep(ctx, cur)
	r.why = r.verdict.Message
	if r.why == "" {
		r.why = fmt.Sprintf("revision %s is in force", cur.Name())
	}
	if err != nil {
		g.unkept = &fault.Error{Reason: fault.Refused, Op: "upgrade", Subject: "drivers", Err: errors.New(r.why)}
		g.bundleHeld = true
		r.why += "; it cannot be read: " + fault.Text(err)
	}
	return nil
}

// needsNoConsent tells whether there is a change that needs none, and notes it: to a bundle
// that has the same of what is installed, or away from what does not suit the cluster any more.
func (g *gatherer) needsNoConsent(ctx context.Context, facts upgrade.Facts, cur revision.Record) bool {
	stays := g.choose(g.bundle, nil, nil)
	if stays.refused != nil {
		return false
	}
	without, err := revisionOf(stays)
	if err != nil {
		return false
	}
	facts.Candidate = &without
	facts.Policy.Manual = sameVersions(cur.Revision, without) || g.suits(ctx, cur)
	v := upgrade.Decide(facts)
	if v.Action != upgrade.Proceed {
		return false
	}
	g.revisions.candidate = &without
	g.revisions.verdict.Begins = v.Begins
	return true
}

// suits tells whether a revision can go on as it is.
func (g *gatherer) suits(ctx context.Context, rec revision.Record) bool {
	o, err := g.openRevision(ctx, rec)
	return err == nil && g.unfit(o.matrix, rec) == ""
}

func sameVersions(a, b revision.Revision) bool {
	return !slices.ContainsFunc(a.Drivers(), func(d string) bool { return b.Version(d) != "" && b.Version(d) != a.Version(d) })
}

// keep has a revision be in force: it is opened as its digest says, if it was accepted.
func (g *gatherer) keep(ctx context.Context, rec revision.Record) error {
	o, err := g.openRevision(ctx, rec)
	if err != nil {
		return err
	}
	g.revisions.kept, g.revisions.from = &rec, o
	return nil
}

// keepTarget has a revision be put back in force, if it is trusted still and suits the
// cluster of now.
func (g *gatherer) keepTarget(ctx context.Context, rec revision.Record) error {
	b, err := g.sourceOf(ctx, rec)
	if err != nil {
		return err
	}
	if err := g.Trust.Trusted(ctx, b); err != nil {
		return err
	}
	o, err := g.openRevision(ctx, rec)
	if err != nil {
		return err
	}
	if why := g.unfit(o.matrix, rec); why != "" {
		return &fault.Error{Reason: fault.Incompatible, Op: "go back to", Subject: "revision " + rec.Name(), Err: errors.New(why)}
	}
	g.revisions.kept, g.revisions.from = &rec, o
	return nil
}

// unfit says why a revision's releases do not suit the cluster any more, "" where they do.
func (g *gatherer) unfit(doc *matrix.Document, rec revision.Record) string {
	pins, rules := matrix.Pins{}, map[matrix.Driver]matrix.Rule{}
	for _, d := range inOrder {
		v, err := matrix.ParseVersion(rec.Version(string(d)))
		if err != nil {
			rules[d] = matrix.Disabled
			continue
		}
		pins[d], rules[d] = v, matrix.Latest
	}
	facts := matrix.Facts{Kubernetes: g.kubernetes.version, VCenters: g.versions, Distribution: g.distribution}
	if _, refusal := matrix.Resolve(doc, facts, pins, matrix.Policy{Rules: rules}, nil); refusal != nil {
		return refusal.Error()
	}
	return ""
}

// openRevision opens the bundle of a revision whose seal is good: the copy in the cluster,
// or the mirror.
func (g *gatherer) openRevision(ctx context.Context, rec revision.Record) (*opened, error) {
	bad := func(reason fault.Reason, why error) (*opened, error) {
		return nil, &fault.Error{Reason: reason, Op: "open", Subject: "revision " + rec.Name(), Err: why, Hint: "it is not installed from"}
	}
	if !rec.Sealed(g.hash) {
		return bad(fault.Untrusted, errors.New("its seal is not the operator's"))
	}
	if g.bundle.reference() == rec.Bundle {
		return g.bundle, nil
	}
	b, err := g.sourceOf(ctx, rec)
	if err != nil {
		return nil, err
	}
	o, err := g.open(ctx, b)
	if err != nil {
		return nil, err
	}
	if missing := missingIn(o, rec); missing != "" {
		return bad(fault.Incomplete, fmt.Errorf("its bundle does not hold %s", missing))
	}
	return o, nil
}

// sourceOf returns the DriverBundle of a revision, as it was when that was accepted.
func (g *gatherer) sourceOf(ctx context.Context, rec revision.Record) (*v1alpha1.DriverBundle, error) {
	b := &v1alpha1.DriverBundle{}
	b.Namespace, b.Name, b.Spec.Reference = g.name.Namespace, rec.Source, rec.Bundle
	var there v1alpha1.DriverBundle
	switch err := g.Client.Get(ctx, client.ObjectKeyFromObject(b), &there); {
	case err == nil:
		b = there.DeepCopy()
	case !apierrors.IsNotFound(err):
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: "DriverBundle " + rec.Source, Err: err}
	}
	b.Status.Repository, b.Status.Digest, _ = strings.Cut(rec.Bundle, "@")
	b.Status.AcceptedAt = timeOf(rec.Made)
	return b, nil
}

func timeOf(t time.Time) *metav1.Time {
	m := metav1.NewTime(t)
	return &m
}

// missingIn returns a release of a revision that a bundle does not hold, or "".
func missingIn(o *opened, rec revision.Record) string {
	holds := available(o.contents.Lock)
	for _, id := range rec.Releases {
		if !holds[id] {
			return id
		}
	}
	return ""
}

// historyOf is what is remembered, or, of an installation that has no history yet, what
// runs.
func (g *gatherer) historyOf() revision.History {
	h := g.inventory.Memory().Revisions
	if _, ok := h.InForce(); ok || g.inventory.Len() == 0 {
		return h
	}
	last := lastFrom(g.config, g.inventory)
	rev := revision.Revision{Bundle: last, Source: g.bundle.source.Name}
	complete := true
	for _, d := range inOrder {
		v, there := g.installed[d]
		if !there || !g.runs(d) {
			continue
		}
		rev.Releases = append(rev.Releases, matrix.ReleaseID{Driver: d, Version: v}.String())
		complete = complete && g.inventory.Complete(d) == v.String()
	}
	if last == "" || len(rev.Releases) == 0 {
		return h
	}
	return h.Adopt(rev, complete, revision.Beginning{Now: g.at0(), Key: g.hash, Attempt: g.attempt(h)})
}

// at0 is the time of the pass as it is written down.
func (s *site) at0() time.Time { return s.now.UTC().Truncate(time.Second) }

// attempt is under which circumstances a revision is tried now.
func (s *site) attempt(revision.History) revision.Attempt {
	return revision.Attempt{Program: program, Generation: s.config.Generation, Retry: s.config.Annotations[v1alpha1.AnnotationRetry]}
}

// upgradeFacts are what package upgrade decides on.
func (g *gatherer) upgradeFacts() (upgrade.Facts, error) {
	f := upgrade.Facts{
		Now: g.at0(), History: g.revisions.history, Running: g.installed,
		Attempt: g.attempt(g.revisions.history), Interlock: g.interlock(), Unusable: map[string]string{},
	}
	var err error
	if f.Policy, err = upgradePolicy(&g.config.Spec, manual(&g.config.Spec, g.bundle.source)); err != nil || g.hasHold() {
		return f, err
	}
	d := g.chooseFreely(g.bundle)
	if d.refused != nil {
		return f, nil //nolint:nilerr // it is told by the decision
	}
	rev, err := revisionOf(d)
	if err != nil {
		return f, err
	}
	if cur, ok := f.History.InForce(); ok {
		for driver := range g.holds() { // it stays what it is
			rev.Contents[string(driver)] = cur.Contents[string(driver)]
		}
	}
	f.Candidate = &rev
	g.revisions.approved = f.Policy.Approved != "" && f.Policy.Approved == f.History.NameOf(rev)
	return f, nil
}

func (s *site) hasHold() bool { return s.hold() != nil }

// chooseFreely decides from a bundle as if upgrades were automatic and no driver at fault.
func (s *site) chooseFreely(b *opened) decision {
	free := *s
	free.revisions.approved = true
	return free.choose(b, nil, nil)
}

// upgradePolicy reads the policy of a spec.
func upgradePolicy(spec *v1alpha1.VDOConfigSpec, manual bool) (upgrade.Policy, error) {
	p := upgrade.Policy{Manual: manual}
	from := spec.UpgradePolicy
	if from == nil {
		return p, nil
	}
	p.NeverRollBack, p.AllowDowngrade = from.Rollback == v1alpha1.RollbackNever, from.AllowDowngrade
	if from.Approval != nil {
		p.Approved = from.Approval.Revision
	}
	var errs []error
	for _, w := range from.Windows {
		parsed, err := upgrade.ParseWindow(w)
		errs = append(errs, err)
		p.Windows = append(p.Windows, parsed)
	}
	return p, fault.Join(errs...)
}

// revisionOf is what a decision would install.
func revisionOf(d decision) (revision.Revision, error) {
	rev := revision.Revision{Bundle: d.from.reference(), Source: d.from.source.Name, Contents: map[string]string{}}
	for _, id := range d.releases {
		rev.Releases = append(rev.Releases, id.String())
	}
	made, err := content(d)
	for driver, text := range made {
		_, rev.Contents[string(driver)], _ = strings.Cut(text, "/")
	}
	return rev, err
}

// keeps puts what is in force in the place of what was decided.
func (s *site) keeps(d decision) decision {
	r := &s.revisions
	if r.kept == nil {
		return d
	}
	d.from, d.fixed, d.releases = r.from, true, nil
	d.reasons, d.held = map[matrix.Driver][]string{}, map[matrix.Driver]string{}
	rules, _, _ := policies(s.config.Spec) //nolint:errcheck // what is wrong with pins is reported by deciding
	wanted := append(asked(rules), s.retained...)
	for _, driver := range inOrder {
		if !slices.Contains(wanted, driver) {
			continue
		}
		v, err := matrix.ParseVersion(r.kept.Version(string(driver)))
		if err != nil {
			d.held[driver] = r.why
			continue
		}
		d.releases = append(d.releases, matrix.ReleaseID{Driver: driver, Version: v})
		d.reasons[driver] = []string{r.why}
	}
	for driver, why := range s.faults {
		d = d.without(driver, why.Error())
	}
	return d
}

// begun is the history once what was rendered is being applied.
func (s *site) begun(r rendering) revision.History {
	u := &s.revisions
	h := u.history
	if s.frozen != "" || r.frozen != "" || r.untrusted != "" || r.refused != nil {
		return h
	}
	switch {
	case u.verdict.Action == upgrade.RollBack && u.kept != nil:
		h = h.RollBack(u.verdict.To, s.at0())
	case u.kept == nil && u.verdict.Begins && u.candidate != nil:
		h = h.Begin(*u.candidate, revision.Beginning{
			Now: s.at0(), Key: s.hash, Attempt: s.attempt(h), Approval: s.approval(), Before: s.before()})
	case u.kept == nil && u.verdict.Action == upgrade.Proceed:
		h = h.Seal(s.hash) // it is what was accepted
	}
	return h.Bounded(historyLimit(&s.config.Spec))
}

// approval is who consented to what is begun.
func (s *site) approval() *revision.Approval {
	if !s.revisions.approved || !manual(&s.config.Spec, s.bundle.source) {
		return nil
	}
	return &revision.Approval{By: s.config.Spec.UpgradePolicy.Approval.By, Seen: s.at0()}
}

const defaultHistoryLimit = 3

func historyLimit(spec *v1alpha1.VDOConfigSpec) int {
	if p := spec.UpgradePolicy; p != nil && p.RevisionHistoryLimit != nil {
		return int(*p.RevisionHistoryLimit)
	}
	return defaultHistoryLimit
}

// keepRevisions writes what revisions consist of, of those that are retained, before the
// history says that they are in force; what is not retained any more goes after.
func (a *applier) keepRevisions(ctx context.Context, h revision.History) error {
	cur, ok := h.InForce()
	was := a.inventory.Memory().Revisions
	if known, _ := was.InForce(); !ok || (known.Number == cur.Number && known.Seal == cur.Seal) {
		return nil
	}
	m := revision.ManifestOf(cur, a.objects())
	m.CloudProvider, m.StorageProvider = a.rendering.spec.CloudProvider, a.rendering.spec.StorageProvider
	return a.Cluster.KeepRevision(ctx, a.name, m)
}

func (a *applier) objects() []revision.Object {
	var all []revision.Object
	for _, s := range a.outcome.plan.Steps {
		if s.Stage != "" && s.Action != plan.Conflict {
			all = append(all, revision.Object{ID: s.Key.String(), Driver: string(s.Driver), Release: s.Release, Rendered: s.Rendered})
		}
	}
	return all
}

// dropRevisions removes what is kept of revisions that are not retained any more, where
// those have changed.
func (p *pass) dropRevisions(ctx context.Context, was, now inventory.Inventory) error {
	limit := historyLimit(&p.config.Spec)
	before, after := names(was.Memory().Revisions.Retained(limit)), names(now.Memory().Revisions.Retained(limit))
	if slices.Equal(before, after) {
		return nil
	}
	return p.Cluster.DropRevisions(ctx, p.name, after)
}

func names(all []revision.Record) []string {
	var out []string
	for _, r := range all {
		out = append(out, r.Name())
	}
	slices.Sort(out)
	return out
}
