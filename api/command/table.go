package command

import (
	"fmt"
	"io"
	"reflect"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Table is a table without lines: two blanks between columns, none at the end.
type Table struct{ table.Writer }

// NewTable returns a table, with a header or without.
func NewTable(header ...any) Table {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	if len(header) > 0 {
		t.AppendHeader(header)
	}
	return Table{t}
}

// Row adds a row. Cells are numbers, or values in the form of fmt. Text is made printable before
// the layout, which acts on carriage returns.
func (t Table) Row(cells ...any) {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		if row[i] = c; !reflect.ValueOf(c).CanInt() && c != nil {
			row[i] = Printable(fmt.Sprint(c))
		}
	}
	t.AppendRow(row)
}

// Write writes the table, a row per line; nothing without rows and header.
func (t Table) Write(w io.Writer) error {
	text := t.Render()
	if text == "" {
		return nil
	}
	_, err := io.WriteString(w, text+"\n")
	return err
}
