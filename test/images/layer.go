package images

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// randomLayer returns a layer with size bytes that follow from the seed.
func randomLayer(mt types.MediaType, seed string, size int64) (v1.Layer, error) {
	sum := sha256.Sum256([]byte(seed))
	file := tar.Header{Name: "data/" + hex.EncodeToString(sum[:8]), Mode: 0o644, Size: size}
	return layer(mt, gzip.NoCompression, file, func() (io.ReadCloser, error) { // random bytes do not shrink
		return io.NopCloser(io.LimitReader(rand.NewChaCha8(sum), size)), nil
	})
}

func programLayer(mt types.MediaType, file, name string) (v1.Layer, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	return layer(mt, gzip.BestSpeed, tar.Header{Name: name, Mode: 0o755, Size: info.Size()},
		func() (io.ReadCloser, error) { return os.Open(file) })
}

// layer returns a gzip-compressed tar of one file, recreated by each reader.
func layer(mt types.MediaType, level int, file tar.Header, open func() (io.ReadCloser, error)) (v1.Layer, error) {
	file.Typeflag, file.ModTime, file.Format = tar.TypeReg, time.Unix(0, 0), tar.FormatPAX
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		content, err := open()
		if err != nil {
			return nil, err
		}
		r, w := io.Pipe()
		s := &stream{PipeReader: r, done: make(chan struct{})}
		go func() {
			defer close(s.done)
			t := tar.NewWriter(w)
			err := t.WriteHeader(&file)
			if err == nil {
				_, err = io.Copy(t, content)
			}
			_ = w.CloseWithError(errors.Join(err, content.Close(), t.Close()))
		}()
		return s, nil
	}, tarball.WithMediaType(mt), tarball.WithCompressionLevel(level))
}

// stream waits for its writer when it is closed.
type stream struct {
	*io.PipeReader
	done chan struct{}
}

func (s *stream) Close() error {
	err := s.PipeReader.Close()
	<-s.done
	return err
}
