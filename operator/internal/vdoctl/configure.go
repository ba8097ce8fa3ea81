package vdoctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// configurationReport is what configure prints.
type configurationReport struct {
	Changes []changedObject `json:"changes"`
	DryRun  bool            `json:"dryRun,omitempty"`
	Message string          `json:"message"`
}

type configureOptions struct {
	*app
	outputFlags
	consentFlags
	answers

	file, passwordFile, write string
	noCheck                   bool
	given                     func(flag string) bool
	kept                      map[string]bool // flags whose answers the configuration has already
	there                     []byte          // the file that --write replaces, before anything is asked; nil for none
	seen                      []string        // datacenters that the account sees
	prompts                   prompter        // nil where nobody can be asked
}

func newConfigureCommand(a *app) *cobra.Command {
	o := &configureOptions{app: a, kept: map[string]bool{}}
	cmd := &cobra.Command{
		Use: "configure", Short: "Say which drivers, which bundle and which vCenter; or change that",
		Long: `Makes the configuration of a site, or changes the one that is there: the bundle, a vCenter
with its account, and the drivers. Run it once for each vCenter (--vcenter).

On a terminal it asks for what no flag gives, and offers what is there. It logs in to the
vCenter with the answers; a wrong address, certificate, password or datacenter is asked for
again. Then it shows what changes, has the API server check it, and asks before it writes.
What somebody else has changed meanwhile is not undone: it ends with 8; run it again.

With --from-file it begins with a file, of which all is written that its vCenters need: they,
their Secrets and ConfigMaps, the DriverBundle and the VDOConfig.

With --write the resources are written to a file, for GitOps, and nothing to the cluster. An
existing file is the start (unless --from-file names another one). It is replaced with consent,
keeps its other resources, and loses its comments. A new file starts with the resources of the
cluster; KUBECONFIG=/dev/null reads none. The password belongs into a Secret, not into the file.`,
		Example: `  vdoctl configure
  vdoctl configure --server vc.site.example --username vdo@vsphere.local --password-file pw --datacenters /site/prod --yes
  vdoctl configure --vcenter east --write site.yaml
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
	if o.write != "" && o.format != flags.Text {
		return flags.Bad("--format", o.format, errors.New("with --write nothing is printed but the resources, as YAML"), "leave one of them out")
	}
	if o.write != "" && o.dryRun {
		return flags.Bad("--dry-run", "", errors.New("--write changes a file, and nothing else"), "see what it would write with --write -")
	}
	var err error
	if o.there, err = o.replaces(); err != nil {
		return err // before anything is asked
	}
	if o.file == "" && len(bytes.TrimSpace(o.there)) > 0 {
		o.file = o.write // what was asked for before is in it alone
	}
	if o.interactive() && !o.yes && o.file != "-" {
		o.prompts = &terminalPrompts{o.app}
	}
	d, errFile := o.draft()
	c, err := o.reach(d)
	if err = fault.Join(errFile, err); err != nil {
		return fault.Join(err, o.oneCheck(), o.valid(o.given))
	}
	if c, err = o.begin(ctx, c, d); err != nil {
		return err
	}
	o.offer(d)
	if err := o.answer(ctx, c, d); err != nil {
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
	if o.write == "" {
		return o.deliver(ctx, c, d)
	}
	if err := o.writeFile(ctx, d); err != nil {
		return err
	}
	return o.sayWritten(d, c != nil)
}

// deliver shows what changes, has it checked, asks, and writes.
func (o *configureOptions) deliver(ctx context.Context, c client.Client, d *draft) error {
	if err := d.apply(ctx, c, true); err != nil {
		return err
	}
	r := configurationReport{Changes: d.changes(), DryRun: o.dryRun, Message: "Nothing to change: all is as asked already."}
	if len(r.Changes) == 0 {
		return o.print(o.out, r, func(w io.Writer) error { return o.text(w, r, true) })
	}
	if r.Message = "Nothing was changed: --dry-run."; !o.dryRun {
		r.Message = "Written. Watch it with `vdoctl status --watch`."
		if err := o.writeAll(ctx, c, d, r); err != nil {
			return err
		}
	}
	return o.print(o.out, r, func(w io.Writer) error { return o.text(w, r, o.yes || o.dryRun) })
}

// writeAll shows what changes, asks, and writes it.
func (o *configureOptions) writeAll(ctx context.Context, c client.Client, d *draft, r configurationReport) error {
	if !o.yes {
		if err := o.text(o.err, configurationReport{Changes: r.Changes}, true); err != nil {
			return err
		}
	}
	if err := o.consent(ctx, o.consentFlags, "Write this to the cluster"+o.cluster.named()+"?"); err != nil {
		return err
	}
	// Checked again, so that what was changed meanwhile is found before the first write.
	if err := d.apply(ctx, c, true); err != nil {
		return err
	}
	return d.apply(ctx, c, false)
}

// text shows what changes, where that was not shown before the question, and the message.
func (o *configureOptions) text(w io.Writer, r configurationReport, changes bool) error {
	l := &lines{w: w}
	for _, c := range r.Changes {
		if changes {
			c.text(l, o.app)
		}
	}
	if r.Message != "" {
		l.printf("%s", r.Message)
	}
	return l.err
}

// answer finds all answers: flags, what is there, and, on a terminal, a person's. The vCenter
// is tried as soon as there is an account, and again with the datacenters.
func (o *configureOptions) answer(ctx context.Context, c client.Client, d *draft) error {
	if o.prompts == nil {
		return o.withoutPrompts(ctx, c, d)
	}
	if err := fault.Join(o.oneCheck(), o.valid(o.given)); err != nil {
		return err
	}
	for _, f := range o.fields() {
		if o.isOpen(f) {
			if err := o.ask(ctx, f, false); err != nil {
				return err
			}
		}
		if err := o.after(ctx, c, d, f.flag); err != nil {
			return err
		}
	}
	return o.valid(func(string) bool { return true })
}

// isOpen tells whether a question is to be asked: a thumbprint or a CA that is given says how
// the certificate is checked.
func (o *configureOptions) isOpen(f field) bool {
	said := f.flag == "certificate" && (o.given("thumbprint") || o.given("vcenter-ca-file"))
	return !said && !o.given(f.flag) && (f.needed == nil || f.needed())
}

// after does what an answer makes possible.
func (o *configureOptions) after(ctx context.Context, c client.Client, d *draft, flag string) error {
	switch {
	case flag == "vcenter":
		return o.chosen(ctx, c, d)
	case flag == "username":
		if err := o.readPassword(ctx, d, false); err != nil || o.noCheck {
			return err
		}
		return o.tryVCenter(ctx, d, nil)
	case flag == "datacenters" && o.datacenters != "" && !o.noCheck:
		return o.tryVCenter(ctx, d, splitList(o.datacenters))
	}
	return nil
}

// withoutPrompts takes flags and what is there, and says all at once that is missing.
func (o *configureOptions) withoutPrompts(ctx context.Context, c client.Client, d *draft) error {
	if err := o.chosen(ctx, c, d); err != nil {
		return err
	}
	if o.write != "" && o.username == "" && !o.given("username") { // the file names its Secret, and has no account
		if o.kept["username"] = true; !o.noCheck {
			o.noCheck = true
			_ = command.Say(o.err, "No account is given: the vCenter is not asked. `vdoctl users create` makes one.")
		}
	}
	// An account that the configuration has already is not looked at: what is asked for is not about it.
	if err := fault.Join(o.oneCheck(), o.valid(func(flag string) bool { return flag != "username" || !o.kept[flag] })); err != nil {
		return err
	}
	if err := o.readPassword(ctx, d, false); err != nil || o.noCheck {
		return err
	}
	return o.tryVCenter(ctx, d, splitList(o.datacenters))
}

// valid holds answers against what they have to be, and reports all that is wrong.
func (o *configureOptions) valid(of func(flag string) bool) error {
	var errs []error
	for _, f := range o.fields() {
		if !of(f.flag) || f.needed != nil && !f.needed() || f.valid == nil {
			continue
		}
		if err := f.valid(strings.TrimSpace(*f.to)); err != nil {
			hint := "--" + f.flag + " takes " + strings.ReplaceAll(f.usage, "`", "")
			if n := len(f.choices) - 1; n > 0 {
				hint = "write --" + f.flag + " " + strings.Join(f.choices[:n], ", ") + " or " + f.choices[n]
			}
			errs = append(errs, flags.Bad("--"+f.flag, *f.to, err, hint))
		}
	}
	return fault.Join(errs...)
}

