package cli

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/diff"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/evidence"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/inspect"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/sbom"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/outdated"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

const inspectHelp = `inspect shows what a bundle says of itself: releases, images, sizes, platforms,
the matrix and its expiry, and which signatures are there. It proves nothing: see
verify.

--format html makes one page for an auditor: which releases serve which versions and on
whose word, images, signatures, and where every byte came from. With --key or --policy
the bundle is verified first, and the page says by whom it is signed. In JSON, the
field verification has the result.`

func newInspectCommand(a *app) *cobra.Command {
	o := &common{app: a}
	cmd := &cobra.Command{
		Use:   "inspect SRC",
		Short: "Show what is in a bundle",
		Long:  inspectHelp,
		Example: `  vdo-bundle inspect drivers.tar
  vdo-bundle inspect registry.site/vdo/drivers:1 --format json
  vdo-bundle inspect drivers.tar --key release.pub --format html -o drivers.html`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.inspect(cmd.Context(), args[0]) },
	}
	o.bindOutput(cmd, "`FILE` to write the result to, - for standard output")
	o.trustFlags.bind(cmd)
	o.registryFlags.bind(cmd)
	o.format = flags.Text
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.Var(&flags.Choice{To: &o.format, Of: []string{flags.Text, flags.JSON, formatHTML}}, "format", "how to print the result: text, json or html")
	})
	return cmd
}

func (c *common) inspect(ctx context.Context, src string) error {
	rules, err := c.rules()
	if err != nil {
		return err
	}
	return c.read(ctx, src, rules, func(b opened) error {
		if proven := b.verified; proven != nil {
			c.say("verified, signed by %s", strings.Join(proven.SignedBy, ", "))
		}
		var out bytes.Buffer
		if err := c.render(ctx, &out, b); err != nil {
			return err
		}
		return c.deliver(c.dest, out.Bytes(), "")
	})
}

// render writes the result in the requested format.
func (c *common) render(ctx context.Context, w io.Writer, b opened) error {
	if c.format == formatHTML {
		e, err := evidence.Collect(ctx, b.Bundle, b.verified, c.options())
		if err != nil {
			return err
		}
		return page(w, e)
	}
	i, err := inspect.Bundle(ctx, b.Bundle, c.options())
	if err != nil {
		return err
	}
	if c.json() {
		return command.WriteJSON(w, struct {
			*inspect.Inspection

			Verification *verify.Verification `json:"verification,omitempty"`
		}{i, b.verified})
	}
	var p printer
	p.inspection(i)
	_, err = p.WriteTo(w)
	return err
}

func (p *printer) inspection(i *inspect.Inspection) {
	facts := command.NewTable()
	facts.Row("bundle", i.Root)
	facts.Row("size", fmt.Sprintf("%s in %s", size.Format(i.Bytes), command.Plural(i.Blobs, "blob", "blobs")))
	if i.Left != nil {
		facts.Row("delta", leftLine(i.Left))
	}
	facts.Row("platforms", image.JoinPlatforms(i.Platforms))
	facts.Row("matrix", matrixLine(i.Matrix))
	facts.Row("signatures", signatureLine(i.Signatures))
	p.table(facts)
	p.line("")
	releases := command.NewTable("RELEASE", "STATE", "KUBERNETES", "VSPHERE", "MANIFESTS", "IMAGES")
	for _, r := range i.Releases {
		releases.Row(fmt.Sprintf("%s@%s", r.Driver, r.Version), r.State, r.Kubernetes, r.VSphere, len(r.Manifests), r.Images)
	}
	p.table(releases)
	p.line("")
	images := command.NewTable("IMAGE", "SIZE", "DIGEST", "PLATFORMS")
	for _, m := range i.Images {
		images.Row(m.Reference, size.Format(m.Bytes), short(m.Digest.String()), strings.Join(m.Platforms, " "))
	}
	p.table(images)
	for _, m := range i.Images {
		if m.Why() != "" {
			p.line("\n%s", movedLine(m.Reference, m.Source, m.Why()))
		}
		if len(m.Attached) > 0 {
			p.line("\nupstream's: %s", m.Reference)
		}
		for _, s := range m.Attached {
			p.line("  %s", attachedLine(s))
		}
	}
}

