package vdoctl

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/trustflags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/install"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/installer"
)

type deployment struct {
	Target   string          `json:"target"`             // the context and its API server
	Operator string          `json:"operator,omitempty"` // its version
	Bundle   string          `json:"bundle,omitempty"`   // the root's digest
	SignedBy []string        `json:"signedBy,omitempty"`
	Objects  []changedObject `json:"objects"`
	DryRun   bool            `json:"dryRun,omitempty"`
	Message  string          `json:"message"`
}

func (d deployment) objects() []string { return objectsOf(d.Objects) }

type registryFlags struct {
	authFile           string
	caFiles, plainHTTP []string
}

type deployOptions struct {
	*app
	consentFlags
	trustflags.Flags
	registryFlags

	to         install.Options
	manifests  string // FILE, instead of a bundle
	site       string // FILE with the configuration
	unverified bool
	withAccess bool
	force      bool
	downgrade  bool
	timeout    time.Duration

	signers  *trust.Policy // whose signatures are trusted; nil if verification is switched off
	draft    *draft        // of the site's file; nil without one
	accounts *accountFile  // with the accounts that were created before; nil without a site's file
}

func newDeployCommand(a *app) *cobra.Command {
	o := &deployOptions{app: a}
	cmd := &cobra.Command{
		Use: "deploy BUNDLE", Short: "Install or upgrade the operator from the mirror",
		Long: `Verifies the signature of a bundle in the mirror, REGISTRY/REPO:TAG. It installs or upgrades the
operator from it, and waits until it runs. With -f it then writes the configuration of a file,
and moves the records of users create into the cluster. Run an interrupted command again: it
continues.`,
		Example: `  vdoctl deploy registry.site/vdo/drivers:1 --key vdo.pub --ca-file mirror-ca.crt --with-access
  vdoctl deploy registry.site/vdo/drivers:1 --key vdo.pub --with-access -f site.yaml
  vdo-bundle install-manifests drivers.tar --repository registry.site/vdo/drivers --key vdo.pub | vdoctl deploy --manifests - --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.manifests != "" {
				return flags.Exactly()(cmd, args)
			}
			return flags.Exactly("BUNDLE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cmp.Or(o.meaningless(cmd.Flags()), isWait(o.timeout)); err != nil {
				return err
			}
			return o.run(cmd.Context(), strings.Join(args, ""))
		},
	}
	o.bind(cmd)
	return cmd
}

// ofBundle are the flags that choose, verify or read a bundle's manifests: with --manifests they would do nothing.
var ofBundle = []string{"repository", "antrea", "classes", "mirror-set", "rbac-policy", "host-network", "with-access",
	"key", "policy", "without-verification", "ca-file", "authfile", "plain-http"}

func (o *deployOptions) meaningless(fl *pflag.FlagSet) (err error) {
	fl.Visit(func(f *pflag.Flag) {
		if err == nil && o.manifests != "" && slices.Contains(ofBundle, f.Name) {
			why := errors.New("--manifests applies the whole file, and reads no bundle")
			err = flags.Bad("--"+f.Name, f.Value.String(), why, "name the bundle in the place of --manifests")
		}
	})
	return err
}

// isWait refuses the limit of a wait that could only fail.
func isWait(limit time.Duration) error {
	if limit >= time.Second {
		return nil
	}
	short := errors.New("it is too short to wait for anything")
	return flags.Bad("--timeout", limit.String(), short, "give one second or more, such as 5m")
}

func (o *deployOptions) bind(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&o.to.Repository, "repository", "", "`REGISTRY/REPO` in the site that the bundle was pushed to (default BUNDLE's)")
	fl.StringVar(&o.manifests, "manifests", "", "`FILE` that vdo-bundle install-manifests wrote, instead of a bundle; - for standard input")
	fl.StringVarP(&o.site, "from-file", "f", "", "`FILE` with the site's configuration, to write once the operator runs, with the accounts that users create made for it")
	fl.BoolVar(&o.to.Antrea, "antrea", false, "with the permissions that the operator needs to install Antrea")
	fl.BoolVar(&o.to.Classes, "classes", false, "with the permissions that the operator needs to make StorageClasses and VolumeSnapshotClasses")
	fl.BoolVar(&o.to.MirrorSet, "mirror-set", false, "with the permissions that the operator needs to lead OpenShift's nodes to the mirror")
	fl.BoolVar(&o.to.Policy, "rbac-policy", false,
		"with the admission policy that limits what permissions the operator can give (Kubernetes 1.30 and later)")
	fl.BoolVar(&o.to.HostNetwork, "host-network", false, "on the nodes' network, for a cluster whose network plug-in the operator installs")
	fl.BoolVar(&o.withAccess, "with-access", false, "put the keys or policy, the CA and the login of the mirror that are used here into the operator's namespace too (vdo-trust, vdo-registry-ca, vdo-registry); what is there stays")
	fl.BoolVar(&o.force, "force-conflicts", false, "overwrite fields that other managers have set")
	fl.BoolVar(&o.downgrade, "allow-downgrade", false, "install an operator older than the running one (not supported)")
	fl.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long (`DURATION`) to wait")
	o.consentFlags.bind(cmd)
	flags.Group(cmd, flags.Trust, func(fl *pflag.FlagSet) {
		o.Bind(fl)
		fl.BoolVar(&o.unverified, "without-verification", false, "install an unsigned bundle")
	})
	flags.Group(cmd, flags.Registries, func(fl *pflag.FlagSet) {
		fl.StringArrayVar(&o.caFiles, "ca-file", nil, "PEM `FILE` of CA certificates to trust besides the system's (repeatable)")
		fl.StringVar(&o.authFile, "authfile", "", "`FILE` with logins of registries (default: those of docker and podman)")
		fl.StringArrayVar(&o.plainHTTP, "plain-http", nil, "speak HTTP without TLS to this `HOST[:PORT]` (repeatable)")
	})
	o.bindFormat(cmd, nameFormat)
}

func (o *deployOptions) run(ctx context.Context, src string) error {
	out, objects, err := o.render(ctx, src)
	if err != nil {
		return err
	}
	conf, err := o.configuration(ctx, src)
	access, errAccess := o.access(ctx)
	if o.withAccess {
		objects, err = append(objects, access...), cmp.Or(err, errAccess)
	}
	if err != nil {
		return err
	}
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	out.Target = o.cluster.target()
	if err := o.cluster.ownOperator(ctx, c, "deploy"); err != nil {
		return err
	}
	err = namespaceEnds(ctx, c, o.cluster.namespace)
	if err == nil && o.accounts != nil {
		err = o.accounts.sameIn(ctx, inCluster, c)
	}
	if err != nil {
		return err
	}
	to := &applier{Client: c, force: o.force, downgrade: o.downgrade}
	// The new CRDs may take what is invalid now.
	isLater := func(err error) bool { return !o.dryRun && fault.ReasonOf(err) == fault.InvalidInput }
	out.Objects, err = to.all(ctx, slices.Concat(objects, conf), true)
	if err = fault.Join(slices.DeleteFunc(fault.Split(err), isLater)...); err != nil {
		return err
	}
	o.warnOfAccess(ctx, c, access)
	o.warnOfPorts(ctx, c, objects)
	if err := o.asks(ctx, len(objects), out); err != nil {
		return err
	}
	if !o.dryRun {
		if out.Objects, err = o.install(ctx, to, objects, conf); err != nil {
			return err
		}
	}
	for i := range out.Objects {
		if x := &out.Objects[i]; x.New {
			x.Fields = nil // all are new
		}
	}
	out.DryRun, out.Message = o.dryRun, o.next()
	return o.print(out, func(l *lines) { o.text(l, out) })
}

// asks shows the changes of existing objects, and asks for consent.
func (o *deployOptions) asks(ctx context.Context, objects int, d deployment) error {
	what := strings.Join(strings.Fields("vdo-operator "+d.Operator+" "+signedBy(d)), " ")
	if o.site != "" {
		what += " and the configuration of " + fault.Quote(o.site)
	}
	isSame := func(x changedObject) bool { return x.State != stateChanged }
	changes := slices.DeleteFunc(slices.Clone(d.Objects), isSame)
	question := fmt.Sprintf("Apply %d objects of %s to %s?", objects, what, d.Target)
	return o.agree(ctx, o.consentFlags, func(l *lines) { l.changes(changes) }, question)
}

// install applies the operator's objects, and the configuration once it runs.
func (o *deployOptions) install(
	ctx context.Context, to *applier, objects, conf []client.Object,
) ([]changedObject, error) {
	done, err := to.all(ctx, objects, false)
	if err != nil {
		return nil, err
	}
	op := "wait for the operator " + o.cluster.namespace + "/" + operatorDeployment
	hint := "see `kubectl -n " + o.cluster.namespace + " describe pods`; then run the same command again"
	look := func() (string, error) { return o.notReady(ctx, to) }
	if err := o.wait(ctx, o.timeout, op, hint, look); err != nil || o.site == "" {
		return done, err
	}
	if err := o.accounts.sameIn(ctx, inCluster, to); err != nil { // again: the wait was long
		return nil, err
	}
	configured, err := to.all(ctx, conf, false)
	if err == nil {
		err = o.accounts.remove()
	}
	return append(done, configured...), err
}

func signedBy(d deployment) string {
	if len(d.SignedBy) == 0 {
		return "(not verified)"
	}
	return "(signed by " + strings.Join(d.SignedBy, " and ") + ")"
}

func (o *deployOptions) next() string {
	switch {
	case o.dryRun:
		return "Nothing was changed: --dry-run."
	case o.site != "":
		return "the operator runs, and has its configuration; next: `vdoctl status --watch`"
	}
	return "the operator runs; next: `vdoctl configure`"
}

func (o *deployOptions) render(ctx context.Context, src string) (deployment, []client.Object, error) {
	var out deployment
	if o.manifests != "" {
		data, err := o.read("--manifests", o.manifests)
		if err != nil {
			return out, nil, err
		}
		objects, err := o.parsed(o.manifests, data)
		return out, objects, err
	}
	if err := o.readPolicy(); err != nil {
		return out, nil, err
	}
	b, closes, err := o.open(ctx, src)
	if err != nil {
		return out, nil, err
	}
	defer closes()
	if o.signers != nil {
		if out.SignedBy, err = b.Verify(ctx, o.signers, o.now()); err != nil {
			return out, nil, err
		}
	}
	m, err := b.Manifests(ctx, o.to)
	if err != nil {
		return out, nil, err
	}
	out.Operator, out.Bundle = m.Version.String(), m.Root.String()
	objects, err := o.parsed(src, m.YAML)
	return out, objects, err
}

func (o *deployOptions) text(l *lines, d deployment) {
	l.printf("%s, namespace %s", d.Target, o.cluster.namespace)
	if d.Operator != "" {
		l.printf("vdo-operator %s %s, bundle %s", d.Operator, signedBy(d), d.Bundle)
	}
	l.changes(d.Objects)
	l.printf("%s", d.Message)
}

const operatorDeployment = "vdo-operator"

// parsed reads manifests, for the requested namespace. It puts the drivers' namespaces first: manifests lack them,
// since manifests are also used for deletion.
func (o *deployOptions) parsed(name string, data []byte) ([]client.Object, error) {
	objects, err := o.readManifest(data)
	operator := "Deployment " + o.cluster.namespace + "/" + operatorDeployment
	if err == nil && !slices.Contains(described(objects), operator) {
		err = fmt.Errorf("it does not have the operator: %s", operator)
	}
	if err != nil {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read install manifests", Subject: name, Err: err, Hint: "write them with `vdo-bundle install-manifests`"}
	}
	namespaces, err := readManifest(deploy.DriverNamespaces().Data)
	return append(namespaces, objects...), err
}

func (o *deployOptions) notReady(ctx context.Context, c client.Client) (string, error) {
	var d appsv1.Deployment
	if err := c.Get(ctx, client.ObjectKey{Namespace: o.cluster.namespace, Name: operatorDeployment}, &d); err != nil {
		return "", clusterstate.Fault("read the operator's Deployment", err)
	}
	up, want := clusterstate.NewPods(&d)
	if up >= want && d.Status.Replicas <= want {
		return "", nil
	}
	return fmt.Sprintf("the operator: %d of %d pods are new and up", up, want), nil
}

// configuration returns the accounts that were created before, and the resources of the file, as `configure
// --from-file` would write them.
func (o *deployOptions) configuration(ctx context.Context, src string) ([]client.Object, error) {
	if o.site == "" {
		return nil, nil
	}
	conf := newConfigure(o.app)
	conf.file = o.site
	d, err := conf.begin()
	o.draft = d
	if err != nil {
		return nil, err
	}
	if o.accounts, err = accountsOf(o.site); err == nil {
		err = o.accounts.sameIn(ctx, "the site's file", d)
	}
	if err != nil {
		return nil, err
	}
	if d.config == nil {
		return nil, fault.Errorf(fault.NotFound, "read", o.site, "write one with `vdoctl configure -o FILE`",
			"it has no VDOConfig")
	}
	d.makeMissing()
	d.nameBundle()
	if d.bundle.Spec.Reference == "" {
		d.bundle.Spec.Reference = src
	}
	if d.bundle.Spec.Reference == "" {
		return nil, fault.Errorf(fault.NotFound, "read", o.site,
			"add one, whose spec.reference is REGISTRY/REPO:TAG of the bundle in the mirror",
			"it has no DriverBundle, and --manifests does not say where the bundle is")
	}
	all, err := d.manifests(ctx)
	return append(o.accounts.made.values(), all...), err
}

func (o *deployOptions) readPolicy() (err error) {
	o.signers, err = o.Flags.Read(func(flag, name string, _ int64) ([]byte, error) { return o.read(flag, name) })
	switch {
	case err != nil:
		return err
	case o.signers == nil && !o.unverified:
		return &fault.Error{Reason: fault.InvalidInput, Op: "verify the bundle",
			Err:  errors.New("it is not said whose signature the bundle needs"),
			Hint: "give the key that signed it with --key, or a policy with --policy; or say --without-verification"}
	case o.signers != nil && o.unverified:
		both := errors.New("--key or --policy is given as well")
		return flags.Bad("--without-verification", "true", both, "give one of them")
	}
	return nil
}

func (o *deployOptions) credentials() (remote.CredentialFunc, error) {
	if o.authFile == "" {
		return remote.DefaultCredentials, nil
	}
	data, err := o.read("--authfile", o.authFile)
	if err != nil {
		return nil, err
	}
	return remote.ConfigCredentials(o.authFile, data)
}

// isFile reports whether a source is a file or directory and no reference, as vdo-bundle does.
func isFile(src string) bool {
	return isBundle(src) || strings.HasPrefix(src, "/") || strings.HasPrefix(src, "./") || strings.HasPrefix(src, "../")
}

func isBundle(src string) bool {
	return strings.HasSuffix(src, ".tar") || strings.HasSuffix(src, ".parts") || strings.HasPrefix(src, "oci:")
}

func inMirror(flag, name, hint string) (image.Reference, error) {
	ref, err := image.ParseHosted(name)
	if isFile(name) {
		err = errors.New("it is a file")
	}
	if err != nil {
		err = flags.Bad(flag, name, err, hint)
	}
	return ref, err
}

func (o *deployOptions) open(ctx context.Context, src string) (*installer.Bundle, func(), error) {
	if o.to.Repository != "" {
		ref, err := image.ParseHosted(o.to.Repository)
		if err != nil {
			return nil, nil, flags.Bad("--repository", o.to.Repository, err, "write REGISTRY/REPO")
		}
		o.to.Repository = ref.Repository()
	}
	ref, err := inMirror("BUNDLE", src, "write REGISTRY/REPO:TAG of the mirror, or, to install from "+
		"a file, `vdo-bundle install-manifests FILE --repository REGISTRY/REPO | vdoctl deploy --manifests - --yes`")
	if err != nil {
		return nil, nil, err
	}
	if o.to.Repository == "" {
		o.to.Repository = ref.Repository()
	}
	find, err := o.credentials()
	if err != nil {
		return nil, nil, err
	}
	login := ""
	for _, name := range o.caFiles {
		login += " " + fault.Quote("--ca-file", name)
	}
	if o.authFile != "" {
		login += " " + fault.Quote("--authfile", o.authFile)
	}
	c, err := remote.NewClient(remote.Options{Credentials: find, CAFiles: o.caFiles, PlainHTTP: o.plainHTTP,
		UserAgent: "vdoctl/" + o.build.Version, LoginFlags: login})
	if err != nil {
		return nil, nil, err
	}
	b, err := installer.Open(ctx, c, ref)
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return b, func() { _ = c.Close() }, nil
}

// access returns the ConfigMaps and the Secret that the operator finds by fixed names, with the keys, CA and login
// used here.
func (o *deployOptions) access(ctx context.Context) ([]client.Object, error) {
	if o.manifests != "" || !o.withAccess && o.draft == nil {
		return nil, nil
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: o.cluster.namespace, Name: name}
	}
	var out []client.Object
	if o.signers != nil {
		data, err := o.signers.YAML()
		if err != nil {
			return nil, err
		}
		out = append(out, &corev1.ConfigMap{ObjectMeta: meta(v1alpha1.DefaultTrustName), Data: map[string]string{v1alpha1.DefaultTrustPolicyKey: string(data)}})
	}
	var authorities string
	for _, name := range o.caFiles {
		data, err := o.read("--ca-file", name)
		if err != nil {
			return nil, err
		}
		authorities += string(data) + "\n" // a file may end without
	}
	if authorities != "" {
		out = append(out, &corev1.ConfigMap{ObjectMeta: meta(v1alpha1.DefaultCAName), Data: map[string]string{v1alpha1.DefaultCAKey: authorities}})
	}
	login, err := o.login(ctx)
	if login != nil {
		out = append(out, &corev1.Secret{ObjectMeta: meta(v1alpha1.DefaultPullSecretName), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: login}})
	}
	return out, err
}

