package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// AnswerError is a registry's answer with an error status.
type AnswerError struct {
	Method string
	Where  string // scheme, host and path; no query, which may hold signatures and tokens
	Status int
	Codes  []string      // of the OCI error document
	Detail string        // its first message
	After  time.Duration // Retry-After
	scoped bool          // 401 because the login is valid but lacks this right
	login  string        // as [Credential.String] names it; "" for none
	text   string
}

// Error names the request, the status and what the registry answered.
func (e *AnswerError) Error() string {
	s := fmt.Sprintf("%s %s: %d %s", e.Method, e.Where, e.Status, http.StatusText(e.Status))
	if len(e.Codes) > 0 {
		s += ": " + strings.Join(e.Codes, ", ")
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// later says when to try again.
func (e *AnswerError) later() string {
	if e.After == 0 {
		return " later"
	}
	return fmt.Sprintf(" in %s, as the server demands", e.After.Round(time.Second))
}

// Has reports whether the registry gave this code.
func (e *AnswerError) Has(code string) bool { return slices.Contains(e.Codes, code) }

// MaxErrorBody limits how much of an error answer is read, in bytes.
const MaxErrorBody = 64 << 10

// answer returns an answer as an error, and doubts a refused password. It reads the body and does not close it.
func (h *Host) answer(resp *http.Response) error {
	ch := pickChallenge(resp.Header)
	e := &AnswerError{
		Method: resp.Request.Method, Status: resp.StatusCode,
		Where:  resp.Request.URL.Scheme + "://" + resp.Request.URL.Host + resp.Request.URL.Path,
		After:  parseRetryAfter(resp.Header),
		scoped: ch.params["error"] == "insufficient_scope",
	}
	sent := resp.Request.Header.Get("Authorization")
	e.login = h.sender(sent)
	if strings.HasPrefix(sent, "Basic ") && e.Status == http.StatusUnauthorized && ch.scheme != "bearer" {
		h.doubt(sent, e)
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, MaxErrorBody)) // a truncated body is enough
	e.text = string(body)
	var doc struct {
		Errors []struct{ Code, Message string }
	}
	if json.Unmarshal(body, &doc) != nil {
		return e
	}
	for i, d := range doc.Errors {
		if i < 3 && d.Code != "" {
			e.Codes = append(e.Codes, Clean(h.scrub(d.Code), 40))
		}
		if e.Detail == "" {
			e.Detail = Clean(h.scrub(d.Message), 200)
		}
	}
	return e
}

// Clean makes a server's text fit for a message: one printable line of at most limit bytes.
func Clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// parseRetryAfter parses seconds or an HTTP date; it returns 0 if there is none.
func parseRetryAfter(h http.Header) time.Duration {
	s := h.Get("Retry-After")
	if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	t, err := http.ParseTime(s)
	now, errDate := http.ParseTime(h.Get("Date")) // the clock here may differ
	if err == nil && errDate == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// CanPassStatus reports whether the same request may succeed a moment later.
func CanPassStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// CanPass reports whether the same attempt may succeed soon. A fault cannot: it was retried, or is of a blob's source.
func CanPass(err error) bool {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return false
	}
	if a, ok := errors.AsType[*AnswerError](err); ok {
		return CanPassStatus(a.Status)
	}
	var n *net.OpError
	isTimeout := errors.As(err, &n) && n.Timeout()
	if errors.Is(err, errTooLong) || errors.Is(err, ErrLinkLocal) || errors.Is(err, ErrThisMachine) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !isTimeout {
		return false
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return false
	}
	return !IsCertificate(err) && !WantsCertificate(err) && !isSchemeMismatch(err) && !isMalformed(err)
}

// IsCertificate reports whether the client rejected the other side's certificate.
func IsCertificate(err error) bool {
	var v *tls.CertificateVerificationError
	return errors.As(err, &v)
}

// WantsCertificate reports whether the host refused or missed our certificate; crypto/tls has no type for it. Nginx
// answers with a page.
func WantsCertificate(err error) bool {
	if a, ok := errors.AsType[*AnswerError](err); ok && a.Status == http.StatusBadRequest {
		const missed, refused = "No required SSL certificate was sent", "SSL certificate error"
		return strings.Contains(a.text, missed) || strings.Contains(a.text, refused)
	}
	var n *net.OpError
	isAlert := errors.As(err, &n) && n.Op == "remote error" && n.Err != nil
	return isAlert && strings.Contains(n.Err.Error(), "certificate")
}

func isSchemeMismatch(err error) bool {
	var record tls.RecordHeaderError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record)
}

// isMalformed reports whether the answer is not HTTP; net/http has no type for it.
func isMalformed(err error) bool { return strings.Contains(err.Error(), "malformed HTTP") }

// isProxy reports whether the proxy, not the host, was unreachable.
func isProxy(err error) bool {
	var n *net.OpError
	return errors.As(err, &n) && n.Op == "proxyconnect"
}

