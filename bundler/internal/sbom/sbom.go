// Package sbom writes the software bill of materials of a whole bundle. It lists the bundle, its
// driver releases, their manifest files, the images with their digests, and the matrix. It is pure
// and deterministic: the time is the matrix's, and names derive from the bundle's digest.
//
//	SPDX 2.3, JSON            relationships: DESCRIBES, CONTAINS, DEPENDS_ON
//	CycloneDX 1.6, JSON       components and dependencies
//
// For the content of an image, see the SBOM that its publisher attached, if any.
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

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// SPDX and CycloneDX are the kinds of documents.
const (
	SPDX      = "spdx"
	CycloneDX = "cyclonedx"
)

// Input is the bundle to describe.
type Input struct {
	Root   image.Digest
	Lock   *bundle.Lock
	Issued time.Time // of the matrix
	Tool   string    // with its version: "vdo-bundle 1.2.0"
}

// part is one element of both formats.
type part struct {
	id        string // unique in the document
	kind      string // bundle, release, manifest, image, matrix
	name      string
	version   string
	digest    image.Digest
	url       string // its source
	purl      string
	comment   string
	contains  []string // ids
	dependsOn []string // ids
}

// parts returns all elements, the bundle first, in the order of the lock.
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
	for n, f := range r.Manifests {
		name := fmt.Sprintf("%s-%d-%s", id, n+1, plainID(f.Name))
		file := part{id: name, kind: "manifest", name: r.Path(f), digest: f.Digest, url: f.URL}
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

// purl returns the package URL of an image (type oci): the name is the path's last element, the repository is a
// qualifier.
func purl(r image.Reference, d image.Digest) string {
	path := r.Path()
	name := path[strings.LastIndex(path, "/")+1:]
	out := "pkg:oci/" + url.PathEscape(name) + "@" + url.QueryEscape(d.String()) + "?repository_url=" + url.QueryEscape(r.Repository())
	if r.Tag() != "" {
		out += "&tag=" + url.QueryEscape(r.Tag())
	}
	return out
}

// plainID replaces characters that are invalid in identifiers of either format.
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

const unknown = "NOASSERTION"

var spdxPurposes = map[string]string{
	"bundle": "ARCHIVE", "matrix": "FILE", "release": "APPLICATION", "manifest": "FILE", "image": "CONTAINER",
}

// SPDX returns the document in SPDX 2.3, as JSON.
func (in Input) SPDX() ([]byte, error) {
	doc := v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      "vdo-bundle " + in.Root.String(),
		DocumentNamespace: "https://vdo.vmware.com/sbom/spdx/sha256/" + in.Root.Hex(),
		CreationInfo: &v2_3.CreationInfo{
			Created: in.Issued.UTC().Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: in.Tool}},
		},
	}
	relate := func(from, what string, to ...string) {
		for _, id := range to {
			doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
				RefA: common.MakeDocElementID("", from), Relationship: what, RefB: common.MakeDocElementID("", id),
			})
		}
	}
	relate("DOCUMENT", "DESCRIBES", "Bundle")
	for _, p := range in.parts() {
		doc.Packages = append(doc.Packages, p.spdx())
		relate(p.id, "CONTAINS", p.contains...)
		relate(p.id, "DEPENDS_ON", p.dependsOn...)
	}
	return encode(doc)
}

func (p part) spdx() *v2_3.Package {
	out := &v2_3.Package{
		PackageSPDXIdentifier: common.ElementID(p.id), PackageName: p.name, PackageVersion: p.version, PackageComment: p.comment,
		PackageDownloadLocation: unknown, PrimaryPackagePurpose: spdxPurposes[p.kind],
		PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
	}
	if p.url != "" {
		out.PackageDownloadLocation = p.url
	}
	if !p.digest.IsZero() {
		out.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: p.digest.Hex()}}
	}
	if p.purl != "" {
		out.PackageExternalReferences = []*v2_3.PackageExternalReference{
			{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: p.purl},
		}
	}
	return out
}

var cdxTypes = map[string]cyclonedx.ComponentType{
	"bundle": cyclonedx.ComponentTypePlatform, "matrix": cyclonedx.ComponentTypeFile,
	"release": cyclonedx.ComponentTypeApplication, "manifest": cyclonedx.ComponentTypeFile,
	"image": cyclonedx.ComponentTypeContainer,
}

// CycloneDX returns the document in CycloneDX 1.6, as JSON. A bundle depends on its releases and matrix, a release on
// its manifest files and images.
func (in Input) CycloneDX() ([]byte, error) {
	var components []cyclonedx.Component
	var dependencies []cyclonedx.Dependency
	for _, p := range in.parts() {
		components = append(components, p.cyclonedx())
		to := slices.Concat(p.contains, p.dependsOn)
		dependencies = append(dependencies, cyclonedx.Dependency{Ref: p.id, Dependencies: some(to)})
	}
	rest := components[1:]
	return encode(cyclonedx.BOM{
		BOMFormat: cyclonedx.BOMFormat, SpecVersion: cyclonedx.SpecVersion1_6,
		SerialNumber: "urn:uuid:" + uuid(in.Root.Hex()), Version: 1,
		Metadata: &cyclonedx.Metadata{
			Timestamp: in.Issued.UTC().Format(time.RFC3339), Component: &components[0],
			Tools: &cyclonedx.ToolsChoice{Components: some([]cyclonedx.Component{
				{Type: cyclonedx.ComponentTypeApplication, Name: in.Tool},
			})},
		},
		Components: &rest, Dependencies: &dependencies,
	})
}

func (p part) cyclonedx() cyclonedx.Component {
	out := cyclonedx.Component{
		Type: cdxTypes[p.kind], BOMRef: p.id, Name: p.name, Version: p.version, Description: p.comment, PackageURL: p.purl,
	}
	if !p.digest.IsZero() {
		out.Hashes = some([]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: p.digest.Hex()}})
	}
	if p.url != "" {
		out.ExternalReferences = some([]cyclonedx.ExternalReference{{Type: cyclonedx.ERTypeDistribution, URL: p.url}})
	}
	return out
}

// some returns a list in the library's form: nil for an empty one.
func some[T any](list []T) *[]T {
	if len(list) == 0 {
		return nil
	}
	return &list
}

// uuid derives a UUID (version 8, RFC 9562: custom) from a digest.
func uuid(hex string) string {
	b := []byte(hex[:32])
	b[12], b[16] = '8', '8'
	return string(b[:8]) + "-" + string(b[8:12]) + "-" + string(b[12:16]) + "-" + string(b[16:20]) + "-" + string(b[20:])
}
