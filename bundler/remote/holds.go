package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

// Holds asks for blobs, with no more than the right to pull, and returns those that
// the repository has.
func (r *Repository) Holds(ctx context.Context, blobs []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	return r.ask(ctx, blobs, r.Pulls(), true)
}

// Lacks asks for blobs and manifests, and returns those that the repository does
// not have. Nothing is written.
func (r *Repository) Lacks(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	return r.ask(ctx, ds, r.Pushes(), false)
}

// ask returns those that are there, or those that are not.
func (r *Repository) ask(ctx context.Context, ds []ocispec.Descriptor, a Access, there bool) (out []ocispec.Descriptor, err error) {
	found := make([]bool, len(ds))
	group, ctx := r.group(ctx)
	for i, d := range ds {
		group.Go(func() (err error) {
			found[i], err = r.has(ctx, d, a)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, d := range ds {
		if found[i] == there {
			out = append(out, d)
		}
	}
	return out, nil
}

// group runs small requests side by side.
func (r *Repository) group(ctx context.Context) (*errgroup.Group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.host.small.Most())
	return g, ctx
}

// has asks for one blob or manifest with its size, with a right that the caller needs
// anyway.
func (r *Repository) has(ctx context.Context, d ocispec.Descriptor, right Access) (found bool, err error) {
	const op = "look for"
	subject := r.At(d.Digest.String())
	if bundle.IsManifest(d.MediaType) {
		there, found, err := r.Stat(ctx, Look{Op: op, Subject: subject, ID: d.Digest.String(), Access: right})
		return found && (d.Size == 0 || there.Size == d.Size), err
	}
	release, err := r.host.small.Acquire(ctx)
	if err != nil {
		return false, r.client.Explain(ctx, r.host, op, subject, err)
	}
	defer release()
	err = r.client.Retry(ctx, r.host, op, subject, func(int) (err error) {
		found, err = r.hasOnce(ctx, d, right)
		return err
	})
	return found, err
}

// hasOnce is has for a blob, without attempts of its own. An answer to HEAD that does
// not give the blob's size says nothing: then the blob is read.
func (r *Repository) hasOnce(ctx context.Context, d ocispec.Descriptor, right Access) (bool, error) {
	q := Request{Method: http.MethodHead, URL: r.Address("blobs", d.Digest.String()), Access: right, OK: []int{200, 404}}
	resp, err := r.client.Send(ctx, r.host, q) //nolint:bodyclose // Drain closes it
	if err != nil {
		return false, err
	}
	Drain(resp.Body)
	if resp.StatusCode != http.StatusOK || resp.ContentLength == d.Size {
		return resp.StatusCode == http.StatusOK, nil
	}
	return r.showsSize(ctx, d, q)
}

// showsSize asks for the last byte of a blob: that it can be read, and that none comes
// after it, is what HEAD did not say. A host that gives no ranges gives all of it.
func (r *Repository) showsSize(ctx context.Context, d ocispec.Descriptor, q Request) (bool, error) {
	q.Method = http.MethodGet
	if d.Size > 0 {
		q.Header = map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", d.Size-1, d.Size-1)}
		q.OK = []int{200, 206, 404, 416}
	}
	resp, err := r.client.Send(ctx, r.host, q)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	switch {
	case resp.StatusCode == http.StatusPartialContent:
		return startsAt(resp.Header.Get("Content-Range"), d.Size-1, d.Size), nil
	case resp.StatusCode != http.StatusOK || resp.ContentLength >= 0:
		return resp.StatusCode == http.StatusOK && resp.ContentLength == d.Size, nil
	}
	n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, d.Size+1))
	return n == d.Size, err
}
