package archive

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

const bufferSize = 256 << 10

// buffers keeps memory flat: what is copied at a time, for each concurrent blob.
var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// manyBuffers is how many of them are taken at a time; who comes after that gets a
// smaller one, so that memory keeps its bound with 64 blobs at a time as well.
const (
	manyBuffers = 16
	smallBuffer = bufferSize / 4
)

var (
	buffersTaken atomic.Int64
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }}
)

// buffer is for copying size bytes, until free is called. Small blobs get no more
// than they have: many of them are copied at a time.
func buffer(size int64) (b []byte, free func()) {
	if size < smallBuffer {
		return make([]byte, size), func() {}
	}
	pool := &buffers
	if buffersTaken.Add(1) > manyBuffers {
		pool = &smallBuffers
	}
	pooled := pool.Get().(*[]byte)
	return *pooled, func() {
		pool.Put(pooled)
		buffersTaken.Add(-1)
	}
}

// discardAll reads and verifies everything of d.
func discardAll(ctx context.Context, f bundle.Fetcher, d ocispec.Descriptor) error {
	rc, err := f.Fetch(ctx, d)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{bundle.Verify(rc, d)}, *buf)
	return err
}
