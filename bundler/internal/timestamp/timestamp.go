// Package timestamp requests time stamps for signatures from a time-stamping authority (RFC 3161,
// over HTTP or HTTPS).
//
//	u, err := timestamp.ParseURL("https://tsa.corp.example/stamp")
//	authority := timestamp.Authority{URL: u, Client: client}
//	signer = signer.WithTimestamps(func(s []byte) ([]byte, error) { return authority.Stamp(ctx, s) }, roots)
//
// The authority receives only the SHA-256 of the signature and a nonce. Its answer is bounded and
// must be a time stamp for this signature and this request; the package never passes on unchecked
// bytes. Most authorities use plain HTTP. The token is signed: the signer and every verifier detect
// changes on the way if they know the authority's roots.
package timestamp

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"

	rfc3161 "github.com/digitorus/timestamp"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

const (
	op        = "ask for a time stamp at"
	queryType = "application/timestamp-query"
	replyType = "application/timestamp-reply"
	nonceBits = 128

	wrong = "check the address, have the authority and the proxies before it checked, or use another one"
)

// Authority is a TSA client. It is safe for concurrent use.
type Authority struct {
	URL    *url.URL
	Client *remote.Client
}

// ParseURL parses the address of an authority.
func ParseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	bad := func(why, hint string) (*url.URL, error) {
		return nil, fault.Errorf(fault.InvalidInput, "use time-stamping authority", redacted(u), hint, "%s", why)
	}
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		u = nil // its text could hold a password
		return bad("it is not a URL of http or https", "write https://HOST/PATH, as the authority's operator gives it")
	case u.User != nil:
		return bad("there is a login in it, which other users of this machine can read", "use an address without a login")
	}
	return u, nil
}

func redacted(u *url.URL) string {
	if u == nil {
		return ""
	}
	out := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // a query may hold a secret
	return out.String()
}

// Stamp returns the authority's answer for a signature after checking it.
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

// request returns a request for a time stamp (RFC 3161 section 2.4.1) with the TSA's certificate.
func request(signature []byte) (query []byte, nonce *big.Int, err error) {
	if nonce, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), nonceBits)); err != nil {
		return nil, nil, err
	}
	digest := sha256.Sum256(signature)
	r := rfc3161.Request{HashAlgorithm: crypto.SHA256, HashedMessage: digest[:], Certificates: true, Nonce: nonce}
	query, err = r.Marshal()
	return query, nonce, err
}

func (a *Authority) fail(reason fault.Reason, hint, format string, args ...any) error {
	return fault.Errorf(reason, op, redacted(a.URL), hint, format, args...)
}

func (a *Authority) check(answer, signature []byte, nonce *big.Int) error {
	stamp, err := trust.CheckTimestamp(answer, signature, nil)
	if err != nil {
		return a.fail(fault.Corrupt, wrong, "its answer does not hold: %.300q", err.Error())
	}
	if stamp.Nonce == nil || stamp.Nonce.Cmp(nonce) != 0 {
		return a.fail(fault.Corrupt, wrong, "its answer is to another request: the nonce is not the one that was sent")
	}
	return nil
}

func (a *Authority) ask(ctx context.Context, query []byte) ([]byte, error) {
	q := remote.Request{
		Method: http.MethodPost, URL: a.URL, Size: int64(len(query)), OK: []int{200, 201}, // 201: sigstore's authority
		Header: map[string]string{"Content-Type": queryType, "Accept": replyType},
		Body:   func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(query)), nil },
	}
	answer, err := a.Client.Web(ctx, op, q, trust.MaxTimestamp+1, "use another authority")
	if err != nil {
		return nil, err
	}
	return answer.Data, nil // check rejects a truncated answer as too long
}
