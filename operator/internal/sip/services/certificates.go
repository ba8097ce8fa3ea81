package services

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
)

// How long certificates count. A leaf is renewed after two thirds of its life, an
// authority that was made here before a leaf could outlive it.
const (
	leafLife      = 90 * 24 * time.Hour
	authorityLife = 10 * 365 * 24 * time.Hour
	skew          = 5 * time.Minute // a node's clock may be behind
)

// issued is a certificate with its private key.
type issued struct {
	certificate.Issued
	pem Secret // tls.crt, with nothing but certificates; tls.key; of a leaf also ca.crt, which clients trust
}

// readIssued reads a certificate that is valid now, and its private key.
func (r *rendering) readIssued(data Secret) (issued, error) {
	cert, key, err := certificate.Pair(data[tlsCert], data[tlsKey])
	if err == nil && (r.in.Now.Before(cert.NotBefore) || !r.in.Now.Before(cert.NotAfter)) {
		err = fmt.Errorf("its certificate is valid from %s to %s: renew it",
			cert.NotBefore.UTC().Format(time.DateOnly), cert.NotAfter.UTC().Format(time.DateOnly))
	}
	return issued{certificate.Issued{Cert: cert, Key: key}, data}, err
}

// issue issues a certificate. Without who signs, it is self-signed.
func (r *rendering) issue(template *x509.Certificate, life time.Duration, by *certificate.Issued) (issued, error) {
	now := r.in.Now.UTC()
	template.NotBefore, template.NotAfter = now.Add(-skew).Truncate(time.Second), now.Add(life).Truncate(time.Second)
	if by != nil && template.NotAfter.After(by.Cert.NotAfter) { // it does not outlive its authority
		template.NotAfter = by.Cert.NotAfter
	}
	made, err := certificate.Issue(template, by, rand.Reader)
	if err != nil {
		return issued{}, err
	}
	keyPEM, err := certificate.EncodeKey(made.Key)
	return issued{made, Secret{tlsCert: certificate.Encode(made.Cert.Raw), tlsKey: keyPEM}}, err
}

// ownAuthority is the one that is kept, or a new one. It is made once: the tenant's API
// server is given it to trust, so that it has to outlive the certificates it issues.
func (r *rendering) ownAuthority() (issued, error) {
	own, err := r.readIssued(r.in.Kept[r.name+suffixCA])
	if err == nil && own.Cert.IsCA && r.in.Now.Add(leafLife).Before(own.Cert.NotAfter) {
		return own, nil
	}
	own, err = r.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "sip-login-ca " + r.in.Cluster.String()},
		IsCA:    true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}, authorityLife, nil)
	if err != nil {
		return issued{}, r.defect(err)
	}
	return own, nil
}

// authority is that of a Secret's content.
func (r *rendering) authority(data Secret) (issued, error) {
	const field = ".caSecret"
	by, err := r.readIssued(data)
	switch {
	case err != nil:
		return issued{}, r.wrong(field, err.Error(), "write the authority's certificate alone into tls.crt and its private key into tls.key, PEM both, unencrypted")
	case !by.Cert.IsCA || by.Cert.KeyUsage != 0 && by.Cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return issued{}, r.wrong(field, "its certificate is not that of an authority", "write one that may issue others, or leave caSecret out")
	}
	public, err := certificate.Public(data[tlsCert])
	by.pem = Secret{tlsCert: public}
	return by, err
}

// leaf is the certificate that is kept while it serves that host and is the authority's,
// or a new one. Clients need the authority's certificates to get to a root, unless it is one.
func (r *rendering) leaf(by issued, host string) (issued, error) {
	trusted := by.pem[tlsCert]
	kept, err := r.readIssued(r.in.Kept[r.name+suffixTLS])
	if err == nil && r.in.Now.Before(kept.renewAt()) && kept.Cert.VerifyHostname(host) == nil &&
		kept.Cert.CheckSignatureFrom(by.Cert) == nil && bytes.Equal(kept.pem[balancerCA], trusted) {
		return kept, nil
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: r.name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	made, err := r.issue(template, leafLife, &by.Issued)
	if err != nil {
		return issued{}, r.defect(err)
	}
	if !bytes.Equal(by.Cert.RawSubject, by.Cert.RawIssuer) {
		made.pem[tlsCert] = append(made.pem[tlsCert], trusted...)
	}
	made.pem[balancerCA] = trusted
	return made, nil
}

// renewAt is when two thirds of a certificate's life are over.
func (i issued) renewAt() time.Time {
	return i.Cert.NotBefore.Add(i.Cert.NotAfter.Sub(i.Cert.NotBefore) * 2 / 3)
}
