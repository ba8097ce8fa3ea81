package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Counts are how many parts of a bundle two locations have.
type Counts struct {
	Manifests int `json:"manifests"` // indexes and image manifests
	Blobs     int `json:"blobs"`     // without those that a delta omits
	Attached  int `json:"attached"`  // signatures and other attachments of the source
	Copied    int `json:"copied"`    // and of its copy
}

// Compare reads a bundle at its source and its copy. It reads the last byte of each blob, since some registries
// report lost blobs as existing. It refuses a copy that lacks a part; unless all is set, attachments may be missing.
func Compare(ctx context.Context, from, to *pinned.Bundle, all bool, o run.Options) (both Counts, err error) {
	source, _, err := from.Whole(ctx, o)
	if err != nil {
		return both, err
	}
	copied, _, err := to.Whole(ctx, o)
	if err != nil {
		return both, fmt.Errorf("read the copy: %w", err)
	}
	exists := map[string]bool{}
	for _, d := range copied.Order() {
		exists[d.Digest.String()] = true
	}
	both.Attached, both.Copied = len(source.Attachments), len(copied.Attachments)
	if !all {
		source.Attachments = nil
	}
	names := source.Owners()
	joined := map[digest.Digest]bool{} // manifests under tags, and their configs: the copy's may have further signatures
	for _, a := range source.Attachments {
		var m ocispec.Manifest
		if a.Tag != "" && json.Unmarshal(a.Node.Data, &m) == nil {
			joined[a.Node.Descriptor.Digest], joined[m.Config.Digest] = true, true
		}
	}
	order := slices.DeleteFunc(source.Order(), func(d ocispec.Descriptor) bool { return joined[d.Digest] })
	both.Manifests, both.Blobs = len(source.Manifests), len(source.Held())
	err = run.Each(ctx, o.Limit(), len(order), func(n int) error {
		d := order[n]
		err := errors.New("it is not there")
		if exists[d.Digest.String()] {
			err = readEnd(ctx, to, d)
		}
		if err != nil {
			err = fmt.Errorf("%s (%s): %w", names.Name(d), d.Digest, err)
		}
		return err
	})
	if err == nil || ctx.Err() != nil {
		return both, err
	}
	return both, fault.Errorf(fault.Incomplete, "compare the copy of", from.Digest().String(),
		"run the same command again; where a registry does not take signatures, give --omit-refused", "%w", err)
}

func readEnd(ctx context.Context, from bundle.Fetcher, d ocispec.Descriptor) error {
	r, err := from.Fetch(ctx, d, max(0, d.Size-1))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}
