package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

type rollbackOptions struct {
	*app
	outputFlags
	consentFlags

	by string
}

func newUpgradeRollbackCommand(a *app) *cobra.Command {
	o := &rollbackOptions{app: a}
	cmd := &cobra.Command{
		Use: "rollback [REVISION]", Short: "Go back to an earlier revision that was healthy",
		Long: `Goes back to an earlier revision that was healthy: the one named, or the last one. It
pins the releases of that revision in the VDOConfig, consents to what is older than what
runs, and, where the revision is of another bundle, points the DriverBundle at that one by
its digest. The operator does the rest; it refuses what a release says cannot be gone back
from. Where the mirror does not answer or has that bundle no more, it takes the copy in
the cluster, if the trust policy of now accepts it; nodes that do not have its images need
the mirror for these. An upgrade that fails needs none of this: the operator goes back by
itself, unless spec.upgradePolicy.rollback is Never.`,
		Example: "  vdoctl upgrade rollback --dry-run\n  vdoctl upgrade rollback r-9c41aa07f0c3b1d2a4e5968778695a4b --yes",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return flags.Usage(cmd, fmt.Sprintf("unexpected argument %q", args[1]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), strings.Join(args, ""))
		},
	}
	cmd.Flags().StringVar(&o.by, "by", "", "`NAME` of who consents (default: as the API server knows you)")
	o.consentFlags.bind(cmd)
	o.outputFlags.bind(cmd)
	return cmd
}

// wayBack is what is changed to go back.
type wayBack struct {
	to            v1alpha1.RevisionStatus
	config        *v1alpha1.VDOConfig
	bundle        *v1alpha1.DriverBundle // nil where it stays as it is
	configChanges []string
	bundleChanges []string
	before        *v1alpha1.VDOConfig
	bundle0       *v1alpha1.DriverBundle
}

func (o *rollbackOptions) run(ctx context.Context, name string) error {
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	who := approveOptions{app: o.app, by: o.by}
	by, err := who.who(ctx)
	if err != nil {
		return err
	}
	w, err := o.plan(ctx, c, name, by)
	if err != nil {
		return err
	}
	out := w.changes(o.dryRun)
	if len(out) == 0 {
		out = append(out, changed{Object: "VDOConfig " + w.config.Name, Changes: []string{}, Message: "all is set to go back to " + w.to.Name + " already: see `vdoctl status`"})
		return o.show(out)
	}
	o.warn(out)
	if !o.dryRun {
		if err := o.askFirst(ctx, w, out); err != nil {
			return err
		}
	}
	undo, err := o.undo(w)
	if err != nil {
		return err
	}
	if err := o.applyAgreed(ctx, c, w, by); err != nil {
		return err
	}
	if last := &out[len(out)-1]; !o.dryRun {
		last.Message, last.Undo = "watch it with `vdoctl status --watch`. "+forward(w.config), undo
	}
	return o.show(out)
}

// forward says what the commands that follow are for.
func forward(config *v1alpha1.VDOConfig) string {
	text := "It stays pinned to these releases. To go forward again, take that out:"
	if config.Spec.Upgrade == v1alpha1.UpgradeManual {
		text = "It stays pinned to these releases. To go forward again, take that out, and consent to what `vdoctl upgrade list` then shows:"
	}
	return text
}

// undo are commands that take the changes out again, as far as they are no consent: that is given
// anew. The DriverBundle is first, so that nothing else is chosen from the one that was gone back to.
func (o *rollbackOptions) undo(w *wayBack) ([]string, error) {
	var out []string
	patch := func(kind string, now, then client.Object) error {
		data, err := client.MergeFrom(now).Data(then)
		if err != nil {
			return err
		}
		out = append(out, fault.Quote(append(o.cluster.kubectl(), "patch", kind, now.GetName(), "--type=merge", "-p", string(data))...))
		return nil
	}
	if len(w.bundleChanges) > 0 {
		if err := patch("driverbundle", w.bundle, w.bundle0); err != nil {
			return nil, err
		}
	}
	if len(w.configChanges) > 0 {
		then := w.before.DeepCopy()
		if then.Spec.UpgradePolicy != nil {
			then.Spec.UpgradePolicy.Approval = nil
		}
		return out, patch("vdoconfig", w.config, then)
	}
	return out, nil
}

// changes are those of each resource that is changed.
func (w *wayBack) changes(dryRun bool) []changed {
	var out []changed
	if len(w.configChanges) > 0 {
		x := changed{Object: "VDOConfig " + w.config.Name, Changes: w.configChanges, DryRun: dryRun}
		x.AppliedBy = plan.AppliedBy(w.config)
		out = append(out, x)
	}
	if len(w.bundleChanges) > 0 {
		x := changed{Object: "DriverBundle " + w.bundle.Name, Changes: w.bundleChanges, DryRun: dryRun}
		x.AppliedBy = plan.AppliedBy(w.bundle)
		out = append(out, x)
	}
	return out
}

