package vcenter

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/soap"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Trust is the rule by which the vCenter's certificate is accepted. The first of
// these that is given decides alone; the zero value is the system's roots.
type Trust struct {
	Insecure   bool   // accept any certificate
	Thumbprint string // accept exactly the certificate of this SHA-1 or SHA-256, as hex pairs with colons
	CA         []byte // PEM: accept certificates of these authorities, for the host's name
}

// config is the rule for a handshake with host. seen is told of the state of each
// connection that the rule accepted.
func (t Trust) config(host, address string, seen func(*tls.ConnectionState)) (*tls.Config, error) {
	roots, err := t.roots(address)
	if err != nil {
		return nil, err
	}
	verify := func(cs tls.ConnectionState) error {
		if err := t.verify(host, address, roots, cs.PeerCertificates); err != nil {
			return err
		}
		seen(&cs)
		return nil
	}
	return &tls.Config{
		ServerName:         host,
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection has the rule, for connections through a proxy too
		VerifyConnection:   verify,
	}, nil
}

// roots are the certificates given; nil stands for the system's.
func (t Trust) roots(address string) (*x509.CertPool, error) {
	if t.Insecure || t.Thumbprint != "" || t.CA == nil {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if err := addAll(pool, t.CA); err != nil {
		return nil, fault.Errorf(fault.InvalidInput, "read the CA certificates of", address,
			"put the PEM certificates, -----BEGIN CERTIFICATE-----, into the key that spec.ca names", "%w", err)
	}
	return pool, nil
}

// CheckCA tells what is wrong with the PEM certificates of authorities, as they are read for a
// connection.
func CheckCA(data []byte) error { return addAll(x509.NewCertPool(), data) }

// addAll is strict where x509's own loop is not: a damaged certificate is an error
// rather than a certificate less.
func addAll(pool *x509.CertPool, data []byte) error {
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("there is a %s among the certificates", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("certificate %d: %w", n+1, err)
		}
		pool.AddCert(cert)
		n++
	}
	if n == 0 {
		return errors.New("there is no PEM certificate in it")
	}
	return nil
}

func (t Trust) verify(host, address string, roots *x509.CertPool, chain []*x509.Certificate) error {
	switch {
	case len(chain) == 0:
		return certFault(address, errors.New("it serves no certificate"), "give the vCenter a certificate")
	case t.Insecure:
		return nil
	case t.Thumbprint != "":
		return matchThumbprint(address, t.Thumbprint, chain[0])
	}
	opts := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(opts); err != nil {
		return explain(host, address, chain[0], err)
	}
	return nil
}

func matchThumbprint(address, want string, leaf *x509.Certificate) error {
	one, two := soap.ThumbprintSHA1(leaf), soap.ThumbprintSHA256(leaf)
	if strings.EqualFold(want, one) || strings.EqualFold(want, two) {
		return nil
	}
	served := one
	if len(want) > len(one) {
		served = two
	}
	return certFault(address,
		fmt.Errorf("the thumbprint of its certificate is %s, not %s", served, strings.ToUpper(want)),
		"where the certificate was renewed, set spec.thumbprint to the new one after comparing it with what the vCenter itself shows")
}

// explain turns x509's refusal into a fault with its remedy.
func explain(host, address string, leaf *x509.Certificate, err error) error {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return wrongName(host, address, leaf)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return certFault(address,
			fmt.Errorf("its certificate is valid from %s to %s only", leaf.NotBefore.UTC().Format("2006-01-02"), leaf.NotAfter.UTC().Format("2006-01-02")),
			"renew the vCenter's certificate, or correct the clock of this machine")
	}
	one, two := soap.ThumbprintSHA1(leaf), soap.ThumbprintSHA256(leaf)
	untrusted := &UntrustedError{SHA1: one, SHA256: two, Issuer: leaf.Issuer.String()}
	return certFault(address, untrusted,
		"give the authority's certificate with spec.ca, or set spec.thumbprint after comparing it with what the vCenter itself shows")
}

// UntrustedError is the refusal of a certificate whose authority is not known here.
type UntrustedError struct{ SHA1, SHA256, Issuer string }

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("its certificate (SHA-1 %s, SHA-256 %s), issued by %q, is signed by an unknown authority",
		e.SHA1, e.SHA256, e.Issuer)
}

func wrongName(host, address string, leaf *x509.Certificate) error {
	names := namesOf(leaf)
	if len(names) == 0 {
		return certFault(address,
			fmt.Errorf("its certificate has no name at all, so not %s either", host),
			"reissue the vCenter's certificate with its fully qualified name, or set spec.thumbprint")
	}
	return certFault(address,
		fmt.Errorf("its certificate is for %s, not for %s", strings.Join(names, ", "), host),
		"set spec.vcIp to "+names[0])
}

// namesOf lists the names that the certificate is for, DNS names first.
func namesOf(leaf *x509.Certificate) []string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

func certFault(address string, err error, hint string) error {
	return &fault.Error{Reason: fault.CertificateInvalid, Op: "connect to", Subject: address, Err: err, Hint: hint}
}
