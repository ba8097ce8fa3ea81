// Package sbom writes the software bill of materials of a whole bundle: the bundle,
// its driver releases, their manifest files, the images with their digests, and the
// matrix. It is pure and deterministic: its time is that of the matrix, its names are
// made of the bundle's digest, so that the same bundle has the same document.
//
//	SPDX 2.3, JSON            relationships: DESCRIBES, CONTAINS, DEPENDS_ON
//	CycloneDX 1.6, JSON       components and dependencies
//
// What is inside of an image is in the SBOM that its maker attached to it, where
// there is one.
package sbom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Kinds of documents.
const (
	SPDX      = "spdx"
	CycloneDX = "cyclonedx"
)

// Input is the bundle that a document describes.
type Input struct {
	Root   image.Digest
	Lock   *bundle.Lock
	Issued time.Time // of the matrix
	Tool   string    // and its version: "vdo-bundle 1.2.0"
}

// part is what both formats say of one thing.
type part struct {
	id        string // unique in the document
	kind      string // bundle, release, manifest, image, matrix
	name      string
	version   string
	digest    image.Digest
	url       string // where it was fetched from
	purl      string
	comment   string
	contains  []string // ids
	dependsOn []string // ids
}

// parts lists everything, the bundle first, in the order of the lock.
func (in Input) parts() []part {
	root := part{id: "Bundle", kind: "bundle", name: "vdo-bundle", version: in.Root.String(), digest: in.Root, contains: []string{"Matrix"}}
	matrix := part{
		id: "Matrix", kind: "matrix", name: "matrix.yaml", version: fmt.Sprint(in.Lock.Matrix.Serial), digest: in.Lock.Matrix.Digest,
	}
	ids := map[string]string{} // of images, by reference
	var images, rest []part
	for n, i := range in.Lock.Images {
		p := imagePart(fmt.Sprintf("Image-%d", n+1), i)
		ids[i.Reference.String()] = p.id
		images = append(images, p)
		root.contains = append(root.contains, p.id)
	}
	for _, r := range in.Lock.Releases {
		release, files := releaseParts(r, ids)
		root.contains = append(root.contains, release.id)
		rest = append(append(rest, release), files...)
	}
	return append(append([]part{root, matrix}, rest...), images...)
}

func imagePart(id string, i bundle.Image) part {
	p := part{
		id: id, kind: "image", name: i.Reference.Repository(), version: i.Reference.Tag(), digest: i.Digest,
		purl: purl(i.Reference, i.Digest), comment: i.Reason,
	}
	if !i.Source.IsZero() && i.Source != i.Reference {
		p.comment = strings.TrimPrefix(p.comment+"; ", "; ") + "taken from " + i.Source.String()
	}
	return p
}

func releaseParts(r bundle.Release, images map[string]string) (release part, files []part) {
	id := "Release-" + plainID(r.ID())
	release = part{id: id, kind: "release", name: string(r.Driver), version: r.Version.String()}
	for _, f := range r.Manifests {
		file := part{id: id + "-" + plainID(f.Name), kind: "manifest", name: r.Path(f), digest: f.Digest, url: f.URL}
		release.contains = append(release.contains, file.id)
		files = append(files, file)
	}
	seen := map[string]bool{}
	for _, reference := range slices.Sorted(maps.Values(r.Images)) {
		if to := images[reference]; to != "" && !seen[to] {
			seen[to] = true
			release.dependsOn = append(release.dependsOn, to)
		}
	}
	return release, files
}

// purl is the package URL of an image (type oci): its name is lower case and last in
// the path, the repository is a qualifier.
func purl(r image.Reference, d image.Digest) string {
	path := r.Path()
	name := path[strings.LastIndex(path, "/")+1:]
	out := "pkg:oci/" + url.PathEscape(name) + "@" + url.QueryEscape(d.String()) + "?repository_url=" + url.QueryEscape(r.Repository())
	if r.Tag() != "" {
		out += "&tag=" + url.QueryEscape(r.Tag())
	}
	return out
}

// plainID keeps what identifiers of both formats may have.
func plainID(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, s)
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return out.Bytes(), err
}
