package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preview"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

type revisionList struct {
	Mode      string                    `json:"mode"` // Automatic or Manual
	Revisions []v1alpha1.RevisionStatus `json:"revisions"`
	Candidate *candidate                `json:"candidate,omitempty"`
	HeldBack  string                    `json:"heldBack,omitempty"` // why nothing starts, whatever is approved
}

func (r revisionList) objects() (out []string) {
	for _, x := range r.Revisions {
		out = append(out, "Revision "+x.Name)
	}
	if r.Candidate != nil {
		out = append(out, "Revision "+r.Candidate.Name)
	}
	return out
}

type candidate struct {
	v1alpha1.CandidateStatus

	ToDo string `json:"toDo"`
}

func newUpgradeListCommand(a *app) *cobra.Command {
	cmd := runs(a.listUpgrades, &cobra.Command{
		Use: "list", Short: "List installed revisions and the waiting upgrade",
		Long: `Lists the revisions of the drivers, newest first, with outcome and approval. It also shows the
waiting upgrade, why it waits, and what to do.`,
		Example: "  vdoctl upgrade list\n  vdoctl upgrade list -o json | jq .candidate.name",
	})
	a.bindFormat(cmd, nameFormat)
	return cmd
}

func (a *app) listUpgrades(ctx context.Context) error {
	_, config, err := a.theConfig(ctx)
	if err != nil {
		return err
	}
	mode := string(cmp.Or(config.Spec.Upgrade, v1alpha1.UpgradeAutomatic))
	r := revisionList{Mode: mode, Candidate: candidateOf(config), HeldBack: heldBack(config)}
	r.Revisions = append([]v1alpha1.RevisionStatus{}, config.Status.Revisions...)
	slices.Reverse(r.Revisions)
	return a.print(r, func(l *lines) { a.revisions(l, r) })
}

func candidateOf(config *v1alpha1.VDOConfig) *candidate {
	c := config.Status.Candidate
	if c == nil {
		return nil
	}
	until := ptr.Deref(c.NotBefore, metav1.Time{}).Time
	return &candidate{*c, decide.Reason(c.Reason).ToDo(until, c.Name)}
}

func when(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

func (a *app) revisions(l *lines, r revisionList) {
	t := command.NewTable("REVISION", "RELEASES", "OUTCOME", "SINCE", "APPROVED BY", "BUNDLE")
	for _, x := range r.Revisions {
		name := x.Name
		if x.Current {
			name += " *"
		}
		t.Row(name, x.Releases, x.Outcome, when(x.Since), dash(x.ApprovedBy), shortBundle(x.Bundle))
	}
	if len(r.Revisions) == 0 {
		l.printf("No revision is on record.")
	} else {
		l.table(t)
		l.printf("* current")
	}
	for _, x := range r.Revisions {
		l.block(x.Name+" "+x.Outcome, x.Reason)
	}
	r.Candidate.text(l)
	if r.HeldBack != "" {
		l.block("upgrades are blocked", r.HeldBack)
	}
}

// heldBack returns what stops upgrades of any revision, "" for nothing.
func heldBack(config *v1alpha1.VDOConfig) string {
	c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionResolved)
	switch {
	case config.Spec.Suspend:
		return "spec.suspend is set"
	case config.Spec.DryRun:
		return "spec.dryRun is set"
	case config.Status.Candidate == nil && c != nil && c.Status == metav1.ConditionFalse:
		return c.Message
	}
	return ""
}

func (c *candidate) text(l *lines) {
	if c == nil {
		return
	}
	l.printf("\nupgrade waits %s (%s)", c.Name, c.Reason)
	l.block("releases", c.Releases)
	l.block("why", c.Message)
	for _, g := range c.Gates {
		if g.Reason != c.Reason {
			l.block("why "+g.Driver, g.Message)
		}
	}
	l.block("do", c.ToDo)
}

func (s driverStatus) says() string {
	if s.Pinned == "" {
		return s.Message
	}
	return strings.TrimSuffix("pinned to "+s.Pinned+" by spec.drivers; "+s.Message, "; ")
}

// block prints a text after its label, folded, with an indent for further lines.
func (l *lines) block(label, text string) {
	indent := label[:len(label)-len(strings.TrimLeft(label, " "))]
	l.prose("  "+label+": ", "    "+indent, text)
}

