package vdoctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// accountPasswordEnv is the environment variable with the password of the drivers' account, if another program creates
// that.
const accountPasswordEnv = "VDO_ACCOUNT_PASSWORD" //nolint:gosec // a name

type accountChanges struct {
	Secret  string            `json:"secret"`
	DryRun  bool              `json:"dryRun,omitempty"`
	Changes []accounts.Change `json:"changes"`
}

type accountOptions struct {
	usersOptions

	consentFlags

	do                   func(*accounts.Site, context.Context, accounts.Login) error
	makes                bool // roles and permissions of a plan
	outputSecret, forget bool
	secret, passwordFrom string
	givenBy              string // the source of the drivers' account; "" for the Secret
	open                 []*vcenter.Admin
	timeout              time.Duration
}

const adminHelp = `
--username names the login that changes the vCenters, VCENTER=NAME@DOMAIN the one of a single
vCenter. Its password comes from --password-file, VDO_VCENTER_PASSWORD or a prompt, serves this
call alone, and is not stored. Run an interrupted command again: it continues.`

func newUsersChangeCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newAccountCommand(a, true, (*accounts.Site).Create, &cobra.Command{
			Use: "create", Short: "Create and verify the account, and write its Secret",
			Long: `Creates in each vCenter what users plan shows: the roles, the account if it belongs to the
vCenter's own single sign-on, and its permissions. It logs in as the account, verifies its
privileges, and writes the Secret that the VsphereCloudConfigs name. The ConfigMap
vdo-account-SECRET records all of it for users delete. Before a cluster has the operator's
namespace, both are in the file site.accounts.yaml beside --from-file; deploy -f moves them.

Create an account of another directory there. Name it with --principal, and give its password
with --account-password-file.
`,
			Example: "  vdoctl users create --username administrator@vsphere.local --dry-run\n" +
				"  vdoctl users create -f site.yaml --username administrator@vsphere.local --password-file admin",
		}),
		newAccountCommand(a, true, (*accounts.Site).Rotate, &cobra.Command{
			Use: "rotate", Short: "Replace the account in the Secret, and remove the old one",
			Long: `Creates a second account with the same roles, verifies it, and puts it into the Secret. It
removes the first account when the operator and all driver pods use the second one, and the
vCenter has no session of the first. Until then both work.
`,
		}),
		newAccountCommand(a, false, func(s *accounts.Site, ctx context.Context, _ accounts.Login) error { return s.Delete(ctx) },
			&cobra.Command{
				Use: "delete", Short: "Remove only what users create has made",
				Long: `Removes the Secret, permissions, account and roles that users create has made, and names the
permissions that existed before. A role that existed before keeps its added privileges.
Objects that others use or have changed stay. The command refuses while a driver uses the
account.
`,
			}),
	}
}

// newAccountCommand returns a command that changes accounts; makes is set if it gives roles.
func newAccountCommand(
	a *app, makes bool, do func(*accounts.Site, context.Context, accounts.Login) error, cmd *cobra.Command,
) *cobra.Command {
	o := &accountOptions{usersOptions: usersOptions{app: a}, makes: makes, do: do}
	cmd.Long += adminHelp
	runs(func(ctx context.Context) error { return o.hints(o.change(ctx)) }, cmd)
	o.bindSite(cmd, func(fl *pflag.FlagSet) {
		fl.Lookup("username").Usage = "`NAME@DOMAIN` of who may change the vCenters"
		fl.StringVar(&o.secret, "secret", "", "`NAME` of the Secret whose account it is about; needed where the configuration has several")
		fl.DurationVar(&o.timeout, "timeout", 15*time.Minute, "how long (`DURATION`) to wait until nothing uses an account")
		if !makes {
			fl.BoolVar(&o.forget, "forget", false,
				"drop the record of what was made in vCenters that no VsphereCloudConfig has; it stays there")
		}
		if makes {
			fl.StringVar(&o.principal, "principal", "", "`NAME@DOMAIN` of the account (default: the Secret's, or one named after the cluster)")
			fl.StringVar(&o.passwordFrom, "account-password-file", "", "`FILE` with the password of an account that is made elsewhere (else "+accountPasswordEnv+"); - for standard input")
			fl.BoolVar(&o.outputSecret, "output-secret", false, "print the Secret as YAML, for SOPS or a vault, and do not write it to the cluster")
			fl.BoolVar(&o.folders, "vm-folders", true, "the role for VMs on their folders, propagating, rather than on each VM")
		}
	})
	o.bindFormat(cmd)
	o.consentFlags.bind(cmd)
	return cmd
}