// warn names the GitOps tools that may undo the changes, and what to commit for them instead.
func (o *rollbackOptions) warn(out []changed) {
	l := &lines{w: o.err}
	for _, x := range out {
		if x.AppliedBy != "" {
			l.printf("%s: %s applies %s and may undo this; commit to its source: %s",
				o.paint(yellow, "warning"), x.AppliedBy, x.Object, strings.Join(x.Changes, "; "))
		}
	}
}

// askFirst shows what is changed, on the terminal, and asks.
func (o *rollbackOptions) askFirst(ctx context.Context, w *wayBack, out []changed) error {
	if !o.yes {
		l := &lines{w: o.err}
		for _, x := range out {
			for _, line := range x.Changes {
				l.printf("%s: %s", x.Object, line)
			}
		}
	}
	question := fmt.Sprintf("Go back to %s (%s)%s?", w.to.Name, w.to.Releases, o.cluster.named())
	return o.consent(ctx, o.consentFlags, question)
}

func (o *rollbackOptions) show(out []changed) error {
	return o.print(o.out, out, func(w io.Writer) error {
		for i, x := range out {
			x.DryRun = x.DryRun && i == len(out)-1 // it is said once
			if err := x.text(w); err != nil {
				return err
			}
		}
		return nil
	})
}

// plan reads what there is and says what has to change.
func (o *rollbackOptions) plan(ctx context.Context, c client.Client, name, by string) (*wayBack, error) {
	config, err := theConfig(ctx, c, o.cluster.namespace)
	if err != nil {
		return nil, err
	}
	to, err := revisionToGoBackTo(config, name)
	if err != nil {
		return nil, err
	}
	bundle, err := bundleOf(ctx, c, config)
	if err != nil {
		return nil, err
	}
	w := &wayBack{to: to, config: config, before: config.DeepCopy(), bundle0: bundle.DeepCopy()}
	if bundle.Status.Repository+"@"+bundle.Status.Digest != to.Bundle || bundle.Spec.Versions != "" {
		if w.bundleChanges, err = pointAt(bundle, to); err != nil {
			return nil, err
		}
		w.bundle = bundle
	}
	w.configChanges = pin(config, to, by)
	return w, nil
}

// revisionToGoBackTo finds the revision, which has to have been healthy.
func revisionToGoBackTo(config *v1alpha1.VDOConfig, name string) (v1alpha1.RevisionStatus, error) {
	const op = "go back to"
	var healthy []string
	for i := len(config.Status.Revisions) - 1; i >= 0; i-- {
		r := config.Status.Revisions[i]
		if r.Name == config.Status.Revision {
			if r.Name == name {
				return r, &fault.Error{Reason: fault.Conflict, Op: op, Subject: name, Err: errors.New("it is the one in force"), Hint: "see `vdoctl upgrade list`"}
			}
			continue
		}
		switch {
		case r.Outcome == "Healthy" && (name == "" || name == r.Name):
			return r, nil
		case r.Name == name:
			return r, &fault.Error{Reason: fault.Refused, Op: op, Subject: name, Err: fmt.Errorf("it was not healthy: %s", strings.ToLower(r.Outcome)), Hint: "choose one that was: see `vdoctl upgrade list`"}
		case r.Outcome == "Healthy":
			healthy = append(healthy, r.Name)
		}
	}
	f := &fault.Error{Reason: fault.NotFound, Op: op, Subject: "an earlier revision", Err: errors.New("none is remembered that was healthy"), Hint: "see `vdoctl upgrade list`"}
	if name != "" {
		f.Subject, f.Err = name, errors.New("no such revision is remembered")
	}
	if len(healthy) > 0 {
		f.Hint = "those that were healthy: " + strings.Join(healthy, ", ")
	}
	return v1alpha1.RevisionStatus{}, f
}

// bundleOf is the DriverBundle that a VDOConfig installs from.
func bundleOf(ctx context.Context, c client.Reader, config *v1alpha1.VDOConfig) (*v1alpha1.DriverBundle, error) {
	var list v1alpha1.DriverBundleList
	if err := c.List(ctx, &list, client.InNamespace(config.Namespace)); err != nil {
		return nil, clusterFault("read the DriverBundles", err)
	}
	for i := range list.Items {
		if b := &list.Items[i]; len(list.Items) == 1 && config.Spec.Bundle == nil || config.Spec.Bundle != nil && b.Name == config.Spec.Bundle.Name {
			return b, nil
		}
	}
	return nil, &fault.Error{Reason: fault.NotFound, Op: "read the DriverBundle of", Subject: "VDOConfig " + config.Name,
		Err: fmt.Errorf("there are %d, and none is named by spec.bundle", len(list.Items)), Hint: "name the one to install from in spec.bundle"}
}

