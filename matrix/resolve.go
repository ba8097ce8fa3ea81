package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Facts are the known facts of a site.
type Facts struct {
	Kubernetes   Version   // API server
	VCenters     []VCenter // none: vSphere ranges are not checked, and a warning says so
	Distribution string    // "" or a name such as openshift, from the site's VDOConfig
	Installed    map[Driver]Version
	// SnapshotsServed is set if others provide a snapshot-controller.
	SnapshotsServed bool
}

// VCenter is one vCenter and the version that it reports.
type VCenter struct {
	Name    string  `json:"name,omitempty"`
	Version Version `json:"version"`         // api version, such as 8.0.3
	Build   uint64  `json:"build,omitempty"` // 0: unknown
}

// Rule says how to choose a version among those that fit.
type Rule string

// The rules.
const (
	Latest   Rule = "latest"
	PreferLT Rule = "lts"
	Disabled Rule = "disabled"
)

// Pins fix versions. A zero version is no pin.
type Pins map[Driver]Version

// Policy says how to choose.
type Policy struct {
	// Rules say how to choose each driver. By default CPI and CSI follow latest, CNI is requested only
	// by a pin, and the snapshot-controller follows from the CSI release. Unknown words mean latest.
	Rules map[Driver]Rule
	// Refused says why releases may not be chosen, by ReleaseID.String().
	Refused map[string]string
}

// Available is the releases in a bundle; nil means every release of the document.
type Available map[string]bool // key: ReleaseID.String()

// Selection is the choices of Resolve, in installation order.
type Selection struct {
	Choices  []Choice
	Warnings []Warning // sorted by driver, version and code
}

// Choice is one chosen release with the reasons.
type Choice struct {
	Release Release
	Reasons []string
}

// Warning is information about a selection for an administrator.
type Warning struct {
	Code    WarningCode
	Release ReleaseID // the release concerned; the version may be zero
	Text    string    // a sentence without full stop
}

// String returns the text.
func (w Warning) String() string { return w.Text }

// WarningCode is the kind of a warning, for machines.
type WarningCode string

// The warnings.
const (
	WarnInstalledWithdrawn WarningCode = "InstalledWithdrawn" // a withdrawn release runs
	WarnInstalledUnknown   WarningCode = "InstalledUnknown"   // the matrix does not list the running release
	WarnInstalledUnfit     WarningCode = "InstalledUnfit"     // a release runs outside its ranges
	WarnDowngrade          WarningCode = "Downgrade"          // the choice is older than the running release
	WarnDeprecated         WarningCode = "Deprecated"         // the choice is deprecated
	WarnDerived            WarningCode = "Derived"            // the choice has a range that upstream does not state
	WarnVSphereUnchecked   WarningCode = "VSphereUnchecked"   // no vCenter was given
	WarnVSphereAssumed     WarningCode = "VSphereAssumed"     // an alias was applied without a build number
	WarnRequirementWaived  WarningCode = "RequirementWaived"  // the site has to provide a choice's requirement
	WarnRequirementUnmet   WarningCode = "RequirementUnmet"   // a recommended release is not chosen
)

// Rejection is a release that was not chosen, with the rule that refused it.
type Rejection struct {
	Release ReleaseID
	Rule    RejectionRule
	Detail  string
}

// RejectionRule names the rule that refused a release.
type RejectionRule string

// Rules of rejection in the order of applying them.
const (
	RuleUnlisted   RejectionRule = "unlisted"      // a pin names a release that the matrix does not list
	RulePin        RejectionRule = "pin"           // another version is pinned
	RuleWithdrawn  RejectionRule = "withdrawn"     // never chosen
	RulePrerelease RejectionRule = "prerelease"    // chosen only by a pin
	RuleKubernetes RejectionRule = "kubernetes"    // not for this Kubernetes
	RuleVSphere    RejectionRule = "vsphere"       // not for every vCenter
	RuleBundle     RejectionRule = "not-in-bundle" // not available
	RuleRefused    RejectionRule = "refused"       // the policy refuses it
	RuleRequires   RejectionRule = "requires"      // a requirement is not available
)

