package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/prune"
)

// shelf is a repository with all its tags.
type shelf struct {
	*registry.Repository
	client *registry.Client
}

// At opens what a tag or a digest names.
func (s shelf) At(identifier string) (medium.Source, error) {
	ref := s.Reference()
	if digest, err := image.ParseDigest(identifier); err == nil {
		return s.client.Repository(ref.Pin(digest)), nil
	}
	ref, err := ref.WithTag(identifier)
	if err != nil {
		return nil, err
	}
	return s.client.Repository(ref), nil
}

// shelf opens REGISTRY/REPO.
func (a *app) shelf(arg string) (shelf, error) {
	p, err := parsePlace(arg)
	bare := p.reference.Digest().IsZero() && !strings.HasSuffix(arg, ":"+p.reference.Tag())
	if err == nil && (p.medium != inRegistry || !bare) {
		err = &fault.Error{
			Reason: fault.InvalidInput, Op: "read place", Subject: fmt.Sprintf("%q", arg), Err: errors.New("it is no repository"),
			Hint: "write HOST/REPOSITORY, without tag and digest",
		}
	}
	client, clientErr := a.flags.client()
	if err := fault.Join(err, clientErr); err != nil {
		return shelf{}, err
	}
	return shelf{client.Repository(p.reference), client}, nil
}

func (a app) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list REGISTRY/REPO",
		Short: "List the bundles in a repository",
		Long: `list shows the bundles of a repository, newest first: tags, digest, the matrix's
serial and date, releases, signatures and size. Newest means by the matrix's serial
and date, then by when a push of vdo-bundle last put a tag on it, then by tag.
Bundles without a tag are found where a signature or the note of a push names them.
It proves nothing: see verify.`,
		Example: `  vdo-bundle list registry.site/vdo/drivers
  vdo-bundle list registry.site/vdo/drivers -o json`,
		Args: exactly("REGISTRY/REPO"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.list(cmd.Context(), args[0]) },
	}
	a.flags.registryFlags(cmd)
	a.flags.formatFlag(cmd, "o")
	return cmd
}

func (a *app) list(ctx context.Context, arg string) error {
	s, err := a.shelf(arg)
	if err != nil {
		return err
	}
	l, err := list.Read(ctx, s, a.options(nil))
	if l == nil {
		return err
	}
	if a.flags.format == formatJSON {
		return fault.Join(err, writeJSON(a.out, l))
	}
	return fault.Join(err, printListing(a.out, l))
}

const noTag = "(no tag)"

func tagsOf(b list.Bundle) string {
	if len(b.Tags) == 0 {
		return noTag
	}
	return strings.Join(b.Tags, " ")
}

func printListing(w io.Writer, l *list.Listing) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "TAGS\tDIGEST\tSERIAL\tISSUED\tSIGNATURES\tIMAGES\tSIZE\tRELEASES") // Flush tells what is wrong
	for _, b := range l.Bundles {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t%d\t%s\t%s\n", tagsOf(b), short(b.Root.String()), b.Serial,
			b.Issued.UTC().Format(time.DateOnly), len(b.Signatures), b.Images, size(b.Bytes), strings.Join(b.Releases, " "))
	}
	if len(l.Others) > 0 {
		_, _ = fmt.Fprintf(t, "\nnot bundles: %s\n", strings.Join(l.Others, " "))
	}
	for _, digest := range l.Broken {
		_, _ = fmt.Fprintf(t, "\n%s without a tag, in part: what a prune or a push that broke off has left\n", short(digest))
	}
	return t.Flush()
}

