package cli

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/evidence"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/inspect"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/mover"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/lock"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/pull"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/push"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/sign"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

func (a *app) options(p run.Progress) run.Options {
	return run.Options{Concurrency: a.flags.concurrency, Progress: p, Now: a.now, DryRun: a.flags.dryRun}
}

func (a *app) reporter() reporter {
	return newReporter(a.err, a.terminal, a.flags.quiet || a.flags.format == formatJSON)
}

func (a app) lockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lock [-o lock.yaml]",
		Short: "Choose releases and fix every manifest and image by digest",
		Long: `lock chooses driver releases from the compatibility matrix, reads their upstream
manifests, resolves every image that they name to a digest, and writes all of it
down. Pulling the same lock gives the same bundle, byte for byte.

With nothing asked for it takes the newest supported drivers for each of the last
three Kubernetes versions that the matrix covers.`,
		Example: `  vdo-bundle lock -o lock.yaml
  vdo-bundle lock --k8s 1.32-1.34 --vsphere 8.0.3 --platform linux/amd64 -o lock.yaml
  vdo-bundle lock --release csi@3.5.1 --release cpi@1.33.1 -o lock.yaml`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.lock(cmd.Context()) },
	}
	a.flags.selectionFlags(cmd)
	a.flags.matrixFlags(cmd)
	a.flags.sourceFlags(cmd)
	a.flags.registryFlags(cmd)
	cmd.Flags().StringVarP(&a.flags.dest, "output", "o", "-", "file to write the lock to, - for standard output")
	a.flags.formatFlag(cmd, "")
	a.flags.quietFlag(cmd)
	return cmd
}

func (a *app) lock(ctx context.Context) error {
	world, err := a.world()
	if err != nil {
		return err
	}
	progress := a.reporter()
	locked, err := a.makeLock(ctx, world, progress)
	progress.end()
	if err != nil {
		return err
	}
	data, err := locked.Lock.YAML()
	if a.flags.format == formatJSON {
		data, err = locked.Lock.JSON()
	}
	if err != nil {
		return err
	}
	if a.flags.dest == "-" {
		_, err := a.out.Write(data)
		return err
	}
	if err := userfile.Write(a.flags.dest, data, 0o644); err != nil {
		return err
	}
	a.say("wrote %s: %d releases, %d images", a.flags.dest, len(locked.Lock.Releases), len(locked.Lock.Images))
	return nil
}

// world is what lock and pull read from.
type world struct {
	matrix    matrixfile.File
	client    *registry.Client
	registry  medium.Registry
	manifests upstream.Manifests
	base      *pull.Base // of a delta
}

// world opens it, and reports all flags that are wrong.
func (a *app) world() (world, error) {
	var w world
	var errs [3]error
	w.matrix, errs[0] = a.openMatrix()
	w.client, errs[1] = a.flags.client()
	w.registry, errs[2] = a.flags.upstream(w.client)
	if errs[1] == nil {
		w.manifests = a.flags.manifests(w.client)
	}
	_, _, err := a.flags.request()
	_, operatorErr := a.flags.operatorInput()
	return w, fault.Join(append(errs[:], err, operatorErr)...)
}

func (a *app) makeLock(ctx context.Context, w world, p run.Progress) (*lock.Locked, error) {
	request, platform, err := a.flags.request()
	operator, operatorErr := a.flags.operatorInput()
	if err := fault.Join(err, operatorErr); err != nil {
		return nil, err
	}
	locked, err := lock.Make(ctx, lock.Input{
		Matrix: w.matrix, Request: request, Platform: platform, Operator: operator, Manifests: w.manifests, Registry: w.registry,
	}, a.options(p))
	if err != nil {
		return nil, err
	}
	for _, line := range movedLines(locked.Lock.Images) {
		p.Say(line)
	}
	return locked, nil
}