// Resolve chooses one release of every requested driver, or refuses. It is pure and total: every
// question has one answer, which does not depend on the order of the document's releases.
//
// A release fits if all of these hold; the first that does not is its rejection:
//
//   - it is the pinned version, if its driver is pinned (pin);
//   - it is not withdrawn (withdrawn), and a pre-release only by a pin (prerelease);
//   - the Kubernetes minor is in its range, and for a CPI is the release's own minor (kubernetes);
//   - every vCenter, after known aliases, is in its range (vsphere);
//   - the bundle contains it (not-in-bundle);
//   - the policy does not refuse it (refused);
//   - its requirements fit too (requires).
//
// Resolve chooses the newest release that fits. Deprecated ones come last, and [PreferLT] puts lts ones first.
//
// The snapshot-controller follows from the CSI release, which qualifies one version of it. The site
// provides its own if the policy disables it, if another one runs, and on OpenShift, which has one.
// The requirement is then waived with a warning. It is chosen by itself only with a rule or a pin, and if CSI is
// disabled. A CPI that a CSI release requires cannot be waived; a recommended one can.
//
// With a refusal the selection has no choices, only warnings about installed releases.
func Resolve(doc *Document, facts Facts, pins Pins, policy Policy, available Available) (Selection, *Refusal) {
	q := newQuestion(doc, facts, pins, policy, available)
	var refused []Driver
	chosen := map[Driver]pick{}
	for _, d := range q.asked() {
		if p, ok := q.choose(d); ok {
			chosen[d] = p
		} else {
			refused = append(refused, d)
		}
	}
	if len(refused) > 0 {
		return Selection{Warnings: q.warnings(nil)}, q.refusal(refused)
	}
	q.complete(chosen)
	return q.selection(chosen), nil
}

type question struct {
	facts     Facts
	minor     Minor
	sites     []site
	pins      Pins
	policy    Policy
	available Available
	releases  []Release     // in order
	relaxed   RejectionRule // a rule that is not applied, to find its effect
}

// site is a vCenter with its effective version.
type site struct {
	VCenter
	effective Version
	assumed   bool // by an alias with an unknown build
}

// pick is a chosen release and the reason.
type pick struct {
	release Release
	why     string
	needs   map[Driver]Release // its requirements, chosen with it
	waived  []Requirement      // requirements that the site has to provide
	unmet   []Requirement      // recommended and not chosen
}

func newQuestion(doc *Document, facts Facts, pins Pins, policy Policy, available Available) *question {
	if doc == nil {
		doc = &Document{}
	}
	q := &question{
		facts: facts, minor: facts.Kubernetes.Minor(), pins: pins, policy: policy, available: available,
		releases: slices.Clone(doc.Releases),
	}
	slices.SortStableFunc(q.releases, func(a, b Release) int { return a.ReleaseID.Compare(b.ReleaseID) })
	for _, v := range facts.VCenters {
		q.sites = append(q.sites, doc.site(v))
	}
	return q
}

// site applies the document's aliases: the one with the highest build that the vCenter has reached.
// With an unknown build it applies the one with the lowest.
func (d *Document) site(v VCenter) site {
	out := site{VCenter: v, effective: v.Version}
	aliases := slices.Clone(d.Aliases)
	slices.SortStableFunc(aliases, func(a, b VSphereAlias) int {
		return cmp.Or(cmp.Compare(a.FromBuild, b.FromBuild), a.Means.Compare(b.Means))
	})
	for _, a := range aliases {
		if v.Version.IsZero() || !a.Reports.Equal(v.Version) {
			continue
		}
		if a.FromBuild > 0 && v.Build == 0 {
			return site{VCenter: v, effective: a.Means, assumed: true}
		}
		if a.FromBuild <= v.Build {
			out.effective = a.Means
		}
	}
	return out
}

// String returns "vCenter vc1 8.0.3", with the version of an alias.
func (s site) String() string {
	text := strings.TrimSpace("vCenter " + s.Name)
	if s.Version.IsZero() {
		return text + " of unknown version"
	}
	text += " " + s.Version.String()
	if s.effective.Equal(s.Version) {
		return text
	}
	return fmt.Sprintf("%s (taken for %s)", text, s.effective)
}

func (q *question) pin(d Driver) Version {
	if q.relaxed == RulePin {
		return Version{}
	}
	return q.pins[d]
}

func (q *question) disabled(d Driver) bool { return q.policy.Rules[d] == Disabled }

// provided reports whether the site has its own snapshot-controller.
func (q *question) provided() (why string, ok bool) {
	if strings.Contains(strings.ToLower(q.facts.Distribution), "openshift") {
		return "OpenShift has its own", true
	}
	if q.facts.SnapshotsServed {
		return "another one runs in the cluster", true
	}
	return "it is disabled", q.disabled(SnapshotController)
}

