package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// site is a configuration: the requested drivers, and their vCenters.
type site struct {
	wants    preflight.Wants
	vcenters []configured
	excluded map[string]string         // labels of nodes that are not on vSphere
	policy   *v1alpha1.PreflightPolicy // overrides of checks
	reader   client.Reader             // of referenced Secrets and ConfigMaps
	app      *app
	// login returns the account of a vCenter whose Secret is missing; nil if that is a fault.
	login   func(ctx context.Context, name string, at vcenter.Target) (credentials.Credentials, error)
	file    string // its source; "" for the cluster
	assumed bool   // without a VDOConfig
	// given is the source of that account. proof replaces its password.
	given string
	proof vcenter.Target
	// preferAsked uses that account even if the Secret exists: an administrator logs in.
	preferAsked bool
}

type configured struct {
	preflight.Use

	config *v1alpha1.VsphereCloudConfig // nil if it does not exist
}

// siteOf reads a configuration. Without a VDOConfig it assumes that both drivers are requested, with every vCenter.
func siteOf(config *v1alpha1.VDOConfig, vcenters []v1alpha1.VsphereCloudConfig, reader client.Reader) site {
	s := site{reader: reader}
	byName := map[string]*v1alpha1.VsphereCloudConfig{}
	for i := range vcenters {
		byName[vcenters[i].Name] = &vcenters[i]
	}
	names := slices.Collect(maps.Keys(byName))
	if s.assumed = config == nil; s.assumed {
		config = &v1alpha1.VDOConfig{}
		config.Spec.CloudProvider = &v1alpha1.CloudProvider{VsphereCloudConfigs: names}
		config.Spec.StorageProvider = &v1alpha1.StorageProvider{VsphereCloudConfigs: names}
	}
	all := config.Spec.DeepCopy() // with drivers that still run: volumes may keep one that is no longer requested
	for _, d := range config.Status.Drivers {
		all.Drivers = slices.DeleteFunc(all.Drivers, func(p v1alpha1.DriverPolicy) bool { return p.Driver == d.Driver })
		if d.Driver == string(matrix.CPI) {
			all.CloudProvider = cmp.Or(all.CloudProvider, &v1alpha1.CloudProvider{VsphereCloudConfigs: names})
		} else if d.Driver == string(matrix.CSI) {
			all.StorageProvider = cmp.Or(all.StorageProvider, &v1alpha1.StorageProvider{VsphereCloudConfigs: names})
		}
	}
	s.wants, _ = preflight.WantsOf(&config.Spec)
	_, uses := preflight.WantsOf(all)
	s.excluded, s.policy = config.Spec.ExcludedNodes, config.Spec.Preflight
	for _, u := range uses {
		s.vcenters = append(s.vcenters, configured{Use: u, config: byName[u.Name]})
	}
	return s
}

var errNotConfigured = errors.New("there is neither a VDOConfig nor a VsphereCloudConfig")

func clusterSite(ctx context.Context, c client.Client, namespace string) (site, error) {
	config, err := theConfig(ctx, c, namespace)
	if fault.ReasonOf(err) == fault.NotFound {
		offer(err, "check a file: --from-file site.yaml")
	}
	if err != nil && !errors.Is(err, errNoConfig) {
		return site{}, err
	}
	var vcenters v1alpha1.VsphereCloudConfigList
	if err := c.List(ctx, &vcenters, client.InNamespace(namespace)); err != nil {
		return site{}, clusterstate.Fault("read the VsphereCloudConfigs", err)
	}
	if config == nil && len(vcenters.Items) == 0 {
		return site{}, &fault.Error{Reason: fault.NotFound, Op: "read the configuration in", Subject: "namespace " + namespace,
			Err: errNotConfigured, Hint: "apply them, name their namespace with -n, or check a file: --from-file site.yaml"}
	}
	return siteOf(config, vcenters.Items, c), nil
}

