package redfish

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/stmcginnis/gofish/common"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

// Bounds of one call.
const (
	maxRequests = 20
	maxTimeouts = 4       // of one request each: how long a call may take, but for the logout
	maxAnswer   = 1 << 20 // bytes
	maxHeader   = 64 << 10
	maxWords    = 200 // characters of a controller's that a person sees
)

var (
	errElsewhere = errors.New("it leads to another address, which is not followed")
	errTooMany   = errors.New("it takes too many requests")
	errTooLarge  = errors.New("its answer is too large")
	errTooSlow   = errors.New("it takes too long over all")
)

func (c *Client) httpClient(endpoint string, bmc jumphost.BMCHost) (*http.Client, error) {
	at, err := url.Parse(endpoint)
	if err != nil {
		return nil, errors.New("the BMC's address cannot be understood")
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if len(c.CA) > 0 && !pool.AppendCertsFromPEM(c.CA) {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: jumphost.BMCCAFile, Err: errors.New("there is no certificate in it"),
			Hint: "give the PEM of the authority that issues the BMCs' certificates",
		}
	}
	t := &http.Transport{
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, InsecureSkipVerify: bmc.DisableCertificateVerification}, //nolint:gosec // as the BareMetalHost says
	}
	if c.Proxy != nil {
		t.Proxy = http.ProxyURL(c.Proxy)
	}
	timeout := cmp.Or(c.Timeout, defaultTimeout)
	return &http.Client{Transport: &guard{at: at, next: t, until: time.Now().Add(maxTimeouts * timeout)}, Timeout: timeout}, nil
}

// guard holds a controller to its own address, and bounds what it answers.
type guard struct {
	at       *url.URL
	next     *http.Transport
	until    time.Time
	requests atomic.Int32
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.URL.Scheme != g.at.Scheme || r.URL.Host != g.at.Host || r.URL.User != nil:
		return nil, errElsewhere
	case g.requests.Add(1) > maxRequests:
		return nil, errTooMany
	case r.Method != http.MethodDelete && time.Now().After(g.until):
		return nil, errTooSlow
	}
	answer, err := g.next.RoundTrip(r)
	if err == nil {
		answer.Body = &bounded{ReadCloser: answer.Body, left: maxAnswer}
	}
	return answer, err
}

// CloseIdleConnections lets the client's reach the transport.
func (g *guard) CloseIdleConnections() { g.next.CloseIdleConnections() }

type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// explain makes a fault of what went wrong, in words without the login.
func (c *Client) explain(host string, bmc jumphost.BMCHost, err error) error {
	var own *fault.Error
	if err == nil || errors.As(err, &own) {
		return err
	}
	f := &fault.Error{Reason: fault.Internal, Op: "speak with", Subject: "the BMC of " + host}
	f.Reason, f.Hint = kindOf(err, c.Proxy != nil)
	if f.Reason == fault.Unauthorized {
		c.wasRefused(bmc)
	}
	f.Err = errors.New(printable(c.withoutLogin(words(err), bmc)))
	return f
}

func kindOf(err error, proxied bool) (fault.Reason, string) {
	var answer *common.Error
	var certificate *tls.CertificateVerificationError
	var request *url.Error
	var network *net.OpError
	switch {
	case errors.As(err, &certificate):
		return fault.CertificateInvalid, "name a Secret with the authority of the BMC's certificate (ca.crt) in bmc.caSecret of the jump host, or have disableCertificateVerification set in the BareMetalHost's spec.bmc"
	case errors.As(err, &answer):
		return ofStatus(answer.HTTPReturnedStatusCode)
	case errors.Is(err, errElsewhere), errors.Is(err, errTooMany), errors.Is(err, errTooLarge):
		return fault.Corrupt, "see what answers at the BMC's address"
	case errors.Is(err, errTooSlow):
		return fault.Unreachable, "try again; if it stays, reset the BMC"
	case errors.Is(err, context.Canceled):
		return fault.Interrupted, "run the command again"
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.As(err, &request) && (proxied || request.Timeout()):
		return fault.Unreachable, "see whether the BMC is up, and reached from the management cluster, through bmc.proxy where that is needed"
	}
	return fault.Corrupt, "see whether a Redfish service answers at the BMC's address"
}

func ofStatus(status int) (fault.Reason, string) {
	switch {
	case status == http.StatusUnauthorized:
		return fault.Unauthorized, "correct the Secret that the BareMetalHost's spec.bmc names; this login is not tried again for some minutes"
	case status == http.StatusForbidden:
		return fault.Forbidden, "give the account of the BMC the right to power the system"
	case status == http.StatusNotFound:
		return fault.NotFound, "see whether the path in the BareMetalHost's spec.bmc.address is that of the system"
	case status == http.StatusTooManyRequests:
		return fault.Throttled, "try again later"
	case status >= http.StatusInternalServerError:
		return fault.Unreachable, "try again; if it stays, reset the BMC"
	}
	return fault.Refused, "see the BMC's own log"
}

// words is what a person sees of an error: of an answer its message, of a request what
// happened to it.
func words(err error) string {
	var answer *common.Error
	var request *url.Error
	switch {
	case errors.As(err, &answer):
		said := answer.Message
		if len(answer.ExtendedInfos) > 0 && answer.ExtendedInfos[0].Message != "" {
			said = answer.ExtendedInfos[0].Message
		}
		return strings.TrimSuffix(fmt.Sprintf("answers %d: %s", answer.HTTPReturnedStatusCode, said), ": ")
	case errors.As(err, &request):
		if request.Timeout() {
			return "does not answer in time"
		}
		return request.Err.Error()
	}
	return err.Error()
}

// withoutLogin is for a controller, or a proxy, that answers with what it was sent.
func (c *Client) withoutLogin(text string, bmc jumphost.BMCHost) string {
	secrets := []string{bmc.Password}
	if c.Proxy != nil {
		if password, ok := c.Proxy.User.Password(); ok {
			secrets = append(secrets, password)
		}
	}
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	return text
}

// printable is one short line that does nothing to a terminal.
func printable(s string) string {
	s = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return '?'
	}, s)), " ")
	if r := []rune(s); len(r) > maxWords {
		return string(r[:maxWords]) + "…"
	}
	return s
}
