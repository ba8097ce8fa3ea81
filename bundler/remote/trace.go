package remote

import (
	"errors"
	"net"
	"net/http"
	"time"
)

// Exchange is one request and how it ended, without anything that may be secret: no
// header, no body, no query, no login of a URL; of a host that a server named, which may
// be led to by a signed address, no path either.
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
	x := Exchange{Method: req.Method, Target: req.URL.Scheme + "://" + req.URL.Host + req.URL.Path, Took: time.Since(started)}
	if c.isForeign(t) {
		x.Target = req.URL.Scheme + "://" + req.URL.Host + "/…"
	}
	if err != nil {
		x.Err = harmless(err)
	} else {
		x.Status = resp.StatusCode
	}
	c.opts.Trace(x)
	return resp, err
}

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
