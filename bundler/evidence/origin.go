package evidence

import (
	"cmp"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

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
		p := Part{Descriptor: d, Left: left[d.Digest.String()], PartOf: slices.Sorted(slices.Values(names[d.Digest]))}
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
