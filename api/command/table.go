package command

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
)

// Table is a table without lines: two blanks between columns, none at the end.
type Table struct {
	table.Writer

	cells  *[][]string // of all rows, and the header
	header bool
}

// NewTable makes one, with a header or without.
func NewTable(header ...any) Table {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	out := Table{t, &[][]string{}, len(header) > 0}
	if len(header) > 0 {
		t.AppendHeader(header)
		out.note(header)
	}
	return out
}

// note keeps what a row's cells are, to know how wide they are.
func (t Table) note(row table.Row) {
	cells := make([]string, len(row))
	for i, c := range row {
		if c != nil {
			cells[i] = fmt.Sprint(c)
		}
	}
	*t.cells = append(*t.cells, cells)
}

// Row adds a row. Cells are numbers, or what fmt writes of them, made printable before the
// table is laid out, which acts on carriage returns.
func (t Table) Row(cells ...any) {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		if row[i] = c; !reflect.ValueOf(c).CanInt() && c != nil {
			row[i] = Printable(fmt.Sprint(c))
		}
	}
	t.AppendRow(row)
	t.note(row)
}

// Write writes it; one without rows and header is nothing. On a terminal that is narrower than
// the table its columns are, and where their words do not fit side by side, cells are below each
// other; elsewhere a row is a line.
func (t Table) Write(w io.Writer) error {
	if t.Length() == 0 && t.Render() == "" {
		return nil
	}
	width := columns.Of(w)
	if width > 0 && !t.fit(width) && (t.header || t.pairs()) {
		_, err := io.WriteString(w, t.records(width))
		return err
	}
	_, err := io.WriteString(w, columns.Fold(t.Render(), width, hang)+"\n")
	return err
}

const gap = 2 // blanks between columns

// pairs tells whether each row is a name and what it is of.
func (t Table) pairs() bool {
	return !slices.ContainsFunc(*t.cells, func(row []string) bool { return len(row) != 2 })
}

// records are the rows one below the other, a line for each cell with the name of its column; of
// pairs, a line for each.
func (t Table) records(width int) string {
	rows := *t.cells
	var names []string
	if t.header {
		names, rows = rows[0], rows[1:]
	} else {
		for _, row := range rows {
			names = append(names, row[0])
		}
	}
	widest := 0
	for _, name := range names {
		widest = max(widest, columns.Width(name))
	}
	var b strings.Builder
	line := func(name, cell string) {
		if cell != "" {
			name += strings.Repeat(" ", widest+gap-columns.Width(name))
			b.WriteString(columns.Hanging(name, strings.Repeat(" ", widest+gap), cell, width) + "\n")
		}
	}
	for i, row := range rows {
		switch {
		case !t.header:
			line(row[0], row[1])
			continue
		case i > 0:
			b.WriteString("\n")
		}
		for c, cell := range row {
			line(names[c], cell)
		}
	}
	return b.String()
}

// fit makes columns narrower, the widest first, until the table is no wider than a terminal. No
// word is broken: where they do not fit, it is told, and all stays as it is.
func (t Table) fit(width int) bool {
	widths, least := t.widths()
	if sum(least) > width {
		return false
	}
	var configs []table.ColumnConfig
	for sum(widths) > width {
		widest := -1
		for i := range widths {
			if widths[i] > least[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		widths[widest]--
	}
	for i, most := range widths {
		configs = append(configs, table.ColumnConfig{Number: i + 1, WidthMax: most, WidthMaxEnforcer: text.WrapSoft})
	}
	t.SetColumnConfigs(configs)
	return true
}

// widths are how wide the columns are, and how wide their longest words.
func (t Table) widths() (widths, least []int) {
	for _, row := range *t.cells {
		for i, cell := range row {
			if i == len(widths) {
				widths, least = append(widths, 0), append(least, 0)
			}
			widths[i] = max(widths[i], columns.Width(cell))
			for _, word := range strings.Fields(cell) {
				least[i] = max(least[i], columns.Width(word))
			}
		}
	}
	return widths, least
}

// sum is how wide a table is.
func sum(widths []int) int {
	all := gap * (len(widths) - 1)
	for _, w := range widths {
		all += w
	}
	return all
}
