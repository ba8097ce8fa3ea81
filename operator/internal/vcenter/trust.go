package vcenter

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/vmware/govmomi/vim25/soap"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Trust is the rule for the vCenter's certificate. The first field that is set decides alone; the zero value trusts
// the system's roots.
type Trust struct {
	Thumbprint string // accept exactly the certificate of this SHA-1 or SHA-256, as hex pairs with colons
	Insecure   bool   // accept any certificate
	CA         []byte // PEM: accept certificates of these CAs, for the host's name
}

// config returns the rule for a handshake with host. It calls seen with the state of each accepted connection.
func (t Trust) config(host string, seen func(*tls.ConnectionState)) (*tls.Config, error) {
	var roots *x509.CertPool // nil means the system's
	if !t.Insecure && t.Thumbprint == "" && t.CA != nil {
		var err error
		if roots, err = authorities(t.CA); err != nil {
			return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read the CA certificates of", Err: err,
				Hint: "put the PEM certificates, -----BEGIN CERTIFICATE-----, into the key that spec.ca names"}
		}
	}
	return &tls.Config{
		ServerName:         host,
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection has the rule, for connections through a proxy too
		VerifyConnection: func(cs tls.ConnectionState) error {
			if hint, err := t.verify(host, roots, cs.PeerCertificates); err != nil {
				return &fault.Error{Reason: fault.CertificateInvalid, Err: err, Hint: hint}
			}
			seen(&cs)
			return nil
		},
	}, nil
}

// CheckCA returns why PEM certificates of CAs cannot be used, read as for a connection.
func CheckCA(data []byte) error {
	_, err := authorities(data)
	return err
}

func authorities(data []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("there is no PEM certificate in it")
	}
	return pool, nil
}

func (t Trust) verify(host string, roots *x509.CertPool, chain []*x509.Certificate) (hint string, err error) {
	leaf := chain[0] // a client's handshake fails earlier without one
	one, two := soap.ThumbprintSHA1(leaf), soap.ThumbprintSHA256(leaf)
	if t.Thumbprint != "" {
		if strings.EqualFold(t.Thumbprint, one) || strings.EqualFold(t.Thumbprint, two) {
			return "", nil
		}
		return "where the certificate was renewed, set spec.thumbprint to the new one after comparing it with what the vCenter itself shows",
			fmt.Errorf("the thumbprint of its certificate is %s (SHA-256 %s), not %s", one, two, strings.ToUpper(t.Thumbprint))
	}
	if t.Insecure {
		return "", nil
	}
	opts := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err = leaf.Verify(opts)
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &name):
		return "set spec.vcIp to a name of the certificate, or spec.thumbprint; or reissue it with the vCenter's fully qualified name", err
	case errors.As(err, &invalid):
		return "renew the vCenter's certificate, or correct the clock of this machine", err
	}
	return "spec.ca has to be that CA: `vdoctl configure --vcenter NAME --vcenter-ca-file CA`, with -o FILE for a file; or set spec.thumbprint after comparing it with what the vCenter itself shows",
		&UntrustedError{SHA1: one, SHA256: two, Issuer: leaf.Issuer.String()}
}

// UntrustedError is the refusal of a certificate of an unknown CA.
type UntrustedError struct{ SHA1, SHA256, Issuer string }

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("its certificate (SHA-1 %s, SHA-256 %s), issued by %q, is signed by an unknown CA",
		e.SHA1, e.SHA256, e.Issuer)
}
