package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/trustflags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/provenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/pull"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

type pullOptions struct {
	lockFlags
	upstreamFlags
	signingFlags
	lockFile   string
	provenance bool
}

const pullHelp = `pull fetches the manifests and images of a lock, or of the same selection that
lock takes, and writes them as one bundle to DEST: FILE.tar, oci:DIR,
REGISTRY/REPO[:TAG], or - for standard output. Run an interrupted or incomplete pull
again: it continues. Two runs never write one place at once.

With --base it makes a delta without the layers of an earlier bundle, or of the receipt of a
push. push demands these layers in the registry.

--verify-upstream FILE checks the images' own signatures before anything is written. An
image without a rule is refused. The file:

  apiVersion: vdo.vmware.com/upstream/v1
  kind: UpstreamPolicy
  rules:                                 # the most specific one holds
  - images: registry.k8s.io              # HOST or HOST/PATH, and all below it
    policy: kubernetes.yaml              # a trust policy, as of verify --policy
  - images: registry.k8s.io/csi-vsphere
    unsigned: true                       # not checked`

func newPullCommand(a *app) *cobra.Command {
	o := &pullOptions{lockFlags: lockFlags{common: common{app: a}}}
	cmd := &cobra.Command{
		Use:   "pull -o DEST",
		Short: "Pull drivers into a bundle",
		Long:  pullHelp,
		Example: `  vdo-bundle pull -o drivers.tar
  vdo-bundle pull --lock lock.yaml --sign-key release.key -o drivers.tar
  vdo-bundle pull --verify-upstream upstream.yaml --upstream-signatures images -o drivers.tar
  vdo-bundle pull --k8s 1.33 --source-map registry.k8s.io=mirror.corp/k8s -o oci:drivers
  vdo-bundle pull --lock lock.yaml -o drivers.tar --dry-run
  vdo-bundle pull --lock lock.yaml --sign-key release.key -o - | ssh isolated-host vdo-bundle push - registry.site/vdo/drivers:1 --key release.pub
  vdo-bundle pull --lock lock.yaml --volume-size 4GB --parity 1 -o drivers.tar
  vdo-bundle pull --lock new.yaml --base drivers.tar -o delta.tar`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.bind(cmd)
	return cmd
}

func (o *pullOptions) bind(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&o.dest, "output", "o", "", "where (`DEST`) to write the bundle: FILE.tar, oci:DIR, REGISTRY/REPO[:TAG], or - for standard output")
	o.bindTarget(cmd)
	fl.StringVar(&o.base, "base", "", "make a delta: leave out the layers that the far side has, as an earlier bundle or the receipt of a push says: `BUNDLE|RECEIPT`")
	o.bindVolumes(cmd)
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.StringVar(&o.lockFile, "lock", "", "pull what this `LOCK` names, instead of a selection")
	})
	with(cmd, o.bindLock, o.upstreamFlags.bind, o.bindSignatureFormat)
	o.signingFlags.bind(cmd, "sign-key", "sign the bundle with this private `KEY` (as sign --key)", &o.common)
	flags.Group(cmd, flags.Signing, func(fl *pflag.FlagSet) {
		fl.BoolVar(&o.provenance, "provenance", false, "attach a statement of how the bundle was built (SLSA, in-toto), signed with --sign-key")
	})
	with(cmd, o.registryFlags.bind, o.bindUpload, o.bindFormat, o.bindProgress)
}

func (o *pullOptions) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	dest, err := o.destination(cmd)
	if err != nil {
		return err
	}
	w, in, err := o.input(cmd, dest)
	if err != nil {
		return err
	}
	in.Target, err = o.openTarget(dest, w.client)
	if err != nil {
		return err
	}
	pulled, err := o.pull(ctx, w, in)
	if err != nil {
		o.sayUnused(ctx)
	}
	if err := fault.Join(err, in.Target.Close()); err != nil {
		return err
	}
	o.sayUpstream(&o.common, pulled)
	return o.showMoved(o.inParts(dest), pulled)
}