func (o *accountOptions) change(ctx context.Context) error {
	if len(o.usernames) == 0 {
		return flags.Bad("--username", "", errors.New("who may change the vCenters is not given"), "give it: --username administrator@vsphere.local; for a script that another person runs: `vdoctl users plan -o govc`")
	}
	if o.outputSecret && o.format != flags.Text {
		return flags.Bad("--output-secret", "", errors.New("it prints the Secret, and nothing else, to standard output"), "leave out --format")
	}
	login, err := o.account()
	if err != nil {
		return err
	}
	at, err := o.site(ctx)
	defer func() {
		for _, admin := range o.open {
			admin.Close()
		}
	}()
	if err != nil {
		return err
	}
	do := func() error { return o.do(at, ctx, login) }
	if !o.dryRun && !o.yes {
		does, err := o.agreed(ctx, at, do)
		if err != nil || !does && o.format == flags.Text {
			return err
		}
	}
	does, err := o.show(at, do, o.dryRun)
	if f, ok := at.API.(*accountFile); ok && o.makes && does && err == nil && !o.dryRun {
		info, err := os.Stat(f.name)
		if err != nil {
			return err
		}
		_ = command.Say(o.err, "Written: %s (mode %04o); `vdoctl deploy -f %s` moves it into the cluster", // FAT has other modes
			f.name, info.Mode().Perm(), fault.Quote(o.file))
		if o.offline() {
			_ = command.Say(o.err, "Once nodes exist, run it again, without --no-cluster: the account has no role on their VMs yet.")
		}
	}
	return err
}

func (o *accountOptions) agreed(ctx context.Context, at *accounts.Site, do func() error) (does bool, err error) {
	if does, err = o.show(at, do, true); err != nil || !does {
		return does, err
	}
	var where []string
	for _, p := range at.Places {
		where = append(where, p.Name+" ("+p.Server+")")
	}
	question := "Apply the above to vCenter " + strings.Join(where, ", ")
	if _, ok := at.API.(*accountFile); !ok {
		question += o.cluster.named()
	}
	return true, o.consent(ctx, o.consentFlags, question+"?")
}

// show runs do and shows its changes, as text immediately; does reports whether anything changes. If standard output
// has the Secret or a format for programs, text goes to standard error.
func (o *accountOptions) show(at *accounts.Site, do func() error, dry bool) (does bool, err error) {
	to := *o.app
	if o.outputSecret || dry && !o.dryRun && o.format != flags.Text {
		to.out, to.format = o.err, flags.Text
	}
	say := func(format string, args ...any) {
		if to.format == flags.Text {
			_ = command.Say(to.out, format, args...)
		}
	}
	x := accountChanges{Secret: at.Namespace + "/" + at.Secret, DryRun: dry, Changes: []accounts.Change{}}
	say("Secret %s", x.Secret)
	at.DryRun = dry
	at.Progress = func(c accounts.Change) {
		c.Note = o.ofFile(c.Note)
		x.Changes = append(x.Changes, c)
		does = does || c.Do != accounts.Leave && c.Do != accounts.Wait
		say("%s", changeText(c, dry))
	}
	if o.outputSecret {
		at.Output = func(secret *corev1.Secret) error { return writeSecretTo(o.out, secret) }
	}
	err = do()
	if err == nil && !does {
		say("  nothing to do for %s: the Secret is unchanged", x.Secret)
	}
	return does, fault.Join(err, to.print([]accountChanges{x}, func(*lines) {}))
}

// writeSecretTo writes a Secret for tools that encrypt or store it.
func writeSecretTo(w io.Writer, secret *corev1.Secret) error {
	x := &corev1.Secret{Type: secret.Type, StringData: map[string]string{}}
	x.Namespace, x.Name = secret.Namespace, secret.Name
	if ends := secret.Annotations[credentials.EndsAnnotation]; ends != "" { // others are their authors' own
		x.Annotations = map[string]string{credentials.EndsAnnotation: ends}
	}
	for key, value := range secret.Data {
		x.StringData[key] = string(value)
	}
	all, err := manifests(x)
	if err != nil {
		return err
	}
	text, err := documentOf(all)
	return errors.Join(err, written(w, func(l *lines) { l.write(string(text)) }))
}

// account returns the account that flags and environment give for the drivers.
func (o *accountOptions) account() (accounts.Login, error) {
	if o.passwordFrom == "-" && o.file == "-" {
		taken := errors.New("standard input has the configuration already")
		return accounts.Login{}, flags.Bad("--account-password-file", "-", taken, "name a file")
	}
	password, known, err := o.passwordOf("--account-password-file", o.passwordFrom, accountPasswordEnv)
	if known {
		o.givenBy = "--principal, or the password in --account-password-file or " + accountPasswordEnv
	}
	return accounts.Login{Username: o.principal, Password: vcenter.Password(password)}, err
}

