package vdoctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

type configurationReport struct {
	Changes []changedObject `json:"changes"`
	DryRun  bool            `json:"dryRun,omitempty"`
	Message string          `json:"message"`
}

func (r configurationReport) objects() []string { return objectsOf(r.Changes) }

type configureOptions struct {
	*app
	consentFlags
	answers

	file, passwordFile, write string
	noCheck, force            bool
	given                     func(flag string) bool
	replaced                  []byte   // the file to write, as it was before the first question; nil for none
	seen                      []string // datacenters that the account can read
	prompts                   bool     // a user answers on the terminal
	asked                     bool     // the user has named datacenters
}

func newConfigure(a *app) *configureOptions {
	o := &configureOptions{app: a, given: func(string) bool { return false }}
	for _, f := range o.fields() {
		*f.to = f.standard
	}
	return o
}

// newConfigureCommand includes the subcommands of the earlier operator's command line.
func newConfigureCommand(a *app) *cobra.Command {
	cmd := configureCommand(a, "configure")
	for _, earlier := range []*cobra.Command{configureCommand(a, "drivers"), newMatrixSetCommand(a, "compatibility-matrix")} {
		earlier.Hidden = true
		cmd.AddCommand(earlier)
	}
	return cmd
}

func configureCommand(a *app, name string) *cobra.Command {
	o := newConfigure(a)
	cmd := &cobra.Command{
		Use: name, Short: "Configure drivers, bundle and vCenter",
		Long: `Creates or changes the configuration of a site: the bundle, a vCenter with its account, and
the drivers. Run it once for each vCenter (--vcenter).

On a terminal it asks for values without a flag, and tries them at the vCenter. It asks again
for a wrong address, thumbprint or account. It shows the change, lets the API server check it,
and asks before it writes.

With --from-file it starts from a file, and writes all resources that the file's vCenters and
bundle need. With -o FILE it writes the resources to a file for GitOps, and asks no cluster. It
starts from an existing file, whose comments are lost. Put the password into a Secret.`,
		Example: `  vdoctl configure
  vdoctl configure --server vc.site.example --username vdo@vsphere.local --password-file pw --datacenters /site/prod --yes
  vdoctl configure --vcenter east -o site.yaml
  vdoctl configure --vcenter west -o site.yaml
  vdoctl configure --from-file site.yaml --upgrade Manual --dry-run`,
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
		fl.StringVar(f.to, f.flag, *f.to, f.usage)
	}
	fl.StringVar(&o.passwordFile, "password-file", "", "`FILE` with the account's password (else "+passwordEnv+" if --username is given or no Secret exists, or a prompt)")
	fl.StringVarP(&o.file, "from-file", "f", "", "`FILE` to begin with, instead of what is in the cluster; - for standard input")
	fl.BoolVar(&o.noCheck, "no-check", false, "do not try the answers at the vCenter")
	fl.BoolVar(&o.force, "force-conflicts", false, "take fields over that others have set")
	o.consentFlags.bind(cmd)
	o.format = flags.Text
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.FuncP("format", "o", "how to print the result: text, json, yaml, name; or the `FILE` to write the resources to (- for standard output)", func(s string) error {
			switch s {
			case "":
				return errors.New("empty") // without a file it would change the cluster
			case flags.Text, flags.JSON, yamlFormat, nameFormat:
				o.format = s
			default:
				o.write = s
			}
			return nil
		})
	})
}

func (o *configureOptions) run(ctx context.Context) error {
	if o.write != "" && o.dryRun {
		return flags.Bad("--dry-run", "", errors.New("a file is changed, and nothing else"),
			"see what it would write with -o -")
	}
	o.prompts = o.interactive() && !o.yes && o.file != "-"
	c, d, err := o.draft(ctx)
	if err != nil {
		return err
	}
	if o.write != "" {
		return o.writeFile(ctx, d)
	}
	return o.deliver(ctx, c, d)
}

// draft returns the configuration with the answers. The client is nil if no cluster is used.
func (o *configureOptions) draft(ctx context.Context) (client.Client, *draft, error) {
	var err error
	if o.replaced, err = o.replaces(); err != nil {
		return nil, nil, err // before the first question
	}
	if o.file == "" && len(bytes.TrimSpace(o.replaced)) > 0 {
		o.file = o.write // only this file has the earlier answers
	}
	d, errFile := o.begin()
	var c client.Client
	if o.write == "" {
		if c, err = o.cluster.client(); err == nil {
			err = d.readResources(ctx, c)
		}
		d.readers = append(d.readers, c)
	}
	if err = fault.Join(errFile, err); err != nil {
		return c, d, fault.Join(err, o.valid(o.given))
	}
	d.makeMissing()
	if err := o.answer(ctx, d); err != nil {
		return c, d, err
	}
	return c, d, o.take(d)
}