// input opens all inputs except the lock, and checks early for likely failures.
func (o *pullOptions) input(cmd *cobra.Command, dest location) (w world, in pull.Input, err error) {
	ctx := cmd.Context()
	if w, err = o.world(); err != nil {
		return w, in, err
	}
	in = pull.Input{
		Input:  upstream.Input{Registry: w.Registry, Carry: upstream.Carry(o.carry)},
		Matrix: w.Matrix, Manifests: w.Manifests, Reference: dest.reference, SignatureFormat: signatures.Format(o.form),
	}
	if o.provenance {
		in.Provenance = &provenance.Builder{Version: version().Version, Revision: version().Revision}
	}
	if dest.store == inRegistry {
		in.Mirror = direct(w.client)
	}
	if in.Base, err = o.openBase(ctx, w.client); err != nil {
		return w, in, err
	}
	if in.Signer, err = o.signer(ctx); err != nil {
		return w, in, err
	}
	if in.Signer == nil && o.provenance {
		return w, in, flags.Usage(cmd, "--provenance requires --sign-key: an unsigned statement proves nothing")
	}
	in.Policy, err = o.upstreamPolicy()
	return w, in, err
}

func (o *pullOptions) pull(ctx context.Context, w world, in pull.Input) (*pull.Pulled, error) {
	if err := in.Target.Ready(ctx, 0); err != nil {
		return nil, err
	}
	var err error
	if in.Lock, in.Files, err = o.readLock(ctx, w); err != nil {
		return nil, err
	}
	return pull.Bundle(ctx, in, o.options())
}

// destination reads -o, and refuses contradicting flags.
func (o *pullOptions) destination(cmd *cobra.Command) (location, error) {
	if flag, ok := selects(cmd); ok && o.lockFile != "" {
		return location{}, flags.Usage(cmd, fmt.Sprintf("--lock and %s cannot be combined: the lock says what is pulled", flag))
	}
	dest, err := parseLocation(o.dest)
	return dest, fault.Join(err, dest.writable(), o.checkVolumes(cmd, dest), o.checkBase(dest))
}

// readLock reads the lock of --lock, or creates one.
func (o *pullOptions) readLock(ctx context.Context, w world) (*bundle.Lock, catalog.Files, error) {
	if o.lockFile == "" {
		return o.lockFlags.lock(ctx, w)
	}
	lock, err := userfile.Parse("--lock", o.lockFile, bundle.MaxLockSize, bundle.ParseLock)
	return lock, nil, err
}

// checkBase refuses targets that cannot hold a delta.
func (o *pullOptions) checkBase(dest location) error {
	if o.base == "" {
		return nil
	}
	if dest.store != inRegistry {
		base, err := parseLocation(o.base)
		if err != nil { // an inventory
			base = location{store: inFile, path: o.base}
		}
		return apart(dest, base)
	}
	return flags.Bad("-o", dest.String(), errors.New("a delta is not a complete bundle, and a registry holds only such"),
		"write the delta to FILE.tar or oci:DIR, and push it where its base is")
}

