package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// changed is what a command that changes resources prints.
type changed struct {
	Object  string   `json:"object,omitempty"`
	Changes []string `json:"changes"` // field: value; none where all is as asked already
	DryRun  bool     `json:"dryRun,omitempty"`
	Message string   `json:"message"`
	Undo    []string `json:"undo,omitempty"` // commands that take the changes of all out again
	// AppliedBy is the GitOps tool that applies the object, and may undo the changes.
	AppliedBy string `json:"appliedBy,omitempty"`
}

type approveOptions struct {
	*app
	outputFlags

	by        string
	downgrade bool
	dryRun    bool
}

func newUpgradeApproveCommand(a *app) *cobra.Command {
	o := &approveOptions{app: a}
	cmd := &cobra.Command{
		Use: "approve REVISION", Short: "Consent to the upgrade that waits, by the name of its revision",
		Long: `Consents to one upgrade: the revision that ` + "`vdoctl upgrade list`" + ` shows as waiting. Another
one that is chosen later waits again. Your name, as the API server knows you, is kept with
the revision. A revision that failed is tried once more.`,
		Example: "  vdoctl upgrade approve r-3fa9c1d2e4f5061728394a5b6c7d8e9f\n  vdoctl upgrade approve r-51b0d7ce00112233445566778899aabb --allow-downgrade",
		Args:    flags.Exactly("REVISION"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&o.by, "by", "", "`NAME` of who consents (default: as the API server knows you; from Kubernetes 1.28 on)")
	cmd.Flags().BoolVar(&o.downgrade, "allow-downgrade", false, "consent to releases that are older than what runs, too")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "have the API server check it, and change nothing")
	o.outputFlags.bind(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return o.waiting(cmd.Context(), args), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// waiting is the name to complete.
func (o *approveOptions) waiting(ctx context.Context, args []string) []string {
	c, err := o.cluster.client()
	if err != nil || len(args) > 0 {
		return nil
	}
	config, err := theConfig(ctx, c, o.cluster.namespace)
	if err != nil || config.Status.Candidate == nil {
		return nil
	}
	return []string{config.Status.Candidate.Name}
}

func (o *approveOptions) run(ctx context.Context, name string) error {
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	by, err := o.who(ctx)
	if err != nil {
		return err
	}
	var out changed
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error { // it is decided on anew
		out, err = o.approve(ctx, c, name, by)
		return err
	})
	if err != nil {
		return err
	}
	return o.print(o.out, out, out.text)
}

// who is the user that consents.
func (o *approveOptions) who(ctx context.Context) (string, error) {
	if o.by != "" {
		return o.by, nil
	}
	cfg, err := o.cluster.config()
	if err != nil {
		return "", err
	}
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", clusterFault("reach the cluster", err)
	}
	review, err := k.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		f := clusterFault("ask the API server for your name", err)
		if fault.ReasonOf(f) == fault.NotFound || fault.ReasonOf(f) == fault.Forbidden {
			return "", &fault.Error{Reason: fault.ReasonOf(f), Op: "ask the API server for your name", Err: err, Hint: "give it with --by"}
		}
		return "", f
	}
	return review.Status.UserInfo.Username, nil
}

// approve writes the consent, where it is not there yet.
func (o *approveOptions) approve(ctx context.Context, c client.Client, name, by string) (changed, error) {
	config, err := theConfig(ctx, c, o.cluster.namespace)
	if err != nil {
		return changed{}, err
	}
	out := changed{Object: "VDOConfig " + config.Name, Changes: []string{}, DryRun: o.dryRun}
	if config.Status.Revision == name && (config.Status.Candidate == nil || config.Status.Candidate.Name != name) {
		out.Message = name + " is in force already"
		return out, nil
	}
	before := config.DeepCopy()
	if out.Changes, err = o.consentTo(config, name, by); err != nil {
		return out, err
	}
	if len(out.Changes) == 0 {
		out.Message = "the consent to " + name + " is there already; " + toDoAfter(config.Status.Candidate)
		return out, nil
	}
	if err := c.Patch(ctx, config, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), dryRunPatch(o.dryRun)...); err != nil {
		return out, unlessConflict("consent to "+name, err)
	}
	out.Message = "watch it with `vdoctl status --watch`"
	return out, nil
}

