// Package medium defines what flows need of the locations of bundles. A location to read is a
// [Source], one to write is a [Target]; a registry's repository is both. Packages
// bundler/internal/archive (files, directories, standard output) and bundler/remote implement them;
// the flows know neither.
//
// One value, [Capabilities], holds what only some media can do. Wrappers pass it on, changed if
// needed. There is no other way to learn what a medium can do: every wrapper would lose an
// interface that callers find by type assertion.
//
//	if attach := source.Can().Attach; attach != nil {
//		err = attach(ctx, signature)
//	}
package medium

import (
	"context"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Source is a readable bundle, or another object at one reference.
type Source interface {
	// Root returns the descriptor of the source; of a bundle, its root.
	Root(ctx context.Context) (ocispec.Descriptor, error)
	bundle.Fetcher
	// Attachments returns the manifests of signatures and other referrers of subject.
	Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error)
	// Can returns the same capabilities at every call.
	Can() Capabilities
	Close() error
}

// Registry opens the repository of a reference for reading.
type Registry func(image.Reference) Source

// Target is a location to write a bundle to.
type Target interface {
	// Ready returns a fault, before any download, if the target is not writable or lacks room for that many bytes.
	Ready(ctx context.Context, bytes int64) error
	// Begin receives the graph to write and returns what is missing. With [Capabilities.Lacks] it writes nothing.
	Begin(ctx context.Context, g *bundle.Graph) (missing []ocispec.Descriptor, err error)
	// Put writes one blob or manifest, verified as it streams from open(offset). It is safe for concurrent use.
	Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error
	// Commit makes the complete bundle visible.
	Commit(ctx context.Context) error
	// Can returns the same capabilities at every call.
	Can() Capabilities
	// Close without Commit leaves what a later run can resume.
	Close() error
}

// Capabilities are what only some media can do. A nil field means that the medium cannot do it, or has no need to.
type Capabilities struct {
	// Base is the base of a delta; nil for a whole bundle.
	Base *bundle.Base
	// Repository is the source's repository in a registry, from which a target there can mount blobs; zero elsewhere.
	Repository image.Reference

	// CheckLayout checks the bytes outside blobs and manifests.
	CheckLayout func(ctx context.Context) error
	// Damage reads all bytes and reports the damaged parts.
	Damage func(ctx context.Context) error
	// Attach adds signatures to the existing bundle: in a file or directory all or none.
	Attach func(ctx context.Context, atts ...bundle.Referrer) error
	// Lacks returns the missing ones of some blobs and manifests. Without Begin it needs only the right to read.
	Lacks func(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error)

	// InOrder means that Put takes the blobs of Begin one by one, in that order.
	InOrder bool
	// Mount copies a blob from a repository of the same registry, without transfer through this host, and reports
	// whether it did. If not, the caller must put the blob.
	Mount func(ctx context.Context, d ocispec.Descriptor, from image.Reference) (bool, error)
	// Notices returns messages for the user after Commit: what the target was allowed to omit, and why.
	Notices func() []string
}
