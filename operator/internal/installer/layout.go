package installer

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

const (
	maxIndex = 32 << 20 // bytes of index.json
	maxNames = 65536    // entries of it
	maxFiles = 400_000  // of a tar
)

// Layout is a bundle in a file or folder: an OCI image layout. Close it after use.
type Layout struct {
	name    string
	open    func(file string) (io.ReadCloser, error) // a file of the layout, by its path
	entries []ocispec.Descriptor
	closes  func() error
}

// OpenLayout opens a file or folder. A bundle in parts, or one whose rest is in a mirror (a
// delta), is not read here: `vdo-bundle install-manifests` reads all.
func OpenLayout(name string) (*Layout, error) {
	l, err := openLayout(name)
	if err == nil {
		err = l.readIndex()
		if err == nil {
			return l, nil
		}
		_ = l.Close()
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return nil, err
	}
	f = &fault.Error{Reason: fault.InvalidInput, Op: "read bundle", Subject: name, Err: err,
		Hint: "name a tar or folder that `vdo-bundle pull` wrote, or the bundle in the mirror; of parts: `vdo-bundle install-manifests PARTS --repository REGISTRY/REPO | vdoctl deploy --manifests -`"}
	if errors.Is(err, fs.ErrNotExist) {
		f.Reason, f.Err = fault.NotFound, errors.New("there is no such file or folder")
	}
	return nil, f
}

func openLayout(name string) (*Layout, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		return &Layout{name: name, closes: root.Close, open: func(file string) (io.ReadCloser, error) { return root.Open(file) }}, nil
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file") // to open a pipe would wait for ever
	}
	f, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, err
	}
	files, err := filesOf(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("it is not a bundle's tar: %w", err), f.Close())
	}
	open := func(file string) (io.ReadCloser, error) {
		at, ok := files[file]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(io.NewSectionReader(f, at.offset, at.size)), nil
	}
	return &Layout{name: name, closes: f.Close, open: open}, nil
}

type span struct{ offset, size int64 }

// filesOf finds the regular files of a tar, without reading them.
func filesOf(f *os.File) (map[string]span, error) {
	files := map[string]span{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if len(files) >= maxFiles {
			return nil, fmt.Errorf("it has more than %d files", maxFiles)
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg {
			files[path.Clean(h.Name)] = span{at, h.Size}
		}
	}
}

func (l *Layout) readIndex() error {
	r, err := l.open(ocispec.ImageIndexFile)
	if err != nil {
		return errors.New("it has no index.json")
	}
	defer r.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(r, maxIndex+1))
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil || len(data) > maxIndex || len(index.Manifests) > maxNames {
		return errors.New("its index.json cannot be read")
	}
	base, err := bundle.ParseBase(index.Annotations)
	if err != nil {
		return err
	}
	if base != nil {
		return errors.New("it is a delta, without what its base has: push it first, and name the bundle in the mirror")
	}
	l.entries = index.Manifests
	return nil
}

// Close closes the file or folder.
func (l *Layout) Close() error { return l.closes() }

// Fetch returns the bytes of a descriptor.
func (l *Layout) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	digest, err := image.ParseDigest(d.Digest.String())
	if err != nil {
		return nil, err
	}
	r, err := l.open("blobs/sha256/" + digest.Hex())
	if err != nil {
		return nil, &fault.Error{Reason: fault.Incomplete, Op: "read", Subject: l.name, Err: fmt.Errorf("%s is not in it", digest), Hint: "copy the bundle again from where it was made"}
	}
	return r, nil
}

// Root finds the one bundle of the layout.
func (l *Layout) Root(ctx context.Context) (ocispec.Descriptor, error) {
	var found ocispec.Descriptor
	for _, d := range l.entries {
		is, err := bundle.IsRoot(ctx, l, d)
		switch {
		case err != nil:
			return found, err
		case is && found.Digest != "" && found.Digest != d.Digest:
			return found, &fault.Error{Reason: fault.Conflict, Op: "read", Subject: l.name, Err: errors.New("it holds more than one bundle"), Hint: "copy one of them to a place of its own"}
		case is:
			found = ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
		}
	}
	if found.Digest == "" {
		return found, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: l.name, Err: errors.New("it holds no bundle"), Hint: "name a bundle that `vdo-bundle pull` made"}
	}
	return found, nil
}

// Signatures are what has the tag of the root's signatures, and what says that the root is
// its subject.
func (l *Layout) Signatures(ctx context.Context, root image.Digest) ([]ocispec.Descriptor, error) {
	var out []ocispec.Descriptor
	for _, d := range l.entries {
		tag := d.Annotations[ocispec.AnnotationRefName]
		if tag = tag[strings.LastIndex(tag, ":")+1:]; tag == image.Signatures.TagOf(root) {
			out = append(out, bundle.Plain(d))
			continue
		}
		if d.MediaType != ocispec.MediaTypeImageManifest || d.Size > bundle.MaxManifestSize {
			continue
		}
		data, err := bundle.Read(ctx, l, bundle.Plain(d), bundle.MaxManifestSize)
		if err != nil {
			return nil, err
		}
		var m ocispec.Manifest
		if json.NewDecoder(bytes.NewReader(data)).Decode(&m) == nil && m.Subject != nil && m.Subject.Digest.String() == root.String() {
			out = append(out, bundle.Plain(d))
		}
	}
	return out, nil
}
