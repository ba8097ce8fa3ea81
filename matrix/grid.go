package matrix

import (
	"maps"
	"slices"
)

// Grid shows the choices of [Resolve] for each Kubernetes minor and vSphere version.
type Grid struct {
	Serial  int64     `json:"serial"`
	VSphere []Version `json:"vsphere"` // columns; each includes all versions up to the next
	Rows    []GridRow `json:"rows"`    // by Kubernetes minor, ascending
}

// GridRow is the choices for one Kubernetes minor.
type GridRow struct {
	Kubernetes Minor      `json:"kubernetes"`
	Cells      []GridCell `json:"cells"` // one for each column
}

// GridCell is the choices for one site, without drivers that have no fitting release.
type GridCell struct {
	CPI *GridChoice `json:"cpi,omitempty"`
	CSI *GridChoice `json:"csi,omitempty"`
}

// GridChoice is one chosen release.
type GridChoice struct {
	Version Version `json:"version"`
	State   State   `json:"state"`
	Derived bool    `json:"derived,omitempty"` // a range is derived, not stated by a vendor
}

// GridOptions narrow a grid. The zero value shows everything that the document covers.
type GridOptions struct {
	Kubernetes []Minor   // rows; none: every minor that a CPI or CSI release supports
	VSphere    []Version // columns; none: the versions where the fit can change
	Policy     Policy
	Available  Available
}

// NewGrid resolves every cell. Withdrawn releases do not widen the grid.
func NewGrid(doc *Document, options GridOptions) Grid {
	grid := Grid{Serial: doc.Serial, VSphere: options.VSphere}
	if len(grid.VSphere) == 0 {
		grid.VSphere = doc.boundaries()
	}
	minors := options.Kubernetes
	if len(minors) == 0 {
		minors = doc.Minors()
	}
	for _, minor := range minors {
		row := GridRow{Kubernetes: minor}
		for _, v := range grid.VSphere {
			row.Cells = append(row.Cells, doc.cell(minor, v, options))
		}
		grid.Rows = append(grid.Rows, row)
	}
	return grid
}

// cell resolves both drivers together or, if that is refused, each alone.
func (d *Document) cell(minor Minor, v Version, options GridOptions) GridCell {
	facts := Facts{Kubernetes: triple(minor.Major, minor.Minor, 0), VCenters: []VCenter{{Version: v}}}
	policy := func(off ...Driver) Policy {
		p := Policy{Rules: map[Driver]Rule{}, Refused: options.Policy.Refused}
		maps.Copy(p.Rules, options.Policy.Rules)
		p.Rules[CNI] = Disabled
		for _, driver := range off {
			p.Rules[driver] = Disabled
		}
		return p
	}
	var cell GridCell
	for _, off := range [][]Driver{nil, {CSI}, {CPI}} {
		chosen, refusal := Resolve(d, facts, nil, policy(off...), options.Available)
		if refusal != nil {
			continue
		}
		cell.CPI, cell.CSI = orElse(cell.CPI, chosen, CPI), orElse(cell.CSI, chosen, CSI)
		if off == nil {
			break
		}
	}
	return cell
}

func orElse(have *GridChoice, s Selection, d Driver) *GridChoice {
	c, ok := s.Choice(d)
	if have != nil || !ok {
		return have
	}
	r := c.Release
	return &GridChoice{Version: r.Version, State: r.State, Derived: r.Kubernetes.Derived || r.VSphere.Derived}
}

// covered visits the CPI and CSI releases that can be chosen.
func (d *Document) covered(visit func(Release)) {
	for _, r := range d.Releases {
		if (r.Driver == CPI || r.Driver == CSI) && r.State != Withdrawn {
			visit(r)
		}
	}
}

// Minors returns every Kubernetes minor that a CPI or CSI release supports, ascending. A range
// without a maximum counts with its minimum.
func (d *Document) Minors() []Minor {
	var out []Minor
	d.covered(func(r Release) {
		last := r.Kubernetes.Max
		if last.IsZero() {
			last = r.Kubernetes.Min
		}
		for i, m := 0, r.Kubernetes.Min; i < maxMinors && m.Compare(last) <= 0; i, m = i+1, m.Next() {
			out = append(out, m)
		}
	})
	slices.SortFunc(out, Minor.Compare)
	return slices.Compact(out)
}

// boundaries returns the vSphere versions at which the fit may change: each range's minimum, the
// first version above each maximum, and the majors between them. The majors include those of
// withdrawn releases, to show a vSphere newer than all of them.
func (d *Document) boundaries() []Version {
	var out []Version
	d.covered(func(r Release) {
		if !r.VSphere.Min.IsZero() {
			out = append(out, r.VSphere.Min)
		}
		if !r.VSphere.Max.IsZero() {
			out = append(out, r.VSphere.Max.after())
		}
	})
	if len(out) == 0 {
		return nil
	}
	lowest := slices.MinFunc(out, Version.Compare).Minor().Major
	for major := lowest + 1; major <= min(d.highestMajor(), lowest+maxMinors); major++ {
		out = append(out, triple(major, 0, 0))
	}
	slices.SortFunc(out, Version.Compare)
	return slices.CompactFunc(out, Version.Equal)
}

func (d *Document) highestMajor() uint64 {
	var highest uint64
	for _, r := range d.Releases {
		highest = max(highest, r.VSphere.Min.Minor().Major)
		if !r.VSphere.Max.IsZero() {
			highest = max(highest, r.VSphere.Max.after().Minor().Major)
		}
	}
	return highest
}
