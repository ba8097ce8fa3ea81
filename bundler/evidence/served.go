package evidence

import (
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Served is what a bundle installs for which versions; those that it serves nothing for
// are left out.
type Served struct {
	VSphere []Span           // the columns
	Rows    []matrix.GridRow // by Kubernetes minor, ascending
}

// Span is a range of versions.
type Span struct {
	From, Below string // no Below: all later ones
}

// servedOf leaves out of a grid what nothing is chosen for, and makes one column of
// neighbours with the same choices.
func servedOf(g matrix.Grid) Served {
	served := func(c matrix.GridCell) bool { return c.CPI != nil || c.CSI != nil }
	rows := slices.DeleteFunc(slices.Clone(g.Rows), func(r matrix.GridRow) bool { return !slices.ContainsFunc(r.Cells, served) })
	out := Served{Rows: make([]matrix.GridRow, len(rows))}
	for n, r := range rows {
		out.Rows[n].Kubernetes = r.Kubernetes
	}
	for from := 0; from < len(g.VSphere); {
		next := from + 1
		for next < len(g.VSphere) && sameColumns(rows, from, next) {
			next++
		}
		span := Span{From: g.VSphere[from].String()}
		if next < len(g.VSphere) {
			span.Below = g.VSphere[next].String()
		}
		if slices.ContainsFunc(rows, func(r matrix.GridRow) bool { return served(r.Cells[from]) }) {
			out.VSphere = append(out.VSphere, span)
			for n, r := range rows {
				out.Rows[n].Cells = append(out.Rows[n].Cells, r.Cells[from])
			}
		}
		from = next
	}
	return out
}

func sameColumns(rows []matrix.GridRow, a, b int) bool {
	same := func(x, y *matrix.GridChoice) bool {
		return x == y || x != nil && y != nil && x.Version.Equal(y.Version) && x.State == y.State && x.Derived == y.Derived
	}
	return !slices.ContainsFunc(rows, func(r matrix.GridRow) bool {
		return !same(r.Cells[a].CPI, r.Cells[b].CPI) || !same(r.Cells[a].CSI, r.Cells[b].CSI)
	})
}
