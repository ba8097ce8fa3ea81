package cli

import (
	"bytes"
	_ "embed"
	"errors"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/evidence"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

const formatHTML = "html"

// pageText is one self-contained page: no script, and nothing from elsewhere.
//
//go:embed page.html
var pageText string

// gridChoice is a cell's line, for the template.
type gridChoice struct {
	Driver string
	Choice *matrix.GridChoice
}

// page renders the evidence. The same evidence gives the same bytes.
func page(e *evidence.Page) ([]byte, error) {
	t, err := template.New("page").Funcs(template.FuncMap{
		"short": short, "bytes": size,
		"join":   func(s []string) string { return strings.Join(s, ", ") },
		"date":   func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
		"choice": func(driver string, c *matrix.GridChoice) gridChoice { return gridChoice{driver, c} },
	}).Parse(pageText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, e)
	return out.Bytes(), err
}

// inspectOutputFlags bind --format with html, and -o: short for --format, or the
// file that the page is written to.
func (f *flags) inspectOutputFlags(cmd *cobra.Command) {
	f.format = formatText
	formats := []string{formatText, formatJSON, formatHTML}
	cmd.Flags().Var(&choice{to: &f.format, of: formats}, "format", "how to print the result: text, json or html")
	cmd.Flags().VarP(&formatOrFile{f, formats}, "output", "o", "a format, as --format; or the file to write the html page to")
}

// formatOrFile is a flag that takes a format or a file.
type formatOrFile struct {
	f  *flags
	of []string
}

// Type says what it takes.
func (*formatOrFile) Type() string { return "FORMAT|FILE" }

// String is empty: there is no default.
func (*formatOrFile) String() string { return "" }

// Set takes a format where it is one.
func (o *formatOrFile) Set(s string) error {
	switch {
	case s == "":
		return errors.New("it is empty")
	case slices.Contains(o.of, s):
		o.f.format = s
	default:
		o.f.dest = s
	}
	return nil
}

// checkPage refuses a file where there is no page.
func (f *flags) checkPage() error {
	if f.dest == "" || f.format == formatHTML {
		return nil
	}
	return badFlag("-o", f.dest, errors.New("it is none of text, json, html, and only html is written to a file"), "write --format html -o FILE")
}

// writePage writes the page to the file of -o, or to standard output.
func (a *app) writePage(e *evidence.Page) error {
	data, err := page(e)
	if err != nil {
		return err
	}
	if a.flags.dest == "" || a.flags.dest == "-" {
		_, err = a.out.Write(data)
		return err
	}
	if err := userfile.Write(a.flags.dest, data, 0o644); err != nil {
		return err
	}
	a.say("wrote %s", a.flags.dest)
	return nil
}
