package command

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
)

// Table is a table without lines: two blanks between columns, none at the end.
type Table struct {
	table.Writer

	cells *[][]string // of all rows, and the header
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
	out := Table{t, &[][]string{}}
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
// the table its columns are; elsewhere a row is a line.
func (t Table) Write(w io.Writer) error {
	if t.Length() == 0 && t.Render() == "" {
		return nil
	}
	width := columns.Of(w)
	if width > 0 {
		t.fit(width)
	}
	_, err := io.WriteString(w, columns.Fold(t.Render(), width, hang)+"\n")
	return err
}

const gap = 2 // blanks between columns

// fit makes columns narrower, the widest first, until the table is no wider than a terminal. No
// word is broken: where they do not fit, all stays as it is.
func (t Table) fit(width int) {
	widths, least := t.widths()
	if sum(least) > width {
		return
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