func (o *accountOptions) place(
	ctx context.Context, in *site, v configured, ask func(id string) vcenter.Ask,
) (accounts.Place, error) {
	admin, t, err := in.open(ctx, v)
	if err != nil {
		return accounts.Place{}, err
	}
	o.open = append(o.open, admin)
	return accounts.Place{
		Name: v.Name, ID: admin.ID(), Config: v.config.Namespace, Server: t.Server(), User: admin.User, VCenter: admin,
		Plan: func(ctx context.Context, principal string) (privileges.Plan, error) {
			ask := ask(admin.ID())
			ask.Principal = admin.Canonical(ctx, principal)
			found := vcenter.Inspect(ctx, t, ask)
			found.Use = v.Use
			if err := cmp.Or(found.Err, noDatastore(&found)); err != nil {
				return privileges.Plan{}, err
			}
			return o.planOf(&found.Access), nil
		},
		Verify: func(ctx context.Context, l accounts.Login) ([]string, error) {
			as := t
			as.Username, as.Password, as.Given = l.Username, l.Password, o.givenBy
			as.Token, as.Certificate, as.Sessions = "", nil, "" // of the administrator
			as.Turn = nil                                       // accounts itself counts the tries of this password
			found := vcenter.Inspect(ctx, as, ask(admin.ID()))
			if found.Access.Principal != "" {
				admin.Learn(l.Username, found.Access.Principal)
			}
			return missingOf(&found)
		},
	}, nil
}

// missingOf returns the privileges that an account lacks, or why they could not be read.
func missingOf(v *preflight.VCenter) ([]string, error) {
	if err := fault.Join(v.Err, v.Failed[preflight.Privileges]); err != nil {
		return nil, err
	}
	var out []string
	for _, m := range verified(v).Missing {
		out = append(out, firstOf(m.Privileges)+" on "+firstOf(m.Objects))
	}
	return out, nil
}

func changeText(c accounts.Change, dry bool) string {
	do := string(c.Do)
	if dry {
		do = "would " + do
	}
	if c.Kind == "account" || c.Kind == "drivers" {
		c.Account = "" // their name contains it
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

// accountFile has the Secrets and records that users create writes before a cluster exists. It is beside the site's
// file, readable by its owner only. Package accounts uses it like the API server of an empty cluster.
type accountFile struct {
	client.Client // package accounts calls only the methods below

	name    string
	site    string
	made    *objects
	was     []byte // the file as last read; nil for none
	cluster string // identifies the future cluster
}

func accountFileName(site string) string {
	return strings.TrimSuffix(site, filepath.Ext(site)) + ".accounts.yaml"
}

// accountsOf reads the file beside a site's; if it does not exist, it has no accounts.
func accountsOf(site string) (*accountFile, error) {
	f := &accountFile{name: accountFileName(site), site: site, cluster: string(uuid.NewUUID()) + siteID}
	return f, f.reread()
}

func (f *accountFile) reread() error {
	data, err := new(app).read("--from-file", f.name)
	if err != nil && fault.ReasonOf(err) != fault.NotFound {
		return err
	}
	f.was = data
	f.made, err = readObjects(f.name, data, "")
	return err
}

// siteID is the suffix of ids of clusters that do not exist yet; no cluster's UID has it.
const siteID = "-site"

// annotationCluster is the annotation of a record with the cluster's id at that time.
const annotationCluster = "vdo.vmware.com/cluster"

const inCluster = "the cluster"

// sameIn refuses an account that has another state in another place: one of them is stale. An account of another name
// has its only record here.
func (f *accountFile) sameIn(ctx context.Context, place string, c client.Reader) error {
	var errs []error
	hint := "keep the one that works, and delete the other one"
	for _, x := range slices.Backward(f.made.values()) { // Secrets first
		is := copyOf(x)
		if err := c.Get(ctx, client.ObjectKeyFromObject(x), is); isGone(err) {
			continue
		} else if err != nil {
			return clusterstate.Fault("read "+describeObject(x), err)
		}
		if s, ok := is.(*corev1.Secret); ok && place != inCluster {
			hint = "take it out of that file"
		} else if ok && loginName(s) != loginName(x) {
			hint = "to keep the cluster's, take the other account away: `vdoctl users delete -f " + fault.Quote(f.site) +
				" --no-cluster --username ADMIN`"
		}
		both, err := manifests(x, is)
		if err == nil && !apiequality.Semantic.DeepEqual(both[0].Object["data"], both[1].Object["data"]) {
			err = fault.Errorf(fault.Conflict, "use", describeObject(x), hint,
				"%s has another one than %s", place, f.name)
		}
		errs = append(errs, err)
	}
	return fault.Join(errs...)
}

func loginName(secret client.Object) string {
	return string(secret.(*corev1.Secret).Data[corev1.BasicAuthUsernameKey]) //nolint:forcetypeassert,errcheck // it is one
}

// Get reads a Secret or a record; nothing else exists.
func (f *accountFile) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if err := f.reread(); err != nil {
		return err
	}
	return f.made.Get(ctx, key, into)
}

// List returns no nodes.
func (f *accountFile) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return nil
}