// shortBundle returns REPOSITORY@DIGEST with a shortened digest.
func shortBundle(s string) string {
	at := strings.Index(s, "@sha256:")
	if at < 0 {
		return s
	}
	return s[:min(len(s), at+len("@sha256:")+12)]
}

type approveOptions struct {
	*app

	downgrade bool
	dryRun    bool
}

func newUpgradeApproveCommand(a *app) *cobra.Command {
	o := &approveOptions{app: a}
	cmd := &cobra.Command{
		Use: "approve REVISION", Short: "Approve the waiting upgrade by its revision",
		Long: `Approves one upgrade: the revision that ` + "`vdoctl upgrade list`" + ` shows as waiting. A later one
waits again. The revision records your name at the API server. A failed revision is tried once
more. --allow-downgrade adds older releases to spec.upgradePolicy.allowDowngrade. They stay there
until you remove them, or approve another release of the same driver.`,
		Example: "  vdoctl upgrade approve r-3fa9c1d2e4f5061728394a5b6c7d8e9f\n  vdoctl upgrade approve r-51b0d7ce00112233445566778899aabb --allow-downgrade",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVar(&o.downgrade, "allow-downgrade", false, "approve releases that are older than what runs, too")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "have the API server check it, and change nothing")
	o.bindFormat(cmd)
	return cmd
}

func (o *approveOptions) run(ctx context.Context, name string) error {
	c, config, err := o.theConfig(ctx)
	if err != nil {
		return err
	}
	by, err := who(ctx, c)
	if err != nil {
		return err
	}
	p, w := config.Spec.UpgradePolicy, config.Status.Candidate
	waiting, message := "nothing waits", name+" is approved already"
	x := asRead(config)
	isApproved := w == nil && p != nil && p.Approval != nil && p.Approval.Revision == name
	if err = o.consentTo(config, name, by); err != nil && !isApproved {
		return err
	}
	if w != nil {
		waiting = "it waits for: " + w.Message
		if decide.Reason(w.Reason) == decide.NotApproved {
			waiting = "the operator has not seen that yet"
		}
		if config.Spec.Upgrade != v1alpha1.UpgradeManual {
			message = "no approval is needed"
		}
	}
	held := heldBack(config)
	if held != "" {
		waiting = "upgrades are blocked: " + held
	}
	out := x.report(o.dryRun)
	if out.Message = message + "; " + waiting; len(out.Changes) > 0 {
		out.Message = "watch it with `vdoctl status --watch`; each group of drivers has a revision of another name in `vdoctl upgrade list`"
		if held != "" {
			out.Message += "; " + waiting
		}
		if p := config.Spec.UpgradePolicy; o.downgrade && p != nil && len(p.AllowDowngrade) > 0 {
			out.Message += fmt.Sprintf(". %s may replace a newer release later too, until you remove the entry: "+
				"`kubectl -n %s patch vdoconfig %s --type merge -p '{\"spec\":{\"upgradePolicy\":{\"allowDowngrade\":null}}}'` once it runs",
				strings.Join(p.AllowDowngrade, ", "), config.Namespace, config.Name)
		}
		agreed := consentFlags{yes: true, dryRun: o.dryRun}
		if err := o.edit(ctx, c, agreed, "approve "+name, "", []edit{x}); err != nil {
			return err
		}
	}
	return o.print(out, out.text)
}

// who returns the approving user's name from the API server; before Kubernetes 1.28 this program's.
func who(ctx context.Context, c client.Client) (string, error) {
	var review authenticationv1.SelfSubjectReview
	switch err := c.Create(ctx, &review); {
	case isGone(err):
		return fieldManager, nil
	case err != nil:
		return "", clusterstate.Fault("ask the API server for your name", err)
	}
	return review.Status.UserInfo.Username, nil
}