// pointAt has a DriverBundle hold the bundle of a revision.
func pointAt(b *v1alpha1.DriverBundle, to v1alpha1.RevisionStatus) ([]string, error) {
	if b.Name == v1alpha1.LegacyMatrixName {
		return nil, &fault.Error{Reason: fault.Refused, Op: "point at " + to.Bundle, Subject: "DriverBundle " + b.Name,
			Err:  errors.New("it follows the earlier operator's ConfigMap or CompatibilityConfig"),
			Hint: "push the bundle of that digest under the tag that it names, or go over to a DriverBundle of your own"}
	}
	_, digest, _ := strings.Cut(to.Bundle, "@")
	var done []string
	set := func(field string, at *string, value string) {
		if *at != value {
			*at = value
			done = append(done, fmt.Sprintf("%s: %q", field, value))
		}
	}
	set("spec.reference", &b.Spec.Reference, to.Bundle)
	set("spec.versions", &b.Spec.Versions, "")
	set("spec.acceptOlder", &b.Spec.AcceptOlder, digest)
	return done, nil
}

// pin has a VDOConfig ask for the releases of a revision, and consents to them.
func pin(config *v1alpha1.VDOConfig, to v1alpha1.RevisionStatus, by string) []string {
	var done []string
	releases := splitReleases(to.Releases)
	for _, id := range releases {
		driver, version, _ := strings.Cut(id, "@")
		i := slices.IndexFunc(config.Spec.Drivers, func(p v1alpha1.DriverPolicy) bool { return p.Driver == driver })
		if i < 0 {
			i = len(config.Spec.Drivers)
			config.Spec.Drivers = append(config.Spec.Drivers, v1alpha1.DriverPolicy{Driver: driver})
		}
		if p := &config.Spec.Drivers[i]; p.Version != version {
			p.Version = version
			done = append(done, fmt.Sprintf("spec.drivers[%s].version: %s", driver, version))
		}
	}
	policy := config.Spec.UpgradePolicy
	if policy == nil {
		policy = &v1alpha1.UpgradePolicy{}
	}
	done = append(done, allowDowngrade(policy, lowerThanRunning(config, releases))...)
	if policy.Approval == nil || policy.Approval.Revision != to.Name {
		policy.Approval = &v1alpha1.UpgradeApproval{Revision: to.Name, By: by}
		done = append(done, "spec.upgradePolicy.approval: "+to.Name+" by "+by)
	}
	if len(done) > 0 {
		config.Spec.UpgradePolicy = policy
	}
	return done
}

// applyAgreed writes what was agreed to. It tries again if only something else was written meanwhile, such
// as a status by the operator.
func (o *rollbackOptions) applyAgreed(ctx context.Context, c client.Client, agreed *wayBack, by string) error {
	w, conflict := agreed, &fault.Error{Reason: fault.Conflict, Op: "go back to " + agreed.to.Name,
		Err: errors.New("somebody has changed the resource meanwhile"), Hint: "run the same command again"}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		err := o.apply(ctx, c, w)
		if !isConflict(err) {
			return err
		}
		again, unplanned := o.plan(ctx, c, agreed.to.Name, by)
		switch {
		case unplanned != nil:
			return unplanned
		case !agreed.sameAs(again):
			return conflict
		}
		w = again
		return err
	})
	if isConflict(err) {
		return conflict
	}
	return err
}

// sameAs reports whether both are of the same specs, as they were read or as the first one writes them.
func (w *wayBack) sameAs(again *wayBack) bool {
	is := &again.before.Spec
	return (reflect.DeepEqual(is, &w.before.Spec) || reflect.DeepEqual(is, &w.config.Spec)) &&
		reflect.DeepEqual(&again.bundle0.Spec, &w.bundle0.Spec)
}

// apply writes both. What is done is not done again by the next run.
func (o *rollbackOptions) apply(ctx context.Context, c client.Client, w *wayBack) error {
	for _, x := range []struct {
		object, before client.Object
		changes        []string
	}{{w.config, w.before, w.configChanges}, {w.bundle, w.bundle0, w.bundleChanges}} {
		if len(x.changes) == 0 {
			continue
		}
		patch := client.MergeFromWithOptions(x.before, client.MergeFromWithOptimisticLock{})
		if err := c.Patch(ctx, x.object, patch, dryRunPatch(o.dryRun)...); err != nil {
			return unlessConflict("go back to "+w.to.Name, err)
		}
	}
	return nil
}
