package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Facts are what is known of a site.
type Facts struct {
	Kubernetes   Version   // API server
	VCenters     []VCenter // none: vSphere ranges are not checked, and a warning says so
	Distribution string    // "" or a name such as openshift, as the site's VDOConfig gives it
	Installed    map[Driver]Version
}

// VCenter is one vCenter and the version that it reports.
type VCenter struct {
	Name    string  `json:"name,omitempty"`
	Version Version `json:"version"`         // api version, such as 8.0.3
	Build   uint64  `json:"build,omitempty"` // 0: not known
}

// Rule says how a version is chosen among those that fit.
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
	// Rules say how each driver is chosen. Without one, CPI and CSI follow latest,
	// CNI is not asked for unless it is pinned, and the snapshot-controller
	// follows from the CSI release. Words that are no rule mean latest.
	Rules map[Driver]Rule
	// Refused says why releases may not be chosen, by ReleaseID.String().
	Refused map[string]string
}

// Available is what a bundle holds; nil stands for everything that the document lists.
type Available map[string]bool // key: ReleaseID.String()

// Selection is what Resolve chose, in order of installation.
type Selection struct {
	Choices  []Choice
	Warnings []Warning // sorted by driver, version and code
}

// Choice is one chosen release and why it was chosen.
type Choice struct {
	Release Release
	Reasons []string
}

// Warning is something that a person should know of a selection.
type Warning struct {
	Code    WarningCode
	Release ReleaseID // what it is about; the version may be zero
	Text    string    // a sentence without full stop
}

// String returns the text.
func (w Warning) String() string { return w.Text }

// WarningCode tells warnings apart, for machines.
type WarningCode string

// The warnings.
const (
	WarnInstalledWithdrawn WarningCode = "InstalledWithdrawn" // a withdrawn release runs
	WarnInstalledUnknown   WarningCode = "InstalledUnknown"   // a release runs that the matrix does not list
	WarnInstalledUnfit     WarningCode = "InstalledUnfit"     // a release runs outside its ranges
	WarnDowngrade          WarningCode = "Downgrade"          // the choice is older than what runs
	WarnDeprecated         WarningCode = "Deprecated"         // the choice is deprecated
	WarnDerived            WarningCode = "Derived"            // the choice rests on a range that upstream does not state
	WarnPrerelease         WarningCode = "Prerelease"         // the choice is a pre-release
	WarnVSphereUnchecked   WarningCode = "VSphereUnchecked"   // no vCenter was given
	WarnVSphereAssumed     WarningCode = "VSphereAssumed"     // an alias was believed without a build number
	WarnRequirementWaived  WarningCode = "RequirementWaived"  // the site has to provide what a choice requires
	WarnRequirementUnmet   WarningCode = "RequirementUnmet"   // something recommended is not chosen
	WarnPinUnused          WarningCode = "PinUnused"          // a pin of a driver that is not asked for
)

// Rejection is a release that was not chosen and the rule that refused it.
type Rejection struct {
	Release ReleaseID
	Rule    RejectionRule
	Detail  string
}

// RejectionRule names the rule that refused a release.
type RejectionRule string

// The rules of rejection, in the order in which they are applied.
const (
	RuleUnlisted   RejectionRule = "unlisted"      // a pin names a release that the matrix does not list
	RulePin        RejectionRule = "pin"           // another version is pinned
	RuleWithdrawn  RejectionRule = "withdrawn"     // never chosen
	RulePrerelease RejectionRule = "prerelease"    // chosen only by a pin
	RuleKubernetes RejectionRule = "kubernetes"    // not for this Kubernetes
	RuleVSphere    RejectionRule = "vsphere"       // not for every vCenter
	RuleBundle     RejectionRule = "not-in-bundle" // not available
	RuleRefused    RejectionRule = "refused"       // the policy refuses it
	RuleRequires   RejectionRule = "requires"      // what it requires cannot be had
)

// Resolve chooses one release of every driver that is asked for, or refuses. It is
// pure and total: the same question has the same answer, whatever the order of the
// document's releases, and every question has one.
//
// A release fits when all of these hold; the first that does not is its rejection:
//
//   - where its driver is pinned, it is the pinned version (pin);
//   - it is not withdrawn (withdrawn), and a pre-release only where pinned (prerelease);
//   - the Kubernetes minor is in its range, and for a CPI is the release's own minor (kubernetes);
//   - every vCenter, known aliases taken into account, is in its range (vsphere);
//   - the bundle holds it (not-in-bundle);
//   - the policy does not refuse it (refused);
//   - what it requires fits too (requires).
//
// Among those that fit, deprecated ones come last, under [PreferLT] lts ones first, and the
// newest is chosen.
//
// The snapshot-controller follows from the CSI release, which qualifies one version
// of it. The site provides its own where policy disables it, and on OpenShift, which
// has one: the requirement is then waived with a warning. It is chosen by itself only
// where it has a rule or a pin and CSI is disabled. A CPI that a CSI release requires
// cannot be waived; one that it recommends can.
//
// With a refusal the selection has no choices, only warnings of what is installed.
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

// question is everything that Resolve was asked, prepared.
type question struct {
	facts     Facts
	minor     Minor
	sites     []site
	pins      Pins
	policy    Policy
	available Available
	releases  []Release     // in order
	relaxed   RejectionRule // a rule that is not applied, to see what it costs
}

// site is a vCenter and the version that counts.
type site struct {
	VCenter
	effective Version
	assumed   bool // by an alias whose build could not be checked
}

// pick is a chosen release and how it came to be chosen.
type pick struct {
	release Release
	why     string
	needs   map[Driver]Release // what it requires, as chosen with it
	waived  []Requirement      // what the site has to provide
	unmet   []Requirement      // what it recommends and is not chosen
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

// site applies the document's aliases: the one of the highest build that the vCenter
// has reached or, where its build is not known, the one of the lowest.
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

// String returns "vCenter vc1 8.0.3", and what an alias makes of it.
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

// provided tells whether the site has its own snapshot-controller.
func (q *question) provided() (why string, ok bool) {
	if strings.Contains(strings.ToLower(q.facts.Distribution), "openshift") {
		return "OpenShift has its own", true
	}
	return "it is disabled", q.disabled(SnapshotController)
}

// asked returns the drivers to choose for their own sake, in order of installation.
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

// fitting returns the releases of a driver that fit, best first, and the rejections
// of the others.
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

// rank is how good a release is before its version counts; less is better.
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

// reasons says why a choice was made, the choice between those that fit first.
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

// Choice returns the choice of a driver, if there is one.
func (s Selection) Choice(d Driver) (Choice, bool) {
	i := slices.IndexFunc(s.Choices, func(c Choice) bool { return c.Release.Driver == d })
	if i < 0 {
		return Choice{}, false
	}
	return s.Choices[i], true
}
