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
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// Explain turns an error of a request into a fault, see [remote.Explainer]. Nothing of
// it but what is known to be harmless is kept: the text of a registry's answer, or an
// URL with its query, may hold credentials.
func (m *Mirror) Explain(op, subject string, err error) error {
	f := &fault.Error{Op: op, Subject: subject}
	var answered *remote.AnswerError
	if !errors.As(err, &answered) {
		f.Reason, f.Hint, f.Err = m.ofNetwork(err)
		return f
	}
	text := fmt.Sprintf("the registry answered %d %s", answered.Status, http.StatusText(answered.Status))
	if i := slices.IndexFunc(answered.Codes, codeForm.MatchString); i >= 0 {
		text += " (" + answered.Codes[i] + ")"
	}
	f.Reason, f.Hint = m.ofStatus(answered.Status)
	f.Err = errors.New(text)
	return f
}

var codeForm = regexp.MustCompile(`^[A-Z_]{1,40}$`)

// ofStatus says what a status means here and what to do about it.
func (m *Mirror) ofStatus(status int) (fault.Reason, string) {
	switch {
	case status == http.StatusUnauthorized && m.anonymous:
		return fault.Unauthorized, fmt.Sprintf("the registry wants a login: put one for %s into the Secret %s", m.ref.Host(), m.secret)
	case status == http.StatusUnauthorized:
		return fault.Unauthorized, fmt.Sprintf("correct the login for %s in the Secret %s", m.ref.Host(), m.secret)
	case status == http.StatusForbidden:
		return fault.Forbidden, fmt.Sprintf("let the account of the Secret %s pull from %s", m.secret, m.ref.Repository())
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
		return fault.Refused, "give the mirror a certificate, or start the operator with --plain-http " + m.ref.Host(),
			errors.New("it speaks plain HTTP, which is refused")
	case errors.Is(err, remote.ErrLinkLocal), errors.Is(err, remote.ErrThisMachine):
		return fault.Refused, "let the registry serve its blobs itself, or from a name of the site", err
	case errors.Is(err, context.Canceled):
		return fault.Interrupted, "", context.Canceled
	case errors.As(err, &dns):
		why := errors.New("its name does not resolve: " + dns.Err)
		return fault.Unreachable, "check the name and the cluster's DNS" + again, why
	}
	return fault.Unreachable, "check the mirror and the network to it" + again, bare(err)
}

// bare returns the innermost cause without the URLs around it.
func bare(err error) error {
	var op *net.OpError
	var late interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, remote.ErrStalled),
		errors.As(err, &late) && late.Timeout():
		return errors.New("it does not answer in time")
	case errors.As(err, &op):
		return op
	}
	var u *url.Error
	for errors.As(err, &u) {
		err = u.Err
	}
	text, _, _ := strings.Cut(err.Error(), "?")
	return errors.New(text[:min(len(text), 200)])
}