// movedLines tells which images are not taken from where their manifest says: one
// line for each reason. The lock has every one of them.
func movedLines(images []bundle.Image) []string {
	var out []string
	for n, i := range images {
		same := func(other bundle.Image) bool { return other.Reason == i.Reason }
		count := 0
		for _, other := range images {
			if same(other) {
				count++
			}
		}
		switch {
		case i.Reason == "" || slices.IndexFunc(images, same) != n:
		case count > 1:
			out = append(out, fmt.Sprintf("moved: %d images: %s", count, i.Reason))
		case i.Source == i.Reference:
			out = append(out, fmt.Sprintf("replaced: %s is taken: %s", i.Reference, i.Reason))
		default:
			out = append(out, fmt.Sprintf("moved: %s is taken from %s: %s", i.Reference, i.Source, i.Reason))
		}
	}
	return out
}

func (a app) pullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull -o DEST",
		Short: "Pull drivers into a bundle",
		Long: `pull fetches the manifests and images of a lock, or of the same selection that
lock takes, and writes them as one bundle to DEST: FILE.tar, oci:DIR,
REGISTRY/REPO[:TAG], or - for standard output, where the bytes are those of the file.

An interrupted or incomplete pull goes on where it stopped when it is run again.
A bundle that is there already is not replaced unless --replace is given; where it is
the very one that is asked for, whole, there is nothing to do. Two runs never write one
place at once: the second one ends with exit code 8.

With --base or --have it makes a delta: layers that an earlier bundle has, or that
the receipt of a push names, are left out. push demands them in the registry.

--verify-upstream FILE checks the images' own signatures before anything is written;
all that fail are named together. An image without a rule is refused. The file:

  apiVersion: vdo.vmware.com/upstream/v1
  kind: UpstreamPolicy
  rules:                                 # the most specific one holds
  - images: registry.k8s.io              # HOST or HOST/PATH, and all below it
    policy: kubernetes.yaml              # a trust policy, as of verify --policy
  - images: registry.k8s.io/csi-vsphere
    unsigned: true                       # taken as it is`,
		Example: `  vdo-bundle pull -o drivers.tar
  vdo-bundle pull --lock lock.yaml --sign-key release.key -o drivers.tar
  vdo-bundle pull --verify-upstream upstream.yaml --upstream-signatures images -o drivers.tar
  vdo-bundle pull --k8s 1.33 --source-map registry.k8s.io=mirror.corp/k8s -o oci:drivers
  vdo-bundle pull --lock lock.yaml -o registry.site/vdo/drivers:1
  vdo-bundle pull --lock lock.yaml -o drivers.tar --dry-run
  vdo-bundle pull --lock lock.yaml -o - | ssh desk vdo-bundle push - registry.site/vdo/drivers:1
  vdo-bundle pull --lock lock.yaml --volume-size 4GB --parity 1 -o drivers.tar
  vdo-bundle pull --lock new.yaml --base drivers.tar -o delta.tar`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.pull(cmd) },
	}
	a.flags.selectionFlags(cmd)
	a.flags.matrixFlags(cmd)
	a.flags.sourceFlags(cmd)
	a.flags.registryFlags(cmd)
	a.flags.targetFlags(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&a.flags.dest, "output", "o", "", "where to write the bundle: FILE.tar, oci:DIR, REGISTRY/REPO[:TAG], or - for standard output")
	fl.StringVar(&a.flags.lock, "lock", "", "pull what this lock names, instead of a selection")
	fl.StringVar(&a.flags.key, "sign-key", "", "sign the bundle with this private key (as sign --key)")
	fl.BoolVar(&a.flags.replace, "replace", false, "replace a bundle that is there already, once the new one is complete")
	fl.BoolVar(&a.flags.restart, "restart", false, "drop what an interrupted pull of another bundle, or with other options, has left at DEST")
	a.flags.deltaFlags(cmd)
	a.flags.volumeFlags(cmd)
	a.flags.passwordFlag(cmd)
	a.flags.certificateFlags(cmd)
	a.flags.upstreamFlags(cmd)
	a.flags.provenanceFlag(cmd)
	a.flags.formatFlag(cmd, "")
	a.flags.quietFlag(cmd)
	return cmd
}