// consentTo changes the spec so that the candidate may proceed, as far as an approval decides.
func (o *approveOptions) consentTo(config *v1alpha1.VDOConfig, name, by string) error {
	waiting := config.Status.Candidate
	isWaiting := waiting != nil && waiting.Name == name
	failed := slices.IndexFunc(config.Status.Revisions, func(r v1alpha1.RevisionStatus) bool {
		isOf := r.Name == name
		if isWaiting {
			isOf = isOf || !slices.ContainsFunc(splitList(r.Releases), func(id string) bool {
				return !slices.Contains(splitList(waiting.Releases), id)
			})
		}
		return isOf && r.Current && r.Outcome == string(revision.Failed)
	})
	retries := failed >= 0
	if retries || (isWaiting && decide.Reason(waiting.Reason) == decide.Failed) {
		wish := name + " " + time.Now().UTC().Format(time.RFC3339) // each new value causes one retry
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, v1alpha1.AnnotationRetry, wish)
		switch p := config.Spec.UpgradePolicy; {
		case p == nil || p.Approval == nil:
			consent(config, nil, "", name, by)
		case p.Approval.Revision == name,
			retries && p.Approval.Revision == approvalOf(config, config.Status.Revisions[failed]): // the whole bundle's
			p.Approval.By = by
		case isWaiting || waiting == nil: // else it may approve the revision that waits
			consent(config, nil, "", name, by)
		}
	}
	switch {
	case !isWaiting && retries:
		return nil
	case !isWaiting:
		return notWaiting(config, name)
	}
	older := downgrades(config, waiting.Releases)
	if len(older) > 0 && !o.downgrade {
		return &fault.Error{Reason: fault.Refused, Op: "approve", Subject: name,
			Err:  fmt.Errorf("%s: older than what runs", strings.Join(older, ", ")),
			Hint: "read what the release notes say of going back, then add --allow-downgrade"}
	}
	approves := name
	if !decide.Reason(waiting.Reason).Approvable() {
		approves = "" // no approval opens a window
	}
	consent(config, older, waiting.Releases, approves, by)
	return nil
}

// consent writes the approval of older releases and of a revision, "" for none, into the spec. Earlier entries that are
// no longer pinned, or that the approved releases replace, would let an older release in for ever.
func consent(config *v1alpha1.VDOConfig, older []string, releases, approves, by string) {
	policy := ptr.Deref(config.Spec.UpgradePolicy, v1alpha1.UpgradePolicy{})
	approved := revision.Revision{Releases: splitList(releases)}
	kept := slices.DeleteFunc(slices.Clone(policy.AllowDowngrade), func(id string) bool {
		driver, version, _ := strings.Cut(id, "@")
		now := approved.Version(matrix.Driver(driver))
		isReplaced := !now.IsZero() && now.String() != version
		isPinned := config.Spec.PolicyOf(driver).Version == version
		return slices.Contains(older, id) || isReplaced || len(older) > 0 && !isPinned
	})
	policy.AllowDowngrade = slices.Concat(kept, older)
	if approves != "" && (policy.Approval == nil || policy.Approval.Revision != approves) {
		policy.Approval = &v1alpha1.UpgradeApproval{Revision: approves, By: by}
	}
	if len(older) > 0 || approves != "" {
		config.Spec.UpgradePolicy = &policy
	}
}

func notWaiting(config *v1alpha1.VDOConfig, name string) error {
	f := &fault.Error{Reason: fault.Conflict, Op: "approve", Subject: name, Err: errors.New("no upgrade waits"), Hint: "see `vdoctl upgrade list`"}
	if held := heldBack(config); held != "" {
		f.Err = fmt.Errorf("no upgrade waits: %s", held)
	}
	if w := config.Status.Candidate; w != nil {
		f.Err = fmt.Errorf("it is %s that waits, with %s", w.Name, w.Releases)
	}
	if config.Status.ObservedGeneration < config.Generation {
		f.Hint = "the operator has not seen the last change of the VDOConfig: wait, then see `vdoctl upgrade list`"
	}
	return f
}

// downgrades returns the releases that are older than the running ones; nil if the spec allows them all.
func downgrades(config *v1alpha1.VDOConfig, releases string) (out []string) {
	running, needs := map[string]string{}, false
	for _, d := range config.Status.Drivers {
		running[d.Driver] = d.Version
	}
	allowed := config.Spec.UpgradePolicy
	for _, id := range splitList(releases) {
		driver, version, _ := strings.Cut(id, "@")
		to, err := matrix.ParseVersion(version)
		from, errFrom := matrix.ParseVersion(running[driver])
		if err == nil && errFrom == nil && to.LessThan(from) {
			out = append(out, id)
			needs = needs || allowed == nil || !slices.Contains(allowed.AllowDowngrade, id)
		}
	}
	if !needs {
		return nil
	}
	return out
}

type rollbackOptions struct {
	*app
	consentFlags
}