func (o *configureOptions) deliver(ctx context.Context, c client.Client, d *draft) error {
	objects, err := d.manifests(ctx)
	if err != nil {
		return err
	}
	to := &applier{Client: c, force: o.force}
	r := configurationReport{DryRun: o.dryRun, Message: "Nothing to change: all is as asked already."}
	if r.Changes, err = to.all(ctx, objects, true); err != nil {
		return err
	}
	r.Changes = slices.DeleteFunc(r.Changes, func(x changedObject) bool { return x.State == stateUnchanged })
	switch {
	case len(r.Changes) == 0:
	case o.dryRun:
		r.Message = "Nothing was changed: --dry-run."
	default:
		r.Message = "Written. Watch it with `vdoctl status --watch`."
		if o.tags && o.region != "" {
			r.Message = "Written. No driver is installed before tags of these categories exist: " +
				"`vdoctl topology tag --username ADMIN --attach CATEGORY:TAG=PATH`."
		}
		question := "Write this to the cluster" + o.cluster.named() + "?"
		err = o.agree(ctx, o.consentFlags, func(l *lines) { l.changes(r.Changes) }, question)
		for _, dryRun := range []bool{true, false} { // concurrent changes are found before the first write
			if err == nil {
				_, err = to.all(ctx, objects, dryRun)
			}
		}
	}
	if err != nil {
		return err
	}
	return o.print(r, func(l *lines) {
		l.changes(r.Changes)
		l.printf("%s", r.Message)
	})
}

// answer collects all answers: flags, existing values, and a user's on a terminal. There it tries the vCenter once it
// has an account, and again with the datacenters. Without a terminal it reports all errors at once, before that.
func (o *configureOptions) answer(ctx context.Context, d *draft) error {
	fields := o.fields()
	o.offer(d, fields)
	if o.prompts {
		if err := o.valid(o.given); err != nil {
			return err
		}
		_ = command.Say(o.err, "Enter takes what is in brackets, %s is for none.", noAnswer)
	}
	for i, f := range fields {
		o.offer(d, fields[i:]) // each answer decides about later ones
		if o.prompts && !f.flagAlone && !o.given(f.flag) && (f.needed == nil || f.needed()) {
			if err := o.ask(ctx, d, f); err != nil {
				return err
			}
		}
		var err error
		switch {
		case f.flag == "vcenter":
			err = o.chosen(ctx, d)
		case f.flag == "server":
			o.moved(d)
		case o.prompts && f.flag == "username":
			err = o.login(ctx, d)
		}
		if err != nil {
			return err
		}
	}
	err := o.valid(func(string) bool { return true })
	if err != nil || o.prompts {
		return err
	}
	return o.login(ctx, d)
}

// refusals is how many passwords a user may try: vCenters lock an account after five by default.
const refusals = 3

// login reads the account's password, and tries the vCenter. It asks a user again for what the vCenter refuses. A
// written file names the account's Secret, without a password.
func (o *configureOptions) login(ctx context.Context, d *draft) error {
	for refused := 0; ; {
		if o.username == "" && !o.noCheck {
			o.noCheck = true
			_ = command.Say(o.err, "No account is given: the vCenter is not asked. `vdoctl users create` makes one.")
		}
		if err := o.readPassword(ctx, d, refused > 0); err != nil || o.noCheck {
			return err
		}
		err := o.tryVCenter(ctx, d)
		if logins.Refusing(err) {
			refused++
		}
		wrong := o.wrong(err)
		if !o.prompts || len(wrong) == 0 || refused == refusals {
			return err
		}
		_ = command.Say(o.err, "  * %s", fault.Text(err))
		if err := o.askAgain(ctx, d, wrong); err != nil {
			return err
		}
	}
}

func (o *configureOptions) askAgain(ctx context.Context, d *draft, wrong []string) error {
	for _, f := range o.fields() {
		if !slices.Contains(wrong, f.flag) {
			continue
		}
		if err := o.ask(ctx, d, f); err != nil {
			return err
		}
		switch f.flag {
		case "server":
			o.moved(d)
		case "thumbprint":
			d.vcenter.Spec.Thumbprint = "" // the answer may be none
		}
	}
	return nil
}

