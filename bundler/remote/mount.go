package remote

import (
	"context"
	"net/http"
	"net/url"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Mount has the registry take a blob over from another repository of its own,
// without the bytes coming here, and tells whether it did. Where it does not offer
// that, or the login may not read there, the blob has to be put; the upload that
// the registry opens instead is used for it.
func (r *Repository) Mount(ctx context.Context, d ocispec.Descriptor, from image.Reference) (bool, error) {
	if from.Host() != r.ref.Host() || from.Path() == r.ref.Path() || r.host.refusesMount(from.Path()) {
		return false, nil
	}
	release, err := r.host.small.Acquire(ctx)
	if err != nil {
		return false, r.client.Explain(ctx, r.host, opPush, r.At(d.Digest.String()), err)
	}
	defer release()
	there, at, err := r.mount(ctx, d, from.Path())
	switch {
	case err != nil:
		if ctx.Err() == nil && !CanPass(err) {
			r.host.refuseMount(from.Path())
		}
		return false, nil //nolint:nilerr // Put tells what is wrong, if it is more than this
	case there:
		r.arrived(d)
		return true, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions = map[string]*url.URL{}
	}
	r.sessions[d.Digest.String()] = at
	return false, nil
}

// mount asks the registry once to take a blob over from another repository. If it does
// not, it opens an upload.
func (r *Repository) mount(ctx context.Context, d ocispec.Descriptor, from string) (there bool, at *url.URL, err error) {
	q := Request{Method: http.MethodPost, URL: r.Address("blobs", "uploads", ""), OK: []int{201, 202}, Access: r.Pushes()}
	q.Access.From = from
	q.URL.RawQuery = url.Values{"mount": {d.Digest.String()}, "from": {from}}.Encode()
	resp, err := r.client.Send(ctx, r.host, q) //nolint:bodyclose // Drain closes it
	if err != nil {
		return false, nil, err
	}
	Drain(resp.Body)
	if resp.StatusCode == http.StatusCreated {
		return true, nil, nil
	}
	at, err = r.client.Location(r.host, resp.Request.URL, resp)
	return false, at, err
}

// takeSession returns an upload that was opened before: by a refused mount of the
// blob, or by Preflight; else nil.
func (r *Repository) takeSession(d ocispec.Descriptor) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.sessions[d.Digest.String()]
	delete(r.sessions, d.Digest.String())
	if at == nil {
		at, r.spare = r.spare, nil
	}
	if at == nil {
		return nil
	}
	return &session{state: given, url: at}
}

func (h *Host) refusesMount(path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noMount[path]
}

func (h *Host) refuseMount(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noMount[path] = true
}
