package images

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer is a gzip-compressed tar of one file, made anew by each reader.
type layer struct {
	mediaType    types.MediaType
	file         tar.Header
	content      func() (io.ReadCloser, error)
	digest, diff v1.Hash
	size         int64
	level        int
}

// newRandomLayer returns a layer with size bytes that follow from the seed.
func newRandomLayer(mt types.MediaType, seed string, size int64) (*layer, error) {
	sum := sha256.Sum256([]byte(seed))
	l := &layer{
		mediaType: mt,
		level:     gzip.NoCompression, // random bytes do not shrink
		file:      tar.Header{Name: "data/" + hex.EncodeToString(sum[:8]), Mode: 0o644, Size: size},
		content: func() (io.ReadCloser, error) {
			return io.NopCloser(io.LimitReader(rand.NewChaCha8(sum), size)), nil
		},
	}
	return l, l.measure()
}

// newProgramLayer returns a layer with one executable.
func newProgramLayer(mt types.MediaType, file, name string) (*layer, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	l := &layer{
		mediaType: mt,
		level:     gzip.BestSpeed,
		file:      tar.Header{Name: name, Mode: 0o755, Size: info.Size()},
		content:   func() (io.ReadCloser, error) { return os.Open(file) },
	}
	return l, l.measure()
}

// measure writes the layer once to learn its digests and size.
func (l *layer) measure() error {
	digest, diff := sha256.New(), sha256.New()
	count := &counter{w: digest}
	if err := l.write(count, diff); err != nil {
		return err
	}
	l.digest, l.diff, l.size = hashOf(digest), hashOf(diff), count.n
	return nil
}

func hashOf(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}

// write writes the compressed layer to packed and the tar to plain; either may be nil.
func (l *layer) write(packed, plain io.Writer) error {
	var tarTo []io.Writer
	var zip *gzip.Writer
	if packed != nil {
		var err error
		if zip, err = gzip.NewWriterLevel(packed, l.level); err != nil {
			return err
		}
		tarTo = append(tarTo, zip)
	}
	if plain != nil {
		tarTo = append(tarTo, plain)
	}
	buffered := bufio.NewWriterSize(io.MultiWriter(tarTo...), 64<<10)
	if err := l.tar(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil || zip == nil {
		return err
	}
	return zip.Close()
}

func (l *layer) tar(w io.Writer) error {
	t := tar.NewWriter(w)
	header := l.file
	header.Typeflag, header.ModTime, header.Format = tar.TypeReg, time.Unix(0, 0), tar.FormatPAX
	if err := t.WriteHeader(&header); err != nil {
		return err
	}
	content, err := l.content()
	if err != nil {
		return err
	}
	_, err = io.Copy(t, content)
	return errors.Join(err, content.Close(), t.Close())
}

// stream returns what write writes.
func (l *layer) stream(write func(io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.CloseWithError(write(w))
	}()
	return &stream{PipeReader: r, done: done}
}

// stream ends its writer when it is closed.
type stream struct {
	*io.PipeReader
	done chan struct{}
}

func (s *stream) Close() error {
	err := s.PipeReader.Close()
	<-s.done
	return err
}

// Digest implements v1.Layer.
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID implements v1.Layer.
func (l *layer) DiffID() (v1.Hash, error) { return l.diff, nil }

// Size implements v1.Layer.
func (l *layer) Size() (int64, error) { return l.size, nil }

// MediaType implements v1.Layer.
func (l *layer) MediaType() (types.MediaType, error) { return l.mediaType, nil }

// Compressed implements v1.Layer.
func (l *layer) Compressed() (io.ReadCloser, error) {
	return l.stream(func(w io.Writer) error { return l.write(w, nil) }), nil
}

// Uncompressed implements v1.Layer.
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	return l.stream(func(w io.Writer) error { return l.write(nil, w) }), nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