// oneCheck refuses flags that say of a vCenter's certificate that it is checked in two ways:
// one of them would be passed over.
func (o *configureOptions) oneCheck() error {
	how := ""
	for _, f := range []struct{ flag, means string }{{"certificate", o.certificate}, {"thumbprint", byThumbprint}, {"vcenter-ca-file", byCA}} {
		switch {
		case !o.given(f.flag):
		case how == "":
			how = f.means
		case how != f.means:
			return flags.Bad("--"+f.flag, "", fmt.Errorf("by the other flags its certificate is checked by %s", how), "give one of --thumbprint and --vcenter-ca-file, or neither with --certificate system")
		}
	}
	return nil
}

// ask asks a question. again says that its answer was refused, and is not to be taken as it is.
func (o *configureOptions) ask(ctx context.Context, f field, again bool) error {
	help := []string{f.help}
	if len(f.choices) > 0 {
		help = append(help, "one of "+strings.Join(f.choices, ", "))
	}
	if f.flag == "datacenters" && len(o.seen) > 0 {
		help = append(help, "the account sees "+firstOf(o.seen))
	}
	if !again {
		help = append(help, o.onEnter(f))
	} else if *f.to != "" {
		help = append(help, "Enter tries it again")
	}
	help = slices.DeleteFunc(help, func(s string) bool { return s == "" })
	answer, err := o.prompts.ask(ctx, question{title: f.title, help: strings.Join(help, "; "), value: *f.to, valid: f.valid})
	if err == nil {
		*f.to = strings.TrimSpace(answer)
	}
	return err
}

