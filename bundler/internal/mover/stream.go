package mover

import (
	"context"
	"errors"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// originFetcher reads from the first origin that works, and goes on with the next
// where one breaks off.
type originFetcher struct {
	origins  Origins
	names    bundle.Owners
	progress run.Progress
}

// Fetch returns the bytes of a descriptor, not verified.
func (f *originFetcher) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	r := &originReader{ctx: ctx, d: d, left: f.origins.of(d), name: f.names.Name(d), progress: f.progress}
	if err := r.next(nil); err != nil {
		return nil, err
	}
	return r, nil
}

type originReader struct {
	ctx      context.Context //nolint:containedctx // a stream outlives the call that opened it, within the caller's context
	d        ocispec.Descriptor
	left     []Origin
	name     string
	progress run.Progress

	from   io.ReadCloser
	offset int64
	err    error // what ended it
}

// next opens the next origin where the last one stopped, or says why there is none.
func (r *originReader) next(why error) error {
	for len(r.left) > 0 && r.ctx.Err() == nil {
		from := r.left[0]
		r.left = r.left[1:]
		if r.from, why = from.From.FetchFrom(r.ctx, r.d, r.offset); why == nil {
			return nil
		}
	}
	r.from, r.err = nil, why
	if why == nil {
		r.err = r.ctx.Err()
	}
	return r.err
}

func (r *originReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.from.Read(p)
	r.offset += int64(n)
	r.progress.Moved(int64(n))
	if errors.Is(err, io.EOF) && r.offset < r.d.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		_ = r.from.Close()
		err = r.next(err)
	}
	return n, err
}

func (r *originReader) Close() error {
	var err error
	if r.from != nil {
		err = r.from.Close()
	}
	if r.err == nil && r.offset < r.d.Size {
		return err // given up by who reads
	}
	r.progress.Done(r.name, r.err)
	return err
}