// unresolved returns the missing VsphereCloudConfigs that the VDOConfig names. With missing ones, the needs at other
// vCenters are unknown: the missing name may be meant for one of these.
func (s *site) unresolved() error {
	var errs []error
	for _, v := range s.vcenters {
		if v.config == nil {
			errs = append(errs, render.NoVCenter("read", v.Name))
		}
	}
	return fault.Join(errs...)
}

// datacenters returns the configured ones, none for all.
func (s *site) datacenters() (out []string) {
	for _, v := range s.vcenters {
		if v.config != nil {
			out = append(out, v.config.Spec.DatacenterNames()...)
		}
	}
	return out
}

func (s *site) target(ctx context.Context, v configured) (vcenter.Target, error) {
	if v.config == nil {
		return vcenter.Target{}, render.NoVCenter("read", v.Name)
	}
	read, err := credentials.Read(ctx, s.reader, v.config)
	t := vcenter.TargetOf(v.config, "", "", read.CA)
	t.Wrap, t.Agent = s.app.cluster.trace.wrap, accounts.Agent // s.login asks for the certificate
	if s.preferAsked || err != nil && s.login != nil && read.Username == "" && isMissing(err) {
		if _, err := credentials.CA(ctx, s.reader, v.config); err != nil { // else its vCenter would seem a foreign one
			return t, s.inFile(v, err)
		}
		read, err = s.login(ctx, v.Name, t)
		read.Version, t.Given = "", s.given
		t.Proven = s.proof.Proven
	}
	if err != nil {
		return t, s.inFile(v, err)
	}
	t.Username, t.Password, t.Ends = read.Username, vcenter.Password(read.Password), read.Ends
	s.app.paced(&t)
	return t, refusedBefore(v.config, read.Version)
}

func (s *site) open(ctx context.Context, v configured) (*vcenter.Admin, vcenter.Target, error) {
	t, err := s.target(ctx, v)
	if err != nil {
		return nil, t, err
	}
	admin, err := vcenter.Open(ctx, t)
	return admin, t, err
}

// paced lets logins with one account take turns, and repeats no refused one: vCenters may count an account's failures
// together, and lock it. It also traces requests, and names the program.
func (a *app) paced(t *vcenter.Target) {
	t.Wrap, t.Agent = a.cluster.trace.wrap, accounts.Agent
	q := logins.Question{Host: t.Host, Port: t.Port, Username: t.Username, Password: string(t.Password)}
	q.Trust = fmt.Sprintf("%t %q %q", t.Trust.Insecure, t.Trust.Thumbprint, t.Trust.CA)
	t.Turn = func(ctx context.Context, login func() error) error {
		_, err := a.logins.Login(ctx, q, a.now, login)
		return err
	}
}

// inFile adds to the error of a Secret or ConfigMap what a user can do, and the file that was searched for it.
func (s *site) inFile(v configured, err error) error {
	for _, f := range fault.All(err) {
		if f.Reason == fault.Forbidden {
			f.Hint = "have the ClusterRole vdoctl-secrets-reader of rbac-vdoctl.yaml bound to your account"
			if v.config != nil && strings.HasSuffix(f.Subject, "/"+v.config.Spec.Credentials) {
				f.Hint += "; or give the login: `vdoctl users plan --username NAME` or `vdoctl check -f FILE --username NAME`"
			}
		}
		if s.file != "" && f.Reason == fault.NotFound {
			f.Err = fmt.Errorf("%w: the file %s has none", f.Err, s.file)
			f.Hint = "put it into the file: `vdoctl configure -o FILE --vcenter " + v.Name + " --vcenter-ca-file CA.crt`"
			if f.Op == "read the credentials of" {
				f.Hint = "put it into the file; an account is also given by --username and --password-file, or " +
					"`vdoctl users create -f FILE --username ADMIN --secret " + v.config.Spec.Credentials + "`"
			}
		}
	}
	return err
}

func isMissing(err error) bool {
	return !slices.ContainsFunc(fault.All(err), func(f *fault.Error) bool { return f.Reason != fault.NotFound })
}