// onEnter says what Enter alone means, and how what is offered is declined.
func (o *configureOptions) onEnter(f field) string {
	none := f.valid == nil || f.valid("") == nil
	switch {
	case *f.to == "" && none:
		return "Enter for none"
	case *f.to == "":
		return ""
	}
	text := "Enter takes " + *f.to
	if o.kept[f.flag] {
		text = "Enter keeps " + *f.to
	}
	if none {
		text += ", " + noAnswer + " is for none"
	}
	return text
}

var errNoPassword = errors.New("there is no password")

// readPassword finds the account's password: a file, the environment, the Secret that is
// there for the same user, or a prompt. again asks anew.
func (o *configureOptions) readPassword(ctx context.Context, d *draft, again bool) error {
	has := d.user == o.username && d.password != ""
	elsewhere := ""
	if has && !o.noCheck && !d.knows(o.server) {
		has, elsewhere = false, fmt.Sprintf("the one in Secret %s is for %s", d.vcenter.Spec.Credentials, strings.Join(d.passwordAt, " and "))
	}
	switch p, inEnv := o.getenv(passwordEnv); {
	case again && o.prompts != nil:
	case o.passwordFile != "":
		data, err := o.read("--password-file", o.passwordFile)
		o.password = strings.TrimRight(string(data), "\r\n")
		return err
	case inEnv:
		o.password = p
		return nil
	case has && o.prompts == nil:
		o.password = d.password
		return nil
	case o.write != "" && o.noCheck:
		return nil // it is neither tried nor written
	case o.prompts == nil:
		err := errNoPassword
		if elsewhere != "" {
			err = fmt.Errorf("%w for %s: %s", err, o.server, elsewhere)
		}
		return &fault.Error{Reason: fault.InvalidInput, Op: "read the password of", Subject: o.username, Err: err,
			Hint: "name a file with --password-file, or set " + passwordEnv}
	}
	q := question{title: "Password of " + o.username, help: elsewhere, secret: true, valid: required}
	if has && !again {
		q.help, q.valid = "Enter keeps the one in Secret "+d.vcenter.Spec.Credentials, nil
	}
	answer, err := o.prompts.ask(ctx, q)
	if o.password = answer; answer == "" {
		o.password = d.password
	}
	return err
}