// Explain turns the error that ended an operation into a fault.
func (c *Client) Explain(ctx context.Context, h *Host, op, subject string, err error) error {
	var f *fault.Error
	if ctx.Err() == nil && errors.As(err, &f) {
		if f.Op != "" {
			return err
		}
		return h.discreet(&fault.Error{Reason: f.Reason, Op: op, Subject: subject, Hint: f.Hint, Err: f.Err})
	}
	if c.opts.Explain != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return c.opts.Explain(op, subject, err)
	}
	if ctx.Err() != nil {
		return &fault.Error{Reason: fault.Interrupted, Op: op, Subject: subject, Hint: "run it again: it goes on where it stopped", Err: context.Cause(ctx)}
	}
	out := &fault.Error{Op: op, Subject: subject, Err: err}
	var a *AnswerError
	var other *url.Error // of a host that the registry named
	at := h
	if errors.As(err, &a) {
		if u, err := url.Parse(a.Where); err == nil && u.Host != "" && u.Host != h.base.Host {
			at = c.Host(u.Host)
		}
	} else if errors.As(err, &other) {
		at = c.Host(other.URL)
	}
	switch {
	case at != h && (WantsCertificate(err) || isSchemeMismatch(err)):
		out.Reason = fault.CertificateInvalid
		out.Hint = "ask the administrator of " + h.name + " about " + at.name + ": it has to speak HTTPS, and gets no certificate"
	case a != nil:
		c.explainAnswer(h, at, out, a)
	default:
		c.explainNetwork(at, out, err)
	}
	return h.discreet(out)
}

// discreet removes secrets from a fault's error.
func (h *Host) discreet(f *fault.Error) error {
	if text := h.scrub(f.Err.Error()); text != f.Err.Error() {
		f.Err = errors.New(text)
	}
	return f
}

// explainAnswer sets the reason and the hint for a status of a host that the registry named, or its own.
func (c *Client) explainAnswer(h, at *Host, out *fault.Error, a *AnswerError) {
	switch {
	case out.Op == opLogin && (a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden):
		out.Reason, out.Hint = fault.Unauthorized, "check the user and the password"
	case a.Status == http.StatusProxyAuthRequired:
		out.Reason, out.Hint = fault.Unauthorized, "give the login of the proxy: HTTPS_PROXY=http://USER:PASSWORD@PROXY:PORT, or HTTP_PROXY for a registry without TLS"
	case isQuota(a):
		out.Reason, out.Hint = fault.Storage, "have the quota raised, or delete bundles with `vdo-bundle prune`, and run it again"
	case a.Status == http.StatusUnauthorized && (!a.scoped || !h.hasLogin()):
		out.Reason, out.Hint = fault.Unauthorized, c.loginHint(h, a.login)
		if a.login != "" {
			out.Err = fmt.Errorf("%s refuses a request with %s: %w", h.name, a.login, a)
		}
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		out.Reason, out.Hint = fault.Forbidden, "ask the registry's administrator for the permission, or log in as another user: "+c.loginHint(h, a.login)
	case a.Method == http.MethodPut && (a.Has("MANIFEST_BLOB_UNKNOWN") || a.Has("MANIFEST_UNKNOWN") || a.Has("BLOB_UNKNOWN")):
		out.Reason, out.Hint = fault.Incomplete, "push it again: a push sends only missing parts"
	case a.Status == http.StatusNotFound && a.Method == http.MethodPost:
		out.Reason = fault.NotFound
		out.Hint = "create the repository, which this registry does not do itself: `push --print-repositories` lists all"
	case a.Status == http.StatusNotFound:
		out.Reason, out.Hint = fault.NotFound, "check the name, the tag and the digest"
	case a.Has("DIGEST_INVALID"):
		out.Reason, out.Hint = fault.Corrupt, "pull or verify the source again: its content is not what its digest says"
	case a.Status == http.StatusMethodNotAllowed:
		out.Reason, out.Hint = fault.Refused, "the registry is read-only (as `vdo-bundle serve` is), or does not know this kind of content: name one that can be written to, or ask its administrator"
	case a.Status == http.StatusRequestEntityTooLarge:
		out.Reason, out.Hint = fault.Refused, "raise the body limit of the proxy in front of "+h.name+" (nginx: client_max_body_size 0)"
	case a.Method == http.MethodPut && strings.Contains(a.Where, "/manifests/") &&
		(a.Status == http.StatusConflict || a.Status == http.StatusPreconditionFailed):
		out.Reason, out.Hint = fault.Refused, "choose another tag, or except this one from the registry's immutable tags"
	case a.Status == http.StatusTooManyRequests:
		out.Reason, out.Hint = fault.Throttled, "try again"+a.later()+", with a smaller --concurrency, or log in: "+c.loginHint(h, a.login)
	case a.Status == http.StatusBadRequest && isPlainToTLS(a):
		out.Reason, out.Hint = fault.InvalidInput, h.name+" speaks HTTPS: leave out --plain-http "+h.name
	case WantsCertificate(a):
		out.Reason, out.Hint = fault.CertificateInvalid, h.name+asksForCertificate
	case a.Status >= 500:
		out.Reason, out.Hint = fault.Unreachable, "look at the logs of "+at.name+", and try again"+a.later()
	default:
		out.Reason, out.Hint = fault.Refused, "the registry does not accept the request: look at its logs"
	}
}