// wrong returns the flags of the answers that a vCenter refuses; none if another answer changes nothing.
func (o *configureOptions) wrong(err error) []string {
	var u *vcenter.UntrustedError
	switch reason := fault.ReasonOf(err); {
	case errors.As(err, &u): // the user does not trust it
		return nil
	case reason == fault.Unauthorized, reason == fault.Forbidden:
		return []string{"username"}
	case reason == fault.CertificateInvalid && o.thumbprint != "":
		return []string{"thumbprint"}
	case slices.Contains([]fault.Reason{fault.CertificateInvalid, fault.Unreachable, fault.Incompatible}, reason):
		return []string{"server", "port"}
	}
	return nil
}

func (o *configureOptions) ask(ctx context.Context, d *draft, f field) error {
	q := question{title: f.title, help: asAnswer.Replace(f.usage), value: *f.to, valid: f.check}
	if f.flag == "datacenters" && len(o.seen) > 0 {
		q.help += "; the account sees " + firstOf(o.seen)
		q.valid = func(answer string) error {
			if o.datacenters, o.asked = answer, true; answer == "" {
				return nil
			}
			return o.tryVCenter(ctx, d)
		}
	}
	if f.flag == "zone-category" && !o.given("region-category") {
		q.valid = func(answer string) error {
			if o.zone = answer; answer != "" || o.withZone("") != nil {
				return f.check(answer)
			}
			o.region = "" // the way out of a region by mistake
			return nil
		}
	}
	answer, err := o.prompt(ctx, q)
	if err == nil {
		*f.to = answer
	}
	return err
}

// asAnswer words a flag's usage for a prompt.
var asAnswer = strings.NewReplacer("`", "", noneTyped, noAnswer)

// readPassword reads the account's password from a file, the environment, or a prompt. An existing Secret of the same
// user precedes the environment, which may have an administrator's password, unless --username is given. With again, it
// asks the user.
func (o *configureOptions) readPassword(ctx context.Context, d *draft, again bool) error {
	if o.username == "" {
		return nil
	}
	has := d.user == o.username && d.password != "" && !again
	var given string
	var known bool
	var err error
	if !again && (!has || o.passwordFile != "" || o.given("username")) {
		given, known, err = o.passwordOf("--password-file", o.passwordFile, passwordEnv)
	}
	switch {
	case err != nil || known:
		o.password = given
		return err
	case has && !o.prompts:
		o.password = d.password
		return nil
	case o.noCheck && o.write != "":
		return nil // the password is neither tried nor written
	case !o.prompts:
		return fault.Errorf(fault.InvalidInput, "read the password of", o.username,
			"name a file with --password-file, or set "+passwordEnv, "there is no password")
	}
	q := question{title: "Password of " + o.username, secret: true, valid: required}
	if has {
		q.help, q.valid = "Enter keeps the one in Secret "+d.vcenter.Spec.Credentials, nil
	}
	answer, err := o.prompt(ctx, q)
	if o.password = answer; has && answer == "" {
		o.password = d.password
	}
	return err
}

// tryVCenter tries the answers at the vCenter, and again if the user trusts its certificate.
func (o *configureOptions) tryVCenter(ctx context.Context, d *draft) error {
	if err := o.takeVCenter(d); err != nil {
		return err
	}
	target := vcenter.TargetOf(d.vcenter, o.username, o.password, d.ca)
	target.Given, target.InstanceUUIDs = givenLogin, nil // it may be another vCenter now
	if o.prompts {
		target.Trust.Insecure = false // the user decides
	}
	if o.prompts && !o.asked && !o.given("datacenters") {
		target.Datacenters = nil // they are the earlier ones
	}
	o.paced(&target)
	_ = command.Say(o.err, "asking %s", target.Address())
	report, err := vcenter.Check(ctx, target)
	if f, ok := errors.AsType[*fault.Error](err); ok {
		f.Hint = byFlags.Replace(f.Hint)
	}
	if fault.ReasonOf(err) == fault.CertificateInvalid && o.prompts && o.thumbprint == "" {
		if err := o.trusts(ctx, target.Address(), err); err != nil {
			return err
		}
		return o.tryVCenter(ctx, d)
	}
	if o.seen = report.Datacenters; err == nil && o.prompts {
		_ = command.Say(o.err, "vCenter %s answers: version %s, user %s", target.Address(), report.Version, report.User)
	}
	return err
}

