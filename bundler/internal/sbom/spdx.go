package sbom

import (
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

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