// Create adds a Secret, or a record with its cluster's id. It refuses to replace a record that another vdoctl has
// created meanwhile. It replaces a Secret, since one without a UID here looks missing.
func (f *accountFile) Create(_ context.Context, x client.Object, _ ...client.CreateOption) error {
	_, isRecord := x.(*corev1.ConfigMap)
	if isRecord {
		x.SetAnnotations(map[string]string{annotationCluster: f.cluster})
	}
	return f.change(func() error {
		if isRecord && f.made.all[describeObject(x)] != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: kindOf(x)}, x.GetName())
		}
		f.made.put(copyOf(x))
		return nil
	})
}

func (f *accountFile) Update(_ context.Context, x client.Object, _ ...client.UpdateOption) error {
	return f.change(func() error { f.made.put(copyOf(x)); return nil })
}

// Delete removes an object, and the file with the last one.
func (f *accountFile) Delete(_ context.Context, x client.Object, _ ...client.DeleteOption) error {
	return f.change(func() error { delete(f.made.all, describeObject(x)); return nil })
}

// change first reads the file again: another vdoctl may have written to it.
func (f *accountFile) change(do func() error) error {
	if err := f.reread(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	out, err := manifests(f.made.values()...)
	if err != nil {
		return err
	}
	if len(out) == 0 {
		return f.remove()
	}
	data, err := documentOf(out)
	if err != nil {
		return err
	}
	f.was = data
	return userfile.Write(f.name, data, 0)
}

// remove removes the file, unless another vdoctl has written to it since it was read.
func (f *accountFile) remove() error {
	if now, _ := os.ReadFile(f.name); now != nil && !bytes.Equal(now, f.was) {
		return changedMeanwhile(f.name, errors.New("it has other accounts now"))
	}
	if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return atomicfile.Fault("remove", f.name, err)
	}
	return nil
}

// store returns the store of Secrets and records: the cluster or a file beside the site's. The file is for the time
// before the cluster has the operator's namespace, until deploy moves the accounts there.
func (o *accountOptions) store(ctx context.Context) (client.Client, error) {
	c, err := o.cluster.client()
	if o.file == "-" && o.offline() && !o.dryRun {
		err := errors.New("standard input has no place beside it for the accounts, and no cluster is used")
		return nil, flags.Bad("--from-file", "-", err, "name a file")
	}
	if o.file == "" || o.file == "-" {
		return c, err
	}
	f, errFile := accountsOf(o.file)
	if errFile != nil {
		return nil, errFile
	}
	if o.dryRun {
		f.cluster = "xxxxxxxx" + siteID // the run that creates accounts uses another one
	}
	if o.offline() || (len(f.made.all) > 0 && err != nil) {
		return f, nil //nolint:nilerr // there is no cluster yet
	}
	if err != nil {
		return nil, o.orWithout(err)
	}
	if err := f.sameIn(ctx, inCluster, c); err != nil {
		return nil, err
	}
	for _, x := range f.made.values() {
		if c.Get(ctx, client.ObjectKeyFromObject(x), copyOf(x)) == nil {
			return nil, fault.Errorf(fault.Conflict, "read", f.name,
				"delete "+f.name+": the cluster's accounts are in use", "the cluster has the same %s",
				describeObject(x))
		}
	}
	if len(f.made.all) > 0 {
		return f, nil
	}
	err = c.Get(ctx, client.ObjectKey{Name: o.cluster.namespace}, &corev1.Namespace{})
	switch {
	case apierrors.IsNotFound(err):
		return f, nil
	case err != nil:
		return nil, o.orWithout(clusterstate.Fault("read namespace "+o.cluster.namespace, err))
	}
	return c, nil
}

