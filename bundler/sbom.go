package bundler

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/sbom"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Kinds of SBOM.
const (
	SPDX      = "spdx"
	CycloneDX = "cyclonedx"
)

// SBOM returns the bill of materials of a whole bundle. tool names this program.
func SBOM(ctx context.Context, s Source, kind, tool string) ([]byte, error) {
	root, g, err := open(ctx, s)
	if err != nil {
		return nil, err
	}
	c, err := g.Contents(ctx, s)
	if err != nil {
		return nil, err
	}
	doc, err := matrix.Parse("the bundle's matrix", c.Matrix)
	if err != nil {
		return nil, err
	}
	in := sbom.Input{Lock: c.Lock, Issued: doc.Issued, Tool: tool}
	if in.Root, err = image.ParseDigest(root.Digest.String()); err != nil {
		return nil, err
	}
	if kind == CycloneDX {
		return in.CycloneDX()
	}
	return in.SPDX()
}
