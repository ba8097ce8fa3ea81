package bundler

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/sbom"
)

// Kinds of SBOM.
const (
	SPDX      = "spdx"
	CycloneDX = "cyclonedx"
)

// SBOM returns the bill of materials of a whole bundle. tool names this program.
func SBOM(ctx context.Context, b *Bundle, kind, tool string) ([]byte, error) {
	d, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	in := sbom.Input{Lock: d.contents.Lock, Root: d.root, Issued: d.matrix.Issued, Tool: tool}
	if kind == CycloneDX {
		return in.CycloneDX()
	}
	return in.SPDX()
}
