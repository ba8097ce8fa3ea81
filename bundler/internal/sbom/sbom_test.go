package sbom_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	spdx "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/sbom"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func input(t *testing.T) sbom.Input {
	version, err := matrix.ParseVersion("3.5.1")
	require.NoError(t, err)
	driver := image.MustReference("registry.test/csi/driver:v3.5.1")
	snap := image.MustReference("k8s.gcr.io/snap/controller:v8.2.0")
	digest := func(s string) image.Digest { return image.DigestOf([]byte(s)) }
	return sbom.Input{
		Root: digest("root"), Issued: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Tool: "vdo-bundle 1",
		Lock: &bundle.Lock{
			Matrix: bundle.MatrixRef{Serial: 7, Digest: digest("matrix"), Size: 6},
			Releases: []bundle.Release{{
				Driver: matrix.CSI, Version: version,
				Manifests: []bundle.File{
					{Name: "a b.yaml", URL: "https://x.test/a%20b.yaml", Digest: digest("a"), Size: 1},
					{Name: "a_b.yaml", URL: "https://x.test/a_b.yaml", Digest: digest("b"), Size: 1},
				},
				Images: map[string]string{"x": driver.String(), "y": driver.String(), "z": snap.String()},
			}},
			Images: []bundle.Image{
				{Reference: snap, Source: image.MustReference("registry.k8s.io/snap/controller:v8.2.0"), Reason: "it moved", Digest: digest("snap"), Size: 1},
				{Reference: driver, Digest: digest("driver"), Size: 1},
			},
		},
	}
}

// What is written is read by the libraries of both formats, and whole: everything
// that is referred to is there.
func TestSPDXIsReadByItsLibrary(t *testing.T) {
	data, err := input(t).SPDX()
	require.NoError(t, err)
	doc, err := spdx.Read(bytes.NewReader(data))
	require.NoError(t, err)
	require.NoError(t, spdxlib.ValidateDocument(doc))
	require.Len(t, doc.Packages, 7)
	ids, err := spdxlib.GetDescribedPackageIDs(doc)
	require.NoError(t, err)
	require.Len(t, ids, 1)
	require.EqualValues(t, "Bundle", ids[0])
	depends := 0
	for _, r := range doc.Relationships {
		if r.Relationship == "DEPENDS_ON" {
			depends++
		}
	}
	require.Equal(t, 2, depends, "each image once")
	again, err := input(t).SPDX()
	require.NoError(t, err)
	require.Equal(t, string(data), string(again))
	require.Contains(t, string(data), "it moved; taken from registry.k8s.io/snap/controller:v8.2.0")
	require.Contains(t, string(data), `"created": "2026-01-02T03:04:05Z"`)
}

func TestCycloneDXIsReadByItsLibrary(t *testing.T) {
	data, err := input(t).CycloneDX()
	require.NoError(t, err)
	var doc cyclonedx.BOM
	require.NoError(t, cyclonedx.NewBOMDecoder(bytes.NewReader(data), cyclonedx.BOMFileFormatJSON).Decode(&doc))
	require.Equal(t, cyclonedx.SpecVersion1_6, doc.SpecVersion)
	require.Len(t, *doc.Components, 6)
	require.Regexp(t, `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$`, doc.SerialNumber)
	refs := map[string]bool{doc.Metadata.Component.BOMRef: true}
	for _, c := range *doc.Components {
		require.False(t, refs[c.BOMRef], "%s twice", c.BOMRef)
		refs[c.BOMRef] = true
	}
	for _, d := range *doc.Dependencies {
		require.True(t, refs[d.Ref], d.Ref)
		if d.Dependencies != nil {
			for _, to := range *d.Dependencies {
				require.True(t, refs[to], to)
			}
		}
	}
	// Nothing that the library does not know.
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&cyclonedx.BOM{}))
}
