package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/prune"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

type pruneOptions struct {
	common
	keep prune.Keep
	yes  bool
}

const pruneHelp = `prune keeps the newest N bundles of a repository, and names the others, with and without a
tag. With --yes it deletes them with their images and signatures, also below the repository
(push --layout paths). It deletes a bundle only if N others are newer by the matrix's serial
and date and by the time of their push. It keeps all that a kept bundle, its signatures, or
another tag of the repository needs. If it cannot read an object, or a tag was moved since the
plan, it deletes nothing. The registry's own garbage collection frees the layers.`

func newPruneCommand(a *app) *cobra.Command {
	o := &pruneOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "prune REGISTRY/REPO --keep N",
		Short: "Delete old bundles from a repository",
		Long:  pruneHelp,
		Example: `  vdo-bundle prune registry.site/vdo/drivers --keep 3
  vdo-bundle prune registry.site/vdo/drivers --keep 3 --keep-tag stable --keep-tag 'prod-*'
  vdo-bundle prune registry.site/vdo/drivers --keep 3 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	cmd.Flags().IntVar(&o.keep.Newest, "keep", 0, "how many (`N`) bundles stay, at least 1")
	cmd.Flags().StringArrayVar(&o.keep.Tags, "keep-tag", nil, "keep what has a tag that matches this `PATTERN`, with *, ? and [a-z] (repeatable)")
	cmd.Flags().StringArrayVar(&o.keep.Digests, "keep-digest", nil, "keep the bundle with this `DIGEST`, or its first 12 hex digits (repeatable)")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "delete; without it prune only says what it would delete")
	return with(cmd, o.registryFlags.bindSmall, o.bindFormat, o.bindProgress)
}

func (o *pruneOptions) run(cmd *cobra.Command, arg string) error {
	if o.keep.Newest < 1 {
		return flags.Bad("--keep", fmt.Sprint(o.keep.Newest), errors.New("less than 1"), "to remove all, delete the repository with the registry's own tools")
	}
	reference, client, err := o.bareRepository(arg)
	if err != nil {
		return err
	}
	open := func(ref image.Reference) prune.Repository { return client.Repository(ref) }
	plan, err := prune.NewPlan(cmd.Context(), reference, open, o.keep, o.options())
	if err != nil {
		return err
	}
	if o.yes && len(plan.Delete) > 0 {
		err = prune.Run(cmd.Context(), plan, o.options())
	}
	if err != nil && plan.Deleted == 0 && len(plan.Remaining) == 0 {
		return err // no deletion yet
	}
	return fault.Join(err, o.show(plan, func(to *printer) { o.say("%s", to.pruning(plan)) }))
}

// pruning prints the plan, and returns its summary.
func (p *printer) pruning(plan *prune.Plan) string {
	what := fmt.Sprintf("%s: %d manifests, %d signatures and the like",
		command.Plural(len(plan.Delete), "bundle", "bundles"), plan.Manifests, plan.Attached)
	verb, said := "delete", fmt.Sprintf("this would delete %s, %s in all; nothing was deleted, --yes does it", what, size.Format(plan.Bytes))
	switch {
	case len(plan.Delete) == 0:
		said = "nothing to delete"
	case plan.Done:
		verb, said = "deleted", fmt.Sprintf("deleted %s; garbage collection of the registry frees %s", what, size.Format(plan.Bytes))
	case plan.Deleted+len(plan.Remaining) > 0:
		verb, said = "in part", fmt.Sprintf("deleted %d of %d manifests; the registry still has %d that it answered to have deleted",
			plan.Deleted, plan.Manifests+plan.Attached, len(plan.Remaining))
	}
	t := command.NewTable()
	row := func(verb string, b list.Bundle) {
		t.Row(verb, short(b.Root.String()), tagsOf(b), fmt.Sprintf("serial %d", b.Serial), strings.Join(b.Releases, " "), b.Why)
	}
	for _, b := range plan.Keep {
		row("keep", b)
	}
	for _, b := range plan.Delete {
		row(verb, b)
	}
	for _, tag := range plan.Others {
		t.Row("keep", "-", tag, "not a bundle")
	}
	for _, digest := range plan.Broken {
		t.Row("keep", short(digest), noTag, "in part, left alone")
	}
	p.table(t)
	return said
}

// bareRepository reads REGISTRY/REPO, and returns the client for it.
func (c *common) bareRepository(arg string) (image.Reference, *remote.Client, error) {
	p, err := parseLocation(arg)
	bare := p.reference.Digest().IsZero() && !strings.HasSuffix(arg, ":"+p.reference.Tag())
	if err == nil && (p.store != inRegistry || !bare) {
		err = fault.Errorf(fault.InvalidInput, "read place", fmt.Sprintf("%q", arg),
			"write HOST/REPOSITORY, without tag and digest", "not a repository of a registry")
	}
	client, clientErr := c.client(c)
	return p.reference, client, fault.Join(err, clientErr)
}

func newListCommand(a *app) *cobra.Command {
	o := &common{app: a}
	return with(&cobra.Command{
		Use:   "list REGISTRY/REPO",
		Short: "List the bundles in a repository",
		Long: `list shows the bundles of a repository, newest first: tags, digest, the matrix's
serial and date, releases, signatures and size. Newest means by the matrix's serial
and date, then by when a push of vdo-bundle last put a tag on it, then by tag.
Bundles without a tag are found where a signature or the note of a push names them.
It proves nothing: see verify.`,
		Example: `  vdo-bundle list registry.site/vdo/drivers
  vdo-bundle list registry.site/vdo/drivers --format json`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.list(cmd.Context(), args[0]) },
	}, o.registryFlags.bindSmall, o.bindFormat)
}

func (c *common) list(ctx context.Context, arg string) error {
	reference, client, err := c.bareRepository(arg)
	if err != nil {
		return err
	}
	l, err := list.Read(ctx, client.Repository(reference), c.options())
	if l == nil {
		return err
	}
	return fault.Join(err, c.show(l, func(p *printer) { p.listing(l) }))
}

const (
	noTag   = "(no tag)"
	unknown = "?"
)

func tagsOf(b list.Bundle) string {
	if len(b.Tags) == 0 {
		return noTag
	}
	return strings.Join(b.Tags, " ")
}

func (p *printer) listing(l *list.Listing) {
	t := command.NewTable("TAGS", "DIGEST", "SERIAL", "ISSUED", "SIGNATURES", "IMAGES", "SIZE", "RELEASES")
	for _, b := range l.Bundles {
		tags, signed := tagsOf(b), strconv.Itoa(len(b.Signatures))
		if len(b.Tags) == 0 && len(l.Unread) > 0 {
			tags = unknown
		}
		if b.Signatures == nil {
			signed = unknown
		}
		t.Row(tags, short(b.Root.String()), b.Serial, b.Issued.UTC().Format(time.DateOnly),
			signed, b.Images, size.Format(b.Bytes), strings.Join(b.Releases, " "))
	}
	p.table(t)
	if len(l.Others) > 0 {
		p.line("\nnot bundles: %s", strings.Join(l.Others, " "))
	}
	for _, digest := range l.Broken {
		p.line("\n%s without a tag, in part: left by a prune or a push that broke off", short(digest))
	}
}