// asked returns the drivers to choose by themselves, in installation order.
func (q *question) asked() []Driver {
	var out []Driver
	for _, d := range Drivers() {
		_, ruled := q.policy.Rules[d]
		wanted := !q.disabled(d)
		if d == CNI || d == SnapshotController {
			wanted = wanted && (ruled || !q.pins[d].IsZero())
		}
		if d == SnapshotController {
			_, own := q.provided()
			wanted = wanted && !own && q.disabled(CSI)
		}
		if wanted {
			out = append(out, d)
		}
	}
	return out
}

// fitting returns the releases of a driver that fit, best first, and the rejections of the others.
func (q *question) fitting(d Driver) (fit []Release, rejected []Rejection) {
	if _, listed := q.find(d, q.pin(d)); !listed && !q.pin(d).IsZero() {
		rejected = append(rejected, Rejection{ReleaseID{d, q.pin(d)}, RuleUnlisted, "is pinned, and the matrix does not list it"})
	}
	for _, r := range q.releases {
		if r.Driver != d {
			continue
		}
		if why, no := q.reject(r); no {
			rejected = append(rejected, why)
		} else {
			fit = append(fit, r)
		}
	}
	slices.SortStableFunc(fit, q.better)
	return fit, rejected
}

func (q *question) find(d Driver, v Version) (Release, bool) {
	return find(q.releases, ReleaseID{d, v})
}

// better orders releases of one driver, the best first.
func (q *question) better(a, b Release) int {
	return cmp.Or(cmp.Compare(q.rank(a), q.rank(b)), b.Version.Compare(a.Version))
}

// rank returns the rank of a release before its version; less is better.
func (q *question) rank(r Release) int {
	switch {
	case r.State == Deprecated:
		return 2
	case r.State != LTS && q.policy.Rules[r.Driver] == PreferLT:
		return 1
	}
	return 0
}

func (q *question) selection(chosen map[Driver]pick) Selection {
	s := Selection{Warnings: q.warnings(chosen)}
	for _, d := range Drivers() {
		if p, ok := chosen[d]; ok {
			s.Choices = append(s.Choices, Choice{Release: p.release, Reasons: q.reasons(p)})
		}
	}
	return s
}

// reasons returns the reasons of a choice, the choice among the fitting ones first.
func (q *question) reasons(p pick) []string {
	r := p.release
	reasons := []string{
		p.why,
		fmt.Sprintf("Kubernetes %s is in the range %s%s", q.minor, r.Kubernetes, from(r.Kubernetes.Basis, r.Kubernetes.Derived)),
	}
	for _, s := range q.sites {
		if !r.VSphere.Min.IsZero() || !r.VSphere.Max.IsZero() {
			reasons = append(reasons, fmt.Sprintf("%s is in the range %s%s", s, r.VSphere, from(r.VSphere.Basis, r.VSphere.Derived)))
		}
	}
	return reasons
}

func from(basis string, derived bool) string {
	switch {
	case basis == "" && !derived:
		return ""
	case derived:
		basis = strings.TrimSuffix("derived; "+basis, "; ")
	}
	return " [" + basis + "]"
}

// Choice returns the choice of a driver, if it exists.
func (s Selection) Choice(d Driver) (Choice, bool) {
	i := slices.IndexFunc(s.Choices, func(c Choice) bool { return c.Release.Driver == d })
	if i < 0 {
		return Choice{}, false
	}
	return s.Choices[i], true
}

// choose returns the best release of a driver whose requirements are met.
func (q *question) choose(d Driver) (pick, bool) {
	fit, _ := q.fitting(d)
	for i, r := range fit {
		if p, lack := q.equip(r); lack == nil {
			p.why = q.why(r, fit[i:])
			return p, true
		}
	}
	return pick{}, false
}

// why returns why r is the best of the sorted fit, which starts with it.
func (q *question) why(r Release, fit []Release) string {
	lts := q.policy.Rules[r.Driver] == PreferLT
	of := len(slices.DeleteFunc(slices.Clone(fit), func(other Release) bool { return q.rank(other) != q.rank(r) }))
	switch {
	case !q.pin(r.Driver).IsZero():
		return "is pinned"
	case len(fit) == 1:
		return "is the only release that fits"
	case lts && r.State == LTS:
		return fmt.Sprintf("is the newest lts release of the %d that fit", len(fit))
	case of == 1:
		return "is the only release that fits and is not deprecated"
	case lts:
		return fmt.Sprintf("is the newest of the %d releases that fit, none of which is lts", of)
	}
	return fmt.Sprintf("is the newest of the %d releases that fit", of)
}

// lack is an unmet requirement with the reason.
type lack struct {
	need Requirement
	why  string
}