func newUpgradeRollbackCommand(a *app) *cobra.Command {
	o := &rollbackOptions{app: a}
	cmd := &cobra.Command{
		Use: "rollback [REVISION]", Short: "Go back to an earlier revision that was healthy",
		Long: `Goes back to the named revision, or to the last healthy one of the drivers that changed last,
from the same repository. It pins the releases in the VDOConfig, permits the older ones, and
points the DriverBundle at the bundle by its digest. Other drivers that were healthy with that
bundle go back too. If the mirror lacks the bundle, the operator uses its copy in the cluster.
A failed upgrade needs no command: the operator rolls back by itself.`,
		Example: "  vdoctl upgrade rollback --dry-run\n  vdoctl upgrade rollback r-9c41aa07f0c3b1d2a4e5968778695a4b --yes",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), strings.Join(args, "")) },
	}
	o.consentFlags.bind(cmd)
	o.bindFormat(cmd)
	return cmd
}

func (o *rollbackOptions) run(ctx context.Context, name string) error {
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	by, err := who(ctx, c)
	if err != nil {
		return err
	}
	to, both, err := o.plan(ctx, c, name, by)
	if err != nil {
		return err
	}
	edits := changing(slices.Clone(both)...)
	if len(edits) == 0 {
		none := both[0].report(false)
		none.Message = "all is set to go back to " + to.Name + " already: see `vdoctl status`"
		return o.show([]changed{none})
	}
	var out []changed
	for _, x := range edits {
		out = append(out, x.report(o.dryRun))
	}
	config := both[0].after.(*v1alpha1.VDOConfig) //nolint:forcetypeassert,errcheck // see plan
	if err := o.refuseUseless(ctx, config, to); err != nil {
		return err
	}
	question := fmt.Sprintf("Go back to %s (%s)%s?", to.Name, to.Releases, o.cluster.named())
	if err := o.edit(ctx, c, o.consentFlags, "go back to "+to.Name, question, edits); err != nil {
		return err
	}
	out[len(out)-1].Message = "Watch it with `vdoctl status --watch`. `vdoctl upgrade list` shows it as " +
		config.Spec.UpgradePolicy.Approval.Revision + " while it waits: the bundle with the releases of all drivers. " +
		"It stays pinned to these releases until you put the fields back."
	return o.show(out)
}

// refuseUseless refuses a bundle that the trust policy no longer accepts, since the operator would only repair, and
// releases that do not suit the cluster. It leaves other faults to the operator, which may use its copy of the bundle.
func (o *rollbackOptions) refuseUseless(
	ctx context.Context, config *v1alpha1.VDOConfig, to v1alpha1.RevisionStatus,
) error {
	as, err := o.previewing(ctx)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	short, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if _, _, err = as.Candidate(short, config, to.Bundle); fault.ReasonOf(err) == fault.Untrusted {
		return err
	}
	rev := revision.Revision{Bundle: to.Bundle, Releases: splitList(to.Releases)}
	if why, err := as.Unsuited(ctx, config, rev); err == nil && why != "" {
		return fault.Errorf(fault.Incompatible, "go back to", to.Name, "see `vdoctl upgrade list`", "%s", why)
	}
	return nil
}

func (o *rollbackOptions) show(out []changed) error {
	return o.print(out, func(l *lines) {
		for i, x := range out {
			x.DryRun = x.DryRun && i == len(out)-1 // printed once
			x.text(l)
		}
	})
}

// plan returns the revision for the rollback, with all its releases, and the VDOConfig and the DriverBundle, changed
// for it.
func (o *rollbackOptions) plan(
	ctx context.Context, c client.Client, name, by string,
) (to v1alpha1.RevisionStatus, both []edit, err error) {
	config, err := theConfig(ctx, c, o.cluster.namespace)
	if err != nil {
		return to, nil, err
	}
	bundle, err := preview.FindBundle(ctx, c, config)
	if err != nil {
		return to, nil, err
	}
	if to, err = revisionToGoBackTo(config, bundle.Status.Repository, name); err != nil {
		return to, nil, err
	}
	to = withOthers(config, to)
	both = []edit{asRead(config), asRead(bundle)}
	if bundle.Status.Repository+"@"+bundle.Status.Digest != to.Bundle || bundle.Spec.Versions != "" {
		if err = pointAt(bundle, to); err != nil {
			return to, nil, err
		}
	}
	pin(config, to, approvalOf(config, to), by)
	return to, both, nil
}

