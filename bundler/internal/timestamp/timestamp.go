// Package timestamp asks a time-stamping authority (RFC 3161, over HTTP or HTTPS) to
// say when a signature was made.
//
//	authority, err := timestamp.New(timestamp.Options{URL: "https://tsa.corp.example/stamp"})
//	signer = signer.WithTimestamps(func(s []byte) ([]byte, error) { return authority.Stamp(ctx, s) })
//
// The authority sees the SHA-256 of the signature and a nonce, nothing else. Its answer
// is bounded, and is a time stamp of this signature and of this request, or an error:
// nothing that a server sends is carried along unread. Plain HTTP is what most
// authorities speak; the token is signed, so that what is changed on the way is found
// where the authority's roots are known (Options.Roots, and at every verification).
package timestamp

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"
	"mime"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/retry"
)

// Options say which authority is asked, and how.
type Options struct {
	URL      string
	CA       *x509.CertPool       // for HTTPS; nil: the system's
	Roots    trust.TimestampRoots // whose time stamps are taken; none: those of anybody
	Timeout  time.Duration        // for one attempt; 0: 30 s
	Attempts int                  // how often a request is made that fails for a passing reason; 0: 3
	// UserAgent of the requests.
	UserAgent string
	// Sleep waits before another attempt. Nil: the clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

const (
	queryType = "application/timestamp-query"
	replyType = "application/timestamp-reply"
	nonceBits = 128
)

// Authority is a time-stamping authority. It is safe for concurrent use.
type Authority struct {
	o      Options
	url    *url.URL
	client *http.Client
}

// New returns an authority. Nothing is asked yet.
func New(o Options) (*Authority, error) {
	u, err := url.Parse(o.URL)
	bad := func(why, hint string) (*Authority, error) {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "use time-stamping authority", Subject: redacted(u), Err: errors.New(why), Hint: hint}
	}
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		u = nil // its text could hold a password
		return bad("it is not a URL of http or https", "write https://HOST/PATH, as the authority's operator gives it")
	case u.User != nil:
		return bad("there is a login in it, which other users of this machine can read", "use an address without a login")
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Attempts <= 0 {
		o.Attempts = 3
	}
	return &Authority{o: o, url: u, client: &http.Client{
		Timeout: o.Timeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: o.CA, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: o.Timeout, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Roots are those whose time stamps are taken; none: those of anybody.
func (a *Authority) Roots() trust.TimestampRoots { return a.o.Roots }

func redacted(u *url.URL) string {
	if u == nil {
		return ""
	}
	out := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // a query may hold a secret
	return out.String()
}

// Stamp returns the authority's answer for a signature, once it has been found good.
func (a *Authority) Stamp(ctx context.Context, signature []byte) ([]byte, error) {
	query, nonce, err := request(signature)
	if err != nil {
		return nil, fmt.Errorf("make a time-stamp request: %w", err)
	}
	answer, err := a.ask(ctx, query)
	if err != nil {
		return nil, err
	}
	if err := a.check(answer, signature, nonce); err != nil {
		return nil, err
	}
	return answer, nil
}

// request asks for a time stamp of a signature (RFC 3161 section 2.4.1), with the
// certificate of who gives it. The requests of sigstore's libraries have no nonce.
func request(signature []byte) (query []byte, nonce *big.Int, err error) {
	if nonce, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), nonceBits)); err != nil {
		return nil, nil, err
	}
	type imprint struct {
		Algorithm pkix.AlgorithmIdentifier
		Digest    []byte
	}
	digest := sha256.Sum256(signature)
	query, err = asn1.Marshal(struct {
		Version      int
		Imprint      imprint
		Nonce        *big.Int
		Certificates bool
	}{1, imprint{pkix.AlgorithmIdentifier{Algorithm: sha256OID, Parameters: asn1.NullRawValue}, digest[:]}, nonce, true})
	return query, nonce, err
}

var sha256OID = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}

func (a *Authority) fail(reason fault.Reason, hint, format string, args ...any) error {
	return &fault.Error{Reason: reason, Op: "ask for a time stamp at", Subject: redacted(a.url), Err: fmt.Errorf(format, args...), Hint: hint}
}

