package vdoconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// Assume is what is taken for granted of a site. The zero value is the site as it is.
type Assume struct {
	Kubernetes matrix.Minor              // zero: as it is
	VCenters   map[string]matrix.Version // by the names of VsphereCloudConfigs; "" is for those not named
}

// maxMinorsAhead is how many Kubernetes minors a preview looks ahead.
const maxMinorsAhead = 12

// Preview is what a site, as it is and as it would be, means for its drivers. Nothing of it is done.
type Preview struct {
	Bundle     string           `json:"bundle"` // REPOSITORY@DIGEST
	Signers    []string         `json:"signers,omitempty"`
	Kubernetes string           `json:"kubernetes"`
	VCenters   []PreviewVCenter `json:"vCenters,omitempty"`
	Drivers    []PreviewDriver  `json:"drivers"`
	// Route is what is upgraded, in order, and what the operator does after each.
	Route []Hop `json:"route"`
	// Held are why not all of that would be done, or must not be begun.
	Held []Held `json:"held,omitempty"`
	// Checks are those of status.preflight that hold something back.
	Checks []v1alpha1.PreflightResult `json:"checks,omitempty"`
	// Fetch are the commands that bring what the bundle lacks.
	Fetch []string `json:"fetch,omitempty"`
	// Ahead is what the next minor of Kubernetes and the next versions of vCenters lack, as
	// the condition Upgradeable says.
	Ahead    []string `json:"ahead,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Plan is what is done at the end of the route, object by object, as status.plan says;
	// nil where nothing may be planned from the bundle.
	Plan *v1alpha1.PlanStatus `json:"plan,omitempty"`
}

// PreviewVCenter is a vCenter's version.
type PreviewVCenter struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// PreviewDriver is what becomes of a driver at the end of the route.
type PreviewDriver struct {
	Driver  matrix.Driver `json:"driver"`
	Running string        `json:"running,omitempty"` // version; "" where it is not installed
	Chosen  string        `json:"chosen,omitempty"`  // version; "" where none is
	Pinned  string        `json:"pinned,omitempty"`  // version that spec.drivers asks for; "" where that is open
	Why     []string      `json:"why,omitempty"`
	// Unsupported is why what runs does not serve what comes.
	Unsupported []string `json:"unsupported,omitempty"`
	Withdrawn   string   `json:"withdrawn,omitempty"` // why what runs was withdrawn
	OneWay      string   `json:"oneWay,omitempty"`    // why Chosen cannot be gone back from
}

// Held is why something would not be done.
type Held struct {
	Reason  string `json:"reason"`
	Driver  string `json:"driver,omitempty"` // "" where it is of all
	Message string `json:"message"`
	Do      string `json:"do,omitempty"`
}

// Preview is one pass up to its plan, and the same once more in the site as it is assumed to
// be, without what holds it back: that is told. It writes nothing; dry runs are all that the
// API server is asked for.
func (r *Reconciler) Preview(ctx context.Context, config *v1alpha1.VDOConfig, a Assume) (*Preview, error) {
	p := r.newPass(config)
	other, err := r.inForce(ctx, config)
	switch {
	case err != nil:
		return nil, err
	case other != nil:
		return nil, notInForce(other)
	case !config.DeletionTimestamp.IsZero():
		return nil, &fault.Error{Reason: fault.Refused, Op: "plan for", Subject: "VDOConfig " + config.Name, Err: errors.New("it is being deleted"), Hint: "wait until the drivers are removed"}
	}
	marks, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	free := p.site.released()
	rules, pins, err := policies(free.config.Spec)
	if err != nil {
		return nil, err
	}
	upgrades, err := a.upgrades(&free)
	if err != nil {
		return nil, err
	}
	way := &router{question: free.questionOf(free.bundle, nil), rules: rules, pins: pins, oneWay: marks}
	out := p.previewed(way.route(upgrades), way)
	p.explain(out, p.atTheEnd(ctx, free, way.facts, out))
	return out, nil
}

// look gathers and decides, as any pass, and returns the marks of one-way releases.
func (p *pass) look(ctx context.Context) ([]upgrade.OneWay, error) {
	g := p.gatherer(p.config, p.now, "")
	if err := g.settle(ctx); err != nil {
		return nil, err
	}
	g.program, p.inventory = programOf(g.inventory), g.inventory
	err := g.gather(ctx)
	p.site = g.site
	switch {
	case err != nil:
		return nil, err
	case g.bundle == nil && g.unresolved == nil:
		return nil, awaited(g.waiting)
	case g.bundle == nil:
		return nil, g.unresolved
	}
	p.decision = p.site.resolve()
	return g.oneWay(ctx), nil
}

// programOf is the program that made the last attempt at a revision: whoever looks is another
// one, and changes nothing of what is tried again.
func programOf(inv inventory.Inventory) string {
	records := inv.Memory().Revisions.Records
	if len(records) == 0 {
		return ""
	}
	return records[len(records)-1].Attempt.Program
}

// upgrades are those that are assumed, in order: vCenters first, then Kubernetes, minor after minor.
func (a Assume) upgrades(s *site) ([]onward, error) {
	bad := func(what string, err error, hint string) ([]onward, error) {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "look ahead to", Subject: what, Err: err, Hint: hint}
	}
	known := map[string]bool{"": true}
	var all []onward
	for i, vc := range s.versions {
		known[vc.Name] = true
		to, named := a.VCenters[vc.Name]
		if !named {
			to = a.VCenters[""]
		}
		switch {
		case to.IsZero() || to.Equal(vc.Version):
		case to.LessThan(vc.Version):
			return bad("vSphere "+to.String(), fmt.Errorf("vCenter %s is of %s already", vc.Name, vc.Version), "name a later version")
		default:
			all = append(all, func(f matrix.Facts) target { return vCenterTarget(f, i, to) })
		}
	}
	for name := range a.VCenters {
		if !known[name] {
			return bad("vCenter "+name, errors.New("no vCenter that drivers use has that name and a version that is known"),
				"name one of "+strings.TrimSpace(strings.Join(slices.Sorted(maps.Keys(known)), " ")))
		}
	}
	if a.VCenters != nil && len(s.versions) == 0 {
		return bad("vSphere", errors.New("of no vCenter that drivers use the version is known"), "see `vdoctl status`")
	}
	return a.minors(s, all)
}

// minors adds the minors up to the one that is assumed.
func (a Assume) minors(s *site, all []onward) ([]onward, error) {
	if a.Kubernetes.IsZero() {
		return all, nil
	}
	now := s.kubernetes.version.Minor()
	if a.Kubernetes.Compare(now) < 0 {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "look ahead to", Subject: "Kubernetes " + a.Kubernetes.String(),
			Err: fmt.Errorf("the cluster is of %s already", now), Hint: "name a later minor"}
	}
	for m := now; m != a.Kubernetes; {
		m = m.Next()
		if len(all) > maxMinorsAhead {
			return nil, &fault.Error{Reason: fault.InvalidInput, Op: "look ahead to", Subject: "Kubernetes " + a.Kubernetes.String(),
				Err: fmt.Errorf("the cluster is of %s", now), Hint: "name a minor that is not so far ahead"}
		}
		all = append(all, func(f matrix.Facts) target {
			t, _ := kubernetesTarget(f, m) //nolint:errcheck // a minor is always a version
			return t
		})
	}
	return all, nil
}

// previewed has what was found before anything is assumed.
func (p *pass) previewed(route []Hop, way *router) *Preview {
	s := &p.site
	out := &Preview{Bundle: s.bundle.reference(), Signers: s.bundle.source.Status.VerifiedBy, Kubernetes: s.kubernetes.reported, Route: route, Ahead: p.decision.ahead.lacks}
	for _, vc := range s.versions {
		out.VCenters = append(out.VCenters, PreviewVCenter{vc.Name, vc.Version.String()})
	}
	for _, h := range route {
		if len(h.Lacks) > 0 && out.Fetch == nil {
			out.Fetch = way.fetching(s.bundle, s.kubernetes.version.Minor())
		}
	}
	if note := ownMatrix(s.bundle.contents); note != "" && out.Fetch != nil {
		out.Warnings = append(out.Warnings, note)
	}
	out.Warnings = append(out.Warnings, s.notes...)
	return out
}

// atTheEnd decides and plans in the site as it is at the end of a route. It returns what the
// bundle's images would hold back there.
func (p *pass) atTheEnd(ctx context.Context, free site, end matrix.Facts, out *Preview) map[matrix.Driver]error {
	free.kubernetes.version, free.versions = end.Kubernetes, end.VCenters
	q := *p
	q.site = free
	q.decision = free.choose(free.bundle, nil, free.faults)
	out.Warnings = append(out.Warnings, q.decision.warnings...)
	for _, d := range inOrder {
		if one, there := q.driver(d, end, out); there {
			out.Drivers = append(out.Drivers, one)
		}
	}
	if !free.bundle.verified {
		return nil // what nobody trusts is not given to the API server, be it to try it
	}
	s := shown{decision: q.decision}
	if err := q.imagine(ctx, &s); err != nil && q.decision.refused == nil {
		out.Held = append(out.Held, heldBy("", err)...)
	}
	if s.plan != nil {
		out.Held = append(out.Held, heldBy("", s.plan.Conflicts())...)
		out.Plan = s.within(math.MaxInt, math.MaxInt)
	}
	for _, d := range inOrder {
		out.Held = append(out.Held, heldBy(string(d), s.malformed[d])...)
	}
	free.checks = free.checks.with(preflight.Turned(preflight.CheckImages(free.images(&p.workloads)), free.config.Spec.Preflight))
	return free.checkHolds()
}

// driver is what becomes of one.
func (p *pass) driver(d matrix.Driver, end matrix.Facts, out *Preview) (PreviewDriver, bool) {
	runs, there := p.site.installed[d]
	one := PreviewDriver{Driver: d, Chosen: p.decision.version(d), Why: p.decision.reasons[d], Withdrawn: p.decision.withdrawn[d]}
	one.Pinned = p.site.config.Spec.PolicyOf(string(d)).Version
	if there {
		one.Running = runs.String()
		one.Unsupported = p.site.outgrown(d, end)
	}
	for _, h := range out.Route {
		for _, m := range h.Moves {
			if m.Driver == d && m.OneWay != "" {
				one.OneWay = m.OneWay
			}
		}
	}
	return one, there || one.Chosen != ""
}

// outgrown says why what runs of a driver does not serve a route's end.
func (s *site) outgrown(d matrix.Driver, end matrix.Facts) (why []string) {
	id := matrix.ReleaseID{Driver: d, Version: s.installed[d]}
	for _, r := range s.bundle.matrix.Releases {
		if r.ReleaseID.Compare(id) != 0 {
			continue
		}
		if !r.Kubernetes.Contains(end.Kubernetes.Minor()) {
			why = append(why, fmt.Sprintf("it serves Kubernetes %s, not %s", r.Kubernetes, end.Kubernetes.Minor()))
		}
		for _, vc := range end.VCenters {
			if !r.VSphere.Contains(vc.Version) {
				why = append(why, fmt.Sprintf("it serves vSphere %s, not %s of vCenter %s", r.VSphere, vc.Version, vc.Name))
			}
		}
		return why
	}
	return []string{"the matrix does not list it"}
}
