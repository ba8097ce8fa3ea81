package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/inspect"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

func printVerification(w io.Writer, v *verify.Verification) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	row("verified", "%s", v.Root)
	row("signed by", "%s", strings.Join(v.SignedBy, ", "))
	matrix := fmt.Sprintf("serial %d, expires %s", v.Serial, v.Expires.UTC().Format(time.DateOnly))
	if len(v.MatrixSignedBy) > 0 {
		matrix += ", signed by " + strings.Join(v.MatrixSignedBy, ", ")
	}
	row("matrix", "%s", matrix)
	row("content", "%d images, %d blobs, %s: every digest checked", v.Images, v.Blobs, size(v.Bytes))
	if v.Left != nil {
		row("delta", "%s, not checked", leftLine(v.Left))
	}
	if v.Provenance != nil {
		row("provenance", "%s", provenanceLine(v.Provenance))
	}
	return t.Flush()
}

// provenanceLine says on whose word the bundle was built how.
func provenanceLine(p *verify.Provenance) string {
	if p.Problem != "" {
		return "not verified: " + p.Problem
	}
	line := fmt.Sprintf("signed by %s: built by vdo-bundle %.60q, started %.40q", strings.Join(p.SignedBy, ", "), p.Builder, p.Started)
	if p.UpstreamVerified {
		line += ", upstream's signatures checked"
	}
	return line
}

// leftLine says what a delta does not hold.
func leftLine(l *bundle.LeftOut) string {
	return fmt.Sprintf("%d layers, %s, are left to the base %s", l.Layers, size(l.Bytes), l.Base)
}

func printInspection(w io.Writer, i *inspect.Inspection) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\n", args...) }
	line("bundle\t%s", i.Root)
	line("size\t%s in %d blobs", size(i.Bytes), i.Blobs)
	if i.Left != nil {
		line("delta\t%s", leftLine(i.Left))
	}
	line("platforms\t%s", joined(i.Platforms))
	line("matrix\t%s", matrixLine(i.Matrix))
	line("signatures\t%s", signatureLine(i.Signatures))
	line("")
	line("RELEASE\tSTATE\tKUBERNETES\tVSPHERE\tMANIFESTS\tIMAGES")
	for _, r := range i.Releases {
		line("%s %s\t%s\t%s\t%s\t%d\t%d", r.Driver, r.Version, r.State, r.Kubernetes, r.VSphere, len(r.Manifests), r.Images)
	}
	line("")
	line("IMAGE\tSIZE\tDIGEST\tPLATFORMS")
	for _, m := range i.Images {
		line("%s\t%s\t%s\t%s", m.Reference, size(m.Bytes), short(m.Digest.String()), strings.Join(m.Platforms, " "))
	}
	for _, m := range i.Images {
		if m.Reason != "" {
			line("")
			line("moved: %s", m.Reference)
			if m.Source != m.Reference.String() {
				line("  from %s", m.Source)
			}
			line("  because %s", m.Reason)
		}
	}
	for _, m := range i.Images {
		if len(m.Attached) > 0 {
			line("")
			line("upstream's: %s", m.Reference)
			for _, s := range m.Attached {
				line("  %s", attachedLine(s))
			}
		}
	}
	return t.Flush()
}

func attachedLine(s signatures.Signature) string {
	if s.Tag == "" {
		return s.Type + " " + short(s.Digest.String())
	}
	return s.Tag
}

func joined[T fmt.Stringer](values []T) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = v.String()
	}
	return strings.Join(out, ", ")
}

func matrixLine(m inspect.Matrix) string {
	s := fmt.Sprintf("serial %d, issued %s, expires %s", m.Serial, m.Issued.UTC().Format(time.DateOnly), m.Expires.UTC().Format(time.DateOnly))
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

// short cuts a digest for a table.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }
