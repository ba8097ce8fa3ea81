package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/pull"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/push"
)

type pushOptions struct {
	common
	receipt, layout string
	mountFrom       []string

	printRepositories bool
}

// layoutSingle and layoutPaths are the layouts of a push.
const (
	layoutSingle = "single"
	layoutPaths  = "paths"
)

const pushHelp = `push copies a bundle and its signatures into one repository of a registry. It skips
existing blobs. It sets the tag last, and a tag digest-… that stays when the first one moves.
Then it reads every manifest as the operator will. With --key or --policy it verifies the
whole bundle first, as verify does. It prints the reference by digest. In the DriverBundle
name the tag, which upgrades follow, or that digest to stay with this bundle.

It pushes a delta only if the registry has every layer that the delta lacks: in the
repository itself, in one that --mount-from names, or in those below it that --layout paths
made. It names missing layers before it sends anything.

With --layout paths every image is put beside it as well, below REPO under its upstream
name: REGISTRY/REPO/registry.k8s.io/csi-vsphere/driver:v3.5.1. Nodes with a mirror
configuration (see mirror-config) find it there.

Registries such as ECR take a push only into repositories that exist: create those that
--print-repositories lists.`

func newPushCommand(a *app) *cobra.Command {
	o := &pushOptions{common: common{app: a}, layout: layoutSingle}
	cmd := &cobra.Command{
		Use:   "push SRC REGISTRY/REPO[:TAG]",
		Short: "Push a bundle into a registry",
		Long:  pushHelp,
		Example: `  vdo-bundle push drivers.tar registry.site:5000/vdo/drivers:1
  vdo-bundle push drivers.tar registry.site/vdo/drivers --key release.pub --ca-file site-ca.crt
  vdo-bundle push drivers.tar registry.site/vdo/drivers:1 --receipt site.receipt
  vdo-bundle push delta.tar registry.site/vdo/next:2 --mount-from registry.site/vdo/drivers
  vdo-bundle push drivers.tar registry.site/vdo/drivers --layout paths --print-repositories
  vdo-bundle push - registry.site/vdo/drivers:1 --chunk-size 50MB < drivers.tar`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0], args[1]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.receipt, "receipt", "", "write what the repository holds after the push into this `FILE`")
	o.bindReplace(cmd, "a receipt that is there already")
	fl.Var(&flags.Choice{To: &o.layout, Of: []string{layoutSingle, layoutPaths}}, "layout",
		"single: everything in one repository; paths: beside it each image below REPO under its upstream name, for nodes with a mirror configuration")
	fl.StringArrayVar(&o.mountFrom, "mount-from", nil, "reuse blobs of `REGISTRY/REPO` in the same registry: mounted there, or read from it (repeatable)")
	fl.BoolVar(&o.printRepositories, "print-repositories", false,
		"list the repositories that the push writes to, and send nothing")
	return with(cmd, o.trustFlags.bind, o.registryFlags.bind, o.bindUpload, o.bindFormat, o.bindProgress)
}

func (o *pushOptions) run(ctx context.Context, src, dest string) error {
	rules, err := o.rules()
	to, destErr := registryLocation("push to", dest)
	mountFrom, mountErr := o.mountRefs(to)
	var receiptErr error
	switch o.receipt {
	case "":
	case "-":
		receiptErr = flags.Bad("--receipt", "-", errors.New("standard output has the reference"), "name a file")
	default:
		receiptErr = o.vacant(o.receipt, src)
	}
	if err := fault.Join(err, destErr, mountErr, receiptErr); err != nil {
		return err
	}
	if !o.printRepositories {
		o.target = to
	}
	return o.read(ctx, src, rules, func(b opened) error {
		if o.printRepositories {
			return o.listRepositories(ctx, b, to)
		}
		o.sayUnchecked(rules)
		if v := b.verified; v != nil && v.Expired {
			o.say("warning: the bundle's matrix expired on %s: the operator takes it only with spec.acceptOlder",
				v.Expires.UTC().Format(time.DateOnly))
		}
		pushed, err := o.send(ctx, b, to, mountFrom...)
		if err == nil {
			var more []string
			more, err = o.pushPaths(ctx, b, to)
			pushed.Notices = append(pushed.Notices, more...)
		}
		if err == nil {
			err = o.writeReceipt(pushed.Receipt)
		}
		if err != nil {
			return err
		}
		return o.showMoved(to, &pull.Pulled{Delivered: pushed.Delivered})
	})
}

func (o *pushOptions) listRepositories(ctx context.Context, b opened, to location) error {
	_, lock, err := b.Whole(ctx, run.Options{})
	if err != nil {
		return err
	}
	names, err := push.Repositories(lock, to.reference, o.layout == layoutPaths)
	if err != nil {
		return err
	}
	result := map[string][]string{"repositories": names}
	return o.show(result, func(p *printer) { p.print(strings.Join(names, "\n")) })
}

