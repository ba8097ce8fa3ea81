package cli

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/evidence"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
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
func page(w io.Writer, e *evidence.Page) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"short": short, "bytes": size.Format,
		"join":   func(s []string) string { return strings.Join(s, ", ") },
		"date":   func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
		"choice": func(driver string, c *matrix.GridChoice) gridChoice { return gridChoice{driver, c} },
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, e)
}