// overQuota matches how Harbor, Quay and others refuse to store more; they have no code for it.
var overQuota = regexp.MustCompile(`(?i)quota (has been |is )?exceeded|exceeds? .*quota|will exceed|storage limit`)

func isQuota(a *AnswerError) bool {
	isRefused := a.Status == http.StatusForbidden || a.Status == http.StatusRequestEntityTooLarge
	isWrite := a.Method == http.MethodPut || a.Method == http.MethodPost || a.Method == http.MethodPatch
	return isRefused && isWrite && overQuota.MatchString(a.Detail)
}

const asksForCertificate = " asks for a certificate that it trusts: pass --client-cert and --client-key"

// certificateHint returns the remedy for a certificate that the client rejected.
func certificateHint(host string, err error) string {
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	_, isOtherName := errors.AsType[x509.HostnameError](err)
	inPlace := ", or for a proxy that answers in its place"
	if isProxy(err) {
		host, inPlace = "the proxy", ""
	}
	switch {
	case isOtherName:
		return "use a name that is in the certificate, or have one issued for " + host
	case invalid.Cert != nil && invalid.Reason == x509.Expired:
		return "have the certificate of " + host + " renewed, or correct this machine's clock"
	}
	return "pass --ca-file with the certificate of the CA that signed for " + host + inPlace
}

// loginHint returns the remedy for a login, as [Credential.String] names it, that does not suffice.
func (c *Client) loginHint(h *Host, used string) string {
	if _, entry, ok := strings.Cut(used, " from "+ofEntry); ok {
		return "correct or remove " + ofEntry + entry
	}
	return fmt.Sprintf("`vdo-bundle login %s -u USER%s`", h.name, c.opts.LoginFlags)
}

// isPlainToTLS reports whether a server's answer says that it wants TLS.
func isPlainToTLS(a *AnswerError) bool {
	text := strings.ToLower(a.text)
	return strings.HasPrefix(a.Where, "http://") && strings.Contains(text, "http request") && strings.Contains(text, "https")
}

// explainNetwork sets the reason and the hint if there was no answer.
func (c *Client) explainNetwork(h *Host, out *fault.Error, err error) {
	plain := h.base.Scheme == "http"
	out.Reason = fault.Unreachable
	switch {
	case isProxy(err) && !IsCertificate(err):
		out.Hint = proxyHint + h.name
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		out.Reason, out.Hint = fault.Storage, "allow more open files (ulimit -n), or do less at a time (--concurrency), and run it again"
	case errors.Is(err, ErrLinkLocal), errors.Is(err, ErrThisMachine):
		out.Reason, out.Hint = fault.Refused, "ask the registry's administrator where it sends its clients"
	case errors.Is(err, errTooLong):
		out.Reason, out.Hint = fault.Corrupt, "check that "+h.name+" is a registry"
	case IsCertificate(err):
		out.Reason = fault.CertificateInvalid
		out.Hint = certificateHint(h.name, err) + c.otherPort(h)
	case WantsCertificate(err):
		out.Reason, out.Hint = fault.CertificateInvalid, h.name+asksForCertificate
	case isSchemeMismatch(err) && !plain:
		out.Reason, out.Hint = fault.InvalidInput, h.name+" does not speak HTTPS: if that is right, pass --plain-http "+h.name+c.otherPort(h)
	case isMalformed(err) && plain:
		out.Reason, out.Hint = fault.InvalidInput, h.name+" may speak HTTPS: leave out --plain-http "+h.name
	case isMalformed(err):
		out.Hint = "check that " + h.name + " is a registry"
	case c.isProxied(h): // a connection that it cuts looks like one that the host cuts
		out.Hint = proxyHint + h.name
	default:
		out.Hint = "check the name, the port, DNS and the network to " + h.name + ", and run it again"
	}
}

func (c *Client) isProxied(h *Host) bool {
	find := c.transport(h.base.Host, false).Proxy
	if find == nil {
		return false
	}
	proxy, err := find(&http.Request{URL: h.base})
	return err == nil && proxy != nil
}

const proxyHint = "check the proxy that HTTPS_PROXY or HTTP_PROXY names, or except the host with NO_PROXY="

// otherPort says that a flag or a file names the host without its port or with another, or returns "".
func (c *Client) otherPort(h *Host) string {
	if _, ok := c.opts.Hosts[h.name]; !ok {
		for _, name := range slices.Sorted(maps.Keys(c.opts.Hosts)) {
			if (&url.URL{Host: name}).Hostname() == h.base.Hostname() {
				return "; settings of " + name + " do not apply to " + h.name
			}
		}
	}
	return ""
}