// refusedBefore returns the refusal that the operator got with exactly these credentials: another try brings the
// account closer to a lock.
func refusedBefore(vcc *v1alpha1.VsphereCloudConfig, version string) error {
	ready := meta.FindStatusCondition(vcc.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || version == "" || vcc.Status.CredentialsVersion != version || vcc.Status.ObservedGeneration != vcc.Generation {
		return nil
	}
	switch reason := fault.Reason(ready.Reason); reason {
	case fault.Unauthorized, fault.AccountLocked:
		return &fault.Error{Reason: reason, Op: "log in to", Subject: vcc.Spec.VcIP,
			Err:  fmt.Errorf("the operator tried the password of Secret %s, and it was refused; vdoctl does not try it again", vcc.Spec.Credentials),
			Hint: "put the right password into the Secret; the operator says of the refusal: " + strings.ReplaceAll(ready.Message, "\n", "; ")}
	}
	return nil
}

const maxFile = 4 << 20

const passwordEnv = "VDO_VCENTER_PASSWORD" //nolint:gosec // a name

type siteFlags struct {
	file                     string
	usernames, passwordFiles []string // [VCENTER=]VALUE
	proof                    vcenter.Proof
	noCluster                bool
	instead                  bool // the account also replaces those of the Secrets in the cluster
}

func (f *siteFlags) bind(fl *pflag.FlagSet) {
	fl.StringVarP(&f.file, "from-file", "f", "", "`FILE` with the VDOConfig, VsphereCloudConfigs and, where it has them, Secrets and ConfigMaps; - for standard input (default: what is in the cluster)")
	fl.StringArrayVar(&f.usernames, "username", nil, "`[VCENTER=]NAME@DOMAIN` to log in with, in place of the Secrets' accounts of the file; may be repeated")
	fl.StringArrayVar(&f.passwordFiles, "password-file", nil, "`[VCENTER=]FILE` with its password (else a prompt or, without VCENTER, "+passwordEnv+"); may be repeated")
	fl.BoolVar(&f.noCluster, "no-cluster", false, "with --from-file: do not ask the cluster for its nodes")
	f.proof.Bind(fl)
}

// effective refuses flags without an effect. The account replaces those of the Secrets in the file, and, with instead,
// of those in the cluster.
func (f *siteFlags) effective(instead bool) error {
	switch {
	case len(f.passwordFiles) > 0 && len(f.usernames) == 0:
		alone := errors.New("--username is not given")
		return flags.Bad("--password-file", f.passwordFiles[0], alone, "give both, or none")
	case len(f.usernames) > 0 && f.file == "" && !instead:
		inCluster := errors.New("the accounts are those of the Secrets in the cluster")
		return flags.Bad("--username", f.usernames[0], inCluster, "leave it out, or check a file: --from-file")
	}
	return nil
}

// isOffline reports whether no cluster is used: none exists yet, or --no-cluster is set.
func (f *siteFlags) isOffline(a *app) bool {
	_, err := a.cluster.client()
	return f.noCluster || f.file != "" && fault.ReasonOf(err) == fault.NotFound && a.cluster.isNone()
}

// isNone reports whether no kubeconfig selects a cluster: none is named, except /dev/null, and the one at the default
// path is empty. An unusable one may be of a running cluster.
func (f *clusterFlags) isNone() bool {
	read, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	named := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	return !f.isNamed() && err == nil && clientcmdapi.IsConfigEmpty(read) && (named == "" || named == os.DevNull)
}

func (f *siteFlags) fileSite(a *app) (site, error) {
	data, err := a.read("--from-file", f.file)
	if err != nil {
		return site{}, err
	}
	read, err := parseSite(f.file, data, a.cluster.namespace)
	if err != nil {
		return site{}, err
	}
	accounts, err := accountsOf(f.file)
	if err != nil {
		return site{}, err
	}
	if err := accounts.sameIn(context.Background(), "the site's file", read); err != nil {
		return site{}, err
	}
	for _, x := range accounts.made.values() {
		read.put(x)
	}
	s := siteOf(read.config, read.vcenters, read)
	if s.file = f.file; s.file == "-" {
		s.file = "standard input"
	}
	return s, nil
}

// readers read the objects that a configuration refers to: each the ones that its predecessors lack.
type readers []client.Reader

func (all readers) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := error(apierrors.NewNotFound(schema.GroupResource{}, key.Name))
	for _, from := range all {
		if err = from.Get(ctx, key, into, opts...); !isGone(err) {
			break
		}
	}
	return err
}

