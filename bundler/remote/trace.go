package remote

import (
	"errors"
	"net"
	"net/http"
	"regexp"
	"time"
)

// Exchange is one request and how it ended, without anything that may be secret: no
// header, no body, no query, no login of a URL; and of the paths only those that this
// package makes itself: where a server leads, on another host or its own, the address
// may be signed, or hold what drives a terminal.
type Exchange struct {
	Method string
	Target string        // https://HOST/PATH
	Status int           // 0 where there was no answer
	Err    string        // why there was none
	Took   time.Duration // until the answer's headers
}

// trace carries a request, and tells Options.Trace of it.
func (c *Client) trace(t http.RoundTripper, req *http.Request) (*http.Response, error) {
	if c.opts.Trace == nil {
		return t.RoundTrip(req)
	}
	started := time.Now()
	resp, err := t.RoundTrip(req)
	x := Exchange{Method: req.Method, Target: req.URL.Scheme + "://" + req.URL.Host + "/…", Took: time.Since(started)}
	if shown := ours.FindStringSubmatch(req.URL.EscapedPath()); shown != nil && !c.isForeign(t) {
		x.Target = req.URL.Scheme + "://" + req.URL.Host + shown[1]
		if shown[1] != req.URL.EscapedPath() {
			x.Target += "…" // the name of an upload, which the server chose
		}
	}
	if err != nil {
		x.Err = harmless(err)
	} else {
		x.Status = resp.StatusCode
	}
	c.opts.Trace(x)
	return resp, err
}

// ours are the paths of the distribution specification that requests begin with.
var ours = regexp.MustCompile(`^(/v2/(?:(?:_catalog|[a-z0-9._/-]+/(?:manifests/(?:` + digestForm + `|` + tagForm + `)|blobs/` + digestForm +
	`|blobs/uploads/|tags/list|referrers/` + digestForm + `))?)?)(?:$|[^/]+$)`)

const (
	digestForm = `[a-z0-9+._-]{1,32}:[0-9a-f]{32,128}`
	tagForm    = `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}`
)

func (c *Client) isForeign(t http.RoundTripper) bool {
	if t == c.foreign {
		return true
	}
	for _, n := range c.named {
		if t == n.foreign {
			return true
		}
	}
	return false
}

// harmless is the text of an error that quotes nothing that a server has sent: it could
// repeat a secret.
func harmless(err error) string {
	var op *net.OpError
	switch {
	case errors.As(err, &op):
		return op.Error()
	case IsCertificate(err):
		return "its certificate is not trusted"
	}
	return "no answer"
}
