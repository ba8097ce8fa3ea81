package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preview"
)

type planReport struct {
	// GoesOn is set if nothing gates the plan.
	GoesOn bool `json:"goesOn"`
	*preview.Preview
}

type planOptions struct {
	*app

	kubernetes string
	vSphere    []string
	bundle     string
}

func newPlanCommand(a *app) *cobra.Command {
	o := &planOptions{app: a}
	cmd := runs(o.run, &cobra.Command{
		Use:   "plan",
		Short: "Show the effect of an upgrade before it starts",
		Long: `Shows the effect of an upgrade of Kubernetes, of a vCenter or of the bundle on this cluster's
drivers: releases in their order, irreversible upgrades, gates, and the commands that fetch
missing releases. -o json also lists each object that would change.

It decides like the operator, with its trust policy, and changes nothing. It reads the results
of checks in the status; to run them now: vdoctl check.`,
		Example: `  vdoctl plan
  vdoctl plan --k8s 1.35
  vdoctl plan --k8s 1.35 --vsphere 9.0
  vdoctl plan --vsphere east=9.0 -o json | jq .route
  vdoctl plan --bundle registry.site/vdo/drivers:2`,
	})
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.StringVar(&o.kubernetes, "k8s", "", "Kubernetes `VERSION` to upgrade to, such as 1.35 or v1.35.2; the minor version counts")
		fl.StringSliceVar(&o.vSphere, "vsphere", nil, "`VERSION` of all vCenters after an upgrade, such as 9.0, or NAME=VERSION of one VsphereCloudConfig's, with commas")
		fl.StringVar(&o.bundle, "bundle", "", "`REFERENCE` of a bundle in the mirror (default: the accepted one)")
	})
	o.bindFormat(cmd)
	return cmd
}

func (o *planOptions) run(ctx context.Context) error {
	wish, err := o.wish()
	if err != nil {
		return err
	}
	p, err := o.preview(ctx, wish)
	if err != nil {
		return err
	}
	r := planReport{GoesOn: goesOn(p), Preview: p}
	if err := o.print(r, func(l *lines) { o.text(l, r) }); err != nil || r.GoesOn {
		return err
	}
	return &resultError{code: command.ExitRefused}
}

func (o *planOptions) preview(ctx context.Context, wish preview.Wish) (*preview.Preview, error) {
	_, config, err := o.theConfig(ctx)
	if err != nil {
		return nil, err
	}
	as, err := o.previewing(ctx)
	if err != nil {
		return nil, asCaller(err)
	}
	p, err := as.Plan(ctx, config, wish)
	return p, asCaller(err)
}

// asCaller changes hints about a permission to the account of the caller: the reconciles that run here take it for the
// operator's.
func asCaller(err error) error {
	for _, f := range fault.All(err) {
		if right := clusterstate.MissingRight(f); right != "" && f.Reason == fault.Forbidden {
			f.Hint = "use an account with the permission to " + right + ": plan reads and tries all that the operator would, with a cluster administrator's permissions or the operator's own"
		}
	}
	return err
}

// previewing returns the cluster's operator as it would decide; it changes nothing.
func (a *app) previewing(ctx context.Context) (*preview.Operator, error) {
	cfg, err := a.cluster.config()
	if err != nil {
		return nil, err
	}
	return preview.New(ctx, cfg, a.cluster.namespace, "vdoctl/"+a.build.Version, a.now)
}

func (o *planOptions) wish() (w preview.Wish, err error) {
	var errs [3]error
	if w.Reference = o.bundle; o.kubernetes != "" {
		v, bad := matrix.ParseKubernetes(o.kubernetes)
		if w.Kubernetes = v.Minor(); bad != nil {
			errs[0] = flags.Bad("--k8s", o.kubernetes, errors.New("not a version of Kubernetes"), "write it as 1.35, or as v1.35.2, of which the minor version counts")
		}
	}
	w.VCenters, errs[1] = readVSphere(o.vSphere)
	if o.bundle != "" {
		_, errs[2] = inMirror("--bundle", o.bundle, pushFirst)
	}
	return w, fault.Join(errs[:]...)
}

const pushFirst = "push the bundle to the mirror first, and name it as REGISTRY/REPO:TAG or REGISTRY/REPO@DIGEST"

// readVSphere parses VERSION and NAME=VERSION of vCenters, by name; "" is for the others.
func readVSphere(values []string) (map[string]matrix.Version, error) {
	var all map[string]matrix.Version
	var errs []error
	for _, s := range values {
		if all == nil {
			all = map[string]matrix.Version{}
		}
		name, text, named := strings.Cut(s, "=")
		if !named {
			name, text = "", s
		}
		v, err := matrix.ParseVSphere(text)
		if _, twice := all[name]; twice || err != nil || named && name == "" {
			err = errors.New("not one version for one vCenter")
			errs = append(errs, flags.Bad("--vsphere", s, err, "write 9.0, 8.0.3 or 8.0U3, or NAME=9.0"))
		}
		all[name] = v
	}
	return all, fault.Join(errs...)
}