func (a *app) pull(cmd *cobra.Command) error {
	ctx := cmd.Context()
	dest, err := a.pullDestination(cmd)
	if err != nil {
		return err
	}
	w, err := a.world()
	if err != nil {
		return err
	}
	if w.base, err = a.openBase(ctx, w.client); err != nil {
		return err
	}
	signer, err := a.signer(ctx, "--sign-key", a.flags.key)
	if err == nil && !a.flags.dryRun {
		err = a.probe(ctx)
	}
	if err != nil {
		return err
	}
	if signer == nil && a.flags.provenance {
		return usage(cmd, "--provenance wants --sign-key: a statement that nobody signed proves nothing")
	}
	policy, err := a.flags.upstreamPolicy()
	if err != nil {
		return err
	}
	target, err := a.openTarget(dest, w.client)
	if err != nil {
		return err
	}
	progress := a.reporter()
	pulled, err := a.pullInto(ctx, target, dest, w, signer, policy, progress)
	err = fault.Join(err, target.Close())
	progress.end()
	if err != nil {
		return err
	}
	a.sayUpstream(pulled)
	return a.printMoved(a.flags.inParts(dest), pulled)
}

// pullInto pulls into an open target.
func (a *app) pullInto(ctx context.Context, target medium.Target, dest place, w world, signer *trust.Signer, policy *upstream.Policy, p run.Progress) (*pull.Pulled, error) {
	if err := medium.Preflight(ctx, target); err != nil {
		return nil, err
	}
	lock, files, err := a.pullLock(ctx, w, p)
	if err != nil {
		return nil, err
	}
	in := pull.Input{
		Matrix: w.matrix, Lock: lock, Files: files, Manifests: w.manifests, Registry: w.registry,
		Signer: signer, Target: target, Reference: dest.reference, Base: w.base, Upstream: policy, Carry: upstream.Carry(a.flags.carry), Provenance: a.flags.builder(),
	}
	if dest.medium == inRegistry {
		in.Mirror = direct(w.client)
	}
	return pull.Bundle(ctx, in, a.options(p))
}

// pullDestination reads -o, and refuses flags that contradict each other.
func (a *app) pullDestination(cmd *cobra.Command) (place, error) {
	if a.flags.dest == "" {
		return place{}, usage(cmd, "there is no -o DEST")
	}
	if flag, ok := selects(cmd); ok && a.flags.lock != "" {
		return place{}, usage(cmd, fmt.Sprintf("--lock and %s contradict each other: the lock says what is pulled", flag))
	}
	dest, err := parseDestination(a.flags.dest)
	return dest, fault.Join(err, a.flags.checkVolumes(cmd, dest), a.flags.checkBase(dest))
}

// pullLock reads the lock of --lock, or makes one.
func (a *app) pullLock(ctx context.Context, w world, p run.Progress) (*bundle.Lock, map[string][]byte, error) {
	if a.flags.lock == "" {
		locked, err := a.makeLock(ctx, w, p)
		if err != nil {
			return nil, nil, err
		}
		return locked.Lock, locked.Files, nil
	}
	data, err := userfile.Read("--lock", a.flags.lock, bundle.MaxLockSize)
	if err != nil {
		return nil, nil, err
	}
	lock, err := bundle.ParseLock(a.flags.lock, data)
	return lock, nil, err
}

// moved is what pull and push print.
type moved struct {
	Root      image.Digest `json:"root"`
	Reference string       `json:"reference"` // to name it with: FILE, oci:DIR or REPO@DIGEST
	Images    int          `json:"images"`
	Bytes     int64        `json:"bytes"`    // of the bundle
	Moved     int64        `json:"moved"`    // bytes that were not there
	NewItems  int          `json:"newItems"` // blobs and manifests that were not there
	// Upstream are the images whose own signatures were checked.
	Upstream []upstream.VerifiedImage `json:"upstream,omitempty"`
	Attached int                      `json:"attached,omitempty"` // signatures and the like of images
	// Of a dry run, in which nothing was moved: what would be.
	DryRun bool            `json:"dryRun,omitempty"`
	Plan   []mover.Planned `json:"plan,omitempty"`

	Left *bundle.LeftOut `json:"leftToBase,omitempty"` // of a delta
}

