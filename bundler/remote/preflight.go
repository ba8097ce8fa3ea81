package remote

import (
	"context"
	"net/http"
)

// Preflight makes sure that the registry can be reached and that the login may
// write: it opens an upload, which is the first thing that a read-only registry or
// one without the right refuses. The first blob that is put uses it; where there is
// none, the registry forgets it as it forgets all that nobody went on with.
func (r *Repository) Preflight(ctx context.Context) error {
	r.mu.Lock()
	opened := r.spare != nil
	r.mu.Unlock()
	if opened {
		return nil
	}
	const op = "begin a push to"
	return r.client.Retry(ctx, r.host, op, r.ref.String(), func(int) error {
		resp, err := r.client.Send(ctx, r.host, Request{ //nolint:bodyclose // Drain closes it
			Method: http.MethodPost, URL: r.Address("blobs", "uploads", ""), Access: r.Pushes(), OK: []int{202},
		})
		if err != nil {
			return err
		}
		Drain(resp.Body)
		at, err := r.client.Location(r.host, resp.Request.URL, resp)
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.spare = at
		return nil
	})
}
