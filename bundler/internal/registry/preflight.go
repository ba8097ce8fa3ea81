package registry

import (
	"context"
	"net/http"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

// Preflight makes sure that the registry can be reached and that the login may
// write: it opens an upload, which is the first thing that a read-only registry or
// one without the right refuses, and gives it up.
func (r *Repository) Preflight(ctx context.Context) error {
	const op = "begin a push to"
	return r.client.retry(ctx, r.host, op, r.ref.String(), func(int) error {
		resp, err := r.client.send(ctx, r.host, call{ //nolint:bodyclose // drain closes it
			method: http.MethodPost, url: r.address("blobs", "uploads", ""), access: r.pushes(), ok: []int{202},
		})
		if err != nil {
			return err
		}
		drain(resp.Body)
		at, err := r.client.location(r.host, resp.Request.URL, resp)
		if err != nil {
			return err
		}
		resp, err = r.client.send(ctx, r.host, call{method: http.MethodDelete, url: at, access: r.pushes(), ok: []int{200, 202, 204}}) //nolint:bodyclose // drain closes it
		if err == nil {
			drain(resp.Body)
		}
		return ctx.Err() // an upload that cannot be given up is the registry's to forget
	})
}

// Plan tells what Begin returns.
func (r *Repository) Plan(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	return r.Begin(ctx, g)
}
