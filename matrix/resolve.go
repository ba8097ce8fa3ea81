package matrix

// Facts are what is known of a site.
type Facts struct {
	Kubernetes   Version   // API server
	VCenters     []VCenter // none: vSphere ranges are not checked, and a warning says so
	Distribution string    // "" or a name such as openshift, as the site's VDOConfig gives it
	Installed    map[Driver]Version
}

// VCenter is one vCenter and the version that it reports.
type VCenter struct {
	Name    string
	Version Version // api version, such as 8.0.3
	Build   uint64  // 0: not known
}

// Rule says how a version is chosen among those that fit.
type Rule string

// The rules.
const (
	Latest   Rule = "latest"
	PreferLT Rule = "lts"
	Disabled Rule = "disabled"
)

// Pins fix versions.
type Pins map[Driver]Version

// Policy says how to choose.
type Policy struct {
	Rules         map[Driver]Rule // default: latest; disabled for CNI
	KeepInstalled bool            // stay on what is installed while it fits
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
	RuleRequires   RejectionRule = "requires"      // what it requires cannot be had
)

// Refusal is the error of Resolve.
type Refusal struct {
	Facts      Facts
	Drivers    []Driver // that nothing fits, in order of installation
	Rejections []Rejection
}

// Resolve chooses releases.
func Resolve(doc *Document, facts Facts, pins Pins, policy Policy, available Available) (Selection, *Refusal) {
	panic("not written")
}

// Error returns the refusal on one line.
func (r *Refusal) Error() string { panic("not written") }