// check holds an answer against the question.
func (a *Authority) check(answer, signature []byte, nonce *big.Int) error {
	const wrong = "have the time-stamping authority and what lies before it (proxies) looked at, or use another one"
	stamp, err := trust.ParseTimestamp(answer, signature, trust.TimestampRoots{})
	if err != nil {
		return a.fail(fault.Corrupt, wrong, "its answer does not hold: %.300q", err.Error())
	}
	if stamp.Nonce == nil || stamp.Nonce.Cmp(nonce) != 0 {
		return a.fail(fault.Corrupt, wrong, "its answer is to another request: the nonce is not the one that was sent")
	}
	if _, err := trust.CheckTimestamp(answer, signature, a.o.Roots); err != nil {
		return a.fail(fault.Untrusted, "give the roots of this authority with --timestamp-roots, or ask the one that they are of",
			"its answer is not by an authority of the time-stamp roots (%.300q)", err.Error())
	}
	return nil
}

// ask sends a request, again where it failed for a reason that may pass.
func (a *Authority) ask(ctx context.Context, query []byte) ([]byte, error) {
	p := retry.Policy{Attempts: a.o.Attempts, Sleep: a.o.Sleep}
	return retry.Do(ctx, p, func() ([]byte, bool, error) { return a.try(ctx, query) })
}

// try makes one attempt; again says whether another one may succeed.
func (a *Authority) try(ctx context.Context, query []byte) (answer []byte, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url.String(), bytes.NewReader(query))
	if err != nil {
		return nil, false, a.fail(fault.InvalidInput, "correct the address", "%w", inner(err))
	}
	req.Header.Set("Content-Type", queryType)
	req.Header.Set("Accept", replyType)
	req.Header.Set("User-Agent", a.o.UserAgent)
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, ctx.Err() == nil && !isCertificate(err), a.unreached(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if err := a.refused(resp); err != nil {
		return nil, resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, err
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != replyType {
		return nil, false, a.fail(fault.Corrupt, "check the address: it is that of the service itself, not of a page about it, and that no proxy answers in its place",
			"it answered with %.60q, not with a time stamp (%s)", resp.Header.Get("Content-Type"), replyType)
	}
	answer, err = io.ReadAll(io.LimitReader(resp.Body, trust.MaxTimestamp+1))
	switch {
	case err != nil:
		return nil, ctx.Err() == nil, a.unreached(err)
	case len(answer) > trust.MaxTimestamp:
		return nil, false, a.fail(fault.Corrupt, "have the time-stamping authority looked at, or use another one", "its answer is longer than %d bytes", trust.MaxTimestamp)
	}
	return answer, false, nil
}

// refused explains a status that is no success.
func (a *Authority) refused(resp *http.Response) error {
	const address = "check the address with the authority's operator"
	status := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch code := resp.StatusCode; {
	case code == http.StatusOK || code == http.StatusCreated: // the second is what sigstore's authority says
		return nil
	case code >= 300 && code < 400:
		to, err := resp.Location()
		if err != nil {
			return a.fail(fault.Refused, address, "it answered %s", status)
		}
		return a.fail(fault.Refused, "give that address, if it is the authority's", "it sends on to %s, which is not followed", redacted(to))
	case code == http.StatusUnauthorized || code == http.StatusProxyAuthRequired:
		return a.fail(fault.Unauthorized, "use an authority, or a proxy, that asks for no login", "it answered %s", status)
	case code == http.StatusForbidden:
		return a.fail(fault.Forbidden, address, "it answered %s", status)
	case code == http.StatusNotFound:
		return a.fail(fault.NotFound, address, "it answered %s", status)
	case code == http.StatusTooManyRequests:
		return a.fail(fault.Throttled, "try again later, or use another authority", "it answered %s", status)
	case code >= 500:
		return a.fail(fault.Unreachable, "try again later, or use another authority", "it answered %s", status)
	default:
		return a.fail(fault.Refused, address, "it answered %s", status)
	}
}

// unreached explains why there is no answer.
func (a *Authority) unreached(err error) error {
	const hint = "check the address, the connection and the proxy settings"
	var dns *net.DNSError
	var late net.Error
	switch {
	case isCertificate(err):
		return a.fail(fault.CertificateInvalid, "give the certificate authority with --ca-file", "%w", inner(err))
	case errors.As(err, &dns):
		return a.fail(fault.Unreachable, hint, "%w", dns)
	case errors.As(err, &late) && late.Timeout():
		return a.fail(fault.Unreachable, hint, "there was no whole answer within %s", a.o.Timeout)
	}
	return a.fail(fault.Unreachable, hint, "%w", inner(err))
}

func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}

// inner drops the method and the URL, which may hold a secret, and which the fault
// names already.
func inner(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
