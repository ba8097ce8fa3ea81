package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// errPlainHTTP refuses a request that would go over the network in the clear.
var errPlainHTTP = errors.New("plain HTTP is refused")

// statusError is an answer of the registry with a status that is no success.
type statusError struct {
	status int
	code   string // of the registry's error answer: "UNAUTHORIZED", or ""
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the registry answered %d %s", e.status, http.StatusText(e.status))
	if e.code != "" {
		text += " (" + e.code + ")"
	}
	return text
}

func statusOf(err error) int {
	var e *statusError
	if errors.As(err, &e) {
		return e.status
	}
	return 0
}

// classify turns an error of a request into a fault. Nothing of it but what is
// known to be harmless is kept: the text of a registry's answer, or an URL with its
// query, may hold credentials.
func (m *Mirror) classify(op, what string, err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return err
	}
	f := &fault.Error{Op: op, Subject: what}
	var answered *transport.Error
	if errors.As(err, &answered) {
		err = &statusError{status: answered.StatusCode, code: codeOf(answered)}
	}
	if status := statusOf(err); status != 0 {
		f.Err = err
		f.Reason, f.Hint = m.ofStatus(status)
		return f
	}
	f.Reason, f.Hint, f.Err = m.ofNetwork(err)
	return f
}

var codeForm = regexp.MustCompile(`^[A-Z_]{1,40}$`)

func codeOf(e *transport.Error) string {
	for _, d := range e.Errors {
		if codeForm.MatchString(string(d.Code)) {
			return string(d.Code)
		}
	}
	return ""
}

// ofStatus says what a status means here and what to do about it.
func (m *Mirror) ofStatus(status int) (fault.Reason, string) {
	switch {
	case status == http.StatusUnauthorized && m.anonymous:
		return fault.Unauthorized, fmt.Sprintf("the registry wants a login: put one for %s into the Secret %s", m.repo.Host(), m.secret)
	case status == http.StatusUnauthorized:
		return fault.Unauthorized, fmt.Sprintf("correct the login for %s in the Secret %s", m.repo.Host(), m.secret)
	case status == http.StatusForbidden:
		return fault.Forbidden, fmt.Sprintf("let the account of the Secret %s pull from %s", m.secret, m.repo.Repository())
	case status == http.StatusNotFound:
		return fault.NotFound, "push the bundle there with `vdo-bundle push`, or correct spec.reference"
	case status == http.StatusTooManyRequests:
		return fault.Throttled, "it is tried again later; raise the registry's limit or spec.interval where this stays"
	case status >= http.StatusInternalServerError:
		return fault.Unreachable, "see the registry's log; it is tried again"
	}
	return fault.Unreachable, "is this the address of a registry? see spec.reference"
}

// ofNetwork says what an error below HTTP means.
func (m *Mirror) ofNetwork(err error) (fault.Reason, string, error) {
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		checked   *tls.CertificateVerificationError
		dns       *net.DNSError
		record    tls.RecordHeaderError
	)
	var trip *tripError
	if errors.As(err, &trip) {
		err = trip.err
	}
	const again = "; it is tried again"
	switch {
	case errors.As(err, &authority):
		return fault.CertificateInvalid, "put the certificate of the mirror's authority into the " + m.ca,
			errors.New("x509: its certificate is signed by an unknown authority")
	case errors.As(err, &hostname):
		return fault.CertificateInvalid, "use a name that the certificate is for, or issue another", hostname
	case errors.As(err, &invalid):
		return fault.CertificateInvalid, "renew the mirror's certificate", invalid
	case errors.As(err, &checked):
		return fault.CertificateInvalid, "renew the mirror's certificate", checked.Err
	case errors.As(err, &record) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fault.Refused, "give the mirror a certificate, or start the operator with --plain-http " + m.repo.Host(),
			errors.New("it speaks plain HTTP, which is refused")
	case errors.Is(err, errPlainHTTP):
		return fault.Refused, "let it use HTTPS throughout, or start the operator with --plain-http HOST", errPlainHTTP
	case errors.Is(err, errRedirect):
		return fault.Refused, "let the registry serve its blobs itself, or from a name of the site", errRedirect
	case errors.Is(err, context.Canceled):
		return fault.Interrupted, "", context.Canceled
	case errors.As(err, &dns):
		return fault.Unreachable, "check the name and the cluster's DNS" + again, errors.New("its name does not resolve: " + dns.Err)
	}
	return fault.Unreachable, "check the mirror and the network to it" + again, bare(err)
}

// bare returns the innermost cause without the URLs around it.
func bare(err error) error {
	var u *url.Error
	for errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("it does not answer in time")
	case errors.As(err, &op):
		return op
	}
	if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() { //nolint:errorlint // the cause itself is asked
		return errors.New("it does not answer in time")
	}
	text, _, _ := strings.Cut(err.Error(), "?")
	if len(text) > 200 {
		text = text[:200]
	}
	return errors.New(text)
}