// movedLine says why a bundle has another image than a manifest names. It names the source if that is another
// repository or tag.
func movedLine(reference image.Reference, source, why string) string {
	if at, _, _ := strings.Cut(source, "@"); at != reference.String() {
		return fmt.Sprintf("moved: %s is taken from %s: %s", reference, source, why)
	}
	return fmt.Sprintf("moved: %s: %s", reference, why)
}

func attachedLine(s signatures.Signature) string {
	if s.Tag == "" {
		return s.Type + " " + short(s.Digest.String())
	}
	return s.Tag
}

func matrixLine(m inspect.Matrix) string {
	s := fmt.Sprintf("serial %d, issued %s, %s", m.Serial, day(m.Issued), expiry(m.Expires, m.Expired))
	if m.Signed {
		return s + ", with a signature (not checked)"
	}
	return s + ", not signed"
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func expiry(at time.Time, isPast bool) string {
	return "expires " + day(at) + map[bool]string{true: " (EXPIRED)"}[isPast]
}

func signatureLine(signatures []signatures.Signature) string {
	if len(signatures) == 0 {
		return "none"
	}
	out := make([]string, len(signatures))
	for i, s := range signatures {
		out[i] = attachedLine(s)
	}
	return strings.Join(out, ", ") + " (see verify for whose)"
}

const formatHTML = "html"

// pageText is one self-contained page, without scripts and external content.
//
//go:embed page.html
var pageText string

// page renders the evidence, deterministically.
func page(w io.Writer, e *evidence.Page) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"short": short, "bytes": size.Format,
		"join": func(s []string) string { return strings.Join(s, ", ") },
		"date": day,
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, e)
}

type sbomOptions struct {
	common
	kind string
}

func newSBOMCommand(a *app) *cobra.Command {
	o := &sbomOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "sbom SRC --type spdx|cyclonedx",
		Short: "Write the bill of materials of a bundle",
		Long: `sbom writes the software bill of materials of a whole bundle as JSON, in SPDX 2.3 or
CycloneDX 1.6. It lists the releases, their manifest files, every image by digest with
its package URL, and the matrix. The same bundle gives the same document. It says what
the bundle holds, and proves nothing: see verify.`,
		Example: `  vdo-bundle sbom drivers.tar --type spdx -o drivers.spdx.json
  vdo-bundle sbom registry.site/vdo/drivers:1 --type cyclonedx | less`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().Var(&flags.Choice{To: &o.kind, Of: []string{sbom.SPDX, sbom.CycloneDX}}, "type", "which form to write: spdx or cyclonedx")
	o.bindOutput(cmd, "`FILE` to write to, - for standard output")
	return with(cmd, o.registryFlags.bind)
}

func (o *sbomOptions) run(ctx context.Context, src string) error {
	return o.read(ctx, src, verify.Rules{}, func(b opened) error {
		d, err := b.Describe(ctx)
		if err != nil {
			return err
		}
		tool := "vdo-bundle " + version().Version
		in := sbom.Input{Lock: d.Contents.Lock, Root: d.Root, Issued: d.Matrix.Issued, Tool: tool}
		encode := map[string]func() ([]byte, error){sbom.SPDX: in.SPDX, sbom.CycloneDX: in.CycloneDX}[o.kind]
		data, err := encode()
		if err != nil {
			return err
		}
		return o.deliver(o.dest, data, "")
	})
}

func newDiffCommand(a *app) *cobra.Command {
	o := &common{app: a}
	return with(&cobra.Command{
		Use:   "diff FROM TO",
		Short: "Show what changes from one bundle to another",
		Long: `diff shows new, removed and changed releases and images, the changes of the matrix, and how
many bytes the two bundles share: a delta carries only the new bytes. It proves nothing: see
verify. FROM and TO are bundles anywhere.`,
		Example: `  vdo-bundle diff october.tar november.tar
  vdo-bundle diff registry.site/vdo/drivers:1 drivers.tar --format json`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.diff(cmd.Context(), args[0], args[1]) },
	}, o.registryFlags.bind, o.bindFormat)
}

