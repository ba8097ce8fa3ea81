package vdoconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/lookahead"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// Assume are assumptions about a site. The zero value is the present site.
type Assume struct {
	Kubernetes matrix.Minor              // zero: the present one
	VCenters   map[string]matrix.Version // by VsphereCloudConfig; "" is for all others
}

// maxMinorsAhead is the number of Kubernetes minors that a preview looks ahead.
const maxMinorsAhead = 12

// Preview is what the present or an assumed site means for its drivers. It changes nothing.
type Preview struct {
	Bundle     string           `json:"bundle"` // REPOSITORY@DIGEST
	Signers    []string         `json:"signers,omitempty"`
	Kubernetes string           `json:"kubernetes"`
	VCenters   []matrix.VCenter `json:"vCenters,omitempty"`
	Drivers    []PreviewDriver  `json:"drivers"`
	// Path are the upgrades in order, and what the operator does after each.
	Path []lookahead.Step `json:"route"`
	// Gated are why some of these would not start, or must not.
	Gated []Gated `json:"held,omitempty"`
	// Checks are the results of status.preflight that gate.
	Checks []v1alpha1.PreflightResult `json:"checks,omitempty"`
	// Fetch are the commands that bring what the bundle lacks.
	Fetch []string `json:"fetch,omitempty"`
	// Ahead is what the next minor of Kubernetes and the next versions of vCenters lack, as the condition Upgradeable
	// reports.
	Ahead    []string `json:"ahead,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Plan are the changes at the end of the route by object, as in status.plan; nil if no plan from the bundle is
	// permitted.
	Plan *v1alpha1.PlanStatus `json:"plan,omitempty"`
}

// PreviewDriver is the result for a driver at the end of the route.
type PreviewDriver struct {
	Driver  matrix.Driver `json:"driver"`
	Running string        `json:"running,omitempty"` // version; "" if not installed
	Chosen  string        `json:"chosen,omitempty"`  // version; "" if none
	Pinned  string        `json:"pinned,omitempty"`  // version in spec.drivers; "" if open
	Why     []string      `json:"why,omitempty"`
	// Unsupported is why the running version does not suit what comes.
	Unsupported []string `json:"unsupported,omitempty"`
	Withdrawn   string   `json:"withdrawn,omitempty"` // why the running version was withdrawn
	OneWay      string   `json:"oneWay,omitempty"`    // why Chosen permits no rollback
}

// Gated is why a change would not start.
type Gated struct {
	Reason  string `json:"reason"`
	Driver  string `json:"driver,omitempty"` // "" for all drivers
	Message string `json:"message"`
	Do      string `json:"do,omitempty"`
}

// Preview runs a pass up to its plan, and once more in the assumed site without gates, which it reports. It writes
// nothing; the API server gets only reads and dry runs.
func (r *Reconciler) Preview(ctx context.Context, config *v1alpha1.VDOConfig, a Assume) (*Preview, error) {
	p := r.newPass(config)
	other, err := r.activeConfig(ctx, config)
	switch {
	case err != nil:
		return nil, err
	case other != nil:
		return nil, notActive(other)
	case !config.DeletionTimestamp.IsZero():
		return nil, &fault.Error{Reason: fault.Refused, Op: "plan for", Subject: "VDOConfig " + config.Name,
			Err: errors.New("it is being deleted"), Hint: "wait until the drivers are removed"}
	}
	if err := p.look(ctx); err != nil {
		return nil, err
	}
	free := p.withoutGates()
	q, unread := free.ofMatrix()
	upgrades, err := a.upgrades(&free.facts)
	if err := cmp.Or(unread, err); err != nil {
		return nil, err
	}
	path, end := q.Path(p.upgrades.oneWay, upgrades)
	s := &p.facts
	out := &Preview{Bundle: s.bundle.reference(), Path: path,
		Kubernetes: s.kubernetes.reported, VCenters: s.site.VCenters,
		Ahead: p.decision.outlook.Lacks, Warnings: slices.Clone(s.notes)}
	if s.bundle.verified {
		out.Signers = s.bundle.source.Status.VerifiedBy
	}
	if slices.ContainsFunc(path, func(h lookahead.Step) bool { return len(h.Lacks) > 0 }) {
		out.Fetch = s.fetching(end, strings.Contains(fmt.Sprint(path), matrix.Newer))
		ca, _ := s.bundle.source.CAReference()
		if _, err := source.Read(ctx, r.Reader, s.bundle.source.Namespace, ca); err == nil {
			out.Fetch[len(out.Fetch)-1] += " --ca-file CA.crt"
		}
	}
	p.atTheEnd(ctx, free, end, out)
	p.explain(out)
	return out, nil
}

func (p *pass) look(ctx context.Context) error {
	if err := p.collectInstalled(ctx); err != nil {
		return err
	}
	for _, r := range p.facts.inventory.Memory().Revisions.Records() {
		p.program = r.Attempt.Program // another program that looks must not count as a new attempt
	}
	if err := p.collect(ctx); err != nil {
		return err
	}
	p.decide(ctx)
	switch {
	case p.bundle == nil && p.facts.unresolved == nil:
		return awaited(p.waiting)
	case p.bundle == nil:
		return p.facts.unresolved
	}
	p.decision = p.resolve()
	return nil
}

// upgrades returns the assumed upgrades in order: vCenters first, then Kubernetes, minor by minor.
func (a Assume) upgrades(s *facts) ([]lookahead.Upgrade, error) {
	bad := func(what string, err error, hint string) ([]lookahead.Upgrade, error) {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "preview", Subject: what, Err: err, Hint: hint}
	}
	known := map[string]bool{"": true}
	var all []lookahead.Upgrade
	for i, vc := range s.site.VCenters {
		known[vc.Name] = true
		to, named := a.VCenters[vc.Name]
		if !named {
			to = a.VCenters[""]
		}
		switch {
		case to.IsZero() || to.Equal(vc.Version):
		case to.LessThan(vc.Version):
			return bad("vSphere "+to.String(), fmt.Errorf("vCenter %s is of %s already", vc.Name, vc.Version), "name a later version with --vsphere")
		default:
			all = append(all, func(f matrix.Facts) lookahead.Target { return lookahead.VCenter(f, i, to) })
		}
	}
	for name := range a.VCenters {
		if !known[name] {
			return bad("vCenter "+name, errors.New("no vCenter that drivers use has that name and a version that is known"),
				"write NAME=VERSION for --vsphere, with a NAME of "+strings.TrimSpace(strings.Join(slices.Sorted(maps.Keys(known)), " ")))
		}
	}
	if a.VCenters != nil && len(s.site.VCenters) == 0 {
		return bad("vSphere", errors.New("of no vCenter that drivers use the version is known"), "leave out --vsphere, or see in `vdoctl status` why")
	}
	if a.Kubernetes.IsZero() {
		return all, nil
	}
	now, requested := s.site.Kubernetes.Minor(), "Kubernetes "+a.Kubernetes.String()
	for m := now; m != a.Kubernetes; {
		if a.Kubernetes.Compare(now) < 0 {
			return bad(requested, fmt.Errorf("the cluster is of %s already", now), "name a later minor with --k8s")
		}
		m = m.Next()
		if len(all) > maxMinorsAhead {
			return bad(requested, fmt.Errorf("the cluster is of %s", now), "name a minor with --k8s that is not so far ahead")
		}
		all = append(all, func(f matrix.Facts) lookahead.Target { return lookahead.Kubernetes(f, m) })
	}
	return all, nil
}

// atTheEnd decides and plans for the site at the end of a route.
func (p *pass) atTheEnd(ctx context.Context, free decided, end matrix.Facts, out *Preview) {
	free.site.Kubernetes, free.site.VCenters = end.Kubernetes, end.VCenters
	free.desired = free.chooseReleases()
	q := *p
	q.decided = free
	q.decision = free.resolve()
	out.Warnings = append(out.Warnings, q.decision.warned()...)
	for _, d := range inOrder {
		if one, exists := q.driver(d, out); exists {
			out.Drivers = append(out.Drivers, one)
		}
	}
	if !free.bundle.verified {
		return // an untrusted bundle does not reach the API server, not even for a dry run
	}
	drawn, err := q.planPreview(ctx)
	if drawn != nil {
		err, out.Plan = drawn.Conflicts(), q.decision.shown(drawn, nil, math.MaxInt)
	}
	if q.decision.refused == nil {
		out.Gated = append(out.Gated, gatedBecause("", err)...)
	}
}

func (p *pass) driver(d matrix.Driver, out *Preview) (PreviewDriver, bool) {
	runs, exists := p.facts.site.Installed[d]
	one := PreviewDriver{Driver: d, Chosen: p.decision.version(d), Why: p.decision.reasons[d], Withdrawn: p.decision.withdrawn[d]}
	one.Pinned = p.facts.config.Spec.PolicyOf(string(d)).Version
	if exists {
		one.Running = runs.String()
	}
	if why := p.decision.unfit[d]; why != "" {
		one.Unsupported = []string{why}
	}
	for _, h := range out.Path {
		for _, m := range h.Moves {
			if m.Driver == d && m.OneWay != "" {
				one.OneWay = m.OneWay
			}
		}
	}
	return one, exists || one.Chosen != ""
}

// explain adds why steps of the route would not start: gates of drivers and of the first upgrade, and what is unknown
// here.
func (p *pass) explain(out *Preview) {
	s, b := &p.decided, p.bundle.source
	out.Gated = append(gatedBecause("", s.gateOfAll()), out.Gated...)
	gates := s.groupGates()
	for _, d := range inOrder {
		out.Gated = append(out.Gated, gatedBecause(string(d), s.faults[d])...)
	}
	for _, group := range revision.Groups {
		out.Gated = append(out.Gated, gatedBecause(string(group), gates[group])...)
	}
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse {
		out.Warnings = append(out.Warnings, "this is planned from the bundle that DriverBundle "+b.Name+
			" accepted before: it is not Ready, see `vdoctl describe`")
	}
	if s.checks.ran && s.checks.pending {
		out.Warnings = append(out.Warnings, "the operator has not run its checks of cluster and vCenters for the "+
			"present request yet, so their gates are unknown; vdoctl check runs them")
	}
	p.explainGates(out)
	if stopped(&p.config.Spec) {
		why := stoppedBy(&p.config.Spec) + ": the operator changes nothing"
		out.Gated = append(out.Gated, Gated{Reason: "Stopped", Message: why, Do: "set it to false"})
	}
	if st := s.checks.status; st != nil {
		for i := range st.Results {
			if st.Results[i].Action == preflight.BlockInstall.String() {
				out.Checks = append(out.Checks, st.Results[i])
			}
		}
	}
	out.Warnings = slices.Compact(slices.Sorted(slices.Values(out.Warnings)))
}

// explainGates adds why groups do not change to the offered revision, unless a gate says so already.
func (p *pass) explainGates(out *Preview) {
	for _, group := range revision.Groups {
		v := p.upgrades.verdicts[group]
		h := Gated{Reason: string(v.Reason), Message: v.Message, Do: v.Reason.ToDo(v.Until, p.named())}
		if strings.Contains(h.Do, unnamed) {
			h.Do += "; `vdoctl upgrade list` names " + unnamed + " once the DriverBundle has this bundle"
		}
		said := func(g Gated) bool { return strings.Contains(g.Message, h.Message) }
		if v.IsGated() && !slices.ContainsFunc(out.Gated, said) {
			out.Gated = append(out.Gated, h)
		}
	}
}

// unnamed stands for the name of a merely previewed upgrade.
const unnamed = "REVISION"

// named returns the name for an approval of the offered upgrade. A merely previewed upgrade has none: approvals are of
// waiting upgrades.
func (p *pass) named() string {
	candidate := p.upgrades.candidate
	if c := p.config.Status.Candidate; c != nil && candidate != nil && c.Name == candidate.Name() {
		return c.Name
	}
	return unnamed
}

func gatedBecause(driver string, err error) []Gated {
	if several, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only the last join is split
		var all []Gated
		for _, e := range several.Unwrap() {
			all = append(all, gatedBecause(driver, e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []Gated{{Reason: string(fault.ReasonOf(err)), Driver: driver, Message: err.Error(), Do: fault.HintOf(err)}}
}

func (p *pass) planPreview(ctx context.Context) (*plan.Plan, error) {
	if p.decision.refused != nil {
		return nil, p.decision.refused
	}
	rendered, err := p.render(p.decision)
	if err := joinAll(rendered.refused, err); err != nil {
		return nil, err
	}
	tried, err := p.dryRun(ctx, rendered)
	if err != nil {
		return nil, err
	}
	drawn := p.facts.plan(tried)
	return &drawn, nil
}

func (s *decided) withoutGates() decided {
	free := *s
	free.ungated, free.bundleGated, free.upgrades, free.checks = true, false, upgrades{}, checks{}
	for d := range s.checks.kept {
		free.spec = withProvider(free.spec, s.config.Spec, d)
	}
	free.notes = slices.Clone(s.notes)
	return free
}

// fetching returns the commands that bring a bundle for the end of a path: on a connected host, then at the site. A
// person fills in the names in capitals. newer is set if the bundle's matrix lists no releases for it.
func (s *facts) fetching(end matrix.Facts, newer bool) []string {
	var vsphere, drivers []string
	b, from := s.bundle, s.site.Kubernetes.Minor()
	for _, vc := range end.VCenters {
		vsphere = append(vsphere, vc.Version.String())
	}
	for _, d := range s.requested() {
		drivers = append(drivers, string(d))
	}
	slices.Sort(vsphere)
	k8s := from.String()
	if to := end.Kubernetes.Minor(); to != from {
		k8s += "-" + to.String()
	}
	words := []string{"vdo-bundle lock --drivers", strings.Join(drivers, ","), "--k8s", k8s}
	if len(vsphere) > 0 {
		words = append(words, "--vsphere", strings.Join(slices.Compact(vsphere), ","))
	}
	pull := "vdo-bundle pull --lock lock.yaml"
	if newer || b.contents.MatrixSignature != nil { // the matrix built into vdo-bundle is unsigned
		words, pull = append(words, "--matrix MATRIX"), pull+" --matrix MATRIX"
	}
	own := map[matrix.Driver]string{bundle.Operator: "--operator", bundle.JumpHost: "--jump-host"}
	for _, r := range b.contents.Lock.Releases {
		for _, image := range r.Images {
			if flag := own[r.Driver]; flag != "" {
				words = append(words, flag, image)
			}
		}
	}
	isService := func(r bundle.Release) bool { return bundle.IsService(r.Driver) }
	if slices.ContainsFunc(b.contents.Lock.Releases, isService) {
		words = append(words, "--services sip")
	}
	tag := "TAG"
	if b.source.Spec.Versions == "" {
		tag = cmp.Or(b.source.Status.Tag, tag)
	}
	push := "vdo-bundle push drivers.tar " + cmp.Or(b.source.Status.Repository, "REGISTRY/REPO") + ":" + tag
	if b.verified {
		push += " --key KEY.pub"
	}
	return []string{
		strings.Join(append(words, "-o lock.yaml"), " "),
		pull + " --sign-key KEY -o drivers.tar",
		push,
	}
}