// withOthers adds to a revision the releases of other groups that were healthy with its bundle, and now come from
// another one.
func withOthers(config *v1alpha1.VDOConfig, to v1alpha1.RevisionStatus) v1alpha1.RevisionStatus {
	groups := []string{to.Group}
	for _, r := range config.Status.Revisions {
		if r.Current && r.Bundle == to.Bundle {
			groups = append(groups, r.Group)
		}
	}
	for _, r := range slices.Backward(config.Status.Revisions) {
		if r.Bundle == to.Bundle && r.Outcome == string(revision.Healthy) && !slices.Contains(groups, r.Group) {
			groups = append(groups, r.Group)
			to.Releases = r.Releases + ", " + to.Releases
		}
	}
	return to
}

// approvalOf returns the name of the candidate with a bundle, a revision's releases and the other drivers. Those may be
// left to others, such as OpenShift's snapshot-controller.
func approvalOf(config *v1alpha1.VDOConfig, to v1alpha1.RevisionStatus) string {
	pinned := revision.Revision{Releases: splitList(to.Releases)}
	rev := revision.Revision{Bundle: to.Bundle}
	for _, d := range config.Status.Drivers { // in order of installation
		pin := pinned.Version(matrix.Driver(d.Driver)).String()
		rev.Releases = append(rev.Releases, d.Driver+"@"+cmp.Or(pin, d.Version, d.Wanted))
	}
	return rev.Name()
}

// revisionToGoBackTo finds an earlier healthy revision. Without a name, it is the one that was healthy last, of the
// group of drivers that changed last, and from the given repository. Revisions are in the order of their first start.
func revisionToGoBackTo(config *v1alpha1.VDOConfig, repository, name string) (v1alpha1.RevisionStatus, error) {
	changed := map[string]time.Time{} // by group
	for _, r := range config.Status.Revisions {
		if r.Current {
			changed[r.Group] = r.Since.Time
		}
	}
	var healthy []string
	var last v1alpha1.RevisionStatus
	for _, r := range slices.Backward(config.Status.Revisions) {
		if r.Current || r.Outcome != string(revision.Healthy) {
			continue
		}
		if r.Name == name {
			return r, nil
		}
		healthy = append(healthy, r.Name)
		later := cmp.Or(changed[r.Group].Compare(changed[last.Group]), r.Since.Compare(last.Since.Time)) > 0
		if strings.HasPrefix(r.Bundle, repository+"@") && (last.Name == "" || later) {
			last = r
		}
	}
	if name == "" && last.Name != "" {
		return last, nil
	}
	why := "it is no earlier revision that was healthy; these are: " + strings.Join(healthy, ", ")
	switch {
	case len(healthy) == 0:
		why = "there is no earlier healthy revision"
	case name == "":
		why = "none is from the accepted bundle's repository, so name one of these: " + strings.Join(healthy, ", ")
	}
	return last, fault.Errorf(fault.NotFound, "go back to", cmp.Or(name, "an earlier one"),
		"see `vdoctl upgrade list`", "%s", why)
}

func pointAt(b *v1alpha1.DriverBundle, to v1alpha1.RevisionStatus) error {
	if b.Name == v1alpha1.LegacyMatrixName {
		return &fault.Error{Reason: fault.Refused, Op: "point at " + to.Bundle, Subject: "DriverBundle " + b.Name,
			Err:  errors.New("it follows the earlier operator's ConfigMap or CompatibilityConfig"),
			Hint: "push the bundle of that digest under the tag that it names, or go over to a DriverBundle of your own"}
	}
	_, digest, _ := strings.Cut(to.Bundle, "@")
	b.Spec.Reference, b.Spec.Versions, b.Spec.AcceptOlder = to.Bundle, "", digest
	return nil
}

// pin requests the releases of a revision in a VDOConfig, and approves them.
func pin(config *v1alpha1.VDOConfig, to v1alpha1.RevisionStatus, approves, by string) {
	for _, id := range splitList(to.Releases) {
		driver, version, _ := strings.Cut(id, "@")
		i := slices.IndexFunc(config.Spec.Drivers, func(p v1alpha1.DriverPolicy) bool { return p.Driver == driver })
		if i < 0 {
			i = len(config.Spec.Drivers)
			config.Spec.Drivers = append(config.Spec.Drivers, v1alpha1.DriverPolicy{Driver: driver})
		}
		config.Spec.Drivers[i].Version = version
	}
	consent(config, downgrades(config, to.Releases), to.Releases, approves, by)
}
