package registry

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/distribution/distribution/v3"
	"github.com/distribution/distribution/v3/configuration"
	repositorymiddleware "github.com/distribution/distribution/v3/registry/middleware/repository"
	"github.com/opencontainers/go-digest"
)

// smallBlob is up to which size the reference registry reads a blob before it sends it.
const smallBlob = 512 << 10

// The reference registry fills a buffer of 4 MiB for each answer with a blob, of which tests
// ask for tens of thousands of some hundred bytes: with the race detector, which follows every
// byte of it, that was a third of what such tests cost. Small blobs are read by the registry's
// own means and sent as it sends them; the others go its way.
const smallBlobs = "small-blobs"

func init() {
	if err := repositorymiddleware.Register(smallBlobs, func(_ context.Context, r distribution.Repository, _ map[string]any) (distribution.Repository, error) {
		return repository{r}, nil
	}); err != nil {
		panic(err) // two registrations in this process: a mistake in this file
	}
}

func middleware() map[string][]configuration.Middleware {
	return map[string][]configuration.Middleware{"repository": {{Name: smallBlobs}}}
}

type repository struct{ distribution.Repository }

func (r repository) Blobs(ctx context.Context) distribution.BlobStore {
	return blobs{r.Repository.Blobs(ctx)}
}

type blobs struct{ distribution.BlobStore }

// ServeBlob implements [distribution.BlobServer].
func (b blobs) ServeBlob(ctx context.Context, w http.ResponseWriter, req *http.Request, dgst digest.Digest) error {
	d, err := b.Stat(ctx, dgst)
	if err != nil {
		return err
	}
	if d.Size > smallBlob || req.Method == http.MethodHead {
		return b.BlobStore.ServeBlob(ctx, w, req, dgst)
	}
	data, err := b.Get(ctx, dgst)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("ETag", fmt.Sprintf("%q", d.Digest))
	header.Set("Cache-Control", "max-age=31536000")
	header.Set("Docker-Content-Digest", d.Digest.String())
	header.Set("Content-Type", d.MediaType)
	header.Set("Content-Length", fmt.Sprint(len(data)))
	http.ServeContent(w, req, d.Digest.String(), time.Time{}, bytes.NewReader(data))
	return nil
}