// pushPaths writes the images under their upstream names, if requested, and returns notices about them.
func (o *pushOptions) pushPaths(ctx context.Context, b opened, to location) (notices []string, err error) {
	if o.layout != layoutPaths {
		return nil, nil
	}
	if o.dryRun {
		o.say("the images beside the bundle are not in the plan: the registry takes their blobs over from it, or they are sent again where it cannot")
		return nil, nil
	}
	return push.Images(ctx, push.Input{
		Bundle: b.Bundle, Reference: to.reference, Registry: direct(b.client),
		Open: func(ref image.Reference) medium.Target { return b.client.Repository(ref) },
	}, o.options())
}

func (o *pushOptions) writeReceipt(r *bundle.Receipt) error {
	if o.receipt == "" || o.dryRun {
		return nil
	}
	data, err := r.JSON()
	if err != nil {
		return err
	}
	return userfile.Write(o.receipt, data, 0o644)
}

func (o *pushOptions) mountRefs(to location) (refs []image.Reference, err error) {
	var problems []error
	for _, s := range o.mountFrom {
		p, err := registryLocation("read flag --mount-from", s)
		if err == nil && to.store == inRegistry && p.reference.Host() != to.reference.Host() {
			err = flags.Bad("--mount-from", s, fmt.Errorf("not on %s", to.reference.Host()),
				"a registry reuses only its own blobs: name another repository of it")
		}
		refs, problems = append(refs, p.reference), append(problems, err)
	}
	return refs, fault.Join(problems...)
}

const copyHelp = `copy takes a bundle from one place to another: FILE.tar or its parts, oci:DIR,
REGISTRY/REPO[:TAG], or - for standard input and output. All that is attached to the
bundle and its images goes along, in both forms. Afterwards the copy is read again and
compared with SRC. With --key or --policy the bundle is verified first, as verify does.

A delta stays a delta; with --base, which names the bundle that has what it leaves out,
the copy is whole.`

func newCopyCommand(a *app) *cobra.Command {
	o := &common{app: a}
	cmd := &cobra.Command{
		Use:   "copy SRC DEST",
		Short: "Copy a bundle from any place to any other",
		Long:  copyHelp,
		Example: `  vdo-bundle copy registry.site/vdo/drivers:1 drivers.tar
  vdo-bundle copy delta.tar whole.tar --base october.tar
  vdo-bundle copy old.site/vdo/drivers:1 new.site/vdo/drivers:1 --key release.pub`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.copy(cmd.Context(), args[0], args[1]) },
	}
	with(cmd, o.bindTarget, o.bindBase, o.trustFlags.bind, o.registryFlags.bind, o.bindUpload)
	return with(cmd, o.bindFormat, o.bindProgress)
}

func (c *common) copy(ctx context.Context, src, dest string) error {
	rules, err := c.rules()
	to, destErr := parseLocation(dest)
	if err := fault.Join(err, destErr, to.writable()); err != nil {
		return err
	}
	c.target = to
	return c.read(ctx, src, rules, func(b opened) error {
		c.sayUnchecked(rules)
		copied, err := c.send(ctx, b, to)
		if err != nil {
			return err
		}
		both, err := c.compare(ctx, b, to)
		if err != nil {
			return err
		}
		err = c.showMoved(to, &pull.Pulled{Delivered: copied.Delivered})
		if both != nil && err == nil && !c.json() {
			end := " and " + command.Plural(both.Attached, "referrer", "referrers")
			if both.Copied != both.Attached {
				end = fmt.Sprintf("; referrers: %d at the source, %d in the copy", both.Attached, both.Copied)
			}
			c.say("both have %s, %s%s", command.Plural(both.Manifests, "manifest", "manifests"),
				command.Plural(both.Blobs, "blob", "blobs"), end)
		}
		return err
	})
}

// send copies a bundle to a location.
func (c *common) send(ctx context.Context, b opened, to location, mountFrom ...image.Reference) (*push.Pushed, error) {
	target, err := c.openTarget(to, b.client)
	if err != nil {
		return nil, err
	}
	in := push.Input{Bundle: b.Bundle, Target: target, MountFrom: mountFrom}
	if to.store == inRegistry {
		in.Reference, in.Registry = to.reference, direct(b.client)
	}
	pushed, err := push.Bundle(ctx, in, c.options())
	return pushed, fault.Join(err, target.Close())
}

// compare reads the copy and compares it with the source; nil if it cannot be read back.
func (c *common) compare(ctx context.Context, b opened, to location) (*push.Counts, error) {
	if c.dryRun || to.store == inStream {
		return nil, nil
	}
	if to.store == inRegistry { // the tag may have moved since
		to.reference = to.reference.Pin(b.Digest())
	}
	exists, err := c.openPinned(ctx, to, b.client)
	if err != nil {
		return nil, fmt.Errorf("read the copy: %w", err)
	}
	defer exists.Close() //nolint:errcheck // only read
	counts, err := push.Compare(ctx, b.Bundle, exists, !c.remote.OmitRefused, c.options())
	return &counts, err
}
