package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/diff"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func newMatrixDiffCommand(a *app) *cobra.Command {
	c := &common{app: a}
	cmd := &cobra.Command{
		Use:   "diff FROM TO",
		Short: "Show what changes from one matrix to another",
		Long: `Shows which releases are new, gone or changed from one matrix document to another.
It compares state, ranges and manifests, and line by line what a release needs of a
cluster. Write "" for the built-in matrix.`,
		Example: `  vdo-bundle matrix diff old.yaml new.yaml
  vdo-bundle matrix diff "" new.yaml --format json`,
		Args: flags.Exactly("FROM", "TO"),
	}
	c.bindFormat(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		from, err := c.loadMatrix("FROM", args[0])
		to, toErr := c.loadMatrix("TO", args[1])
		if err := fault.Join(err, toErr); err != nil {
			return err
		}
		d := changes(from, to)
		return c.show(d, func() error { return (&printer{w: c.out}).matrix(d, matrixTitle(d)) })
	}
	return cmd
}

func newMatrixExportCommand(a *app) *cobra.Command {
	c := &common{app: a}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the complete built-in matrix",
		Long: `Writes the built-in matrix document byte for byte, with the list of what its releases
need of a cluster. Begin a matrix of your own with it.`,
		Example: `  vdo-bundle matrix export -o matrix.yaml`,
		Args:    flags.Exactly(),
		RunE:    func(*cobra.Command, []string) error { return c.deliver(c.dest, matrix.Default(), "") },
	}
	c.bindOutput(cmd, "`FILE` to write to, - for standard output")
	return cmd
}

// changes compares two documents, with what releases that are in both need of a cluster.
func changes(a, b *matrix.Document) diff.MatrixChange {
	c := diff.Matrices(a, b)
	for _, r := range a.Releases {
		needs := needsChanged(a, b, r.ReleaseID)
		if _, ok := b.Release(r.ReleaseID); len(needs) == 0 || !ok {
			continue
		}
		n := slices.IndexFunc(c.Changed, func(x diff.Change) bool { return x.Name == r.ReleaseID.String() })
		if n < 0 {
			n, c.Changed = len(c.Changed), append(c.Changed, diff.Change{Name: r.ReleaseID.String()})
		}
		c.Changed[n].What = append(c.Changed[n].What, needs...)
	}
	return c
}

// needsChanged says which objects, and which lines of objects, a release needs in one
// document alone.
func needsChanged(a, b *matrix.Document, id matrix.ReleaseID) (out []string) {
	was, _ := a.NeedsOf(id)
	is, _ := b.NeedsOf(id)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, object := range slices.Sorted(maps.Keys(all)) {
		_, had := was[object]
		_, has := is[object]
		switch {
		case !had:
			out = append(out, fmt.Sprintf("needs %s, which is new", object))
		case !has:
			out = append(out, fmt.Sprintf("needs %s no longer", object))
		}
		for _, line := range is[object] {
			if !slices.Contains(was[object], line) {
				out = append(out, fmt.Sprintf("+ %s: %s", object, line))
			}
		}
		for _, line := range was[object] {
			if has && !slices.Contains(is[object], line) {
				out = append(out, fmt.Sprintf("- %s: %s", object, line))
			}
		}
	}
	return out
}

// alone is a document of one release of another, under a name.
func alone(doc *matrix.Document, id, as matrix.ReleaseID) *matrix.Document {
	out := &matrix.Document{Serial: doc.Serial, Expires: doc.Expires}
	if r, ok := doc.Release(id); ok {
		r.ReleaseID = as
		out.Releases = []matrix.Release{r}
	}
	objects, _ := doc.NeedsOf(id)
	for object, has := range objects {
		out.Needs = append(out.Needs, matrix.Need{Object: object, Of: []matrix.ReleaseID{as}, Has: has})
	}
	return out
}

// printer prints differences until a write fails.
type printer struct {
	w   io.Writer
	err error
}

// line prints a line.
func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		p.err = command.Say(p.w, format, args...)
	}
}

// table prints a table.
func (p *printer) table(t command.Table) {
	if p.err == nil {
		p.err = t.Write(p.w)
	}
}

// changes prints what came, went and is another one, where there is any of it.
func (p *printer) changes(title string, c diff.Changes) {
	if c.Empty() {
		return
	}
	if title != "" {
		p.line("")
		p.line("%s", title)
	}
	for _, x := range c.Removed {
		p.line("- %s", x.Name)
	}
	for _, x := range c.Added {
		p.line("+ %s", x.Name)
	}
	for _, x := range c.Changed {
		if p.line("~ %s", x.Name); x.From != x.To {
			p.line("    %s", x.To)
			p.line("    was %s", x.From)
		}
		for _, what := range x.What {
			p.line("    %s", what)
		}
	}
}

// matrix prints how a matrix changed, and returns what failed so far.
func (p *printer) matrix(m diff.MatrixChange, title string) error {
	if m.Empty() && (m.FromSerial != m.ToSerial || m.Expires != nil) {
		p.line("")
		p.line("%s", title)
	}
	p.changes(title, m.Changes)
	return p.err
}

// matrixTitle says which documents were compared.
func matrixTitle(m diff.MatrixChange) string {
	title := fmt.Sprintf("matrix: serial %d, was %d", m.ToSerial, m.FromSerial)
	if m.FromSerial == m.ToSerial {
		title = fmt.Sprintf("matrix: serial %d, but another document", m.ToSerial)
	}
	if e := m.Expires; e != nil {
		title += fmt.Sprintf("; expires %s, was %s", e.To, e.From)
	}
	return title
}