func (a *app) printMoved(to place, p *pull.Pulled) error {
	root, err := image.ParseDigest(p.Root.Digest.String())
	if err != nil {
		return err
	}
	m := moved{Root: root, Reference: to.String(), Images: p.Images, Bytes: p.Bytes, Moved: p.Moved, NewItems: p.Missing, Left: p.Left, Upstream: p.Verified, Attached: p.Attached}
	if to.medium == inRegistry {
		m.Reference = to.reference.Pin(root).String()
	}
	out := a.out
	if a.flags.dryRun {
		return a.printPlan(m, p.Plan)
	}
	if to.medium == inStream {
		out = a.err // the bundle itself is on the other
	}
	if a.flags.format == formatJSON {
		return writeJSON(out, m)
	}
	a.say("%d images, %s; %s of it was not there yet", m.Images, size(m.Bytes), size(m.Moved))
	if m.Left != nil {
		a.say("a delta: %s", leftLine(m.Left))
	}
	if to.medium == inRegistry {
		_, err = fmt.Fprintln(out, m.Reference)
	} else {
		_, err = fmt.Fprintln(out, root, m.Reference)
	}
	return err
}

// printPlan prints what a dry run has found.
func (a *app) printPlan(m moved, plan []mover.Planned) error {
	if m.DryRun, m.Plan = true, plan; a.flags.format == formatJSON {
		return writeJSON(a.out, m)
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, i := range plan {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", size(i.Size), short(i.Digest), i.Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.out, "%d images, %s; %s of it in %d items would be moved to %s\n", m.Images, size(m.Bytes), size(m.Moved), m.NewItems, m.Reference)
	return err
}

func (a app) signCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sign SRC --key KEY",
		Short: "Add a signature to a bundle",
		Long: `sign signs the digest of a bundle's root, as cosign does, and puts the signature
beside it: into the archive or folder without rewriting the rest, or into the
registry under cosign's tag. Signatures that are there stay: where somebody else signs
at the same time, one of the two ends with exit code 8 and signs again.`,
		Example: `  vdo-bundle sign drivers.tar --key release.key
  VDO_KEY_PASSWORD=… vdo-bundle sign registry.site/vdo/drivers:1 --key release.key
  vdo-bundle sign drivers.tar --key desk.key --certificate desk.crt --certificate-chain issuing-ca.crt --timestamp-server https://tsa.corp.example/stamp
  vdo-bundle sign drivers.tar --key 'pkcs11:token=desk;object=release?module-path=/usr/lib/softhsm/libsofthsm2.so' --password-file pin`,
		Args: exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.sign(cmd, args[0]) },
	}
	cmd.Flags().StringVar(&a.flags.identity, "identity", "", "what the signature calls the bundle: HOST/PATH (default the registry's repository)")
	a.keyFlags(cmd)
	a.flags.registryFlags(cmd)
	a.flags.formatFlag(cmd, "o")
	return cmd
}

func (a *app) sign(cmd *cobra.Command, src string) error {
	if a.flags.key == "" {
		return usage(cmd, "there is no --key KEY")
	}
	if src == "-" {
		return usage(cmd, "a bundle on standard input cannot be signed: sign the file, or pull with --sign-key")
	}
	source, at, _, err := a.source(cmd.Context(), src)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // what was written has been synced
	signer, err := a.signer(cmd.Context(), "--key", a.flags.key)
	if err != nil {
		return err
	}
	identity := a.flags.identity
	if identity == "" {
		identity = at.reference.Repository()
	}
	root, err := sign.Bundle(cmd.Context(), source, signer, identity)
	if err != nil {
		return err
	}
	return a.printSigned(at, root)
}

func (a *app) printSigned(at place, root ocispec.Descriptor) error {
	digest, err := image.ParseDigest(root.Digest.String())
	if err != nil {
		return err
	}
	if a.flags.format == formatJSON {
		return writeJSON(a.out, map[string]string{"root": digest.String(), "tag": trust.SignatureTag(digest), "source": at.String()})
	}
	_, err = fmt.Fprintf(a.out, "signed %s\n", digest)
	return err
}

// opened opens the bundle that an argument names, and verifies it first where the
// rules have a policy: what is returned is all that may be read from there on.
func (a *app) opened(ctx context.Context, arg string, rules verify.Rules, p run.Progress) (*opened, place, *registry.Client, error) {
	source, at, client, err := a.source(ctx, arg)
	if err != nil {
		return nil, at, nil, err
	}
	b, err := resolved(ctx, source, rules, a.options(p))
	return b, at, client, err
}

// opened is a bundle at one digest, with what was verified of it; nil where nothing was.
type opened struct {
	*pinned.Bundle
	verified *verify.Verification
}

// resolved binds a source to its digest, and verifies it first where the rules have a
// policy. What is not returned is closed.
func resolved(ctx context.Context, source medium.Source, rules verify.Rules, o run.Options) (*opened, error) {
	var b opened
	var err error
	if rules.Policy == nil {
		b.Bundle, err = pinned.Open(ctx, source)
	} else {
		b.Bundle, b.verified, err = verify.Bundle(ctx, source, rules, o)
	}
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return &b, nil
}

// source opens the medium that an argument names, for what signs it and for opened.
func (a *app) source(ctx context.Context, arg string) (medium.Source, place, *registry.Client, error) {
	p, err := parsePlace(arg)
	client, clientErr := a.flags.client()
	if err := fault.Join(err, clientErr); err != nil {
		return nil, p, nil, err
	}
	source, err := a.openSource(ctx, p, client)
	return source, p, client, err
}

func (a app) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify SRC --key PUB",
		Short: "Check a bundle's signature and every byte below it",
		Long: `verify checks that the bundle's root is signed as the key or policy demands, and
then every byte below it: all digests and sizes, the lock against the index, the
manifests against the lock, the matrix against the lock, its signature (with
--matrix-key or --matrix-policy) and its expiry. It reports all that is wrong at
once, and changes nothing.

Where there is a statement of how the bundle was built (pull --provenance), it has to
be signed as the key or policy demands and to agree with the lock; what was found is
told, and with --provenance it is demanded.`,
		Example: `  vdo-bundle verify drivers.tar --key release.pub
  vdo-bundle verify drivers.tar --key release.pub --provenance
  vdo-bundle verify registry.site/vdo/drivers:1 --policy policy.yaml`,
		Args: exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.verify(cmd, args[0]) },
	}
	cmd.Flags().BoolVar(&a.flags.provenance, "provenance", false, "demand a signed statement of how the bundle was built")
	a.flags.trustFlags(cmd)
	a.flags.verifyMatrixFlags(cmd)
	a.flags.registryFlags(cmd)
	a.flags.formatFlag(cmd, "o")
	a.flags.quietFlag(cmd)
	return cmd
}

// verifyMatrixFlags are the flags for the matrix that a bundle carries.
func (f *flags) verifyMatrixFlags(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.matrixTrustFlags(cmd)
	fl.BoolVar(&f.allowExpired, "allow-expired", false, "accept a matrix that has expired")
}

func (a *app) verify(cmd *cobra.Command, src string) error {
	rules, err := a.verifyRules()
	if err != nil {
		return err
	}
	if rules.Policy == nil {
		return usage(cmd, "there is no --key PUB and no --policy FILE: nothing would be proven")
	}
	progress := a.reporter()
	b, _, _, err := a.opened(cmd.Context(), src, rules, progress)
	progress.end()
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // only read
	v := b.verified
	if a.flags.format == formatJSON {
		return writeJSON(a.out, v)
	}
	return printVerification(a.out, v)
}

func (a *app) verifyRules() (verify.Rules, error) {
	policy, err := a.flags.trustPolicy()
	rules, matrixErr := a.flags.matrixRules()
	return verify.Rules{Policy: policy, Matrix: rules, Provenance: a.flags.provenance}, fault.Join(err, matrixErr)
}

