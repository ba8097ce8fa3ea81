package vdoctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// accountPasswordEnv is the environment variable with the password of the account that the
// drivers are to have, where that is made elsewhere.
const accountPasswordEnv = "VDO_ACCOUNT_PASSWORD" //nolint:gosec // a name

// accountChanges is what users create, rotate and delete print of one account.
type accountChanges struct {
	Secret  string            `json:"secret"`
	DryRun  bool              `json:"dryRun,omitempty"`
	Changes []accounts.Change `json:"changes"`

	failed bool
}

type accountOptions struct {
	usersOptions

	consentFlags

	makes                bool // roles and permissions, as they are planned
	secret, passwordFrom string
	// looked is what was found in each vCenter, by its name.
	looked  map[string]asked
	timeout time.Duration
}

const adminHelp = `
The vCenters are changed with the login that --username names. Its password comes by
--password-file, VDO_VCENTER_PASSWORD or a prompt, is used for this call alone, and is
stored nowhere. Run again it does what is left, wherever it was stopped.`

func newUsersChangeCommands(a *app) []*cobra.Command {
	return []*cobra.Command{newUsersCreateCommand(a), newUsersRotateCommand(a), newUsersDeleteCommand(a)}
}

func newUsersCreateCommand(a *app) *cobra.Command {
	o := &accountOptions{usersOptions: usersOptions{app: a}}
	cmd := &cobra.Command{
		Use: "create", Short: "Make the account, its roles and permissions, verify them, and write the Secret",
		Long: `Makes in each vCenter what users plan shows: the roles, the account where it is one of
the vCenter's own single sign-on, its permissions. Then it logs in as the account, asks the
vCenter what it may do, and writes the Secret that the VsphereCloudConfigs name.

An account of another directory is made there; name it with --principal and give its
password with --account-password-file. What was made is noted beside the Secret, in
the ConfigMap vdo-account-SECRET, for users delete.
` + adminHelp,
		Example: "  vdoctl users create --username administrator@vsphere.local --dry-run\n  vdoctl users create --username administrator@vsphere.local --password-file admin",
		Args:    flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.change(cmd.Context(), func(ctx context.Context, s *accounts.Site, l accounts.Login) error { return s.Create(ctx, l) })
		},
	}
	o.bindChange(cmd, true)
	return cmd
}

func newUsersRotateCommand(a *app) *cobra.Command {
	o := &accountOptions{usersOptions: usersOptions{app: a}}
	cmd := &cobra.Command{
		Use: "rotate", Short: "Put another account into the Secret, and remove the first when nothing uses it",
		Long: `A vCenter's account has one password. So that drivers never run with one that is not
valid, a second account is made with the same roles (NAME-b, and NAME the next time) and a
password of its own, verified, and put into the Secret. When the operator has logged in
with it, and all pods of the drivers that had the first one were started with it, and
nobody is logged in with that any more, it is removed. Until then both work.
` + adminHelp,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.change(cmd.Context(), func(ctx context.Context, s *accounts.Site, l accounts.Login) error { return s.Rotate(ctx, l) })
		},
	}
	o.bindChange(cmd, true)
	return cmd
}

func newUsersDeleteCommand(a *app) *cobra.Command {
	o := &accountOptions{usersOptions: usersOptions{app: a}}
	cmd := &cobra.Command{
		Use: "delete", Short: "Take away what users create made, and nothing else",
		Long: `Removes the Secret, the permissions, the account and the roles that users create has
made, and puts back what it changed. What was there before, what somebody else uses, and
what somebody has changed since stays. Refused while a driver uses the account.
` + adminHelp,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.change(cmd.Context(), func(ctx context.Context, s *accounts.Site, _ accounts.Login) error { return s.Delete(ctx) })
		},
	}
	o.bindChange(cmd, false)
	return cmd
}

