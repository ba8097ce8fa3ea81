package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// session is an upload as the registry knows it.
type session struct {
	state  sessionState
	url    *url.URL // where it goes on; it may move with each answer
	offset int64    // what the registry has in it
}

type sessionState int

const (
	given   sessionState = iota // opened some time ago; the registry may have forgotten it
	fresh                       // just opened, or it has taken what was sent
	resumed                     // gone on with after a fault
	doubted                     // the registry has said that the last part began elsewhere: it is asked again
)

// errForgotten is a session that was opened some time ago and is not known any more: that
// is no failed attempt. errSessionLost is one that the registry knew, and knows no more
// or does not understand any more. A new one may do.
var (
	errForgotten   = errors.New("the registry has forgotten an upload that was opened before")
	errSessionLost = errors.New("the registry has given up the upload")
)

// end is where the upload ends: the query of the session is kept as it came, since it
// may be signed.
func (s *session) end(d ocispec.Descriptor) *url.URL {
	to := *s.url
	query := "digest=" + strings.ReplaceAll(d.Digest.String(), ":", "%3A")
	if to.RawQuery != "" {
		query = to.RawQuery + "&" + query
	}
	to.RawQuery = query
	return &to
}

// forgotten makes errForgotten of what a registry says of such a session.
func (s *session) forgotten(err error) error {
	var a *AnswerError
	if s.state == given && errors.As(err, &a) && (a.Status == http.StatusNotFound || a.Status == http.StatusBadRequest) {
		return fmt.Errorf("%w: %s", errForgotten, a.Error())
	}
	return err
}

// moved keeps where the session goes on.
func (s *session) moved(r *Repository, resp *http.Response) (err error) {
	if resp.Header.Get("Location") != "" {
		s.url, err = r.client.Location(r.host, resp.Request.URL, resp)
	}
	return err
}

// taken takes note that the registry has all up to an offset.
func (s *session) taken(offset int64) {
	s.offset = offset
	switch s.state {
	case given:
		s.state = fresh
	case doubted:
		s.state = resumed
	case fresh, resumed:
	}
}

// offset is what the registry has of the blob.
func (u *upload) offset() int64 {
	if u.session == nil {
		return 0
	}
	return u.session.offset
}

// begin opens an upload. The registry says where it wants the blob, which may be
// on another host: that one gets no login.
func (u *upload) begin() error {
	resp, err := u.r.client.Send(u.ctx, u.r.host, Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodPost, URL: u.r.Address("blobs", "uploads", ""), Access: u.r.Pushes(), OK: []int{202},
	})
	if err != nil {
		return err
	}
	Drain(resp.Body)
	if least, err := strconv.ParseInt(resp.Header.Get("Oci-Chunk-Min-Length"), 10, 64); err == nil && u.cut.size > 0 {
		u.cut.size = max(u.cut.size, least)
	}
	at, err := u.r.client.Location(u.r.host, resp.Request.URL, resp)
	if err != nil {
		return err
	}
	u.session, u.failedAt = &session{state: fresh, url: at}, 0
	return nil
}

// inParts goes on with the session, or begins one.
func (u *upload) inParts() error {
	if u.session != nil {
		if err := u.resume(); err != nil {
			return err
		}
	}
	if u.session == nil {
		if err := u.begin(); err != nil {
			return err
		}
	}
	for u.session.offset < u.d.Size {
		if err := u.part(); err != nil {
			return err
		}
	}
	resp, err := u.r.client.Send(u.ctx, u.r.host, Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodPut, URL: u.session.end(u.d), Access: u.r.Pushes(), OK: []int{201, 204},
		Header: map[string]string{"Content-Type": "application/octet-stream"},
		Body:   func() (io.ReadCloser, error) { return http.NoBody, nil },
	})
	if err = u.refused(u.answered(resp, err)); err == nil && u.r.host.chunk.Load() == 0 {
		u.r.host.chunk.Store(u.cut.size) // the next blobs need not find out
	}
	return err
}

// part sends the next part.
func (u *upload) part() error {
	at := u.session
	n := min(u.cut.size, u.d.Size-at.offset)
	header := map[string]string{
		"Content-Type":  "application/octet-stream",
		"Content-Range": fmt.Sprintf("%d-%d", at.offset, at.offset+n-1),
	}
	if u.cut.isProbe() { // a refusal comes before the body, and is not lost with the connection
		header["Expect"] = "100-continue"
	}
	resp, err := u.r.client.Send(u.ctx, u.r.host, Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodPatch, URL: at.url, Access: u.r.Pushes(), Size: n, OK: []int{202, 201, 204},
		Header: header, Body: func() (io.ReadCloser, error) { return u.source.body(at.offset, n) },
	})
	if err := u.refused(u.answered(resp, err)); err != nil {
		return err
	}
	if err := at.moved(u.r, resp); err != nil {
		return err
	}
	has, ok := uploaded(resp.Header.Get("Range"))
	if ok && has != at.offset+n {
		return fmt.Errorf("the registry has %d bytes of the upload where %d were sent", has, at.offset+n)
	}
	at.taken(at.offset + n)
	u.cut.taken()
	return nil
}

// refused ends a session that cannot go on.
func (u *upload) refused(err error) error {
	at := u.session
	var a *AnswerError
	if !errors.As(err, &a) {
		return err
	}
	again := at.state == resumed || at.state == doubted
	switch {
	case a.Status == http.StatusRequestedRangeNotSatisfiable && at.state != doubted:
		at.state = doubted // it may have taken in more of a broken part meanwhile
		return fmt.Errorf("the registry is at another place of the upload: %s", a.Error())
	case a.Status == http.StatusRequestedRangeNotSatisfiable, a.Status == http.StatusNotFound && at.offset > 0,
		a.Has("BLOB_UPLOAD_UNKNOWN"), a.Has("BLOB_UPLOAD_INVALID") && at.offset > 0, a.Has("DIGEST_INVALID") && again:
		u.session, u.failedAt = nil, 0
		return fmt.Errorf("%w: %s", errSessionLost, a.Error())
	}
	if err := at.forgotten(err); errors.Is(err, errForgotten) {
		u.session = nil
		return err
	}
	return err
}

// resume asks the registry how much it has. A registry that does not say gets a
// new upload.
func (u *upload) resume() error {
	at := u.session
	if u.failures == 0 && at.offset == 0 {
		return nil // nothing was sent to it
	}
	resp, err := u.r.client.Send(u.ctx, u.r.host, Request{ //nolint:bodyclose // Drain closes it
		Method: http.MethodGet, URL: at.url, Access: u.r.Pushes(), OK: []int{200, 202, 204},
	})
	var a *AnswerError
	if errors.As(err, &a) && !CanPassStatus(a.Status) && a.Status != http.StatusUnauthorized {
		u.session = nil
		return nil
	}
	if err != nil {
		return err
	}
	Drain(resp.Body)
	has, ok := uploaded(resp.Header.Get("Range"))
	if !ok || has > u.d.Size {
		u.session = nil
		return nil
	}
	if at.state != doubted {
		at.state = resumed
	}
	at.offset = has
	return at.moved(u.r, resp)
}

// uploaded reads the Range header of an upload, "0-LAST", sometimes with "bytes="
// before it. Registries write 0-0 for nothing as well as for one byte; nothing is
// the likelier, and a wrong guess is refused by the next part's Content-Range.
func uploaded(header string) (int64, bool) {
	first, last, ok := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	n, err := strconv.ParseInt(last, 10, 64)
	if !ok || first != "0" || err != nil || n < 0 {
		return 0, false
	}
	if n == 0 {
		return 0, true
	}
	return n + 1, true
}
