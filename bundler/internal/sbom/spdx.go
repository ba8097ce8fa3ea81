package sbom

import (
	"maps"
	"slices"
	"time"
)

type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	License       string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Version       string         `json:"versionInfo,omitempty"`
	Location      string         `json:"downloadLocation"`
	FilesAnalyzed bool           `json:"filesAnalyzed"`
	Checksums     []spdxChecksum `json:"checksums,omitempty"`
	External      []spdxExternal `json:"externalRefs,omitempty"`
	Purpose       string         `json:"primaryPackagePurpose"`
	Comment       string         `json:"comment,omitempty"`
	Concluded     string         `json:"licenseConcluded"`
	Declared      string         `json:"licenseDeclared"`
	Copyright     string         `json:"copyrightText"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxExternal struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const unknown = "NOASSERTION"

var spdxPurposes = map[string]string{
	"bundle": "ARCHIVE", "matrix": "FILE", "release": "APPLICATION", "manifest": "FILE", "image": "CONTAINER",
}

// SPDX returns the document in SPDX 2.3, as JSON.
func (in Input) SPDX() ([]byte, error) {
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "vdo-bundle " + in.Root.String(),
		Namespace:     "https://vdo.vmware.com/sbom/spdx/sha256/" + in.Root.Hex(),
		Creation:      spdxCreation{Created: in.Issued.UTC().Format(time.RFC3339), Creators: []string{"Tool: " + in.Tool}},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Bundle"}},
	}
	for _, p := range in.parts() {
		doc.Packages = append(doc.Packages, p.spdx())
		for _, to := range p.contains {
			doc.Relationships = append(doc.Relationships, spdxRelationship{"SPDXRef-" + p.id, "CONTAINS", "SPDXRef-" + to})
		}
		for _, to := range p.dependsOn {
			doc.Relationships = append(doc.Relationships, spdxRelationship{"SPDXRef-" + p.id, "DEPENDS_ON", "SPDXRef-" + to})
		}
	}
	return encode(doc)
}

func (p part) spdx() spdxPackage {
	out := spdxPackage{
		ID: "SPDXRef-" + p.id, Name: p.name, Version: p.version, Location: unknown, Purpose: spdxPurposes[p.kind],
		Comment: p.comment, Concluded: unknown, Declared: unknown, Copyright: unknown,
	}
	if p.url != "" {
		out.Location = p.url
	}
	if !p.digest.IsZero() {
		out.Checksums = []spdxChecksum{{"SHA256", p.digest.Hex()}}
	}
	if p.purl != "" {
		out.External = []spdxExternal{{"PACKAGE-MANAGER", "purl", p.purl}}
	}
	return out
}

func sortedValues(m map[string]string) []string { return slices.Sorted(maps.Values(m)) }
