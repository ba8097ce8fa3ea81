package pinned

import (
	"io"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/ondisk"
)

// hashes are the states of files in which blobs had their digest. What was verified is
// pushed without being hashed again, as long as its files are in that state.
type hashes struct {
	mu     sync.Mutex
	states map[digest.Digest]ondisk.State
}

// Hashed keeps the state of a blob's files that they were in when the blob was read, and
// had its digest: the state before the first byte was read.
func (b *Bundle) Hashed(d ocispec.Descriptor, in ondisk.State) {
	b.hashes.mu.Lock()
	defer b.hashes.mu.Unlock()
	if b.hashes.states == nil {
		b.hashes.states = map[digest.Digest]ondisk.State{}
	}
	b.hashes.states[d.Digest] = in
}

// of gives a stream the state of which is known that the blob had its digest in it.
func (h *hashes) of(d ocispec.Descriptor, r io.ReadCloser) io.ReadCloser {
	h.mu.Lock()
	defer h.mu.Unlock()
	if state := h.states[d.Digest]; state != "" {
		return hashed{r, state}
	}
	return r
}

type hashed struct {
	io.ReadCloser
	in ondisk.State
}

// OnDisk passes on what lies in files.
func (h hashed) OnDisk() *ondisk.Blob {
	disk := ondisk.Of(h.ReadCloser)
	if disk == nil {
		return nil
	}
	out := *disk
	out.Verified = h.in
	return &out
}
