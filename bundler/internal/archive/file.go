package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

const maxEntries = 1 << 17 // of a tar, folders among them

// layoutForm is what every tool's oci-layout says.
var layoutForm = regexp.MustCompile(`"imageLayoutVersion"\s*:\s*"1\.0\.0"`)

// File is an archive open for reading. Its methods are safe for concurrent use.
type File struct {
	path string
	f    storage

	mu   sync.RWMutex // Attach replaces f, scan and seen
	old  []storage    // what Attach replaced, for those who still read it
	seen stamp        // before it was scanned
	*scan

	attaching sync.Mutex
	was       *index // as the archive was opened, with what this File attached since: what is attached next was made of it
}

// A scan is what the headers of a tar say.
type scan struct {
	entries []entry        // regular files, in order; header is nil, offset that of its first header
	byName  map[string]int // cleaned name → entry
	end     int64          // where the end blocks begin
	size    int64          // of the file
	strange []string       // what only other tools write: folders, other names
	*index
}

// Close closes the file.
func (a *File) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	errs := []error{a.f.Close()}
	for _, f := range a.old {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// scanTar reads all headers of a tar, once, or until there is enough of them (nil: all).
// It never reads data.
func scanTar(path string, r io.ReaderAt, size int64, enough func(*scan) bool) (*scan, error) {
	s := &scan{byName: map[string]int{}, size: size}
	section := io.NewSectionReader(r, 0, size)
	tr := tar.NewReader(section)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return s, s.checkEnd(path)
		}
		if err != nil {
			return nil, s.badHeader(path, r, err)
		}
		if n == maxEntries {
			return nil, brokenFile(path, "it has more than %d entries", maxEntries)
		}
		at, err := section.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, storageFault("read", path, err)
		}
		if err := s.take(path, h, at); err != nil {
			return nil, err
		}
		if enough != nil && enough(s) {
			return s, nil
		}
	}
}

// take keeps one entry whose data begin at an offset.
func (s *scan) take(path string, h *tar.Header, at int64) error {
	name, err := cleanName(h)
	if err != nil {
		return brokenFile(path, "entry %.200q: %w", h.Name, err)
	}
	size := h.Size
	if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader {
		size = 0
	}
	e := entry{name: name, offset: s.end, size: size, header: nil}
	e.d.Size = at - s.end // the length of its headers, until it is known to be regular
	if size < 0 || size > bundle.MaxBlobSize {
		return brokenFile(path, "entry %.200q claims %d bytes", name, size)
	}
	if lack := at + padded(size) - s.size; lack > 0 {
		return incomplete(path, "the file ends within %s: %d bytes of it are missing, and all that follows", name, lack)
	}
	s.end = at + padded(size)
	if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader {
		s.strange = append(s.strange, name)
		return nil
	}
	if _, twice := s.byName[name]; twice {
		return brokenFile(path, "the entry %.200q is there twice", name)
	}
	s.byName[name] = len(s.entries)
	s.entries = append(s.entries, e)
	return nil
}

// headerLength is how long an entry's headers are.
func (e entry) headerLength() int64 { return e.d.Size }

func (e entry) scannedData() int64 { return e.offset + e.headerLength() }

// cleanName refuses kinds of entries and names that a bundle has no use for.
func cleanName(h *tar.Header) (string, error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeXGlobalHeader:
	case tar.TypeSymlink, tar.TypeLink:
		return "", errors.New("it is a link")
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return "", errors.New("it is a device")
	case tar.TypeGNUSparse:
		return "", errors.New("it is a sparse file")
	default:
		return "", fmt.Errorf("its type %q is not known", h.Typeflag)
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

// begins tells whether a file that ends within its first header began as an archive: with
// a name and the zeros after it.
func (s *scan) begins(r io.ReaderAt) bool {
	head := make([]byte, s.size)
	n, _ := r.ReadAt(head, 0)
	return bytes.HasPrefix(head[:n], []byte(layoutName+"\x00")) || bytes.HasPrefix([]byte(layoutName), head[:n])
}

func (s *scan) badHeader(path string, r io.ReaderAt, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) && (s.end > 0 || s.size >= blockSize || s.begins(r)) {
		return incomplete(path, "the file ends at byte %d, within the header or the end mark after %s; all that follows is missing", s.size, s.last())
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
		if s.end == 0 {
			return &fault.Error{Reason: fault.InvalidInput, Op: "open", Subject: path,
				Hint: "give an uncompressed tar that `vdo-bundle pull` made", Err: errors.New("it is not a tar archive")}
		}
		return brokenFile(path, "the header at byte %d, after %s, is broken", s.end, s.last())
	}
	return storageFault("read", path, err)
}

func (s *scan) last() string {
	if len(s.entries) == 0 {
		return "nothing"
	}
	return s.entries[len(s.entries)-1].name
}

// checkEnd demands the end mark: without it there is no telling what is missing.
func (s *scan) checkEnd(path string) error {
	switch {
	case s.size == 0:
		return incomplete(path, "it is empty")
	case len(s.entries) == 0:
		return &fault.Error{Reason: fault.InvalidInput, Op: "open", Subject: path,
			Hint: "give a bundle that `vdo-bundle pull` made; if this is a copy of one, copy it again", Err: errors.New("it is an empty tar archive")}
	}
	if lack := s.end + endSize - s.size; lack > 0 {
		return incomplete(path, "the file ends after %s: %d bytes of the end mark are missing, and perhaps entries before it", s.last(), lack)
	}
	return nil
}

