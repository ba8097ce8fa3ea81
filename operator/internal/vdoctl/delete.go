package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// removal is what delete prints.
type removal struct {
	Target string   `json:"target"` // the context and its API server
	Stages []stage  `json:"stages"`
	Stays  []string `json:"stays,omitempty"` // what is of the drivers and is left, and why
	DryRun bool     `json:"dryRun,omitempty"`
}

// stage is what is deleted together, and gone before the next one begins.
type stage struct {
	Name    string   `json:"name"`
	Objects []string `json:"objects"`
	objects []client.Object
}

type deleteOptions struct {
	*app
	outputFlags
	consentFlags
	goals

	keepDrivers bool
	timeout     time.Duration
	kinds       func() ([]schema.GroupVersionKind, error) // nil: those that the cluster has
}

// goals says what shall go.
type goals struct{ drivers, settings, operator, crds, all bool }

func newDeleteCommand(a *app) *cobra.Command {
	o := &deleteOptions{app: a}
	cmd := &cobra.Command{
		Use: "delete", Short: "Remove drivers, configuration, operator or CRDs, each only as asked",
		Long: `Removes what is asked for, in the order in which nothing is left behind, and waits until
each part is gone:

  --drivers        the VDOConfig; the operator then removes the drivers
  --configuration  VsphereCloudConfigs, DriverBundles, and the Secrets and ConfigMaps of the
                   namespace that they name
  --operator       the operator, its rights, and, where nothing else is kept in it, its
                   namespace; the drivers' namespaces stay
  --crds           the kinds of the operator

Nothing is deleted while volumes use the storage driver and --drivers is asked for, or where
spec.onDelete: Orphan of the VDOConfig would leave the drivers. A namespace in which somebody
else keeps something stays, and is named. Neither the configuration nor the operator goes while
there is an account that users create made: vdoctl users delete takes that away. With
--keep-drivers the VDOConfig goes and the drivers stay installed, but for the registration of
the storage driver's webhook, whose certificate nobody would renew; an operator that is
installed later takes them over. Interrupted, it goes on when it is run again.`,
		Example: `  vdoctl delete --all --dry-run
  vdoctl delete --drivers
  vdoctl delete --operator --crds --configuration --keep-drivers --yes`,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.bind(cmd)
	return cmd
}

func (o *deleteOptions) bind(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&o.drivers, "drivers", false, "the drivers, with the VDOConfig")
	fl.BoolVar(&o.settings, "configuration", false, "vCenters, bundles, and the credentials and trust that they name")
	fl.BoolVar(&o.operator, "operator", false, "the operator, its rights and namespace")
	fl.BoolVar(&o.crds, "crds", false, "the operator's kinds")
	fl.BoolVar(&o.all, "all", false, "all of these")
	fl.BoolVar(&o.keepDrivers, "keep-drivers", false, "leave the drivers installed, without a VDOConfig")
	fl.DurationVar(&o.timeout, "timeout", 15*time.Minute, "how long (`DURATION`) to wait for each part to be gone")
	o.consentFlags.bind(cmd)
	o.outputFlags.bind(cmd)
}

func (o *deleteOptions) run(cmd *cobra.Command) error {
	if o.all {
		o.goals = goals{drivers: !o.keepDrivers, settings: true, operator: true, crds: true}
	}
	switch {
	case o.goals == (goals{}) && !o.keepDrivers:
		return flags.Usage(cmd, "say what to delete: --drivers, --configuration, --operator, --crds or --all")
	case o.drivers && o.keepDrivers:
		return flags.Bad("--keep-drivers", "true", errors.New("--drivers is given as well"), "give one of them")
	}
	ctx := cmd.Context()
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	target, err := o.cluster.target()
	if err != nil {
		return err
	}
	r, err := o.plan(ctx, c)
	r.Target = target
	if err != nil {
		return fault.Join(o.showRefused(r), err)
	}
	if r.DryRun = o.dryRun; !o.dryRun && len(r.Stages) > 0 {
		if err := o.removeAll(ctx, c, r); err != nil {
			return err
		}
	}
	return o.print(o.out, r, func(w io.Writer) error { return o.text(w, r) })
}

// showRefused shows what would go, where something speaks against it.
func (o *deleteOptions) showRefused(r removal) error {
	if len(r.Stages) == 0 || o.format != flags.Text {
		return nil
	}
	if err := command.Say(o.err, "This is what was asked for; none of it was deleted:"); err != nil {
		return err
	}
	return o.text(o.err, r)
}

// removeAll asks, and then removes stage after stage.
func (o *deleteOptions) removeAll(ctx context.Context, c client.Client, r removal) error {
	if !o.yes {
		if err := o.text(o.err, r); err != nil {
			return err
		}
	}
	if err := o.consent(ctx, o.consentFlags, "Delete the above from "+r.Target+"?"); err != nil {
		return err
	}
	// Asked again: while somebody reads the question volumes are made.
	if err := o.stillFree(ctx, c); err != nil {
		return err
	}
	for _, s := range r.Stages {
		if err := o.stillEmpty(ctx, c, r, s); err != nil {
			return err
		}
		if err := o.remove(ctx, c, s); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the objects of a stage, and waits until they are gone.
func (o *deleteOptions) remove(ctx context.Context, c client.Client, s stage) error {
	if s.Name == stageConfig {
		if err := orphan(ctx, c, s.objects); err != nil {
			return err
		}
	}
	for _, x := range s.objects {
		if err := client.IgnoreNotFound(c.Delete(ctx, x)); err != nil {
			return clusterFault("delete "+describeObject(x), err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	p := o.progress()
	defer p.end()
	for _, x := range s.objects {
		if err := o.gone(ctx, limited.Done(), c, x, p); err != nil {
			return err
		}
	}
	return nil
}

// gone waits until an object is not there, as long as there is time.
func (o *deleteOptions) gone(
	ctx context.Context, late <-chan struct{}, c client.Client, x client.Object, p *progress,
) error {
	for {
		err := c.Get(ctx, client.ObjectKeyFromObject(x), x)
		switch {
		case isGone(err):
			p.done(describeObject(x) + " is gone")
			return nil
		case err != nil:
			return clusterFault("wait for "+describeObject(x), err)
		}
		why := whyNotGone(x)
		p.show("waiting for " + describeObject(x) + why)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return &fault.Error{
				Reason: fault.Incomplete, Op: "delete", Subject: describeObject(x),
				Err:  fmt.Errorf("it is still there after %s%s", o.timeout, why),
				Hint: "see to what it waits for, then run the same command again; that drivers are removed takes a running operator",
			}
		case <-time.After(pollEvery):
		}
	}
}

// pollEvery is the time between two looks.
const pollEvery = 500 * time.Millisecond

func (o *deleteOptions) text(w io.Writer, r removal) error {
	l := &lines{w: w}
	l.printf("%s, namespace %s", r.Target, o.cluster.namespace)
	if len(r.Stages) == 0 {
		l.printf("Nothing of what was asked for is there.")
	}
	for _, s := range r.Stages {
		l.printf("%s", o.paint(bold, s.Name))
		for _, x := range s.Objects {
			l.printf("  %s", x)
		}
	}
	if len(r.Stays) > 0 {
		l.printf("%s", o.paint(yellow, "stays"))
	}
	for _, x := range r.Stays {
		l.printf("  %s", x)
	}
	if r.DryRun && len(r.Stages) > 0 {
		l.printf("Nothing was changed: --dry-run.")
	}
	return l.err
}
