package matrixcmd

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

func (w IO) diff() *cobra.Command {
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
	w.formatFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		a, err := w.load("FROM", args[0])
		b, errB := w.load("TO", args[1])
		if err := fault.Join(err, errB); err != nil {
			return err
		}
		c := changes(a.Document, b.Document)
		return w.result(c, func() error { return (&Printer{W: w.Out}).Matrix(c, Title(c)) })
	}
	return cmd
}

func (w IO) export() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the complete built-in matrix",
		Long: `Writes the built-in matrix document byte for byte, with the list of what its releases
need of a cluster. Begin a matrix of your own with it.`,
		Example: `  vdo-bundle matrix export -o matrix.yaml`,
		Args:    flags.Exactly(),
		RunE:    func(*cobra.Command, []string) error { return w.write(out, matrix.Default()) },
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write (default standard output)")
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

// Printer prints differences until a write fails.
type Printer struct {
	W   io.Writer
	Err error
}

// Line prints a line.
func (p *Printer) Line(format string, args ...any) {
	if p.Err == nil {
		p.Err = command.Say(p.W, format, args...)
	}
}

// Changes are what came, went and is another one, where there is any of it.
func (p *Printer) Changes(title string, c diff.Changes) {
	if c.Empty() {
		return
	}
	if title != "" {
		p.Line("")
		p.Line("%s", title)
	}
	for _, x := range c.Removed {
		p.Line("- %s", x.Name)
	}
	for _, x := range c.Added {
		p.Line("+ %s", x.Name)
	}
	for _, x := range c.Changed {
		if p.Line("~ %s", x.Name); x.From != x.To {
			p.Line("    %s", x.To)
			p.Line("    was %s", x.From)
		}
		for _, what := range x.What {
			p.Line("    %s", what)
		}
	}
}

// Matrix prints how a matrix changed, and returns what failed so far.
func (p *Printer) Matrix(m diff.MatrixChange, title string) error {
	if m.Empty() && (m.FromSerial != m.ToSerial || m.Expires != nil) {
		p.Line("")
		p.Line("%s", title)
	}
	p.Changes(title, m.Changes)
	return p.Err
}

// Title says which documents were compared.
func Title(m diff.MatrixChange) string {
	title := fmt.Sprintf("matrix: serial %d, was %d", m.ToSerial, m.FromSerial)
	if m.FromSerial == m.ToSerial {
		title = fmt.Sprintf("matrix: serial %d, but another document", m.ToSerial)
	}
	if e := m.Expires; e != nil {
		title += fmt.Sprintf("; expires %s, was %s", e.To, e.From)
	}
	return title
}
