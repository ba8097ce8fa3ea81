package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Fetcher returns the unverified bytes of a descriptor from an offset, so that an interrupted
// transfer can continue.
type Fetcher interface {
	Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error)
}

// InMemory is a Fetcher of content in memory.
type InMemory map[digest.Digest][]byte

// Fetch returns the bytes of a descriptor.
func (m InMemory) Fetch(_ context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	data, ok := m[d.Digest]
	if !ok {
		return nil, fault.Errorf(fault.NotFound, "read", d.Digest.String(), "", "it is not at hand")
	}
	return io.NopCloser(bytes.NewReader(data[min(max(0, offset), int64(len(data))):])), nil
}

// Read returns the bytes of d, verified by size and digest, and at most limit bytes. It serves a
// descriptor that carries Data from there.
func Read(ctx context.Context, f Fetcher, d ocispec.Descriptor, limit int64) ([]byte, error) {
	if err := CheckDescriptor(d); err != nil {
		return nil, err
	}
	if d.Size > limit {
		return nil, corrupt(d, "it claims %d bytes, more than the %d that such a part may have", d.Size, limit)
	}
	if int64(len(d.Data)) == d.Size && len(d.Data) > 0 && image.DigestOf(d.Data).String() == d.Digest.String() {
		return d.Data, nil
	}
	rc, err := f.Fetch(ctx, d, 0)
	if err != nil {
		return nil, err
	}
	defer rc.Close() //nolint:errcheck // nothing was written
	var buf bytes.Buffer
	buf.Grow(int(min(d.Size, 64<<10)) + bytes.MinRead)
	if _, err := buf.ReadFrom(Verify(rc, d)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// CheckDescriptor returns a fault if the digest is not a sha256 digest or the size is impossible.
func CheckDescriptor(d ocispec.Descriptor) error {
	if _, err := image.ParseDigest(d.Digest.String()); err != nil {
		return fault.Errorf(fault.Corrupt, "read descriptor", fmt.Sprintf("%.100q", d.Digest.String()),
			"bundles name everything by sha256 digest", "it is not a sha256 digest")
	}
	if d.Size < 0 || d.Size > MaxBlobSize {
		return corrupt(d, "its size of %d bytes cannot be", d.Size)
	}
	return nil
}

// Verify returns a reader of r. It ends with Corrupt for other or extra bytes and Incomplete for
// missing ones; errors of r that are not faults become Storage. It returns the last bytes after it
// verified all, and reads at most one byte beyond d.Size.
func Verify(r io.Reader, d ocispec.Descriptor) io.Reader {
	return &verifier{r: r, d: d, left: d.Size, sum: sha256.New()}
}

type verifier struct {
	r    io.Reader
	d    ocispec.Descriptor
	left int64
	sum  hash.Hash
	err  error
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if v.left == 0 {
		v.err = v.end()
		return 0, v.err
	}
	n, err := v.r.Read(p[:min(int64(len(p)), v.left)])
	v.left -= int64(n)
	v.sum.Write(p[:n])
	switch {
	case v.left == 0:
		if v.err = v.end(); !errors.Is(v.err, io.EOF) {
			return 0, v.err
		}
		return n, nil
	case errors.Is(err, io.EOF):
		v.err = fault.Errorf(fault.Incomplete, "read", v.d.Digest.String(), "fetch it again",
			"%d of %d bytes are missing", v.left, v.d.Size)
	case err != nil:
		v.err = v.unreadable(err)
	}
	return n, v.err
}

// unreadable returns an error of the source, not of the destination. A registry's error is a fault
// already; any other is from the file or directory.
func (v *verifier) unreadable(err error) error {
	if len(fault.All(err)) > 0 {
		return err
	}
	return fault.Errorf(fault.Storage, "read", v.d.Digest.String(), "check the medium that the bundle is on", "%w", err)
}

// end checks the stream after the last byte: no byte follows, and the digest matches.
func (v *verifier) end() error {
	var one [1]byte
	n, err := io.ReadFull(v.r, one[:])
	switch {
	case n > 0:
		return corrupt(v.d, "there is more than its %d bytes", v.d.Size)
	case !errors.Is(err, io.EOF):
		return v.unreadable(err)
	}
	if got := digest.NewDigest(digest.SHA256, v.sum); got != v.d.Digest {
		return corrupt(v.d, "%w", &DigestError{Expected: v.d.Digest, Got: got})
	}
	return io.EOF
}

// DigestError reports content whose digest differs from the requested one.
type DigestError struct{ Expected, Got digest.Digest }

func (e *DigestError) Error() string {
	return fmt.Sprintf("expected %.80s, got %.80s", e.Expected, e.Got)
}

func corrupt(d ocispec.Descriptor, format string, args ...any) *fault.Error {
	return fault.Errorf(fault.Corrupt, "read", d.Digest.String(), "fetch it again from a source that you trust",
		format, args...)
}