// tokenUsers are users of registries whose passwords are tokens that end within hours: Amazon's, Google's, Azure's.
var tokenUsers = []string{"AWS", "oauth2accesstoken", "00000000-0000-0000-0000-000000000000"}

// login returns a docker configuration with the mirror's login, nil if it has none. Nodes know user and password only.
func (o *deployOptions) login(ctx context.Context) ([]byte, error) {
	ref, err := image.ParseReference(o.to.Repository)
	if err != nil {
		return nil, err
	}
	find, err := o.credentials()
	if err != nil {
		return nil, err
	}
	c, err := find(ctx, ref.Host(), ref.Path())
	if err != nil || c == (remote.Credential{}) {
		return nil, err
	}
	if c.RefreshToken+c.AccessToken != "" || slices.Contains(tokenUsers, c.Username) {
		return nil, fault.Errorf(fault.Refused, "store", c.String(), "give user and password of an account that may only "+
			"pull: --authfile FILE; or leave out --with-access", "it is a token, which nodes cannot use, or only for hours")
	}
	auth := base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))
	return json.Marshal(map[string]any{"auths": map[string]any{ref.Host(): map[string]string{"auth": auth}}})
}

// warnOfAccess warns if trust, CA or login of the file's bundle are missing, or others than those that are used here.
// It also warns if a vCenter's account or CA is in neither file nor cluster.
func (o *deployOptions) warnOfAccess(ctx context.Context, c client.Reader, here []client.Object) {
	if o.draft == nil {
		return
	}
	d := o.draft
	all := append(append(readers{o.accounts.made}, d.readers...), c)
	for i := range d.vcenters {
		if _, err := credentials.Read(ctx, all, &d.vcenters[i]); isMissing(err) {
			o.warning(err)
		}
	}
	for _, x := range referenced(d.namespace, referencesOf([]client.Object{d.bundle})...) {
		i := slices.Index(described(here), describeObject(x))
		optional := slices.Contains([]string{"", v1alpha1.DefaultPullSecretName, v1alpha1.DefaultCAName}, x.GetName())
		if i < 0 && optional {
			continue
		}
		why, hint := "the DriverBundle needs it, and it is not there", "create it"
		if i >= 0 {
			hint = "add --with-access"
		}
		err := all.Get(ctx, client.ObjectKeyFromObject(x), x)
		if err == nil && i >= 0 && differs(here[i], x) {
			why, hint = "it has another content than what is used here, and stays", "to replace it, delete it and add --with-access"
		} else if !isGone(err) || i >= 0 && o.withAccess {
			continue
		}
		o.warning(fault.Errorf(fault.NotFound, "use", describeObject(x), hint, "%s", why))
	}
}