func brokenFile(path, format string, args ...any) error {
	return &fault.Error{Reason: fault.Corrupt, Op: "read", Subject: path,
		Hint: "copy it again from where it was made", Err: fmt.Errorf(format, args...)}
}

func incomplete(path, format string, args ...any) error {
	return &fault.Error{Reason: fault.Incomplete, Op: "read", Subject: path,
		Hint: "copy it again from where it was made, and compare the sizes", Err: fmt.Errorf(format, args...)}
}

// readIndex reads oci-layout and index.json; where the writing of index.json was
// cut off, its copy beside the file. It returns the bytes that the entry has.
func (s *scan) readIndex(path string, r io.ReaderAt) ([]byte, error) {
	layout, err := s.small(path, r, layoutName, 4096)
	if err != nil {
		return nil, err
	}
	if !layoutForm.Match(layout) {
		return nil, brokenFile(path, "oci-layout is not that of an OCI image layout 1.0.0")
	}
	data, err := s.small(path, r, indexName, maxIndexSize)
	if err != nil {
		return nil, err
	}
	return data, s.parseIndex(path, data, &scanFetcher{path, r, s})
}

// parseIndex parses index.json, or its copy.
func (s *scan) parseIndex(path string, data []byte, fetch *scanFetcher) (err error) {
	if s.index, err = parseIndex(path, data, fetch); err == nil {
		return nil
	}
	if real, linkErr := filepath.EvalSymlinks(path); linkErr == nil {
		path = real // who signs through a link signs there
	}
	copied, copyErr := readRegular(indexCopy(path), maxIndexSize)
	if copyErr != nil || len(copied) != len(data) {
		return err
	}
	s.index, copyErr = parseIndex(path, copied, fetch)
	if copyErr != nil {
		return err
	}
	return nil
}

// indexCopy is where an index.json is kept while it is written again.
func indexCopy(path string) string { return path + ".index" }

func (s *scan) small(path string, r io.ReaderAt, name string, limit int64) ([]byte, error) {
	i, ok := s.byName[name]
	if !ok {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "open", Subject: path,
			Hint: "give an archive that `vdo-bundle pull` made", Err: fmt.Errorf("it is not an OCI image layout: it has no %s", name)}
	}
	e := s.entries[i]
	if e.size > limit {
		return nil, brokenFile(path, "%s has %d bytes, more than %d", name, e.size, limit)
	}
	data := make([]byte, e.size)
	if _, err := r.ReadAt(data, e.scannedData()); err != nil {
		return nil, storageFault("read", path, err)
	}
	return data, nil
}

func (s *scan) has(hex string) bool {
	_, ok := s.byName[blobPrefix+hex]
	return ok
}

// scanFetcher finds blobs by digest.
type scanFetcher struct {
	path string
	r    io.ReaderAt
	*scan
}

// Fetch gives the bytes of a descriptor.
func (f *scanFetcher) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return f.from(ctx, d, 0)
}

func (f *scanFetcher) from(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := bundle.CheckDescriptor(d); err != nil {
		return nil, err
	}
	i, ok := f.byName[blobPrefix+d.Digest.Encoded()]
	if !ok {
		return nil, &fault.Error{Reason: fault.NotFound, Op: "read", Subject: f.path,
			Hint: "make the bundle again with `vdo-bundle pull`", Err: fmt.Errorf("it holds no %s", d.Digest)}
	}
	e := f.entries[i]
	if e.size != d.Size {
		return nil, brokenFile(f.path, "%s has %d bytes, not %d", e.name, e.size, d.Size)
	}
	if err := checkOffset(f.path, d, offset); err != nil {
		return nil, err
	}
	return io.NopCloser(io.NewSectionReader(f.r, e.scannedData()+offset, e.size-offset)), nil
}

func checkOffset(path string, d ocispec.Descriptor, offset int64) error {
	if offset < 0 || offset > d.Size {
		return &fault.Error{Reason: fault.Internal, Op: "read", Subject: path,
			Err: fmt.Errorf("offset %d is not within the %d bytes of %s", offset, d.Size, d.Digest)}
	}
	return nil
}

func (a *File) fetcher() *scanFetcher {
	f, _ := a.view()
	return f
}

// view is the archive as it was scanned last, and what the file system said of it then.
func (a *File) view() (*scanFetcher, stamp) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return &scanFetcher{a.path, a.f, a.scan}, a.seen
}

// Root returns the descriptor of the bundle's root.
func (a *File) Root(ctx context.Context) (ocispec.Descriptor, error) {
	return a.fetcher().index.root(ctx)
}

// Fetch returns the bytes of a descriptor, not verified.
func (a *File) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return a.fetcher().from(ctx, d, 0)
}

// FetchFrom returns the bytes of a descriptor from an offset, not verified.
func (a *File) FetchFrom(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return a.fetcher().from(ctx, d, offset)
}

// Base returns what a delta leaves out; nil of a whole bundle.
func (a *File) Base() *bundle.Base { return a.fetcher().index.base }

// Attachments returns the manifests of signatures and other things about subject.
func (a *File) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return a.fetcher().index.attachments(ctx, subject)
}