// openBase reads the inventory of --base, or makes that of a bundle, for a delta with what it omits; nil if not given.
// It reads a file as a bundle only if its name is a bundle's.
func (o *pullOptions) openBase(ctx context.Context, client *remote.Client) (*bundle.Receipt, error) {
	if o.base == "" {
		return nil, nil
	}
	p, err := parseLocation(o.base)
	info, statErr := os.Stat(o.base) // its folder may look like a host
	isFile := p.store == inFile || statErr == nil && info.Mode().IsRegular()
	if ext := filepath.Ext(o.base); err != nil || isFile && ext != ".tar" && ext != parts.Suffix {
		return userfile.Parse("--base", o.base, bundle.MaxReceiptSize, bundle.ParseReceipt)
	}
	var g *bundle.Graph
	b, err := o.openPinned(ctx, p, client)
	if err == nil {
		defer b.Close() //nolint:errcheck // only read
		g, err = b.Graph(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read the base %s: %w", p, err)
	}
	return bundle.NewReceipt("", g), nil
}

// upstreamFlags are the flags for upstream's own signatures.
type upstreamFlags struct {
	verifyUpstream, carry string
}

func (f *upstreamFlags) bind(cmd *cobra.Command) {
	f.carry = string(upstream.CarryNone)
	flags.Group(cmd, flags.Sources, func(fl *pflag.FlagSet) {
		fl.StringVar(&f.verifyUpstream, "verify-upstream", "", "verify the images' own signatures first, as this policy `FILE` says")
		fl.Var(&flags.Choice{To: &f.carry, Of: []string{string(upstream.CarryNone), string(upstream.CarryImages), string(upstream.CarryAll)}},
			"upstream-signatures", "take upstream's signatures, attestations and SBOMs along, `OF` which images: none, images, or all, which is of all their platforms' manifests too")
	})
}

// upstreamPolicy reads the policy of --verify-upstream; nil if not given.
func (f *upstreamFlags) upstreamPolicy() (*upstream.Policy, error) {
	if f.verifyUpstream == "" {
		return nil, nil
	}
	data, err := userfile.Read("--verify-upstream", f.verifyUpstream, maxPolicyFile)
	if err != nil {
		return nil, err
	}
	return upstream.ParsePolicy(f.verifyUpstream, data, func(path string) (*trust.Policy, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(f.verifyUpstream), path)
		}
		return trustflags.ReadPolicy(userfile.Read, f.verifyUpstream, path)
	})
}

// sayUpstream reports the verified and carried upstream signatures.
func (f *upstreamFlags) sayUpstream(c *common, p *pull.Pulled) {
	signed := 0
	for _, v := range p.Verified {
		if len(v.SignedBy) > 0 {
			signed++
		}
	}
	if len(p.Verified) > 0 {
		c.say("upstream: %d images signed as the policy demands, %d taken unsigned as it allows", signed, len(p.Verified)-signed)
	}
	if p.Attached > 0 {
		c.say("upstream: %d signatures, attestations and SBOMs taken along", p.Attached)
	}
}

// moved is the result of pull and push.
type moved struct {
	Root      image.Digest `json:"root"`
	Reference string       `json:"reference"` // FILE, oci:DIR or REPO@DIGEST
	*pull.Pulled
	DryRun bool `json:"dryRun,omitempty"` // of a dry run
}

// showMoved prints what was moved, or would be in a dry run.
func (c *common) showMoved(to location, p *pull.Pulled) error {
	root := bundle.DigestOf(p.Root)
	m := moved{Root: root, Reference: to.String(), Pulled: p, DryRun: c.dryRun}
	name := fmt.Sprint(root, " ", m.Reference)
	if to.store == inRegistry {
		m.Reference = to.reference.Pin(root).String()
		name = m.Reference
	}
	if c.dryRun {
		return c.show(m, func(p *printer) { p.moves(m) })
	}
	on := *c
	if to.store == inStream { // standard output holds the bundle itself
		told := *c.app
		told.out, on.app = c.err, &told
	}
	return on.show(m, func(p *printer) {
		on.say("%s, %s; %s moved", command.Plural(m.Images, "image", "images"), size.Format(m.Bytes), size.Format(m.Moved))
		if m.Left != nil {
			on.say("a delta: %s", leftLine(m.Left))
		}
		p.print(name)
	})
}

// moves prints the result of a dry run.
func (p *printer) moves(m moved) {
	t := command.NewTable()
	for _, i := range m.Plan {
		t.Row(size.Format(i.Size), short(i.Digest), i.Name)
	}
	p.table(t)
	p.line("%s, %s; %s of it in %s would be moved to %s", command.Plural(m.Images, "image", "images"), size.Format(m.Bytes),
		size.Format(m.Moved), command.Plural(m.Missing, "item", "items"), m.Reference)
}