// differs reports whether a ConfigMap lacks the CA of another one. Policies and logins have many forms.
func differs(want, is client.Object) bool {
	ca, ok := want.(*corev1.ConfigMap)
	if !ok {
		return false
	}
	old, known := is.(*corev1.ConfigMap).Data[v1alpha1.DefaultCAKey] //nolint:forcetypeassert,errcheck // the same kind
	return known && !strings.Contains(old, strings.TrimSpace(ca.Data[v1alpha1.DefaultCAKey]))
}

// warnOfPorts warns if the NetworkPolicies of the operator close the port of the mirror or of a vCenter of the file.
func (o *deployOptions) warnOfPorts(ctx context.Context, c client.Reader, installed []client.Object) {
	var policies networkingv1.NetworkPolicyList
	_ = c.List(ctx, &policies, client.InNamespace(o.cluster.namespace)) // those of the site; or a warning too much
	for _, u := range ofType[*unstructured.Unstructured](installed) {
		var p networkingv1.NetworkPolicy
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p)
		if err == nil && u.GetKind() == "NetworkPolicy" {
			policies.Items = append(policies.Items, p)
		}
		if on, _, _ := unstructured.NestedBool(u.Object, "spec", "template", "spec", "hostNetwork"); on {
			return // they do not apply to the nodes' network
		}
	}
	d := cmp.Or(o.draft, &draft{objects: &objects{bundle: &v1alpha1.DriverBundle{}}})
	mirror, _ := image.ParseHosted(cmp.Or(d.bundle.Spec.Reference, o.to.Repository))
	uses := []string{mirror.Host()}
	for _, v := range d.vcenters {
		uses = append(uses, net.JoinHostPort(v.Spec.VcIP, strconv.Itoa(int(cmp.Or(v.Spec.Port, 443)))))
	}
	for _, address := range uses {
		_, port, _ := net.SplitHostPort(address)
		if n, err := strconv.Atoi(port); err == nil && isClosed(policies.Items, int32(n)) { //nolint:gosec // a port
			o.warning(fault.Errorf(fault.Refused, "use", address, "apply a NetworkPolicy that opens it beside "+
				"those of the namespace", "the operator's NetworkPolicies close port %s", port))
		}
	}
}

func isClosed(policies []networkingv1.NetworkPolicy, port int32) bool {
	for i := range policies {
		for _, rule := range policies[i].Spec.Egress {
			if len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
				return p.Port == nil || p.Port.IntVal <= port && port <= max(p.Port.IntVal, ptr.Deref(p.EndPort, 0))
			}) {
				return false
			}
		}
	}
	return len(policies) > 0
}
