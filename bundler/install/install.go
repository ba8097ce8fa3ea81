// Package install reads from a bundle how its operator is installed; see package
// api/install.
//
//	m, err := install.Read(ctx, b, install.Options{Repository: "registry.site/vdo/drivers"})
package install

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/install"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
)

// Options say for what site the operator is installed.
type Options = install.Options

// Read returns the install manifests that a bundle holds, with the operator's image as it
// is addressed in the site's repository, HOST/PATH@DIGEST.
func Read(ctx context.Context, b *pinned.Bundle, to Options) (*install.Manifests, error) {
	o, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	return install.Of(o.Root, o.Contents, to)
}
