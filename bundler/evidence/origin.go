package evidence

import (
	"cmp"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Range is a range of versions.
type Range struct {
	Range   string `json:"range"`
	Basis   string `json:"basis"`             // where it comes from
	Derived bool   `json:"derived,omitempty"` // a conclusion, which no vendor states
}

func listedOf(lock *bundle.Lock, doc *matrix.Document) []ListedRelease {
	out := []ListedRelease{}
	for _, locked := range lock.Releases {
		id := matrix.ReleaseID{Driver: locked.Driver, Version: locked.Version}
		if s, ok := doc.Service(id); ok {
			anyOf := Range{Range: "any", Basis: s.Basis}
			out = append(out, ListedRelease{
				Name: id.String(), State: string(s.State), Reason: s.Reason, Notes: s.Notes, Kubernetes: anyOf, VSphere: anyOf,
			})
		}
		r, ok := doc.Release(id)
		if !ok {
			continue
		}
		l := ListedRelease{
			Name: id.String(), State: string(r.State), Reason: r.Reason, Notes: r.Notes,
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
func partsOf(g *bundle.Graph, lock *bundle.Lock, served map[string]string) []Part {
	names, origins := g.Owners(), originNames(g, lock, served)
	left := map[string]bool{}
	for _, d := range g.Left() {
		left[d.Digest.String()] = true
	}
	out := make([]Part, 0, len(g.Manifests)+len(g.Blobs))
	for _, d := range append(bundleOrder(g), g.Left()...) {
		p := Part{
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
		if own := origins[d.Digest.String()]; own != "" {
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
func originNames(g *bundle.Graph, lock *bundle.Lock, served map[string]string) map[string]string {
	out := map[string]string{"the root": madeHere, bundle.ContentsName: madeHere}
	for _, i := range lock.Images {
		from := i.FetchedFrom().Repository()
		if mirror := i.Resolver(); mirror != "" {
			from += ", resolved at " + mirror
		}
		if mirror := served[i.Reference.String()]; mirror != "" {
			from += ", served by " + mirror
		}
		out[i.Reference.String()] = from
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