// unlessConflict leaves a conflict as it is, for who tries again.
func unlessConflict(op string, err error) error {
	if isConflict(err) {
		return err
	}
	return clusterFault(op, err)
}

func toDoAfter(c *v1alpha1.CandidateStatus) string {
	if c == nil {
		return "nothing waits"
	}
	return "it waits for: " + c.Message
}

// consentTo changes the spec so that the candidate may proceed, as far as somebody's
// consent decides, and says what it changed.
func (o *approveOptions) consentTo(config *v1alpha1.VDOConfig, name, by string) ([]string, error) {
	waiting := config.Status.Candidate
	if waiting == nil || waiting.Name != name {
		return nil, notWaiting(config, name)
	}
	policy := config.Spec.UpgradePolicy
	if policy == nil {
		policy = &v1alpha1.UpgradePolicy{}
	}
	lower := lowerReleases(config, waiting)
	if len(lower) > 0 && !o.downgrade {
		return nil, &fault.Error{Reason: fault.Refused, Op: "consent to", Subject: name, Err: fmt.Errorf("%s: older than what runs", strings.Join(lower, ", ")),
			Hint: "read what the release notes say of going back, then add --allow-downgrade"}
	}
	done := allowDowngrade(policy, lower)
	// Under Automatic, and for who set that by the matrix's ConfigMap, it would have no effect.
	if waiting.Reason != "WindowClosed" && waiting.Reason != "Interlocked" && (policy.Approval == nil || policy.Approval.Revision != name) {
		policy.Approval = &v1alpha1.UpgradeApproval{Revision: name, By: by}
		done = append(done, "spec.upgradePolicy.approval: "+name+" by "+by)
	}
	if waiting.Reason == "Failed" {
		wish := name + " " + time.Now().UTC().Format(time.RFC3339) // it is tried once for each value
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, v1alpha1.AnnotationRetry, wish)
		done = append(done, v1alpha1.AnnotationRetry+": "+wish)
	}
	if len(done) > 0 {
		config.Spec.UpgradePolicy = policy
	}
	return done, nil
}

// allowDowngrade consents to older releases, and says to which it had not been consented.
func allowDowngrade(policy *v1alpha1.UpgradePolicy, releases []string) (done []string) {
	for _, id := range releases {
		if !slices.Contains(policy.AllowDowngrade, id) {
			policy.AllowDowngrade = append(policy.AllowDowngrade, id)
			done = append(done, "spec.upgradePolicy.allowDowngrade: "+id)
		}
	}
	return done
}

func notWaiting(config *v1alpha1.VDOConfig, name string) error {
	f := &fault.Error{Reason: fault.Conflict, Op: "consent to", Subject: name, Err: errors.New("no upgrade waits"), Hint: "see `vdoctl upgrade list`"}
	if w := config.Status.Candidate; w != nil {
		f.Err = fmt.Errorf("it is %s that waits, with %s", w.Name, w.Releases)
	}
	if config.Status.ObservedGeneration < config.Generation {
		f.Hint = "the operator has not seen the VDOConfig as it is now: wait, then see `vdoctl upgrade list`"
	}
	return f
}

// lowerReleases are those of a candidate that are older than what runs.
func lowerReleases(config *v1alpha1.VDOConfig, c *v1alpha1.CandidateStatus) []string {
	return lowerThanRunning(config, splitReleases(c.Releases))
}

// splitReleases parts "cpi@1.33.1, csi@3.5.1".
func splitReleases(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func lowerThanRunning(config *v1alpha1.VDOConfig, releases []string) []string {
	running := map[string]string{}
	for _, d := range config.Status.Drivers {
		running[d.Driver] = d.Version
	}
	var out []string
	for _, id := range releases {
		driver, version, _ := strings.Cut(id, "@")
		to, err := matrix.ParseVersion(version)
		from, errFrom := matrix.ParseVersion(running[driver])
		if err == nil && errFrom == nil && to.LessThan(from) {
			out = append(out, id)
		}
	}
	return out
}

func (r changed) text(w io.Writer) error {
	l := &lines{w: w}
	for _, c := range r.Changes {
		l.printf("%s: %s", r.Object, c)
	}
	if r.DryRun && len(r.Changes) > 0 {
		l.printf("Nothing was changed: --dry-run.")
	} else if r.Message != "" {
		l.printf("%s", r.Message)
	}
	for _, line := range r.Undo {
		l.command("  " + line)
	}
	return l.err
}