// List is not supported: references need only Get.
func (readers) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.ErrUnsupported
}

func (a *app) read(flag, name string) ([]byte, error) {
	if name == "-" {
		return userfile.ReadFrom(flag, name, a.in, maxFile)
	}
	return userfile.Read(flag, name, maxFile)
}

// asAdmin reads the configuration with the flags' account instead of the Secrets' ones. The flag is required: no
// Secret of the site has an administrator of the vCenters.
func (f *siteFlags) asAdmin(ctx context.Context, a *app, of string, noCluster bool) (site, preflight.Cluster, error) {
	if len(f.usernames) == 0 {
		err := errors.New("who may change " + of + " is not given")
		return site{}, preflight.Cluster{}, flags.Bad("--username", "", err, "give it: --username administrator@vsphere.local")
	}
	if f.noCluster && f.file == "" {
		err := errors.New("the configuration is in the cluster")
		return site{}, preflight.Cluster{}, flags.Bad("--no-cluster", "", err, "add --from-file site.yaml")
	}
	return a.configuration(ctx, f.as(noCluster))
}

// as returns the flags for commands whose account replaces all others.
func (f *siteFlags) as(noCluster bool) siteFlags {
	as := *f
	as.instead, as.noCluster = true, noCluster
	return as
}

// ofFile adds the file to the commands in a text that read a configuration.
func (f *siteFlags) ofFile(text string) string {
	if f.file == "" || f.file == "-" {
		return text
	}
	of := " -f " + fault.Quote(f.file)
	configure := "vdoctl configure -o" + strings.TrimPrefix(of, " -f")
	pairs := []string{"vdoctl configure -o FILE", configure, "vdoctl configure --", configure + " --",
		", with -o FILE for a file", ""}
	for _, command := range []string{
		"users plan", "users create", "users rotate", "users delete", "nodes check", "topology tag", "vms fix",
	} {
		with := of
		if f.noCluster && strings.HasPrefix(command, "users ") { // others look at what nodes use
			with += " --no-cluster"
		}
		command = "vdoctl " + command
		pairs = append(pairs, command+" -f FILE", command+with, command+of, command+with, command, command+with)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// offer adds another way to the hints of an error.
func offer(err error, way string) {
	for _, x := range fault.All(err) {
		x.Hint += "; or " + way
	}
}

// orWithout adds to the hints of a cluster's error that a file needs no cluster.
func (f *siteFlags) orWithout(err error) error {
	if f.file != "" {
		offer(err, "before there is a cluster, add --no-cluster")
	}
	return err
}

func (f *siteFlags) hints(err error) error {
	for _, x := range fault.All(err) {
		x.Hint = f.ofFile(x.Hint)
	}
	return err
}

// passwordOf returns the password in a file, or else in the environment.
func (a *app) passwordOf(flag, file, env string) (password string, known bool, err error) {
	if file == "" {
		password, known = a.getenv(env)
		return password, known, nil
	}
	data, err := a.read(flag, file)
	return strings.TrimRight(string(data), "\r\n"), true, err
}

// perVCenter returns the values of a flag, [VCENTER=]VALUE, by the vCenter's name: "" for one that serves all others.
func (s *site) perVCenter(flag string, entries []string) (map[string]string, error) {
	out := map[string]string{}
	for _, entry := range entries {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || strings.Contains(name, "/") { // a path
			name, value = "", entry
		}
		isHere := func(v configured) bool { return v.Name == name }
		switch _, has := out[name]; {
		case has:
			twice := errors.New("the vCenter has an entry already")
			return nil, flags.Bad(flag, entry, twice, "name each vCenter once: "+flag+" VCENTER=…")
		case value == "":
			return nil, flags.Bad(flag, entry, errors.New("empty"), "give it a value, or leave it out")
		case name != "" && !slices.ContainsFunc(s.vcenters, isHere):
			unknown := fmt.Errorf("the configuration has no VsphereCloudConfig %s", name)
			hint := "correct the name before ="
			if flag == "--password-file" {
				hint += ", or write the path of a file as ./FILE"
			}
			return nil, flags.Bad(flag, entry, unknown, hint)
		}
		out[name] = value
	}
	return out, nil
}

// asks makes the site use the flags' accounts. A password is from a file, the environment or, once it is needed, a
// prompt. The prompt names the server, since others may have written the resource. A missing file is a wrong flag, and
// no finding about a vCenter.
func (f *siteFlags) asks(a *app, s *site) error {
	names, err := s.perVCenter("--username", f.usernames)
	files, errFiles := s.perVCenter("--password-file", f.passwordFiles)
	err = fault.Join(err, errFiles, f.proof.Apply(&s.proof))
	for _, of := range slices.Sorted(maps.Keys(files)) {
		if names[of] == "" {
			alone := errors.New("--username has no entry for it")
			alone = flags.Bad("--password-file", files[of], alone, "put VCENTER= before both, or neither")
			err = fault.Join(err, alone)
		}
	}
	if err != nil || len(names) == 0 && !f.proof.Given() {
		return err
	}
	if s.given = givenLogin; f.proof.Given() {
		s.given = "--username, or the files in the place of its password"
	}
	if len(names) == 0 {
		names[""] = ""
	}
	passwords := map[string]string{}
	for _, of := range slices.Sorted(maps.Keys(names)) {
		password, known, errRead := f.password(a, of, names[of], files[of])
		if err = fault.Join(err, errRead); known {
			passwords[of] = password
		}
	}
	s.login = func(ctx context.Context, of string, at vcenter.Target) (_ credentials.Credentials, err error) {
		if _, ok := names[of]; !ok {
			if _, ok := names[""]; !ok {
				err = fmt.Errorf("it has no entry for vCenter %s", of)
				err = flags.Bad("--username", "", err, "add --username "+of+"=NAME@DOMAIN")
				return credentials.Credentials{}, err
			}
			of = ""
		}
		password, known := passwords[of]
		if !known {
			if err := vcenter.Reach(ctx, at); err != nil {
				return credentials.Credentials{}, err
			}
			q := question{title: fmt.Sprintf("Password of %s at %q", names[of], at.Host), secret: true}
			if password, err = a.prompt(ctx, q); err == nil {
				passwords[of] = password
			}
		}
		return credentials.Credentials{Username: names[of], Password: password}, err
	}
	return err
}

// password returns that of an entry, and whether it is known: else the user is asked later. The environment serves the
// entry without a vCenter.
func (f *siteFlags) password(a *app, of, name, file string) (password string, known bool, err error) {
	if name != "" && (of == "" || file != "") {
		password, known, err = a.passwordOf("--password-file", file, passwordEnv)
	}
	if known = known || f.proof.Given(); !known && !a.interactive() {
		hint := "name a file with --password-file, or set " + passwordEnv
		if of != "" {
			hint += " for the entry without a vCenter"
		}
		err = flags.Bad("--username", strings.TrimPrefix(of+"="+name, "="),
			errors.New("no password, and no terminal to ask for one"), hint)
	}
	return password, known, err
}

// givenLogin is the source of a login from flags.
const givenLogin = "--username, or its password: --password-file, " + passwordEnv + " or the prompt"
