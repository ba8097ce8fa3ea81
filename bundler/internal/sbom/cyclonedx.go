package sbom

import (
	"slices"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

var cdxTypes = map[string]cyclonedx.ComponentType{
	"bundle": cyclonedx.ComponentTypePlatform, "matrix": cyclonedx.ComponentTypeFile,
	"release": cyclonedx.ComponentTypeApplication, "manifest": cyclonedx.ComponentTypeFile,
	"image": cyclonedx.ComponentTypeContainer,
}

// CycloneDX returns the document in CycloneDX 1.6, as JSON. A bundle depends on its
// releases and its matrix, a release on its manifest files and images.
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

// some is a list as the library takes it: nil is none.
func some[T any](list []T) *[]T {
	if len(list) == 0 {
		return nil
	}
	return &list
}

// uuid makes a UUID (version 8, RFC 9562: of whatever the maker likes) of a digest.
func uuid(hex string) string {
	b := []byte(hex[:32])
	b[12], b[16] = '8', '8'
	return string(b[:8]) + "-" + string(b[8:12]) + "-" + string(b[12:16]) + "-" + string(b[16:20]) + "-" + string(b[20:])
}
