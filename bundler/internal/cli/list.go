package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/prune"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// tagList is a repository with all its tags.
type tagList struct {
	*remote.Repository
	client *remote.Client
}

// At opens what a tag or a digest names.
func (s tagList) At(identifier string) (medium.Source, error) {
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

// Beside opens the repository in which push --layout paths puts an image.
func (s tagList) Beside(upstream image.Reference) (prune.Repository, error) {
	ref, err := upstream.Below(s.Reference())
	if err != nil {
		return nil, err
	}
	return tagList{s.client.Repository(ref), s.client}, nil
}

// tagList opens REGISTRY/REPO.
func (c *common) tagList(arg string) (tagList, error) {
	p, err := parsePlace(arg)
	bare := p.reference.Digest().IsZero() && !strings.HasSuffix(arg, ":"+p.reference.Tag())
	if err == nil && (p.medium != inRegistry || !bare) {
		err = fault.Errorf(fault.InvalidInput, "read place", fmt.Sprintf("%q", arg),
			"write HOST/REPOSITORY, without tag and digest", "not a repository of a registry")
	}
	client, clientErr := c.client(c.app)
	if err := fault.Join(err, clientErr); err != nil {
		return tagList{}, err
	}
	return tagList{client.Repository(p.reference), client}, nil
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
		Args: flags.Exactly("REGISTRY/REPO"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.list(cmd.Context(), args[0]) },
	}, o.registryFlags.bindSmall, o.bindFormat)
}

func (c *common) list(ctx context.Context, arg string) error {
	s, err := c.tagList(arg)
	if err != nil {
		return err
	}
	l, err := list.Read(ctx, s, c.options())
	if l == nil {
		return err
	}
	return fault.Join(err, c.show(l, func() error { return c.printListing(l) }))
}

const noTag = "(no tag)"

func tagsOf(b list.Bundle) string {
	if len(b.Tags) == 0 {
		return noTag
	}
	return strings.Join(b.Tags, " ")
}

func (c *common) printListing(l *list.Listing) error {
	t := command.NewTable("TAGS", "DIGEST", "SERIAL", "ISSUED", "SIGNATURES", "IMAGES", "SIZE", "RELEASES")
	for _, b := range l.Bundles {
		t.Row(tagsOf(b), short(b.Root.String()), b.Serial, b.Issued.UTC().Format(time.DateOnly),
			len(b.Signatures), b.Images, size.Format(b.Bytes), strings.Join(b.Releases, " "))
	}
	errs := []error{t.Write(c.out)}
	if len(l.Others) > 0 {
		errs = append(errs, command.Say(c.out, "\nnot bundles: %s", strings.Join(l.Others, " ")))
	}
	for _, digest := range l.Broken {
		errs = append(errs, command.Say(c.out, "\n%s without a tag, in part: left by a prune or a push that broke off", short(digest)))
	}
	return fault.Join(errs...)
}
