// Package upstream reads the sources of bundles: manifest files, and images with the signatures,
// attestations and SBOMs that their publishers attached. It reports all problems together.
//
// A [Policy] says whose signatures an image needs; [Carry] selects those that travel. Upstream may
// add signatures at any time, so a bundle that carries them differs between pulls. None is the
// default.
package upstream

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Manifests fetches upstream manifest files.
type Manifests interface {
	// Get returns the file of m, with m's size and sha256.
	Get(ctx context.Context, m matrix.Manifest) ([]byte, error)
}

// File is one manifest file to fetch.
type File struct {
	Key      string // as in [catalog.Files]
	Manifest matrix.Manifest
}

// Fetch returns all manifest files, or all errors.
func Fetch(ctx context.Context, want []File, from Manifests, o run.Options) (catalog.Files, error) {
	o.Progress.Phase("manifests", len(want), 0)
	data := make([][]byte, len(want))
	err := run.Each(ctx, o.Limit(), len(want), func(i int) error {
		var err error
		data[i], err = from.Get(ctx, want[i].Manifest)
		o.Progress.Done(want[i].Key, err)
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
