package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/trustflags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/install"
)

// deployment is what deploy prints.
type deployment struct {
	Target   string     `json:"target"`             // the context and its API server
	Operator string     `json:"operator,omitempty"` // its version
	Bundle   string     `json:"bundle,omitempty"`   // the root's digest
	SignedBy []string   `json:"signedBy,omitempty"`
	Objects  []deployed `json:"objects"`
	DryRun   bool       `json:"dryRun,omitempty"`
	Message  string     `json:"message"`
}

// deployed is what became of one object: created, changed, adopted, unchanged or kept.
type deployed struct {
	Object string `json:"object"`
	State  string `json:"state"`
}

type deployOptions struct {
	*app
	outputFlags
	consentFlags
	trustflags.Flags
	accessFlags

	to         install.Options
	manifests  string // FILE, instead of a bundle
	unverified bool
	withAccess bool
	force      bool
	noWait     bool
	timeout    time.Duration
}

// accessFlags say how the mirror is spoken to.
type accessFlags struct {
	caFile, authFile string
	plainHTTP        []string
}

func newDeployCommand(a *app) *cobra.Command {
	o := &deployOptions{app: a}
	cmd := &cobra.Command{
		Use: "deploy BUNDLE", Short: "Install or upgrade the operator from a bundle or the mirror",
		Long: `Installs the operator that a bundle holds, as ` + "`vdo-bundle install-manifests | kubectl apply`" + `
does: the manifests come from the bundle, whose signature is verified first, and the image is
REGISTRY/REPO@DIGEST of the mirror. BUNDLE is REGISTRY/REPO:TAG of the mirror, or FILE.tar or
oci:DIR with --repository. It applies by server-side apply and waits until the operator runs.
Interrupted, it goes on when it is run again; an operator that is there is upgraded.

Fields that somebody else has set are not taken from them without --force-conflicts: an
argument that was added to the Deployment, --trust-floor for instance, would be lost.
Objects that stay as they are, and whose fields are vdoctl's from then on, are "adopted".`,
		Example: `  vdoctl deploy registry.site/vdo/drivers:1 --key vdo.pub --ca-file mirror-ca.crt --with-access
  vdoctl deploy drivers.tar --repository registry.site/vdo/drivers --key vdo.pub --dry-run
  vdo-bundle install-manifests drivers.tar.parts --repository registry.site/vdo/drivers --key vdo.pub | vdoctl deploy --manifests - --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.manifests != "" {
				return flags.Exactly()(cmd, args)
			}
			return flags.Exactly("BUNDLE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), strings.Join(args, "")) },
	}
	o.bind(cmd)
	return cmd
}

func (o *deployOptions) bind(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&o.to.Repository, "repository", "", "`REGISTRY/REPO` in the site that the bundle was pushed to (default BUNDLE's)")
	fl.StringVar(&o.manifests, "manifests", "", "`FILE` that vdo-bundle install-manifests wrote, instead of a bundle; - for standard input")
	fl.BoolVar(&o.to.Antrea, "antrea", false, "with the rights that the operator needs to install Antrea")
	fl.BoolVar(&o.to.Classes, "classes", false, "with the rights that the operator needs to make StorageClasses and VolumeSnapshotClasses")
	fl.BoolVar(&o.to.MirrorSet, "mirror-set", false, "with the rights that the operator needs to lead OpenShift's nodes to the mirror")
	fl.BoolVar(&o.to.Policy, "rbac-policy", false,
		"with the admission policy that limits what rights the operator can give (Kubernetes 1.30 and later)")
	fl.BoolVar(&o.to.HostNetwork, "host-network", false, "on the nodes' network, for a cluster whose network plug-in the operator installs")
	fl.BoolVar(&o.withAccess, "with-access", false, "put the keys or policy, the CA and the login of the mirror that are used here into the operator's namespace too (vdo-trust, vdo-registry-ca, vdo-registry); what is there stays")
	fl.BoolVar(&o.force, "force-conflicts", false, "take fields over that somebody else has set")
	fl.BoolVar(&o.noWait, "no-wait", false, "do not wait until the operator runs")
	fl.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long (`DURATION`) to wait")
	o.consentFlags.bind(cmd)
	flags.Group(cmd, flags.Trust, func(fl *pflag.FlagSet) {
		o.Bind(fl)
		fl.BoolVar(&o.unverified, "without-verification", false, "install what nobody's signature vouches for")
	})
	flags.Group(cmd, flags.Registries, o.accessFlags.bind)
	o.outputFlags.bind(cmd)
}

func (f *accessFlags) bind(fl *pflag.FlagSet) {
	fl.StringVar(&f.caFile, "ca-file", "", "PEM `FILE` of certificate authorities to trust besides the system's")
	fl.StringVar(&f.authFile, "authfile", "", "`FILE` with logins of registries (default: those of docker and podman)")
	fl.StringArrayVar(&f.plainHTTP, "plain-http", nil, "speak HTTP without TLS to this `HOST[:PORT]` (repeatable)")
}

func (o *deployOptions) run(ctx context.Context, src string) error {
	out, objects, err := o.render(ctx, src)
	if err != nil {
		return err
	}
	if out.Target, err = o.cluster.target(); err != nil {
		return err
	}
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	if !o.dryRun {
		operator := strings.Join(strings.Fields("vdo-operator "+out.Operator+" "+o.signers(out)), " ")
		question := fmt.Sprintf("Apply %d objects of %s to %s?", len(objects), operator, out.Target)
		if err := o.consent(ctx, o.consentFlags, question); err != nil {
			return err
		}
	}
	if err := o.applyAll(ctx, c, objects, &out); err != nil {
		return err
	}
	if out.DryRun = o.dryRun; !o.dryRun && !o.noWait {
		if err := o.waitReady(ctx, c); err != nil {
			return err
		}
	}
	out.Message = o.next()
	return o.print(o.out, out, func(w io.Writer) error { return o.text(w, out) })
}

func (o *deployOptions) signers(d deployment) string {
	if len(d.SignedBy) == 0 {
		return "(not verified)"
	}
	return "(signed by " + strings.Join(d.SignedBy, " and ") + ")"
}

// next is what the user does next.
func (o *deployOptions) next() string {
	switch {
	case o.dryRun:
		return "Nothing was changed: --dry-run."
	case o.noWait:
		return "see that it runs: `vdoctl version`"
	}
	return "the operator runs; next: `vdoctl configure`"
}

// render returns the objects to apply, and what they are from.
func (o *deployOptions) render(ctx context.Context, src string) (deployment, []client.Object, error) {
	out := deployment{Objects: []deployed{}}
	if o.manifests != "" {
		data, err := o.read("--manifests", o.manifests)
		if err != nil {
			return out, nil, err
		}
		objects, err := o.parsed(o.manifests, data)
		return out, objects, err
	}
	m, signers, err := o.fromBundle(ctx, src)
	if err != nil {
		return out, nil, err
	}
	out.Operator, out.Bundle, out.SignedBy = m.Version.String(), m.Root.String(), signers
	objects, err := o.parsed(src, m.YAML)
	if err != nil || !o.withAccess {
		return out, objects, err
	}
	access, err := o.access(ctx)
	return out, append(objects, access...), err
}

// applyAll applies the objects in their order, and notes what became of each.
func (o *deployOptions) applyAll(ctx context.Context, c client.Client, objects []client.Object, out *deployment) error {
	p := o.progress()
	defer p.end()
	doing := "applying"
	if o.dryRun {
		doing = "trying"
	}
	for i, x := range objects {
		p.show(fmt.Sprintf("%s %d of %d: %s", doing, i+1, len(objects), describeObject(x)))
		state, err := o.apply(ctx, c, x)
		if err != nil {
			return err
		}
		out.Objects = append(out.Objects, deployed{describeObject(x), state})
	}
	return nil
}

func (o *deployOptions) text(w io.Writer, d deployment) error {
	l := &lines{w: w}
	l.printf("%s, namespace %s", d.Target, o.cluster.namespace)
	if d.Operator != "" {
		l.printf("%s %s %s, bundle %s", o.paint(bold, "vdo-operator"), d.Operator, o.signers(d), d.Bundle)
	}
	for _, x := range d.Objects {
		l.printf("  %-9s  %s", x.State, x.Object)
	}
	l.printf("%s", d.Message)
	return l.err
}

var errNoTrust = errors.New("it is not said whose signature the bundle needs")
