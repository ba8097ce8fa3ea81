package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// configuration is what configure prints.
type configurationReport struct {
	Changes []string `json:"changes"` // "Kind name: field: value"; passwords as (hidden)
	DryRun  bool     `json:"dryRun,omitempty"`
	Message string   `json:"message"`
}

type configureOptions struct {
	*app
	outputFlags
	consentFlags
	answers

	file, passwordFile, write string
	noCheck                   bool
	given                     func(flag string) bool
	prompts                   prompter // nil where nobody can be asked
}

func newConfigureCommand(a *app) *cobra.Command {
	o := &configureOptions{app: a}
	cmd := &cobra.Command{
		Use: "configure", Short: "Say which drivers, which bundle and which vCenter; or change that",
		Long: `Makes the configuration of a site, or changes the one that is there: the bundle, a vCenter
with its account, and the drivers. On a terminal it asks for what no flag gives, and offers
what is there; each answer about the vCenter is tried at the vCenter, and a wrong address,
certificate, password or datacenter is asked for again. Then it shows what changes, has the
API server check it, and asks before it writes. What somebody else has changed since it was
read is not undone: it ends with 8, and begins with what is there when it is run again. Run it once for each vCenter (--vcenter).

With --write the resources are written to a file, for GitOps, and nothing to the cluster. No
password is in it: it goes to a Secret of the name that is told.`,
		Example: `  vdoctl configure
  vdoctl configure --server vc.site.example --username vdo@vsphere.local --password-file pw --datacenters /site/prod --yes
  vdoctl configure --vcenter west --write site.yaml
  vdoctl configure --from-file site.yaml --upgrade Manual --dry-run`,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed
			return o.run(cmd.Context())
		},
	}
	o.bind(cmd)
	return cmd
}

func (o *configureOptions) bind(cmd *cobra.Command) {
	fl := cmd.Flags()
	for _, f := range o.fields() {
		fl.StringVar(f.to, f.flag, f.standard, f.usage)
	}
	fl.StringVar(&o.passwordFile, "password-file", "", "`FILE` with the account's password (else "+passwordEnv+", or a prompt)")
	fl.StringVarP(&o.file, "from-file", "f", "", "`FILE` to begin with, instead of what is in the cluster; - for standard input")
	fl.StringVar(&o.write, "write", "", "write the resources to this `FILE`, - for standard output, and nothing to the cluster")
	fl.BoolVar(&o.noCheck, "no-check", false, "do not try the answers at the vCenter")
	o.consentFlags.bind(cmd)
	o.outputFlags.bind(cmd)
}

func (o *configureOptions) run(ctx context.Context) error {
	if o.interactive() && !o.yes && o.file != "-" {
		o.prompts = &terminalPrompts{in: o.in, out: o.err, accessible: o.wantsLines()}
	}
	c, err := o.reach()
	if err != nil {
		return err
	}
	d, err := o.begin(ctx, c)
	if err != nil {
		return err
	}
	o.offer(d)
	if err := o.askAll(ctx, d); err != nil {
		return err
	}
	if o.certificate == byCA {
		if d.ca, err = o.authority(d); err != nil {
			return err
		}
	}
	if err := d.take(&o.answers); err != nil {
		return err
	}
	if o.write != "" {
		return o.writeFile(d)
	}
	return o.deliver(ctx, c, d)
}

// wantsLines tells whether the terminal cannot draw, or somebody listens to it.
func (o *configureOptions) wantsLines() bool {
	term, _ := o.getenv("TERM")
	_, accessible := o.getenv("ACCESSIBLE")
	return accessible || term == "dumb" || term == ""
}

// reach is the cluster; nil where nothing is read of it or written to it.
func (o *configureOptions) reach() (client.Client, error) {
	c, err := o.cluster.client()
	if err != nil && o.write != "" {
		return nil, nil //nolint:nilerr // a file needs no cluster
	}
	return c, err
}

