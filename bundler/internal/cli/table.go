package cli

import (
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// columns are a table without lines: two blanks between columns, none at the end.
type columns struct{ table.Writer }

func newTable(header ...any) columns {
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
	return columns{t}
}

func (c columns) row(cells ...any) { c.AppendRow(cells) }

func (c columns) write(w io.Writer) error {
	if c.Length() == 0 && c.Render() == "" {
		return nil
	}
	_, err := io.WriteString(w, c.Render()+"\n")
	return err
}
