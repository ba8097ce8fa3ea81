package cli

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/sbom"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/evidence"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/inspect"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// inspectOptions are the flags of `inspect`.
type inspectOptions struct {
	common
}

const inspectHelp = `inspect shows what a bundle says of itself: releases, images, sizes, platforms,
the matrix and its expiry, and which signatures are there. It proves nothing: see
verify.

--format html makes one page for an auditor: which releases serve which versions and on
whose word, images, signatures, and where every byte came from. With --key or --policy
the bundle is verified first, and the page says by whom it is signed.`

func newInspectCommand(a *app) *cobra.Command {
	o := &inspectOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "inspect SRC",
		Short: "Show what is in a bundle",
		Long:  inspectHelp,
		Example: `  vdo-bundle inspect drivers.tar
  vdo-bundle inspect registry.site/vdo/drivers:1 --format json
  vdo-bundle inspect drivers.tar --key release.pub --format html -o drivers.html`,
		Args: flags.Exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
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

func (o *inspectOptions) run(ctx context.Context, src string) error {
	rules, err := o.rules()
	if err != nil {
		return err
	}
	return o.read(ctx, src, rules, func(b opened) error {
		if proven := b.verified; proven != nil {
			o.say("verified, signed by %s", strings.Join(proven.SignedBy, ", "))
		}
		var out bytes.Buffer
		if err := o.render(ctx, &out, b); err != nil {
			return err
		}
		return o.deliver(o.dest, out.Bytes(), "")
	})
}

// render writes the result in the format that is asked for.
func (o *inspectOptions) render(ctx context.Context, w io.Writer, b opened) error {
	if o.format == formatHTML {
		e, err := evidence.Collect(ctx, b.Bundle, b.verified, o.options())
		if err != nil {
			return err
		}
		return page(w, e)
	}
	i, err := inspect.Bundle(ctx, b.Bundle, o.options())
	if err != nil {
		return err
	}
	if o.json() {
		return command.WriteJSON(w, i)
	}
	return printInspection(w, i)
}

func printInspection(w io.Writer, i *inspect.Inspection) error {
	p := &printer{w: w}
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
			p.line("\nmoved: %s", m.Reference)
			if m.Source != m.Reference.String() {
				p.line("  from %s", m.Source)
			}
			p.line("  because %s", m.Why())
		}
		if len(m.Attached) > 0 {
			p.line("\nupstream's: %s", m.Reference)
		}
		for _, s := range m.Attached {
			p.line("  %s", attachedLine(s))
		}
	}
	return p.err
}

func attachedLine(s signatures.Signature) string {
	if s.Tag == "" {
		return s.Type + " " + short(s.Digest.String())
	}
	return s.Tag
}

func matrixLine(m inspect.Matrix) string {
	day := func(t time.Time) string { return t.UTC().Format(time.DateOnly) }
	s := fmt.Sprintf("serial %d, issued %s, expires %s", m.Serial, day(m.Issued), day(m.Expires))
	if m.Expired {
		s += " (EXPIRED)"
	}
	if m.Signed {
		return s + ", signed"
	}
	return s + ", not signed"
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

// pageText is one self-contained page: no script, and nothing from elsewhere.
//
//go:embed page.html
var pageText string

// page renders the evidence. The same evidence gives the same bytes.
func page(w io.Writer, e *evidence.Page) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"short": short, "bytes": size.Format,
		"join": func(s []string) string { return strings.Join(s, ", ") },
		"date": func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, e)
}

// sbomOptions are the flags of `sbom`.
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
		Args: flags.Exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.kind == "" {
				return flags.Missing(cmd, "--type spdx or cyclonedx")
			}
			return o.run(cmd.Context(), args[0])
		},
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
