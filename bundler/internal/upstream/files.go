// Package upstream reads what bundles are made of: manifest files, and images with the
// signatures, attestations and SBOMs that their makers attached. What is wrong with
// several of them is reported together.
//
// Whose signatures an image needs is in a [Policy]; what of them travels is chosen by
// [Carry]. Signatures upstream may become more at any time: a bundle that carries them is
// not the same bytes at every pull, so that none is the default.
package upstream

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Manifests fetches upstream manifest files.
type Manifests interface {
	// Get returns the file that m names, with m's size and sha256.
	Get(ctx context.Context, m matrix.Manifest) ([]byte, error)
}

// File is one manifest file to fetch.
type File struct {
	Key      string // as [catalog.Files] has it
	Manifest matrix.Manifest
}

// Fetch gets all manifest files, and reports all that could not be had.
func Fetch(ctx context.Context, want []File, from Manifests, o run.Options) (catalog.Files, error) {
	o.Reporter().Phase("manifests", len(want), 0)
	data := make([][]byte, len(want))
	err := run.Each(ctx, o.Limit(), len(want), func(i int) error {
		var err error
		data[i], err = from.Get(ctx, want[i].Manifest)
		o.Reporter().Done(want[i].Key, err)
		return err
	})
	if err != nil {
		return nil, err
	}
	files := catalog.Files{}
	for i, w := range want {
		files[w.Key] = data[i]
	}
	return files, nil
}
