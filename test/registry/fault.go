package registry

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
)

// Match picks requests. Empty fields match all.
type Match struct {
	Method string // "PUT"
	Path   string // a part of the path: "/blobs/sha256:"
	Query  string // a part of the raw query: "digest="
	Body   string // a part of the body, of those up to 1 MiB: "\"subject\""
	Range  string // the end of the Range header: "-" for an open one
}

func (m Match) matches(req *http.Request) bool {
	return (m.Method == "" || m.Method == req.Method) &&
		strings.Contains(req.URL.Path, m.Path) && strings.Contains(req.URL.RawQuery, m.Query) &&
		(m.Range == "" || strings.HasSuffix(req.Header.Get("Range"), m.Range)) &&
		(m.Body == "" || m.inBody(req))
}

// inBody reads a small body, and puts it back.
func (m Match) inBody(req *http.Request) bool {
	if req.ContentLength <= 0 || req.ContentLength > 1<<20 {
		return false
	}
	data, err := io.ReadAll(req.Body)
	if err != nil {
		return false
	}
	req.Body = io.NopCloser(bytes.NewReader(data))
	return bytes.Contains(data, []byte(m.Body))
}

// Fault happens to the requests that match it. The first of several that matches and is not used up happens. Wait and
// Seen combine with any other field; the other fields are tried in their order.
type Fault struct {
	Match Match
	// After is how many matching requests pass before it happens.
	After int
	// Times is how often it happens; zero: always.
	Times int

	// Seen, if set, gets a value (without blocking) for each request that met the fault.
	Seen chan<- string
	// Wait holds the request until the channel is closed or the client disconnects.
	Wait <-chan struct{}

	// Reset ends the connection with a TCP reset before an answer. With a BodyLimit it resets only longer bodies,
	// instead of answering 413.
	Reset bool
	// ResetAfter passes that many bytes of the request's body to the registry, then ends the connection with a TCP
	// reset.
	ResetAfter int64
	// Status answers with a status, Header and Body (default: an OCI error of that status).
	Status int
	Header map[string]string
	Body   string
	// RedirectTo sends the request to the same path at another base URL, 307.
	RedirectTo string
	// BodyLimit answers 413 to requests with a longer body.
	BodyLimit int64

	// Cut ends the connection after that many bytes of the answer's body; CutAtStart ends it before any.
	Cut        int64
	CutAtStart bool
	// Tamper inverts the byte at TamperAt of the answer's body.
	Tamper   bool
	TamperAt int64
	// ReplaceHeader changes headers of the answer; an empty value removes one.
	ReplaceHeader map[string]string
	// LocationBase rewrites scheme and host of the answer's Location: "https://host:port".
	LocationBase string
	// IgnoreRange makes the registry ignore the request's Range header.
	IgnoreRange bool

	met, used int
}

// Fail adds a fault.
func (r *Registry) Fail(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, &f)
}

// Heal removes all faults.
func (r *Registry) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
}

func (r *Registry) fault(req *http.Request) *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if !f.Match.matches(req) || (f.Times > 0 && f.used >= f.Times) {
			continue
		}
		if f.met++; f.met <= f.After {
			continue
		}
		f.used++
		return f
	}
	return nil
}

func (r *Registry) inject(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f := r.fault(req)
		if f == nil {
			next.ServeHTTP(w, req)
			return
		}
		f.happen(w, req, next)
	})
}

func (f *Fault) happen(w http.ResponseWriter, req *http.Request, next http.Handler) {
	f.hold(req)
	switch {
	case f.Reset && (f.BodyLimit == 0 || req.ContentLength > f.BodyLimit):
		reset(w)
	case f.ResetAfter > 0:
		req.Body = &breakingBody{ReadCloser: req.Body, left: f.ResetAfter, end: func() { reset(w) }}
		next.ServeHTTP(w, req)
	case f.Status != 0:
		f.answer(w)
	case f.RedirectTo != "":
		w.Header().Set("Location", f.RedirectTo+req.URL.RequestURI())
		w.WriteHeader(http.StatusTemporaryRedirect)
	case f.BodyLimit > 0 && (req.ContentLength > f.BodyLimit || req.ContentLength < 0):
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, "<html><h1>413 Request Entity Too Large</h1></html>")
	default:
		if f.IgnoreRange {
			req.Header.Del("Range")
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, req)
		f.spoil(w, answer)
	}
}

// hold reports the request on Seen, and holds it.
func (f *Fault) hold(req *http.Request) {
	if f.Seen != nil {
		select {
		case f.Seen <- req.Method + " " + req.URL.Path:
		default:
		}
	}
	if f.Wait == nil {
		return
	}
	select {
	case <-f.Wait:
	case <-req.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// breakingBody is a body whose connection breaks in the middle.
type breakingBody struct {
	io.ReadCloser
	left int64
	end  func()
}

func (b *breakingBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.end()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// reset ends a connection with a TCP reset.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 resets the stream
	}
	raw := conn
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		raw = t.NetConn()
	}
	if t, ok := raw.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = raw.Close()
}

func (f *Fault) answer(w http.ResponseWriter) {
	for k, v := range f.Header {
		w.Header().Set(k, v)
	}
	if f.Body == "" {
		refuse(w, f.Status, strings.ToUpper(strings.ReplaceAll(http.StatusText(f.Status), " ", "_")))
		return
	}
	w.WriteHeader(f.Status)
	_, _ = io.WriteString(w, f.Body)
}

// spoil passes on an altered answer.
func (f *Fault) spoil(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	h, body := w.Header(), answer.Body.Bytes()
	maps.Copy(h, answer.Header())
	if at, err := url.Parse(h.Get("Location")); err == nil && f.LocationBase != "" && at.Path != "" {
		h.Set("Location", f.LocationBase+at.RequestURI())
	}
	for k, v := range f.ReplaceHeader {
		if v == "" {
			h.Del(k)
		} else {
			h.Set(k, v)
		}
	}
	if f.Tamper && f.TamperAt < int64(len(body)) {
		body[f.TamperAt] ^= 0xff
	}
	w.WriteHeader(answer.Code)
	if cut := f.Cut; (cut > 0 || f.CutAtStart) && int64(len(body)) > cut {
		_, _ = w.Write(body[:cut])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}