func (a app) inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect SRC",
		Short: "Show what is in a bundle",
		Long: `inspect shows what a bundle says of itself: releases, images, sizes, platforms,
the matrix and its expiry, and which signatures are there. It proves nothing: see
verify.

--format html makes one self-contained page, for an auditor to file: which releases
serve which versions and on whose word, images, signatures, and where every byte came
from. With --key or --policy the bundle is verified first, and the page says by whom
it is signed. The page is the same whenever and wherever it is made.`,
		Example: `  vdo-bundle inspect drivers.tar
  vdo-bundle inspect registry.site/vdo/drivers:1 -o json
  vdo-bundle inspect drivers.tar --key release.pub --format html -o drivers.html`,
		Args: exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.inspect(cmd.Context(), args[0]) },
	}
	a.flags.trustFlags(cmd)
	a.flags.verifyMatrixFlags(cmd)
	a.flags.registryFlags(cmd)
	a.flags.inspectOutputFlags(cmd)
	return cmd
}

func (a *app) inspect(ctx context.Context, src string) error {
	rules, err := a.verifyRules()
	if err := fault.Join(err, a.flags.checkPage()); err != nil {
		return err
	}
	b, _, _, err := a.opened(ctx, src, rules, nil)
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // only read
	if proven := b.verified; proven != nil {
		a.say("verified, signed by %s", strings.Join(proven.SignedBy, ", "))
	}
	if a.flags.format == formatHTML {
		e, err := evidence.Collect(ctx, b.Bundle, b.verified, a.options(nil))
		if err != nil {
			return err
		}
		return a.writePage(e)
	}
	i, err := inspect.Bundle(ctx, b.Bundle, a.options(nil))
	if err != nil {
		return err
	}
	if a.flags.format == formatJSON {
		return writeJSON(a.out, i)
	}
	return printInspection(a.out, i)
}

func (a app) pushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "push SRC REGISTRY/REPO[:TAG]",
		Short: "Push a bundle into a registry",
		Long: `push copies a bundle and its signatures into one repository of a registry. What is
there already is not sent again; the tag is set last; and then the root and every
image are looked up as the operator will, as REPOSITORY@DIGEST. Every byte is
verified as it streams. With --key or --policy the whole bundle is verified first,
as verify does, and nothing is sent where anything is wrong. A tag of SRC is resolved
once: what was verified is what is pushed, wherever the tag moves meanwhile.

A delta is pushed only where the registry has every layer that it left to its base:
in the repository itself, in one that --mount-from names, or in those below it that
--layout paths made. What is elsewhere is mounted, or read from there where the registry
does not mount; what is nowhere is named before anything is sent.

With --layout paths every image is put beside it as well, below REPO under its upstream
name: REGISTRY/REPO/registry.k8s.io/csi-vsphere/driver:v3.5.1. Nodes with a mirror
configuration (see mirror-config) find it there.

It prints the reference by digest, which is what a DriverBundle should name.
--receipt writes down what the repository holds now, for pull --have.`,
		Example: `  vdo-bundle push drivers.tar registry.site:5000/vdo/drivers:1
  vdo-bundle push drivers.tar registry.site/vdo/drivers --key release.pub --ca-file site-ca.crt
  vdo-bundle push drivers.tar registry.site/vdo/drivers:1 --receipt site.receipt
  vdo-bundle push delta.tar registry.site/vdo/next:2 --mount-from registry.site/vdo/drivers
  vdo-bundle push connected.site/vdo/drivers:1 registry.site/vdo/drivers:1
  vdo-bundle push - registry.site/vdo/drivers:1 --chunk-size 50MB < drivers.tar`,
		Args: exactly("SRC", "REGISTRY/REPO[:TAG]"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.push(cmd.Context(), args[0], args[1]) },
	}
	a.flags.trustFlags(cmd)
	a.flags.verifyMatrixFlags(cmd)
	a.flags.registryFlags(cmd)
	cmd.Flags().StringVar(&a.flags.receipt, "receipt", "", "write what the repository holds after the push into this file")
	a.flags.layoutFlag(cmd)
	a.flags.mountFlag(cmd)
	a.flags.targetFlags(cmd)
	a.flags.formatFlag(cmd, "o")
	a.flags.quietFlag(cmd)
	return cmd
}