// goesOn reports whether nothing gates the plan. A gate of a driver matters if the plan does more than a repair.
func goesOn(p *preview.Preview) bool {
	isMove := func(s v1alpha1.PlanStep) bool { return s.Cause != string(plan.Drift) }
	does := p.Plan == nil || slices.ContainsFunc(p.Plan.Steps, isMove)
	for _, h := range p.Path {
		if len(h.Lacks) > 0 {
			return false
		}
		does = does || len(h.Moves) > 0
	}
	for _, h := range p.Gated {
		if does || h.Driver == "" {
			return false
		}
	}
	return true
}

func (o *planOptions) text(l *lines, r planReport) {
	o.head(l, r)
	if len(r.Drivers) > 0 {
		t := command.NewTable("DRIVER", "RUNNING", "CHOSEN")
		for _, d := range r.Drivers {
			t.Row(string(d.Driver), dash(d.Running), dash(d.Chosen))
		}
		l.table(t)
	}
	o.aboutDrivers(l, r)
	o.route(l, r)
	o.heldBack(l, r)
	o.notes(l, r)
	if r.GoesOn {
		l.printf("\nnothing blocks it")
	} else {
		l.printf("\nit is blocked")
	}
}

func (o *planOptions) head(l *lines, r planReport) {
	signed := ""
	if len(r.Signers) > 0 {
		signed = ", signed by " + strings.Join(r.Signers, " and ")
	}
	l.printf("bundle  %s%s", shortBundle(r.Bundle), signed)
	is := []string{"Kubernetes " + r.Kubernetes}
	for _, vc := range r.VCenters {
		is = append(is, "vCenter "+vc.Name+" "+vc.Version.String())
	}
	l.printf("now     %s\n", strings.Join(is, ", "))
}

func (o *planOptions) aboutDrivers(l *lines, r planReport) {
	for _, d := range r.Drivers {
		for _, why := range d.Unsupported {
			l.block(fmt.Sprintf("%s@%s becomes unsupported", d.Driver, d.Running), why)
		}
		if d.Pinned != "" {
			l.block(string(d.Driver)+" is pinned", "spec.drivers of the VDOConfig asks for "+d.Pinned+", and no other release is chosen")
		}
		if len(d.Why) > 0 && d.Chosen != d.Running {
			l.block(fmt.Sprintf("%s@%s", d.Driver, d.Chosen), strings.Join(d.Why, "; "))
		}
		l.block(fmt.Sprintf("%s@%s is withdrawn", d.Driver, d.Running), d.Withdrawn)
		l.block(string(d.Driver)+" cannot be gone back with", d.OneWay)
	}
}

func (o *planOptions) route(l *lines, r planReport) {
	l.printf("\norder")
	n := 0
	step := func(text string) {
		n++
		l.printf("  %d. %s", n, text)
	}
	for _, h := range r.Path {
		if h.To != "" {
			step("you upgrade to " + h.To)
		}
		for _, why := range h.Lacks {
			l.block("   not yet", why)
		}
		for _, m := range h.Moves {
			step(fmt.Sprintf("the operator: %s@%s to %s", m.Driver, dash(m.From), m.To))
		}
	}
	if n == 0 {
		l.printf("  each driver keeps its release")
	}
}

func (o *planOptions) heldBack(l *lines, r planReport) {
	if len(r.Gated) > 0 {
		l.printf("\nblocked")
	}
	for _, h := range r.Gated {
		of := ""
		if h.Driver != "" {
			of = " of " + h.Driver
		}
		l.block(h.Reason+of, h.Message)
		l.block("  do", h.Do)
	}
}

// notes prints gaps of later versions, warnings, and how to fetch the missing parts.
func (o *planOptions) notes(l *lines, r planReport) {
	said := map[string]bool{} // in the order
	for _, h := range r.Path {
		for _, why := range h.Lacks {
			said[h.To+": "+why] = true
		}
	}
	for _, why := range r.Ahead {
		if !said[why] {
			l.block("ahead", why)
		}
	}
	for _, text := range r.Warnings {
		l.block("note", text)
	}
	if len(r.Fetch) > 0 {
		l.printf("\nfetch, on a connected host but for the last")
	}
	for _, line := range r.Fetch {
		l.command("  %s", line)
	}
}