// byFlags names the flags for fields of a VsphereCloudConfig in a hint.
var byFlags = strings.NewReplacer("spec.vcIp", "--server", "spec.port", "--port", "spec.datacenters", "--datacenters",
	"into the key that spec.ca names", "into a file, and name it with --vcenter-ca-file",
	"spec.ca", "--vcenter-ca-file", "spec.thumbprint", "--thumbprint")

// trusts asks, as ssh does, whether to trust a certificate of an unknown CA, such as the vCenter's own. It returns any
// other refusal, and one of a CA that a flag gives.
func (o *configureOptions) trusts(ctx context.Context, address string, refusal error) error {
	var u *vcenter.UntrustedError
	if o.caFile != "" || !errors.As(refusal, &u) {
		return refusal
	}
	_ = command.Say(o.err, "No known CA has signed the certificate of %s.\nIssuer:  %s\nSHA-256: %s\n"+
		"Compare it with what the vCenter's own shell shows:\n"+
		"/usr/lib/vmware-vmafd/bin/vecs-cli entry getcert --store MACHINE_SSL_CERT --alias __MACHINE_CERT | "+
		"openssl x509 -noout -fingerprint -sha256", address, u.Issuer, u.SHA256)
	yes, err := o.isYes(ctx, "Trust the certificate of "+address+"?")
	if err == nil && !yes {
		err = refusal
	}
	o.thumbprint = u.SHA256
	return err
}

// readAuthority reads a file with CA certificates, and refuses other content: it goes into a ConfigMap, and into a
// file that many can read.
func (a *app) readAuthority(file string) ([]byte, error) {
	data, err := a.read("--vcenter-ca-file", file)
	if err != nil {
		return nil, err
	}
	if err = vcenter.CheckCA(data); bytes.Contains(data, []byte("PRIVATE KEY-----")) {
		err = errors.New("there is a private key in it") // a damaged one too, which a PEM reader does not see
	}
	if err != nil {
		return nil, flags.Bad("--vcenter-ca-file", file, err,
			"name a PEM file with the CA's certificates, -----BEGIN CERTIFICATE-----, and nothing else")
	}
	return data, nil
}

func (o *configureOptions) valid(of func(flag string) bool) error {
	var errs []error
	if o.caFile != "" && o.given("thumbprint") {
		both := errors.New("--thumbprint is given as well")
		errs = append(errs, flags.Bad("--vcenter-ca-file", o.caFile, both, "give one of them"))
	}
	for _, f := range o.fields() {
		if !of(f.flag) || f.needed != nil && !f.needed() {
			continue
		}
		switch err := f.check(strings.TrimSpace(*f.to)); {
		case slices.Contains([]fault.Reason{fault.NotFound, fault.Storage}, fault.ReasonOf(err)):
			errs = append(errs, err) // it names the flag's file
		case err != nil:
			takes := "--" + f.flag + " takes " + strings.ReplaceAll(f.usage, "`", "")
			if *f.to == "" {
				takes, _, _ = strings.Cut(takes, `; "" for`)
			}
			errs = append(errs, flags.Bad("--"+f.flag, *f.to, err, takes))
		}
	}
	return fault.Join(errs...)
}

type answers struct {
	bundle, vcenter, server, port, thumbprint, caFile      string
	username, password, datacenters, drivers, region, zone string
	upgrade                                                string
	answered
}

// answered is the state of the existing configuration.
type answered struct {
	several bool // the storage driver has other vCenters too
	used    bool // drivers use this vCenter already
	tags    bool // categories of tags are requested
	mode    bool // how upgrades start is set outside of spec.upgrade
}

const bothDrivers, csiAlone, cpiAlone = "both", "csi", "cpi"

// field is one question: a flag, and the prompt if the flag is not given.
type field struct {
	flag, title, usage, standard string
	to                           *string
	choices                      []string
	valid                        func(string) error
	needed                       func() bool // nil: always
	flagAlone                    bool        // its prompt, if any, is for a refused one
}

func (f field) check(s string) error {
	switch {
	case len(f.choices) > 0 && !slices.Contains(f.choices, s):
		return fmt.Errorf("not one of %s", strings.Join(f.choices, ", "))
	case f.valid != nil:
		return f.valid(s)
	}
	return nil
}