func (a app) pruneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune REGISTRY/REPO --keep N",
		Short: "Delete old bundles from a repository",
		Long: `prune keeps the newest N bundles of a repository, and says which others it would
delete, those without a tag included; with --yes it deletes them, with their images and
signatures. A bundle is deleted only where N others are shown to be newer: by the
matrix's serial and date, and by when a push of vdo-bundle last put a tag on it, where
both agree. The name of a tag shows nothing, since tags are moved. --keep-tag and
--keep-digest keep more. What a kept bundle, its signatures, or any other tag of the
repository needs stays. Where anything cannot be read, or somebody changed a tag
meanwhile, nothing is deleted. Manifests are deleted, and asked for once more; the bytes
of layers are freed by the registry's own garbage collection.`,
		Example: `  vdo-bundle prune registry.site/vdo/drivers --keep 3
  vdo-bundle prune registry.site/vdo/drivers --keep 3 --keep-tag stable --keep-tag 'prod-*'
  vdo-bundle prune registry.site/vdo/drivers --keep 3 --yes`,
		Args: exactly("REGISTRY/REPO"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.prune(cmd, args[0]) },
	}
	cmd.Flags().IntVar(&a.flags.keep, "keep", 0, "how many bundles stay, at least 1")
	cmd.Flags().StringArrayVar(&a.flags.keepTags, "keep-tag", nil, "keep what has a tag that matches this PATTERN, with *, ? and [a-z] (may be repeated)")
	cmd.Flags().StringArrayVar(&a.flags.keepRoots, "keep-digest", nil, "keep the bundle with this DIGEST, or its first 12 hex digits (may be repeated)")
	cmd.Flags().BoolVar(&a.flags.yes, "yes", false, "delete; without it prune only says what it would delete")
	a.flags.registryFlags(cmd)
	a.flags.formatFlag(cmd, "o")
	a.flags.quietFlag(cmd)
	return cmd
}

func (a *app) prune(cmd *cobra.Command, arg string) error {
	if !cmd.Flags().Changed("keep") {
		return usage(cmd, "there is no --keep N")
	}
	if a.flags.keep < 1 {
		return badFlag("--keep", fmt.Sprint(a.flags.keep), errors.New("it is less than 1"), "to remove all, delete the repository with the registry's own tools")
	}
	s, err := a.shelf(arg)
	if err != nil {
		return err
	}
	progress := a.reporter()
	defer progress.end()
	keep := prune.Keep{Newest: a.flags.keep, Tags: a.flags.keepTags, Digests: a.flags.keepRoots}
	plan, err := prune.NewPlan(cmd.Context(), s, keep, a.options(progress))
	if err != nil {
		return err
	}
	if a.flags.yes && len(plan.Delete) > 0 {
		err = prune.Run(cmd.Context(), s, plan, a.options(progress))
	}
	progress.end()
	switch {
	case err != nil && plan.Deleted == 0 && len(plan.Remaining) == 0:
		return err // nothing was done
	case a.flags.format == formatJSON:
		return fault.Join(err, writeJSON(a.out, plan))
	}
	return fault.Join(err, a.printPrune(plan))
}

func (a *app) printPrune(p *prune.Plan) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	verb := "delete"
	switch {
	case p.Done:
		verb = "deleted"
	case p.Deleted+len(p.Remaining) > 0:
		verb = "in part"
	}
	row := func(verb string, b list.Bundle) { // Flush tells what is wrong
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\tserial %d\t%s", verb, short(b.Root.String()), tagsOf(b), b.Serial, strings.Join(b.Releases, " "))
		if b.Why != "" {
			_, _ = fmt.Fprintf(t, "\t%s", b.Why)
		}
		_, _ = fmt.Fprintln(t)
	}
	for _, b := range p.Keep {
		row("keep", b)
	}
	for _, b := range p.Delete {
		row(verb, b)
	}
	for _, tag := range p.Others {
		_, _ = fmt.Fprintf(t, "keep\t-\t%s\tno bundle\n", tag)
	}
	for _, digest := range p.Broken {
		_, _ = fmt.Fprintf(t, "keep\t%s\t%s\tin part, left alone\n", short(digest), noTag)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case p.Deleted+len(p.Remaining) > 0 && !p.Done:
		a.say("deleted %d of %d manifests; the registry still has %d that it answered to have deleted", p.Deleted, p.Manifests+p.Attached, len(p.Remaining))
	case len(p.Delete) == 0:
		a.say("there is nothing to delete")
	case p.Done:
		a.say("deleted %d bundles: %d manifests, %d signatures and the like; garbage collection of the registry frees %s", len(p.Delete), p.Manifests, p.Attached, size(p.Bytes))
	default:
		a.say("this would delete %d bundles: %d manifests, %d signatures and the like, %s in all; nothing was deleted, --yes does it", len(p.Delete), p.Manifests, p.Attached, size(p.Bytes))
	}
	return nil
}
