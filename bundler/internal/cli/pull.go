package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/provenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/pull"
)

// pullOptions are the flags of `pull`.
type pullOptions struct {
	*app
	selectionFlags
	matrixFlags
	sourceFlags
	upstreamFlags
	signingFlags
	registryFlags
	volumeFlags
	outputFlags
	signatureFormat  signatureFormatFlag
	dest, lock, base string
	replace, restart bool
	provenance       bool
}

const pullHelp = `pull fetches the manifests and images of a lock, or of the same selection that
lock takes, and writes them as one bundle to DEST: FILE.tar, oci:DIR,
REGISTRY/REPO[:TAG], or - for standard output, where the bytes are those of the file.

An interrupted or incomplete pull goes on where it stopped when it is run again.
A bundle that is there already is not replaced unless --replace is given; where it is
the very one that is asked for, whole, there is nothing to do. Two runs never write one
place at once: the second one ends with exit code 8.

With --base it makes a delta: layers that an earlier bundle has, or that the receipt
of a push names, are left out. push demands them in the registry.

--verify-upstream FILE checks the images' own signatures before anything is written;
all that fail are named together. An image without a rule is refused. The file:

  apiVersion: vdo.vmware.com/upstream/v1
  kind: UpstreamPolicy
  rules:                                 # the most specific one holds
  - images: registry.k8s.io              # HOST or HOST/PATH, and all below it
    policy: kubernetes.yaml              # a trust policy, as of verify --policy
  - images: registry.k8s.io/csi-vsphere
    unsigned: true                       # taken as it is`

func newPullCommand(a *app) *cobra.Command {
	o := &pullOptions{app: a}
	cmd := &cobra.Command{
		Use:   "pull -o DEST",
		Short: "Pull drivers into a bundle",
		Long:  pullHelp,
		Example: `  vdo-bundle pull -o drivers.tar
  vdo-bundle pull --lock lock.yaml --sign-key release.key -o drivers.tar
  vdo-bundle pull --verify-upstream upstream.yaml --upstream-signatures images -o drivers.tar
  vdo-bundle pull --k8s 1.33 --source-map registry.k8s.io=mirror.corp/k8s -o oci:drivers
  vdo-bundle pull --lock lock.yaml -o registry.site/vdo/drivers:1
  vdo-bundle pull --lock lock.yaml -o drivers.tar --dry-run
  vdo-bundle pull --lock lock.yaml -o - | ssh isolated-host vdo-bundle push - registry.site/vdo/drivers:1
  vdo-bundle pull --lock lock.yaml --volume-size 4GB --parity 1 -o drivers.tar
  vdo-bundle pull --lock new.yaml --base drivers.tar -o delta.tar`,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.bind(cmd)
	return cmd
}

func (o *pullOptions) bind(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&o.dest, "output", "o", "", "where (`DEST`) to write the bundle: FILE.tar, oci:DIR, REGISTRY/REPO[:TAG], or - for standard output")
	fl.BoolVar(&o.replace, "replace", false, "replace a bundle that is there already, once the new one is complete")
	fl.BoolVar(&o.restart, "restart", false, "drop what an interrupted pull of another bundle, or with other options, has left at DEST")
	fl.StringVar(&o.base, "base", "", "make a delta: leave out the layers that the far side has, as an earlier bundle or the receipt of a push says: `BUNDLE|RECEIPT`")
	o.volumeFlags.bind(cmd)
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.StringVar(&o.lock, "lock", "", "pull what this `LOCK` names, instead of a selection")
	})
	o.selectionFlags.bind(cmd)
	o.matrixFlags.bind(cmd)
	o.sourceFlags.bind(cmd)
	o.upstreamFlags.bind(cmd)
	o.signatureFormat.bind(cmd)
	o.signingFlags.bind(cmd, "sign-key", "sign the bundle with this private `KEY` (as sign --key)", &o.registryFlags)
	flags.Group(cmd, flags.Signing, func(fl *pflag.FlagSet) {
		fl.BoolVar(&o.provenance, "provenance", false, "attach a statement of how the bundle was built (SLSA, in-toto), signed with --sign-key")
	})
	o.registryFlags.bind(cmd)
	o.registryFlags.bindUpload(cmd)
	o.bindFormat(cmd)
	o.bindNoTrunc(cmd)
	o.bindQuiet(cmd)
}

func (o *pullOptions) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	dest, err := o.destination(cmd)
	if err != nil {
		return err
	}
	in, err := o.input(cmd, dest)
	if err != nil {
		return err
	}
	target, err := o.openTarget(dest, in.client, o.archiveOptions(o.replace, o.restart))
	if err != nil {
		return err
	}
	progress := o.reporter(o.app)
	pulled, err := o.pullInto(ctx, target, dest, in, progress)
	err = fault.Join(err, target.Close())
	progress.end()
	if err != nil {
		return err
	}
	o.sayUpstream(o.app, pulled)
	return printMoved(o.app, &o.outputFlags, o.inParts(dest), pulled, o.dryRun)
}

