package inspect

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/sbom"
)

// Kinds of SBOM.
const (
	SPDX      = "spdx"
	CycloneDX = "cyclonedx"
)

// SBOM returns the bill of materials of a whole bundle. tool names this program.
func SBOM(ctx context.Context, b *pinned.Bundle, kind, tool string) ([]byte, error) {
	d, err := b.Describe(ctx)
	if err != nil {
		return nil, err
	}
	in := sbom.Input{Lock: d.Contents.Lock, Root: d.Root, Issued: d.Matrix.Issued, Tool: tool}
	if kind == CycloneDX {
		return in.CycloneDX()
	}
	return in.SPDX()
}