func (a *answers) fields() []field {
	zoned := func() bool { return a.region != "" }
	return []field{
		{flag: "bundle", title: "Bundle in the mirror", to: &a.bundle, valid: isReference,
			usage: "`REGISTRY/REPO:TAG` of the bundle in the site's mirror"},
		{flag: "drivers", title: "Which drivers", standard: bothDrivers, to: &a.drivers,
			usage:   "`DRIVERS` to install: both, csi (storage) or cpi (cloud provider)",
			choices: []string{bothDrivers, csiAlone, cpiAlone}},
		{flag: "vcenter", title: "Name for the vCenter", standard: "vcenter", to: &a.vcenter, valid: isName,
			usage: "`NAME` of the vCenter's resource; a new one adds a vCenter"},
		{flag: "server", title: "Address of the vCenter", to: &a.server, valid: isHost,
			usage: "`HOST` name or IP address of the vCenter, without https:// and port"},
		{flag: "port", title: "Port of its API", standard: "443", to: &a.port, valid: isPort,
			usage: "`PORT` of its API"},
		{flag: "thumbprint", title: "Thumbprint of its certificate", to: &a.thumbprint, valid: isThumbprint,
			flagAlone: true,
			usage:     "`HEX` pairs with colons, SHA-1 or SHA-256, of its certificate; \"\" for none"},
		{flag: "vcenter-ca-file", to: &a.caFile, valid: isAuthority, flagAlone: true,
			usage: "PEM `FILE` of the CA that signed its certificate"},
		{flag: "username", title: "Account of the drivers", to: &a.username, valid: isAccount,
			usage: "`NAME@DOMAIN` of the vCenter's account; vdoctl users makes one"},
		{flag: "datacenters", title: "Datacenters, with commas", to: &a.datacenters,
			usage: "inventory `PATHS` of datacenters, with commas; \"\" for all"},
		{flag: "region-category", title: "Tag category of regions", to: &a.region, valid: a.withZone,
			usage: "`CATEGORY` of tags of regions; \"\" for none"},
		{flag: "zone-category", title: "Tag category of zones", to: &a.zone, valid: withRegion,
			needed: zoned, usage: "`CATEGORY` of tags of zones, together with regions; \"\" for none"},
		{flag: "upgrade", title: "Upgrades", standard: "Automatic", to: &a.upgrade,
			needed: func() bool { return !a.mode },
			usage:  "`MODE` of upgrades: Automatic, or Manual, where each one waits for approval", choices: []string{"Automatic", "Manual"}},
	}
}

// withZone refuses zones without regions, and several vCenters without both. The next field checks that regions have
// zones.
func (a *answers) withZone(region string) error {
	switch {
	case region == "" && a.several && a.drivers != cpiAlone:
		return errors.New("the storage driver needs regions and zones where it has several vCenters, as " +
			"spec.storageProvider of the VDOConfig says")
	case region == "" && a.zone != "":
		return errors.New("zones need regions: give both categories, or none")
	}
	return nil
}

func withRegion(zone string) error {
	if required(zone) != nil {
		return errors.New("regions need zones: give both categories, or none")
	}
	return nil
}

var thumbprint = regexp.MustCompile(`^(([0-9A-Fa-f]{2}:){19}|([0-9A-Fa-f]{2}:){31})[0-9A-Fa-f]{2}$`)

func isThumbprint(s string) error {
	if s != "" && !thumbprint.MatchString(s) {
		return errors.New("not 20 (SHA-1) or 32 (SHA-256) pairs of hex digits with colons between them")
	}
	return nil
}

func required(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("it is needed")
	}
	return nil
}

func isName(s string) error {
	if s != "" && len(validation.IsDNS1123Subdomain(s)) > 0 {
		return errors.New("not lower-case letters, digits, - and ., with a letter or digit at both ends")
	}
	return required(s)
}

// isAccount refuses a name with which the storage driver does not start. An empty one may be set later.
func isAccount(s string) error {
	if s != "" && !render.QualifiedAccount(s) {
		return errors.New("it has no domain, or characters that the drivers do not accept: write NAME@DOMAIN")
	}
	return nil
}

func isReference(s string) error {
	if err := required(s); err != nil {
		return err
	}
	_, err := image.ParseHosted(s)
	return err
}

func isHost(s string) error {
	if strings.ContainsAny(s, "/@ ") {
		return errors.New("a host name or IP address alone: without https://, path or user")
	}
	if _, _, err := net.SplitHostPort(s); err == nil {
		return errors.New("a host name or IP address alone: give the port with --port")
	}
	return required(s)
}

func isPort(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 1 || n > 65535 {
		return errors.New("not a number from 1 to 65535")
	}
	return nil
}

func isAuthority(file string) error {
	if file == "" {
		return nil
	}
	_, err := new(app).readAuthority(file)
	return err
}

func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
