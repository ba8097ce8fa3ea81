package bundler

import (
	"cmp"
	"context"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Evidence is everything that a bundle says of itself, down to where each of its
// bytes came from: what an auditor files. The same bundle gives the same evidence
// at any time and on any machine.
type Evidence struct {
	*Inspection
	Served   Served          `json:"served"`
	Listed   []ListedRelease `json:"listed"`
	Files    []EvidenceFile  `json:"files"`
	Parts    []EvidencePart  `json:"parts"` // every manifest and blob: together all bytes of the bundle
	Verified *Verification   `json:"verified,omitempty"`
}

// ListedRelease is what the matrix says of a release of the bundle, and on whose word.
type ListedRelease struct {
	Name       string   `json:"name"`
	State      string   `json:"state"`
	Reason     string   `json:"reason,omitempty"`
	Kubernetes Range    `json:"kubernetes"`
	VSphere    Range    `json:"vSphere"`
	Requires   []string `json:"requires,omitempty"`
	Notes      []string `json:"notes,omitempty"`
}

// Range is a range of versions.
type Range struct {
	Range   string `json:"range"`
	Basis   string `json:"basis"`             // where it comes from
	Derived bool   `json:"derived,omitempty"` // a conclusion, which no vendor states
}

// EvidenceFile is an upstream manifest file.
type EvidenceFile struct {
	Release string       `json:"release"`
	Name    string       `json:"name"`
	URL     string       `json:"url,omitempty"` // it was fetched from there, or it comes with the bundler
	Digest  image.Digest `json:"digest"`
	Size    int64        `json:"size"`
}

// EvidencePart is one manifest or blob.
type EvidencePart struct {
	Digest    string   `json:"digest"`
	MediaType string   `json:"mediaType"`
	Size      int64    `json:"size"`
	PartOf    []string `json:"partOf"` // images by reference, or what else it is
	From      []string `json:"from"`   // where it was taken from
	Left      bool     `json:"leftToBase,omitempty"`
}

// CollectEvidence reads what a bundle says of itself, with what was proven of it.
func CollectEvidence(ctx context.Context, b *Bundle, o Options) (*Evidence, error) {
	d, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	i, err := d.inspect(ctx, b, o)
	if err != nil {
		return nil, err
	}
	i.Matrix.Expired = false // depends on the day on which it is asked
	lock := d.contents.Lock
	e := &Evidence{Inspection: i, Verified: b.Verification(), Listed: listedOf(lock, d.matrix), Parts: partsOf(d.graph, lock)}
	available := matrix.Available{}
	for _, r := range lock.Releases {
		available[r.ID()] = true
		for _, f := range r.Manifests {
			e.Files = append(e.Files, EvidenceFile{Release: r.ID(), Name: f.Name, URL: f.URL, Digest: f.Digest, Size: f.Size})
		}
	}
	e.Served = servedOf(matrix.NewGrid(d.matrix, matrix.GridOptions{Available: available}))
	return e, nil
}

// Served is what a bundle installs for which versions; those that it serves nothing for
// are left out.
type Served struct {
	VSphere []Span      `json:"vSphere"` // the columns
	Rows    []ServedRow `json:"rows"`    // by Kubernetes minor, ascending
}

// Span is a range of versions.
type Span struct {
	From  string `json:"from"`
	Below string `json:"below,omitempty"` // "": all later ones
}

// ServedRow is the choices for one Kubernetes minor.
type ServedRow struct {
	Kubernetes string            `json:"kubernetes"`
	Cells      []matrix.GridCell `json:"cells"` // one for each column
}

// servedOf leaves out of a grid what nothing is chosen for, and makes one column of
// neighbours with the same choices.
func servedOf(g matrix.Grid) Served {
	served := func(c matrix.GridCell) bool { return c.CPI != nil || c.CSI != nil }
	rows := slices.DeleteFunc(slices.Clone(g.Rows), func(r matrix.GridRow) bool { return !slices.ContainsFunc(r.Cells, served) })
	out := Served{VSphere: []Span{}, Rows: make([]ServedRow, len(rows))}
	for n, r := range rows {
		out.Rows[n] = ServedRow{Kubernetes: r.Kubernetes.String(), Cells: []matrix.GridCell{}}
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

func listedOf(lock *bundle.Lock, doc *matrix.Document) []ListedRelease {
	out := []ListedRelease{}
	for _, r := range doc.Releases {
		if !slices.ContainsFunc(lock.Releases, func(l bundle.Release) bool { return l.Driver == r.Driver && l.Version.Equal(r.Version) }) {
			continue
		}
		l := ListedRelease{
			Name: r.ReleaseID.String(), State: string(r.State), Reason: r.Reason, Notes: r.Notes,
			Kubernetes: Range{r.Kubernetes.String(), r.Kubernetes.Basis, r.Kubernetes.Derived},
			VSphere:    Range{r.VSphere.String(), r.VSphere.Basis, r.VSphere.Derived},
		}
		for _, q := range r.Requires {
			text := q.String()
			if q.Optional {
				text += " (recommended)"
			}
			l.Requires = append(l.Requires, text)
		}
		out = append(out, l)
	}
	return out
}

// partsOf says of every manifest and blob what it is part of and where it was taken
// from, in the order of an archive.
func partsOf(g *bundle.Graph, lock *bundle.Lock) []EvidencePart {
	names, origins := g.Owners(), originNames(g, lock)
	left := map[string]bool{}
	for _, d := range g.Left() {
		left[d.Digest.String()] = true
	}
	out := make([]EvidencePart, 0, len(g.Manifests)+len(g.Blobs))
	for _, d := range append(bundleOrder(g), g.Left()...) {
		p := EvidencePart{
			Digest: d.Digest.String(), MediaType: d.MediaType, Size: d.Size, Left: left[d.Digest.String()],
			PartOf: slices.Sorted(slices.Values(names[d.Digest])),
		}
		if d.Digest == g.Root.Digest {
			p.PartOf = []string{"the root"}
		}
		for _, name := range p.PartOf {
			if from := origins[name]; from != "" && !slices.Contains(p.From, from) {
				p.From = append(p.From, from)
			}
		}
		if own := origins[p.Digest]; own != "" {
			p.From = []string{own}
		}
		slices.Sort(p.From)
		out = append(out, p)
	}
	return out
}

// bundleOrder is the order of the archive without attachments: those are not
// reached from the root.
func bundleOrder(g *bundle.Graph) []ocispec.Descriptor {
	bare := *g
	bare.Attachments = nil
	return bare.Order()
}

const madeHere = "made by vdo-bundle from the lock"

// originNames says where things come from: images by reference, and the bundle's
// own parts by digest.
func originNames(g *bundle.Graph, lock *bundle.Lock) map[string]string {
	out := map[string]string{"the root": madeHere, bundle.ContentsName: madeHere}
	for _, i := range lock.Images {
		out[i.Reference.String()] = i.FetchedFrom().Repository()
	}
	out[lock.Matrix.Digest.String()] = "the publisher of the compatibility matrix"
	for _, b := range g.Blobs {
		if b.MediaType == bundle.MatrixSigMediaType {
			out[b.Digest.String()] = "the publisher of the compatibility matrix"
		}
	}
	for _, r := range lock.Releases {
		for _, f := range r.Manifests {
			key, from := f.Digest.String(), cmp.Or(f.URL, "vdo-bundle, which carries it")
			if was := out[key]; was != "" && was != from {
				from = was + " and " + from // one file under two addresses
			}
			out[key] = from
		}
	}
	return out
}
