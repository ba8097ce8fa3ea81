package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// Explain returns a fault for an error of a request, see [remote.Options]. It keeps only harmless parts: a
// registry's answer, or a URL with its query, may contain credentials.
func (m *Mirror) Explain(op, subject string, err error) error {
	f := &fault.Error{Op: op, Subject: subject}
	var answered *remote.AnswerError
	if errors.As(err, &answered) {
		f.Reason, f.Hint = m.ofStatus(answered.Status)
		f.Err = fmt.Errorf("the registry answered %d %s", answered.Status, http.StatusText(answered.Status))
		return f
	}
	f.Err = bare(err)
	var record tls.RecordHeaderError
	switch {
	case remote.IsCertificate(err):
		f.Reason = fault.CertificateInvalid
		f.Hint = "put the certificate of its CA into the " + m.ca + ", use a name that the certificate is for, or renew it"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		f.Reason, f.Err = fault.Refused, errors.New("it speaks plain HTTP, which is refused")
		f.Hint = "give the mirror a certificate, or start the operator with --plain-http " + m.ref.Host()
	case errors.Is(err, remote.ErrLinkLocal), errors.Is(err, remote.ErrThisMachine):
		f.Reason, f.Hint = fault.Refused, "let the registry serve its blobs itself, or from a name of the site"
	case errors.Is(err, context.Canceled):
		f.Reason = fault.Interrupted
	default:
		f.Reason, f.Hint = fault.Unreachable, "check the mirror, its name in the cluster's DNS, and the network to it"
	}
	return f
}

func (m *Mirror) ofStatus(status int) (fault.Reason, string) {
	switch {
	case status == http.StatusUnauthorized && m.anonymous:
		return fault.Unauthorized, fmt.Sprintf("the registry wants a login: put one for %s into the Secret %s", m.ref.Host(), m.secret)
	case status == http.StatusUnauthorized:
		return fault.Unauthorized, fmt.Sprintf("correct the login for %s in the Secret %s", m.ref.Host(), m.secret)
	case status == http.StatusForbidden:
		return fault.Forbidden, fmt.Sprintf("let the account of the Secret %s pull from %s", m.secret, m.ref.Repository())
	case status == http.StatusNotFound:
		return fault.NotFound, "push the bundle there with `vdo-bundle push`, or correct the reference"
	case status == http.StatusProxyAuthRequired:
		return fault.Unreachable, "put the login of the proxy into HTTPS_PROXY of the operator's Deployment"
	case status == http.StatusTooManyRequests:
		return fault.Throttled, "wait; raise the registry's limit or spec.interval where this stays"
	}
	return fault.Unreachable, "see the registry's log, and that spec.reference is the address of a registry"
}

// bare returns the innermost cause without URLs.
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