func (a *app) push(ctx context.Context, src, dest string) error {
	rules, err := a.verifyRules()
	to, destErr := registryDestination("push to", dest, "; to make an archive or a folder use `vdo-bundle pull`")
	mountFrom, mountErr := a.flags.mountRefs(to)
	if err := fault.Join(err, destErr, mountErr, a.flags.checkReceipt()); err != nil {
		return err
	}
	progress := a.reporter()
	defer progress.end()
	b, _, client, err := a.opened(ctx, src, rules, progress)
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // only read
	target, err := a.openTarget(to, client)
	if err != nil {
		return err
	}
	defer target.Close() //nolint:errcheck // a registry keeps nothing open
	pushed, err := push.Bundle(ctx, push.Input{
		Bundle: b.Bundle, Target: target, Reference: to.reference, Registry: direct(client), MountFrom: mountFrom,
	}, a.options(progress))
	if err == nil {
		err = a.pushPaths(ctx, b.Bundle, to, client, progress)
	}
	progress.end()
	if err == nil {
		err = a.flags.writeReceipt(pushed.Receipt)
	}
	if err != nil {
		return err
	}
	return a.printMoved(to, &pull.Pulled{Delivered: pushed.Delivered})
}

// registryDestination reads what has to be a registry; otherwise ends the hint of the
// error where it is none.
func registryDestination(what, s, otherwise string) (place, error) {
	to, err := parseDestination(s)
	if err == nil && to.medium != inRegistry {
		err = &fault.Error{
			Reason: fault.InvalidInput, Op: what, Subject: fmt.Sprintf("%q", s), Err: errors.New("it is no registry"),
			Hint: "write HOST/REPOSITORY:TAG with the registry's host name (and port)" + otherwise,
		}
	}
	return to, err
}

func (a app) keygenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keygen [-o PREFIX]",
		Short: "Make a key pair to sign with",
		Long: `keygen makes an ECDSA P-256 key pair in the form of cosign generate-key-pair:
PREFIX.key, encrypted with a password, and PREFIX.pub. Files that are there are
never replaced.`,
		Example: `  vdo-bundle keygen -o release`,
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.keygen(cmd.Context()) },
	}
	cmd.Flags().StringVarP(&a.flags.dest, "output", "o", "vdo", "path of the pair, without .key and .pub")
	a.flags.passwordFlag(cmd)
	return cmd
}

func (a *app) keygen(ctx context.Context) error {
	private, public := a.flags.dest+".key", a.flags.dest+".pub"
	for _, name := range []string{private, public} {
		if _, err := os.Lstat(name); err == nil {
			return &fault.Error{
				Reason: fault.Conflict, Op: "write key", Subject: name, Err: errors.New("is there already"),
				Hint: "a key that is replaced is lost: choose another name with -o, or move the file away",
			}
		}
	}
	password, err := a.password(ctx, "Password for "+private+": ")
	if err != nil {
		return err
	}
	key, pub, err := trust.GenerateKey(password)
	if err != nil {
		return err
	}
	if err := userfile.WriteNew(private, key, 0o600); err != nil {
		return err
	}
	if err := userfile.WriteNew(public, pub, 0o644); err != nil {
		return errors.Join(err, os.Remove(private))
	}
	if _, err = fmt.Fprintf(a.out, "%s\n%s\n", private, public); err != nil {
		return errors.Join(err, os.Remove(private), os.Remove(public)) // nobody has used them yet
	}
	return nil
}

// build is what `version` prints.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	FIPS140  bool   `json:"fips140"` // cryptography in FIPS 140 mode
}

func version() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, FIPS140: fips140.Enabled()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := strings.TrimPrefix(info.Main.Version, "v"); v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

func (a app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return a.version(a.out) },
	}
	a.flags.formatFlag(cmd, "o")
	return cmd
}

func (a *app) version(w io.Writer) error {
	b := version()
	if a.flags.format == formatJSON {
		return writeJSON(w, b)
	}
	mode := ""
	if b.FIPS140 {
		mode = " FIPS 140"
	}
	of := ""
	if b.Revision != "" {
		of = " " + b.Revision
	}
	_, err := fmt.Fprintf(w, "vdo-bundle %s%s %s %s%s\n", b.Version, of, b.Go, b.Platform, mode)
	return err
}