func (l lack) String() string { return fmt.Sprintf("needs %s: %s", l.need, l.why) }

// equip returns a release with its requirements, or the unmet one.
func (q *question) equip(r Release) (p pick, lacking *lack) {
	p = pick{release: r, needs: map[Driver]Release{}}
	for _, need := range r.Requires {
		if _, own := q.provided(); own && need.Driver == SnapshotController {
			p.waived = append(p.waived, need)
			continue
		}
		found, why := q.supply(need)
		switch {
		case why == "":
			p.needs[need.Driver] = found
		case need.Optional:
			p.unmet = append(p.unmet, need)
		default:
			return pick{}, &lack{need, why}
		}
	}
	return p, nil
}

// supply returns the best release that meets a requirement, or why none does.
func (q *question) supply(need Requirement) (Release, string) {
	if q.disabled(need.Driver) {
		return Release{}, "it is disabled"
	}
	fit, rejected := q.fitting(need.Driver)
	for _, r := range fit {
		if need.Version.IsZero() || r.Version.Equal(need.Version) {
			return r, ""
		}
	}
	for _, no := range rejected {
		if no.Release.Version.Equal(need.Version) {
			return Release{}, no.Detail
		}
	}
	if !need.Version.IsZero() {
		return Release{}, "the matrix does not list it"
	}
	return Release{}, "none fits"
}

// complete adds the requirements of the choices: an exact version replaces a free choice.
func (q *question) complete(chosen map[Driver]pick) {
	csi, ok := chosen[CSI]
	if !ok {
		return
	}
	for d, r := range csi.needs {
		if current, exists := chosen[d]; exists && (current.release.Version.Equal(r.Version) || !exact(csi.release, d)) {
			continue
		}
		chosen[d] = pick{release: r, why: fmt.Sprintf("is what %s requires", csi.release.ReleaseID)}
	}
}

func exact(r Release, d Driver) bool {
	return slices.ContainsFunc(r.Requires, func(n Requirement) bool { return n.Driver == d && !n.Version.IsZero() })
}

// reject returns why a release may not be chosen, except for its requirements.
func (q *question) reject(r Release) (Rejection, bool) {
	for _, rule := range []struct {
		name   RejectionRule
		detail func(Release) string
	}{
		{RulePin, q.notPinned},
		{RuleWithdrawn, withdrawn},
		{RulePrerelease, q.prerelease},
		{RuleKubernetes, q.wrongKubernetes},
		{RuleVSphere, q.wrongVSphere},
		{RuleBundle, q.missing},
		{RuleRefused, q.refused},
	} {
		if rule.name == q.relaxed {
			continue
		}
		if detail := rule.detail(r); detail != "" {
			return Rejection{r.ReleaseID, rule.name, detail}, true
		}
	}
	return Rejection{}, false
}

func (q *question) notPinned(r Release) string {
	if pin := q.pin(r.Driver); !pin.IsZero() && !pin.Equal(r.Version) {
		return fmt.Sprintf("%s is pinned", pin)
	}
	return ""
}

func withdrawn(r Release) string {
	if r.State != Withdrawn {
		return ""
	}
	return cmp.Or(r.Reason, "no reason is given")
}

func (q *question) prerelease(r Release) string {
	if r.Version.IsPrerelease() && q.pin(r.Driver).IsZero() {
		return "is a pre-release, chosen only by a pin"
	}
	return ""
}

func (q *question) wrongKubernetes(r Release) string {
	switch {
	case q.minor.IsZero():
		return "the Kubernetes version is not known"
	case r.Driver == CPI && r.Version.Minor() != q.minor:
		return fmt.Sprintf("a cpi serves its own minor, not %s", q.minor)
	case !r.Kubernetes.Contains(q.minor):
		return fmt.Sprintf("serves %s, not %s", r.Kubernetes, q.minor)
	}
	return ""
}

func (q *question) wrongVSphere(r Release) string {
	if r.VSphere.Min.IsZero() && r.VSphere.Max.IsZero() {
		return ""
	}
	var out []string
	for _, s := range q.sites {
		if s.effective.IsZero() || !r.VSphere.Contains(s.effective) {
			out = append(out, s.String())
		}
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("needs vSphere %s, not %s", r.VSphere, strings.Join(out, ", "))
}

func (q *question) missing(r Release) string {
	if q.available != nil && !q.available[r.ReleaseID.String()] {
		return "the bundle does not hold it"
	}
	return ""
}

func (q *question) refused(r Release) string { return q.policy.Refused[r.ReleaseID.String()] }
