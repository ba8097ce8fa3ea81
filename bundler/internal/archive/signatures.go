// Package archive is bundles on disk.
package archive

import (
	"context"
	"errors"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

var errUnwritten = errors.New("being written")

// Options of CreateFile and CreateDir.
type Options struct {
	Replace bool // replace an existing target, when the new one is complete
	Restart bool // drop the rest of an interrupted pull of another bundle
}

// File is an archive open for reading.
type File struct{}

// Dir is an OCI layout folder open for reading.
type Dir struct{}

// FileWriter writes an archive.
type FileWriter struct{}

// DirWriter writes an OCI layout folder.
type DirWriter struct{}

// OpenFile opens an archive.
func OpenFile(path string) (*File, error) { return nil, errUnwritten }

// OpenDir opens a folder.
func OpenDir(path string) (*Dir, error) { return nil, errUnwritten }

// CreateFile makes an archive.
func CreateFile(path string, o Options) (*FileWriter, error) { return nil, errUnwritten }

// CreateDir makes a folder.
func CreateDir(path string, o Options) (*DirWriter, error) { return nil, errUnwritten }

// Root is the bundle's root.
func (*File) Root(ctx context.Context) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errUnwritten
}

// Root is the bundle's root.
func (*Dir) Root(ctx context.Context) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errUnwritten
}

// Fetch gives bytes.
func (*File) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, errUnwritten
}

// Fetch gives bytes.
func (*Dir) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return nil, errUnwritten
}

// FetchFrom gives bytes from an offset.
func (*File) FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return nil, errUnwritten
}

// FetchFrom gives bytes from an offset.
func (*Dir) FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return nil, errUnwritten
}

// Attachments lists signatures.
func (*File) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return nil, errUnwritten
}

// Attachments lists signatures.
func (*Dir) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return nil, errUnwritten
}

// Attach adds a signature.
func (*File) Attach(ctx context.Context, a bundle.Attachment) error { return errUnwritten }

// Attach adds a signature.
func (*Dir) Attach(ctx context.Context, a bundle.Attachment) error { return errUnwritten }

// Close closes.
func (*File) Close() error { return nil }

// Close closes.
func (*Dir) Close() error { return nil }

// CheckLayout checks every byte outside the blobs.
func (*File) CheckLayout(ctx context.Context) error { return errUnwritten }

// Begin lays out.
func (*FileWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	return nil, errUnwritten
}

// Begin lays out.
func (*DirWriter) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	return nil, errUnwritten
}

// Put writes one blob.
func (*FileWriter) Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error {
	return errUnwritten
}

// Put writes one blob.
func (*DirWriter) Put(ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error)) error {
	return errUnwritten
}

// Commit finishes.
func (*FileWriter) Commit(ctx context.Context) error { return errUnwritten }

// Commit finishes.
func (*DirWriter) Commit(ctx context.Context) error { return errUnwritten }

// Close without Commit leaves what can be resumed.
func (*FileWriter) Close() error { return nil }

// Close without Commit leaves what can be resumed.
func (*DirWriter) Close() error { return nil }
