// Package medium says what the flows ask of the places that hold bundles. A place that
// is read is a [Source], one that is written is a [Target]; a repository of a registry
// is both. bundler/internal/archive (files, folders, standard output) and
// bundler/remote make them; the flows know neither.
//
// What only some media can do is in one value, [Capabilities]. Whoever wraps a medium
// passes the value on, changed where the wrapper changes it. There is no other way to
// find out what a medium can do: an interface that is found by type assertion is lost
// behind every wrapper.
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

// Source is a bundle, or anything else at one reference, that can be read.
type Source interface {
	// Root returns the descriptor of what the source names: of a bundle, its root.
	Root(ctx context.Context) (ocispec.Descriptor, error)
	bundle.Fetcher
	// Attachments returns the manifests of signatures and other things that refer to subject.
	Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error)
	// Can tells what else the source can do; it is the same at every call.
	Can() Capabilities
	Close() error
}

// Registry opens the repository of a reference for reading.
type Registry func(image.Reference) Source

// Target is where a bundle is written to.
type Target interface {
	// Ready tells, before anything is fetched, whether the target can be written to, and whether a new one
	// has room for so many bytes.
	Ready(ctx context.Context, bytes int64) error
	// Begin learns everything that will be written and returns what is still to put. Where the
	// target can tell what it [Capabilities.Lacks], that writes nothing.
	Begin(ctx context.Context, g *bundle.Graph) (missing []ocispec.Descriptor, err error)
	// Put writes one blob or manifest, verified as it streams. It may be called
	// concurrently, and calls open with the offset at which it goes on.
	Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error
	// Commit makes the bundle visible, once everything is there.
	Commit(ctx context.Context) error
	// Can tells what else the target can do; it is the same at every call.
	Can() Capabilities
	// Close without Commit leaves what a later run can go on with.
	Close() error
}

// Capabilities are what not every medium can do. The zero value can nothing of it: a
// field that is nil is something that the medium cannot do, or has no need of.
type Capabilities struct {
	// Base is what a delta leaves to another bundle; nil where everything is there.
	Base *bundle.Base
	// Repository is where the source is in a registry, so that a target there can mount
	// its blobs; zero elsewhere.
	Repository image.Reference

	// CheckLayout checks the bytes outside of blobs and manifests.
	CheckLayout func(ctx context.Context) error
	// Damage reads everything and names the parts that are not what they were.
	Damage func(ctx context.Context) error
	// Attach adds signatures to the bundle that is there: all of them or none, where the
	// medium is a file or a folder.
	Attach func(ctx context.Context, atts ...bundle.Referrer) error
	// Lacks returns those of some blobs and manifests that are not there; with the right to read alone,
	// where Begin was not called.
	Lacks func(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error)

	// InOrder says that Put takes what Begin returned one by one, in that order.
	InOrder bool
	// Mount takes a blob over from a repository of the same registry without the bytes
	// passing through here, and tells whether it did. Where it did not, the blob has to
	// be put.
	Mount func(ctx context.Context, d ocispec.Descriptor, from image.Reference) (bool, error)
	// Notices tells, after Commit, what the user should know: what the target was allowed to
	// leave out, and why.
	Notices func() []string
}