func (o *accountOptions) bindChange(cmd *cobra.Command, makes bool) {
	o.makes = makes
	o.bindSite(cmd, func(fl *pflag.FlagSet) {
		fl.Lookup("username").Usage = "`NAME@DOMAIN` of who may change the vCenters"
		fl.StringVar(&o.secret, "secret", "", "`NAME` of the Secret whose account it is about, where the configuration has several")
		fl.DurationVar(&o.timeout, "timeout", 15*time.Minute, "how long (`DURATION`) to wait until nothing uses an account")
		if makes {
			fl.StringVar(&o.principal, "principal", "", "`NAME@DOMAIN` of the account (default: the Secret's, or one named after the cluster)")
			fl.StringVar(&o.passwordFrom, "account-password-file", "", "`FILE` with the password of an account that is made elsewhere (else "+accountPasswordEnv+"); - for standard input")
			fl.BoolVar(&o.folders, "vm-folders", true, "the role for VMs on their folders, propagating, rather than on each VM")
		}
	})
	o.outputFlags.bind(cmd)
	o.consentFlags.bind(cmd)
}

// change does something for each account, and prints what was done, also beside a fault.
func (o *accountOptions) change(ctx context.Context, do func(context.Context, *accounts.Site, accounts.Login) error) error {
	if o.username == "" {
		return flags.Bad("--username", "", errors.New("who may change the vCenters is not given"), "give it: --username administrator@vsphere.local; for a script that somebody else runs there: `vdoctl users plan -o govc`")
	}
	login, err := o.account()
	if err != nil {
		return err
	}
	sites, err := o.sites(ctx)
	defer sites.close()
	if err != nil {
		return err
	}
	list := sites.list
	if len(list) > 1 && o.principal != "" {
		return flags.Bad("--principal", o.principal, fmt.Errorf("the configuration has %d accounts", len(list)), "say which: --secret NAME")
	}
	all := func(s *accounts.Site) error { return do(ctx, s, login) }
	if !o.dryRun && !o.yes {
		if err := o.agreed(ctx, list, all); err != nil {
			return err
		}
	}
	err = o.each(list, all)
	if err == nil && len(o.looked) > 0 && o.secret == "" { // else nodes may be in the vCenters of other Secrets
		o.warn(sites.nodes, slices.Collect(maps.Values(o.looked)))
	}
	return err
}

// agreed shows what would be done, and asks whether to do it. Standard output is for what is
// done, where that is read by a program.
func (o *accountOptions) agreed(ctx context.Context, list []*accounts.Site, do func(*accounts.Site) error) error {
	ahead := *o
	ahead.dryRun = true
	if o.format != flags.Text {
		beside := *o.app
		beside.out = o.err
		ahead.app, ahead.format = &beside, flags.Text
	}
	if err := ahead.each(list, do); err != nil {
		return err
	}
	var where []string
	for _, s := range list {
		for i := range s.Places {
			where = append(where, s.Places[i].Name+" ("+s.Places[i].Server+")")
		}
	}
	question := fmt.Sprintf("Apply the above to vCenter %s%s?", strings.Join(where, ", "), o.cluster.named())
	return o.consent(ctx, o.consentFlags, question)
}

// each does something for each account, and shows it.
func (o *accountOptions) each(list []*accounts.Site, do func(*accounts.Site) error) error {
	var out []accountChanges
	var errs []error
	for _, s := range list {
		s.DryRun = o.dryRun
		shown := o.show(s)
		err := do(s)
		shown.failed = err != nil
		errs = append(errs, err)
		out = append(out, *shown)
	}
	if o.format == flags.Text {
		errs = append(errs, o.rest(out))
	} else {
		errs = append(errs, o.print(o.out, out, nil))
	}
	return fault.Join(errs...)
}

// givenBy says what the drivers' account comes from; "" for the Secret.
func (o *accountOptions) givenBy() string {
	if o.passwordFrom != "" {
		return "--principal, or the password in --account-password-file " + fault.Quote(o.passwordFrom)
	}
	if _, set := o.getenv(accountPasswordEnv); set {
		return "--principal, or the password in " + accountPasswordEnv
	}
	return ""
}

// account is what is said of the account that the drivers are to have.
func (o *accountOptions) account() (accounts.Login, error) {
	l := accounts.Login{Username: o.principal}
	if o.passwordFrom != "" {
		if o.passwordFrom == "-" && o.file == "-" {
			return l, flags.Bad("--account-password-file", "-", errors.New("standard input has the configuration already"), "name a file")
		}
		data, err := o.read("--account-password-file", o.passwordFrom)
		l.Password = vcenter.Password(bytes.TrimRight(data, "\r\n"))
		return l, err
	}
	if p, ok := o.getenv(accountPasswordEnv); ok {
		l.Password = vcenter.Password(p)
	}
	return l, nil
}