// pullInput is what a pull reads before it opens its target.
type pullInput struct {
	world
	signer   *trust.Signer
	format   signatures.Format
	upstream *upstream.Policy
}

// input opens all that is read, and asks for what can fail late.
func (o *pullOptions) input(cmd *cobra.Command, dest place) (in pullInput, err error) {
	ctx := cmd.Context()
	if in.world, err = o.lockInput().world(o.app); err != nil {
		return in, err
	}
	if in.base, err = o.openBase(ctx, in.client); err != nil {
		return in, err
	}
	if in.format, err = signatures.ParseFormat(o.signatureFormat.name); err != nil {
		return in, err
	}
	if in.signer, err = o.signer(ctx, o.app); err != nil {
		return in, err
	}
	if !o.dryRun {
		if err := o.probe(ctx); err != nil {
			return in, err
		}
	}
	if err := o.checkSigner(cmd, in.signer); err != nil {
		return in, err
	}
	in.upstream, err = o.upstreamPolicy()
	return in, err
}

// checkSigner refuses flags that say how to sign where nobody signs.
func (o *pullOptions) checkSigner(cmd *cobra.Command, s *trust.Signer) error {
	switch {
	case s == nil && cmd.Flags().Changed("signature-format"):
		return flags.Usage(cmd, "--signature-format requires --sign-key")
	case s == nil && o.provenance:
		return flags.Usage(cmd, "--provenance requires --sign-key: a statement that nobody signed proves nothing")
	}
	return nil
}

func (o *pullOptions) lockInput() lockInput {
	return lockInput{&o.selectionFlags, &o.matrixFlags, &o.sourceFlags, &o.registryFlags}
}

// pullInto pulls into an open target.
func (o *pullOptions) pullInto(ctx context.Context, target medium.Target, dest place, from pullInput, p run.Progress) (*pull.Pulled, error) {
	if err := medium.Preflight(ctx, target); err != nil {
		return nil, err
	}
	lock, files, err := o.readLock(ctx, from.world, p)
	if err != nil {
		return nil, err
	}
	in := pull.Input{
		Matrix: from.matrix, Lock: lock, Files: files, Manifests: from.manifests, Registry: from.registry,
		Signer: from.signer, SignatureFormat: from.format, Target: target, Reference: dest.reference, Base: from.base, Upstream: from.upstream,
		Carry: upstream.Carry(o.carry), Provenance: o.builder(),
	}
	if dest.medium == inRegistry {
		in.Mirror = direct(from.client)
	}
	return pull.Bundle(ctx, in, o.options(o.app, p))
}

// destination reads -o, and refuses flags that cannot be combined.
func (o *pullOptions) destination(cmd *cobra.Command) (place, error) {
	if o.dest == "" {
		return place{}, flags.Missing(cmd, "-o DEST")
	}
	if flag, ok := selects(cmd); ok && o.lock != "" {
		return place{}, flags.Usage(cmd, fmt.Sprintf("--lock and %s cannot be combined: the lock says what is pulled", flag))
	}
	dest, err := parseDestination(o.dest)
	return dest, fault.Join(err, o.checkVolumes(cmd, dest), o.checkBase(dest), checkUnused(cmd, dest))
}

// checkUnused refuses flags that mean nothing for the kind of place that is written to.
func checkUnused(cmd *cobra.Command, dest place) error {
	unused, why := []string{"replace", "restart"}, "a tag of a registry is moved when all has arrived, and a push goes on by itself"
	if dest.medium != inRegistry {
		unused, why = []string{"check-all", "omit-refused", "chunk-size"}, "it is for writing to a registry"
	}
	var errs []error
	for _, name := range unused {
		if cmd.Flags().Changed(name) {
			errs = append(errs, flags.Usage(cmd, fmt.Sprintf("--%s has no effect on -o %s: %s", name, dest, why)))
		}
	}
	return fault.Join(errs...)
}

// readLock reads the lock of --lock, or makes one.
func (o *pullOptions) readLock(ctx context.Context, w world, p run.Progress) (*bundle.Lock, map[string][]byte, error) {
	if o.lock == "" {
		locked, err := o.lockInput().lock(ctx, o.app, w, p)
		if err != nil {
			return nil, nil, err
		}
		return locked.Lock, locked.Files, nil
	}
	data, err := userfile.Read("--lock", o.lock, bundle.MaxLockSize)
	if err != nil {
		return nil, nil, err
	}
	lock, err := bundle.ParseLock(o.lock, data)
	return lock, nil, err
}

// builder is this program as a provenance statement names it; nil where none is
// asked for.
func (o *pullOptions) builder() *provenance.Builder {
	if !o.provenance {
		return nil
	}
	b := version()
	return &provenance.Builder{Version: b.Version, Revision: b.Revision}
}
