package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Output is standard output. It remembers a failed write, which is a fault, for printers that ignore it.
type Output struct {
	f      *os.File
	failed error
}

// Stdout returns the program's standard output.
func Stdout() *Output { return &Output{f: os.Stdout} }

// Write writes all of p.
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.f.Write(p)
	if err != nil {
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = path.Err
		}
		o.failed = fault.Errorf(fault.Storage, "write", "standard output",
			"free space where it leads, or lead it elsewhere, and run the same command again", "%w", err)
		return n, o.failed
	}
	return n, nil
}

// Failed returns the fault of the last failed write, or nil.
func (o *Output) Failed() error { return o.failed }

// Fd returns the file's descriptor.
func (o *Output) Fd() uintptr { return o.f.Fd() }

// Plural returns a number with its noun: "1 node", "2 nodes".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Printable returns a text that is safe on a terminal, since names and messages come from foreign
// registries, vCenters and media. U+FFFD replaces characters that move the cursor, delete lines,
// change the writing direction, colour or hide text. Line breaks and tabs stay.
func Printable(text string) string { return strings.Map(shown, text) }

// Line returns a printable line.
func Line(format string, args ...any) string {
	return Printable(fmt.Sprintf(format, args...)) + "\n"
}

// hang is the indent of the rest of a line or row that is wider than the terminal.
const hang = 4

// Say writes a printable line. It is folded on terminals only, since other readers read line by line.
func Say(w io.Writer, format string, args ...any) error {
	_, err := io.WriteString(w, columns.Fold(Line(format, args...), columns.Of(w), hang))
	return err
}

func shown(r rune) rune {
	if r != '\n' && r != '\t' && fault.Control(r) {
		return utf8.RuneError
	}
	return r
}

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
