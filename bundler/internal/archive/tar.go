package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const maxEntries = 1 << 17 // of a tar, with directories

// tarball is an archive in a file or in parts, as its headers describe it. It finds blobs by digest.
type tarball struct {
	path    string // of the archive, if it were one file
	v       *storage
	r       io.ReaderAt    // the same as v
	entries []entry        // regular files, in order; without the bytes of their headers
	byName  map[string]int // cleaned name → entry
	end     int64          // where the end blocks begin
	size    int64          // of the file
	bare    bool           // without folders
	strange []string       // entries that only other tools write: other folders and names
}

// scanTar reads all headers of a tar once, and no data.
func scanTar(path string, r io.ReaderAt, size int64) (*tarball, error) {
	t := &tarball{path: path, r: r, byName: map[string]int{}, size: size, bare: true}
	section := io.NewSectionReader(r, 0, size)
	tr := tar.NewReader(section)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return t, t.checkEnd()
		}
		if err != nil {
			return nil, t.badHeader(err)
		}
		if n == maxEntries {
			return nil, brokenFile(path, "it has more than %d entries", maxEntries)
		}
		at, err := section.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, atomicfile.Fault("read", path, err)
		}
		if err := t.take(h, at); err != nil {
			return nil, err
		}
	}
}

// take records one entry whose data begin at an offset.
func (t *tarball) take(h *tar.Header, at int64) error {
	name, err := cleanName(h)
	if err != nil {
		return brokenFile(t.path, "entry %.200q: %w", h.Name, err)
	}
	size, isFile := h.Size, h.Typeflag == tar.TypeReg
	if !isFile {
		size = 0
	}
	if size < 0 || size > bundle.MaxBlobSize {
		return brokenFile(t.path, "entry %.200q claims %d bytes", name, size)
	}
	if at+padded(size) > t.size {
		return t.cutOff(name)
	}
	if h.Typeflag == tar.TypeDir && len(t.entries) == 2 && slices.Contains(folders, name) {
		t.bare, t.end = false, at
		return nil // see check: it belongs to the header of the first blob
	}
	e := entry{name: name, offset: t.end, head: at - t.end, size: size}
	t.end = at + padded(size)
	if !isFile {
		t.strange = append(t.strange, name)
		return nil
	}
	if _, twice := t.byName[name]; twice {
		return brokenFile(t.path, "the entry %.200q is there twice", name)
	}
	t.byName[name] = len(t.entries)
	t.entries = append(t.entries, e)
	return nil
}

// cleanName refuses kinds of entries and names that no bundle has.
func cleanName(h *tar.Header) (string, error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeXGlobalHeader:
	default:
		return "", fmt.Errorf("it is no file and no folder, but of type %q", h.Typeflag)
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return "", errors.New("it is a sparse file")
		}
	}
	clean := path.Clean(h.Name)
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsAny(clean, "\\\x00") {
		return "", errors.New("its name leads out of the archive")
	}
	return clean, nil
}

func (t *tarball) badHeader(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) && t.size >= blockSize:
		return t.cutOff(t.last())
	case errors.Is(err, io.ErrUnexpectedEOF), t.end == 0 && errors.Is(err, tar.ErrHeader):
		return notBundle(t.path, "it is not a tar archive")
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return brokenFile(t.path, "the header at byte %d, after %s, is broken", t.end, t.last())
	}
	return atomicfile.Fault("read", t.path, err)
}

func (t *tarball) cutOff(after string) error {
	return incomplete(t.path, "the file ends at byte %d, in or after %s: what follows is missing, the end mark at least",
		t.size, after)
}

func (t *tarball) last() string {
	if len(t.entries) == 0 {
		return "nothing"
	}
	return t.entries[len(t.entries)-1].name
}

// checkEnd demands the end mark, which proves that no entry is missing.
func (t *tarball) checkEnd() error {
	switch {
	case t.size == 0:
		return incomplete(t.path, "it is empty")
	case t.end+endSize > t.size:
		return t.cutOff(t.last())
	case len(t.entries) == 0:
		return notBundle(t.path, "it is an empty tar archive")
	}
	return nil
}

func notBundle(path, format string, args ...any) error {
	return fault.Errorf(fault.InvalidInput, "open", path,
		"give a bundle that `vdo-bundle pull` made; if this is a copy of one, copy it again", format, args...)
}

func brokenFile(path, format string, args ...any) error {
	return fault.Errorf(fault.Corrupt, "read", path, "copy it again from where it was made", format, args...)
}

func incomplete(path, format string, args ...any) error {
	return fault.Errorf(fault.Incomplete, "read", path, "copy it again from where it was made, and compare the sizes",
		format, args...)
}

func (t *tarball) small(name string, limit int64) ([]byte, error) {
	i, ok := t.byName[name]
	if !ok {
		return nil, notBundle(t.path, "it is not an OCI image layout: it has no %s", name)
	}
	e := t.entries[i]
	if e.size > limit {
		return nil, brokenFile(t.path, "%s has %d bytes, more than %d", name, e.size, limit)
	}
	data := make([]byte, e.size)
	if _, err := t.r.ReadAt(data, e.dataOffset()); err != nil {
		return nil, atomicfile.Fault("read", t.path, err)
	}
	return data, nil
}

func (t *tarball) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if err := checkRead(ctx, d); err != nil {
		return nil, err
	}
	i, ok := t.byName[blobName(d)]
	if !ok {
		return nil, notHeld(t.path, d)
	}
	e := t.entries[i]
	if e.size != d.Size {
		return nil, brokenFile(t.path, "%s has %d bytes, not %d", e.name, e.size, d.Size)
	}
	return io.NopCloser(io.NewSectionReader(t.r, e.dataOffset()+offset, e.size-offset)), nil
}