// site returns the account of the one Secret, and logs in to its vCenters.
func (o *accountOptions) site(ctx context.Context) (*accounts.Site, error) {
	c, err := o.store(ctx)
	if err != nil {
		return nil, err
	}
	s, state, err := o.asAdmin(ctx, o.app, "the vCenters", o.offline())
	if !o.makes && o.secret != "" && errors.Is(err, errNotConfigured) {
		err = nil // only the record of the account may remain
	}
	if err = fault.Join(err, state.Err); err != nil {
		return nil, err
	}
	if o.makes {
		if err := s.unresolved(); err != nil { // even of another Secret: its driver is unknown
			return nil, err
		}
	}
	s.vcenters = slices.DeleteFunc(s.vcenters, func(v configured) bool { return v.config == nil })
	if err := o.only(&s); err != nil {
		return nil, err
	}
	at, err := o.recorded(ctx, c)
	if err != nil {
		return nil, err
	}
	at.Forget = o.forget
	var errs []error
	uses := map[string]preflight.Use{} // by vCenter, which may have several names
	ask := func(id string) vcenter.Ask {
		return vcenter.Ask{Nodes: state.Nodes, Features: s.wants.FeaturesAt(uses[id], &state), Access: true}
	}
	for _, v := range s.vcenters {
		p, err := o.place(ctx, &s, v, ask)
		at.Places = append(at.Places, &p)
		uses[p.ID] = uses[p.ID].And(v.Use)
		errs = append(errs, err, o.onlyIn(ctx, c, s.reader, v.config))
	}
	return at, fault.Join(errs...)
}

func (o *accountOptions) only(s *site) error {
	var names []string
	for _, v := range s.vcenters {
		names = append(names, v.config.Spec.Credentials)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case o.secret == "" && len(names) == 1:
		o.secret = names[0]
	case o.secret == "" && len(names) > 1:
		err := fmt.Errorf("the configuration has %d accounts", len(names))
		return flags.Bad("--secret", "", err, "say which: "+strings.Join(names, ", "))
	case o.secret == "" || o.makes && !slices.Contains(names, o.secret):
		return &fault.Error{Reason: fault.NotFound, Op: "find the account of the configuration",
			Err:  errors.New(strings.TrimSpace("no VsphereCloudConfig names the Secret " + o.secret)),
			Hint: "correct --secret, or apply a VsphereCloudConfig; `vdoctl users delete --secret NAME` finds the account without one"}
	}
	s.vcenters = slices.DeleteFunc(s.vcenters, func(v configured) bool { return v.config.Spec.Credentials != o.secret })
	return nil
}

// recorded returns the account of a Secret in the operator's namespace. It is in kube-system if that has the Secret or
// its record (users delete removes the Secret first). The cluster's id is its UID, or the one in the record of an
// account that was created before the cluster.
func (o *accountOptions) recorded(ctx context.Context, c client.Client) (*accounts.Site, error) {
	at := &accounts.Site{API: c, Namespace: o.cluster.namespace, Secret: o.secret, Wait: o.timeout}
	for _, ns := range []string{credentials.Fallback, o.cluster.namespace} {
		reference := v1alpha1.KeyReference{Secret: o.secret, ConfigMap: accountRecord + o.secret}
		found, err := present(ctx, c, referenced(ns, reference))
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			at.Namespace = ns
			at.Cluster = cmp.Or(x.GetAnnotations()[annotationCluster], at.Cluster)
		}
	}
	if f, ok := c.(*accountFile); ok {
		at.Cluster = cmp.Or(at.Cluster, f.cluster)
	}
	if strings.HasSuffix(at.Cluster, siteID) {
		return at, nil
	}
	var system corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system); err != nil {
		return nil, clusterstate.Fault("read namespace kube-system", err)
	}
	at.Cluster = string(system.UID)
	return at, nil
}

// onlyIn refuses to create an account if the site's file has another one: deploy and configure would replace the new
// one.
func (o *accountOptions) onlyIn(ctx context.Context, c, site client.Reader, v *v1alpha1.VsphereCloudConfig) error {
	own, _ := credentials.Read(ctx, site, v) // an unreadable account is in no file
	is, _ := credentials.Read(ctx, c, v)
	if !o.makes || o.file == "" || own.Username == "" || own.Username == is.Username && own.Password == is.Password {
		return nil
	}
	return &fault.Error{Reason: fault.Conflict, Op: "make an account for Secret", Subject: v.Spec.Credentials,
		Err:  fmt.Errorf("%s has this Secret, for %s", o.file, own.Username),
		Hint: "remove the Secret from the file; or deploy it, and run the same command without --from-file"}
}