func (o *accountOptions) place(v configured, admin *vcenter.Admin, t vcenter.Target, ask vcenter.Ask) accounts.Place {
	return accounts.Place{
		Name: v.Name, Server: strings.TrimSuffix(t.Address(), ":443"), User: admin.User, VCenter: admin,
		Plan: func(ctx context.Context, principal string) (privileges.Plan, error) {
			a := asked{features: ask.Features}
			a.found, a.access = vcenter.InspectAccess(ctx, t, ask, principal)
			a.found.Name, a.found.Server = v.Name, strings.TrimSuffix(t.Address(), ":443")
			o.looked[v.Name] = a
			if err := fault.Join(a.found.Err, a.noDatastore()); err != nil {
				return privileges.Plan{}, err
			}
			return o.planOf(&a), nil
		},
		Verify: func(ctx context.Context, l accounts.Login) ([]string, error) {
			as := t
			as.Username, as.Password, as.Given = l.Username, l.Password, o.givenBy()
			o.paced(&as)
			a := asked{features: ask.Features}
			a.found, a.access = vcenter.InspectAccess(ctx, as, ask, "")
			return missingOf(&a)
		},
	}
}

// missingOf says what an account lacks, and whether that could be read.
func missingOf(a *asked) ([]string, error) {
	if err := fault.Join(a.found.Err, a.found.Failed[preflight.Privileges]); err != nil {
		return nil, err
	}
	var out []string
	for _, m := range verified(a).Missing {
		out = append(out, shortList(m.Privileges)+" on "+shortList(m.Objects))
	}
	return out, nil
}

// show gathers what is done for an account and, as text, prints it at once.
func (o *accountOptions) show(s *accounts.Site) *accountChanges {
	out := &accountChanges{Secret: s.Namespace + "/" + s.Secret, DryRun: o.dryRun, Changes: []accounts.Change{}}
	if o.format == flags.Text {
		_ = command.Say(o.out, "%s", o.paint(bold, "Secret "+out.Secret))
	}
	count := map[accounts.Change]int{}
	s.Progress = func(c accounts.Change) {
		out.Changes = append(out.Changes, c)
		kind := c
		kind.On, kind.Note = "", ""
		if count[kind]++; o.format == flags.Text && (c.On == "" || count[kind] <= maxShown) {
			_ = command.Say(o.out, "%s", changeText(c, o.dryRun))
		}
	}
	return out
}

func changeText(c accounts.Change, dry bool) string {
	do := string(c.Do)
	if dry {
		do = "would " + do
	}
	if c.Kind == "account" || c.Kind == "drivers" {
		c.Account = "" // their name says it
	}
	text := fmt.Sprintf("  %-8s %s %s", do, c.Kind, c.Name)
	for _, more := range []struct{ word, name string }{{"on", c.On}, {"in", c.VCenter}, {"for", c.Account}} {
		if more.name != "" {
			text += " " + more.word + " " + more.name
		}
	}
	if c.Note != "" {
		text += " (" + c.Note + ")"
	}
	return text
}

// rest says how much was not shown one by one, or that nothing was to be done.
func (o *accountOptions) rest(list []accountChanges) error {
	l := &lines{w: o.out}
	for _, x := range list {
		count := map[string]int{}
		for _, c := range x.Changes {
			if c.On != "" {
				count[fmt.Sprintf("%s %s %s in %s for %s", c.Do, c.Kind, c.Name, c.VCenter, c.Account)]++
			}
		}
		for _, what := range slices.Sorted(maps.Keys(count)) {
			if more := count[what] - maxShown; more > 0 {
				l.printf("  %s: on %d more", what, more)
			}
		}
		if !x.failed && !slices.ContainsFunc(x.Changes, func(c accounts.Change) bool { return c.Do != accounts.Leave && c.Do != accounts.Wait }) {
			l.printf("  nothing to do for %s", x.Secret)
		}
	}
	return l.err
}
