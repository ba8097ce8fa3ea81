package sbom

import "time"

type cdxDocument struct {
	Format       string          `json:"bomFormat"`
	SpecVersion  string          `json:"specVersion"`
	Serial       string          `json:"serialNumber"`
	Version      int             `json:"version"`
	Metadata     cdxMetadata     `json:"metadata"`
	Components   []cdxComponent  `json:"components"`
	Dependencies []cdxDependency `json:"dependencies"`
}

type cdxMetadata struct {
	Timestamp string       `json:"timestamp"`
	Tools     cdxTools     `json:"tools"`
	Component cdxComponent `json:"component"`
}

type cdxTools struct {
	Components []cdxComponent `json:"components"`
}

type cdxComponent struct {
	Type        string        `json:"type"`
	Ref         string        `json:"bom-ref,omitempty"`
	Name        string        `json:"name"`
	Version     string        `json:"version,omitempty"`
	Description string        `json:"description,omitempty"`
	Hashes      []cdxHash     `json:"hashes,omitempty"`
	PURL        string        `json:"purl,omitempty"`
	External    []cdxExternal `json:"externalReferences,omitempty"`
}

type cdxHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type cdxExternal struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

type cdxDependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

var cdxTypes = map[string]string{
	"bundle": "platform", "matrix": "file", "release": "application", "manifest": "file", "image": "container",
}

// CycloneDX returns the document in CycloneDX 1.6, as JSON. A bundle depends on its
// releases and its matrix, a release on its manifest files and images.
func (in Input) CycloneDX() ([]byte, error) {
	parts := in.parts()
	doc := cdxDocument{
		Format: "CycloneDX", SpecVersion: "1.6", Serial: "urn:uuid:" + uuid(in.Root.Hex()), Version: 1,
		Metadata: cdxMetadata{
			Timestamp: in.Issued.UTC().Format(time.RFC3339),
			Tools:     cdxTools{Components: []cdxComponent{{Type: "application", Name: in.Tool}}},
			Component: parts[0].cyclonedx(),
		},
	}
	for n, p := range parts {
		if n > 0 {
			doc.Components = append(doc.Components, p.cyclonedx())
		}
		doc.Dependencies = append(doc.Dependencies, cdxDependency{Ref: p.id, DependsOn: append(append([]string{}, p.contains...), p.dependsOn...)})
	}
	return encode(doc)
}

func (p part) cyclonedx() cdxComponent {
	out := cdxComponent{Type: cdxTypes[p.kind], Ref: p.id, Name: p.name, Version: p.version, Description: p.comment, PURL: p.purl}
	if !p.digest.IsZero() {
		out.Hashes = []cdxHash{{"SHA-256", p.digest.Hex()}}
	}
	if p.url != "" {
		out.External = []cdxExternal{{"distribution", p.url}}
	}
	return out
}

// uuid makes a UUID (version 8, RFC 9562: of whatever the maker likes) of a digest.
func uuid(hex string) string {
	b := []byte(hex[:32])
	b[12], b[16] = '8', '8'
	return string(b[:8]) + "-" + string(b[8:12]) + "-" + string(b[12:16]) + "-" + string(b[16:20]) + "-" + string(b[20:])
}
