package remote

import (
	"context"
	"errors"
	"io"
	"net/http"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// upload is one blob on its way into a repository: as the body of one request, or
// in parts, each of which begins where the registry says that it is. It is a machine of
// two parts, each in one named state: how the blob is cut ([manner]), and the session
// with the registry ([sessionState]). An attempt goes from where they are to the end or
// to a fault; a fault moves them, and is followed by the next attempt or is final.
type upload struct {
	r      *Repository
	ctx    context.Context //nolint:containedctx // an upload is one call, in several steps
	d      ocispec.Descriptor
	source source

	cut     cut
	session *session // nil: there is none that can be gone on with
	lost    bool     // an answer was lost: the blob may have arrived

	failures int   // since the last progress
	failedAt int64 // offset of the last failure
}

// putBlob uploads a blob, as often as it takes.
func (r *Repository) putBlob(ctx context.Context, d ocispec.Descriptor, open func(int64) (io.ReadCloser, error)) error {
	release, err := r.host.Pushes(d.Size).Acquire(ctx)
	if err != nil {
		return r.client.Explain(ctx, r.host, opPush, r.At(d.Digest.String()), err)
	}
	defer release()
	u := &upload{r: r, ctx: ctx, d: d, cut: cut{size: r.host.chunk.Load()}, session: r.takeSession(d), source: source{d: d, open: open}}
	if u.cut.size > 0 {
		u.cut.manner = inParts
	}
	defer u.source.close()
	return u.run()
}

// run makes attempts until the blob is there, its fault cannot pass, or there have
// been enough of them without progress.
func (u *upload) run() error {
	for {
		err := u.attempt()
		if err == nil {
			return nil
		}
		if errors.Is(err, errForgotten) || u.cutSmaller(err) {
			continue
		}
		if u.offset()-u.failedAt >= goodProgress {
			u.failures = 0
		}
		u.failures, u.failedAt = u.failures+1, u.offset()
		u.lost = true
		if err = u.r.client.Wait(u.ctx, u.r.host, err, u.failures); err != nil {
			return u.r.client.Explain(u.ctx, u.r.host, opPush, u.r.At(u.d.Digest.String()), err)
		}
	}
}

// attempt asks whether the blob is there, where an answer was lost, and else sends it.
func (u *upload) attempt() error {
	if u.lost {
		there, err := u.r.hasOnce(u.ctx, u.d, u.r.Pushes())
		if err != nil || there {
			return err
		}
		u.lost = false
	}
	if u.cut.applies(u.d.Size) {
		return u.inParts()
	}
	return u.whole()
}

// cutSmaller decides whether the blob is sent in smaller parts after a fault, and
// whether that is tried at once: a refusal for the size is no failed attempt.
func (u *upload) cutSmaller(err error) bool {
	var a *AnswerError
	var s *SourceError
	var f *fault.Error
	switch {
	case errors.As(err, &s), errors.As(err, &f), u.ctx.Err() != nil:
		return false
	case errors.As(err, &a) && a.Status == http.StatusRequestEntityTooLarge:
		return u.cut.shrink(u.d, firstChunk, leastChunk, u.cut.tried())
	case errors.As(err, &a) && u.cut.isGuess() && refusesParts(a):
		u.cut, u.session = cut{manner: onlyWhole}, nil
		return true
	case errors.As(err, &a) || !CanPass(err):
	case u.cut.manner == whole && u.d.Size > cutLeast:
		u.cut.shrink(u.d, cutChunk, cutLeast, guessing)
	case u.cut.size > 0 && u.offset() == u.failedAt && u.failures > 0: // twice at the same place
		u.cut.shrink(u.d, cutChunk, leastChunk, u.cut.tried())
	}
	return false
}

// refusesParts tells whether a registry says that it takes no parts.
func refusesParts(a *AnswerError) bool {
	return a.Method != http.MethodPost && (a.Status == http.StatusNotFound || a.Status == http.StatusMethodNotAllowed ||
		a.Status == http.StatusBadRequest || a.Status == http.StatusNotImplemented || a.Status == http.StatusUnsupportedMediaType)
}

// answered closes the answer of a request with a body. What was wrong with the source
// comes before what the registry made of it.
func (u *upload) answered(resp *http.Response, err error) error {
	if resp != nil {
		Drain(resp.Body)
	}
	if wrong := u.source.fault(); wrong != nil {
		return &SourceError{Err: wrong}
	}
	if err != nil {
		u.source.close()
	}
	return err
}

// whole sends the blob as one body.
func (u *upload) whole() error {
	if u.session == nil {
		if err := u.begin(); err != nil {
			return err
		}
	}
	at := u.session
	u.session = nil                                        // used up, however this ends
	resp, err := u.r.client.Send(u.ctx, u.r.host, Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodPut, URL: at.end(u.d), Access: u.r.Pushes(), Size: u.d.Size, OK: []int{201, 204},
		Header: map[string]string{"Content-Type": "application/octet-stream"},
		Body:   func() (io.ReadCloser, error) { return u.source.body(0, u.d.Size) },
	})
	return at.forgotten(u.answered(resp, err))
}