// deliver shows what changes, has it checked, asks, and writes.
func (o *configureOptions) deliver(ctx context.Context, c client.Client, d *draft) error {
	r := configurationReport{Changes: d.changes(), DryRun: o.dryRun, Message: "all is as asked already"}
	if len(r.Changes) == 0 {
		return o.print(o.out, r, func(w io.Writer) error { return o.text(w, r) })
	}
	if err := d.apply(ctx, c, true); err != nil {
		return err
	}
	r.Message = "watch it with `vdoctl status --watch`"
	if !o.dryRun {
		if !o.yes {
			if err := o.text(o.err, configurationReport{Changes: r.Changes}); err != nil {
				return err
			}
		}
		if err := o.consent(ctx, o.consentFlags, "Write this to the cluster?"); err != nil {
			return err
		}
		// Checked again, so that what was changed meanwhile is found before the first write.
		if err := d.apply(ctx, c, true); err != nil {
			return err
		}
		if err := d.apply(ctx, c, false); err != nil {
			return err
		}
	}
	return o.print(o.out, r, func(w io.Writer) error { return o.text(w, r) })
}

func (o *configureOptions) text(w io.Writer, r configurationReport) error {
	l := &lines{w: w}
	for _, c := range r.Changes {
		l.printf("%s", c)
	}
	switch {
	case r.DryRun && len(r.Changes) > 0:
		l.printf("Nothing was changed: --dry-run.")
	case r.Message != "":
		l.printf("%s", r.Message)
	}
	return l.err
}

// askAll asks for what no flag gives, and tries the answers about the vCenter.
func (o *configureOptions) askAll(ctx context.Context, d *draft) error {
	if o.prompts != nil {
		for _, f := range o.fields() {
			if o.given(f.flag) || f.needed != nil && !f.needed() {
				continue
			}
			if err := o.ask(ctx, f); err != nil {
				return err
			}
		}
	}
	if err := o.valid(); err != nil {
		return err
	}
	if err := o.readPassword(ctx, d, false); err != nil || o.noCheck {
		return err
	}
	return o.tryVCenter(ctx, d)
}

// valid holds all answers against what they have to be, and reports all that is wrong.
func (o *configureOptions) valid() error {
	var errs []error
	for _, f := range o.fields() {
		if f.needed != nil && !f.needed() || f.valid == nil {
			continue
		}
		if err := f.valid(strings.TrimSpace(*f.to)); err != nil {
			errs = append(errs, flags.Bad("--"+f.flag, *f.to, err, f.usage))
		}
	}
	return fault.Join(errs...)
}

func (o *configureOptions) ask(ctx context.Context, f field) error {
	answer, err := o.prompts.ask(ctx, question{title: f.title, help: strings.ReplaceAll(f.usage, "`", ""), value: *f.to, choices: f.choices, valid: f.valid})
	if err == nil {
		*f.to = strings.TrimSpace(answer)
	}
	return err
}

var errNoPassword = errors.New("there is no password")

// readPassword finds the account's password: a file, the environment, the Secret that is
// there for the same user, or a prompt. again asks anew.
func (o *configureOptions) readPassword(ctx context.Context, d *draft, again bool) error {
	switch p, inEnv := o.getenv(passwordEnv); {
	case again && o.prompts != nil:
	case o.passwordFile != "":
		data, err := o.read(o.passwordFile)
		o.password = strings.TrimRight(string(data), "\r\n")
		return err
	case inEnv:
		o.password = p
		return nil
	case d.user == o.username && d.password != "":
		o.password = d.password
		return nil
	case o.prompts == nil && o.write != "" && o.noCheck:
		return nil // it is not written
	case o.prompts == nil:
		return &fault.Error{Reason: fault.InvalidInput, Op: "read the password of", Subject: o.username, Err: errNoPassword,
			Hint: "name a file with --password-file, or set " + passwordEnv}
	}
	answer, err := o.prompts.ask(ctx, question{title: fmt.Sprintf("Password of %s", o.username), secret: true, valid: required})
	o.password = answer
	return err
}
