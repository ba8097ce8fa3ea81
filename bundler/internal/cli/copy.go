package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/pull"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/push"
)

// copyOptions are the flags of `copy`.
type copyOptions struct {
	common
	restart bool
}

const copyHelp = `copy takes a bundle from one place to another: FILE.tar or its parts, oci:DIR,
REGISTRY/REPO[:TAG], or - for standard input and output. All that is attached to the
bundle and its images goes along, in both forms. Afterwards the copy is read again and
compared with SRC. With --key or --policy the bundle is verified first, as verify does.

A delta stays a delta; with --base, which names the bundle that has what it leaves out,
the copy is whole.`

func newCopyCommand(a *app) *cobra.Command {
	o := &copyOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "copy SRC DEST",
		Short: "Copy a bundle from any place to any other",
		Long:  copyHelp,
		Example: `  vdo-bundle copy registry.site/vdo/drivers:1 drivers.tar
  vdo-bundle copy delta.tar whole.tar --base october.tar
  vdo-bundle copy old.site/vdo/drivers:1 new.site/vdo/drivers:1 --key release.pub`,
		Args: flags.Exactly("SRC", "DEST"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], args[1]) },
	}
	o.bindReplace(cmd, "a file or bundle that is there already, once the new one is complete")
	cmd.Flags().BoolVar(&o.restart, "restart", false, "drop what an interrupted copy or pull of another bundle has left at DEST")
	with(cmd, o.bindBase, o.trustFlags.bind, o.registryFlags.bind, o.bindUpload)
	return with(cmd, o.bindFormat, o.bindProgress)
}

func (o *copyOptions) run(cmd *cobra.Command, src, dest string) error {
	ctx := cmd.Context()
	rules, err := o.rules()
	to, destErr := parseDestination(dest)
	if destErr == nil {
		destErr = checkUnused(cmd, to)
	}
	if err := fault.Join(err, destErr); err != nil {
		return err
	}
	return o.read(ctx, src, rules, func(b opened) error {
		copied, err := o.write(ctx, b, to)
		if err != nil {
			return err
		}
		both, err := o.compare(ctx, b, to)
		if err != nil {
			return err
		}
		err = o.showMoved(to, &pull.Pulled{Delivered: copied.Delivered})
		if both != nil && err == nil && !o.json() {
			o.say("both have %s, %s and %s", command.Plural(both.Manifests, "manifest", "manifests"),
				command.Plural(both.Blobs, "blob", "blobs"), command.Plural(both.Attached, "attachment", "attachments"))
		}
		return err
	})
}

func (o *copyOptions) write(ctx context.Context, b opened, to place) (*push.Pushed, error) {
	target, err := o.openTarget(to, b.client, archive.Options{Replace: o.replace, Restart: o.restart})
	if err != nil {
		return nil, err
	}
	in := push.Input{Bundle: b.Bundle, Target: target}
	if to.medium == inRegistry {
		in.Reference, in.Registry = to.reference, direct(b.client)
	}
	copied, err := push.Bundle(ctx, in, o.options())
	return copied, fault.Join(err, target.Close())
}

// compare reads the copy and holds it against the source; nil where there is nothing to read.
func (o *copyOptions) compare(ctx context.Context, b opened, to place) (*push.Counts, error) {
	if o.dryRun || to.medium == inStream {
		return nil, nil
	}
	if to.medium == inRegistry { // its tag may have moved since
		to.reference = to.reference.Pin(b.Digest())
	}
	there, err := o.openPinned(ctx, to, b.client)
	if err != nil {
		return nil, fmt.Errorf("read the copy: %w", err)
	}
	defer there.Close() //nolint:errcheck // only read
	counts, err := push.Compare(ctx, b.Bundle, there, !o.omitRefused, o.options())
	return &counts, err
}