func (c *common) diff(ctx context.Context, from, to string) error {
	one, err := c.open(ctx, from, verify.Rules{})
	if err == nil {
		defer one.Close() //nolint:errcheck // only read
	}
	other, otherErr := c.open(ctx, to, verify.Rules{})
	if otherErr == nil {
		defer other.Close() //nolint:errcheck // only read
	}
	if err := fault.Join(err, otherErr); err != nil {
		return err
	}
	d, err := diff.Bundles(ctx, one.Bundle, other.Bundle)
	if err != nil {
		return err
	}
	return c.show(d, func(p *printer) { p.difference(d) })
}

func (p *printer) difference(d *diff.Difference) {
	if d.From == d.To {
		p.line("the same bundle: %s", d.From)
		return
	}
	p.line("from %s", d.From)
	p.line("to   %s", d.To)
	if x := d.Platforms; x != nil {
		p.line("platforms: %s, was %s", x.To, x.From)
	}
	p.changes("releases", d.Releases)
	p.changes("images", d.Images)
	p.matrix(d.Matrix)
	p.line("")
	p.line("new     %d blobs and manifests, %s", d.Layers.Added.Count, size.Format(d.Layers.Added.Bytes))
	p.line("gone    %d, %s", d.Layers.Removed.Count, size.Format(d.Layers.Removed.Bytes))
	p.line("shared  %d, %s", d.Layers.Shared.Count, size.Format(d.Layers.Shared.Bytes))
}

func newOutdatedCommand(a *app) *cobra.Command {
	o := &lockFlags{common: common{app: a}}
	return with(&cobra.Command{
		Use:   "outdated SRC",
		Short: "Show which newer releases a bundle lacks",
		Long: `outdated shows what is newer than the drivers and services of a bundle. pull can take the
releases that the matrix lists. Others, which it does not list yet, upstream has published in
the repository of the driver's image. A minor's newest release counts; of minors that the
bundle does not have, those that are newer than all that it has. It proves nothing. Its exit
code is 0 whatever it finds, and 5 if a registry does not answer.`,
		Example: `  vdo-bundle outdated registry.site/vdo/drivers:1
  vdo-bundle outdated drivers.tar --matrix matrix.yaml --format json`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.outdated(cmd.Context(), args[0]) },
	}, o.matrixFlags.bind, o.sourceFlags.bind, o.registryFlags.bindSmall, o.bindFormat, o.bindProgress)
}

func (f *lockFlags) outdated(ctx context.Context, src string) error {
	m, err := f.openMatrix(&f.common)
	if err != nil {
		return err
	}
	return f.read(ctx, src, verify.Rules{}, func(b opened) error {
		upstream, err := f.upstream(b.client, &f.registryFlags)
		if err != nil {
			return err
		}
		found, err := outdated.Find(ctx, outdated.Input{
			Bundle: b.Bundle, Matrix: m.Document,
			Tags: func(ctx context.Context, i image.Reference) ([]string, error) {
				return b.client.Repository(upstream(i).Can().Repository).Tags(ctx)
			},
		}, f.options())
		if found == nil {
			return err
		}
		return fault.Join(err, f.show(found, func(p *printer) {
			t := command.NewTable("DRIVER", "BUNDLE", "IN THE MATRIX", "PUBLISHED", "IMAGE")
			for _, d := range found {
				t.Row(d.Driver, versions(d.Has), versions(d.Listed), versions(d.Published), d.Image)
			}
			p.table(t)
			for _, d := range found {
				for _, why := range d.Warnings {
					f.say("warning: %s", why)
				}
				if len(d.Refused) > 0 {
					f.say("%s %s: %s, so the operator will refuse it; `vdo-bundle matrix add` makes the list",
						d.Driver, versions(d.Refused), matrix.WhyUnlisted)
				}
			}
			if slices.ContainsFunc(found, func(d outdated.Driver) bool { return len(d.Listed)+len(d.Published) > 0 }) {
				f.say("to take what the matrix lists: `vdo-bundle pull`, or `vdo-bundle lock` before `pull --lock`; " +
					"to list what is published: `vdo-bundle matrix add`")
			}
		}))
	})
}

// versions returns versions separated by spaces.
func versions(of []matrix.Version) string { return strings.Trim(fmt.Sprint(of), "[]") }
