package services

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
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

// issued is a certificate that was made here, with its key.
type issued struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  Secret // tls.crt, tls.key
}

// issue signs a certificate for a new key. Without who signs, it is self-signed.
func (r *rendering) issue(template *x509.Certificate, by *signer) (issued, error) {
	key, err := certificate.NewKey(r.in.Rand)
	if err != nil {
		return issued{}, err
	}
	if by == nil {
		by = &signer{cert: template, key: key}
	}
	der, err := certificate.Sign(template, by.cert, key.Public(), by.key, r.in.Rand)
	if err != nil {
		return issued{}, err
	}
	keyPEM, err := certificate.EncodeKey(key)
	if err != nil {
		return issued{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return issued{cert, key, Secret{tlsCert: certificate.Encode(der), tlsKey: keyPEM}}, err
}

// ownAuthority is the one that is kept, or a new one.
func (r *rendering) ownAuthority() (signer, error) {
	kept := r.in.Kept[r.w.name+suffixCA]
	cert, key, err := certificate.Pair(kept[tlsCert], kept[tlsKey])
	if err == nil && cert.IsCA && r.counts(cert) && r.in.Now.Add(leafLife).Before(cert.NotAfter) {
		public := certificate.Encode(cert.Raw) // what is kept could have more in it
		return signer{trusted: public, cert: cert, key: key, made: Secret{tlsCert: public, tlsKey: kept[tlsKey]}}, nil
	}
	template := r.template("sip-login-ca "+r.in.Cluster.String(), authorityLife)
	template.IsCA, template.MaxPathLenZero, template.KeyUsage = true, true, x509.KeyUsageCertSign
	own, err := r.issue(template, nil)
	if err != nil {
		return signer{}, r.defect(err)
	}
	return signer{trusted: own.pem[tlsCert], cert: own.cert, key: own.key, made: own.pem}, nil
}

// leaf is the certificate that is kept while it serves that host and is the authority's,
// or a new one.
func (r *rendering) leaf(by signer, host string) (Secret, *x509.Certificate, error) {
	kept := r.in.Kept[r.w.name+suffixTLS]
	cert, _, err := certificate.Pair(kept[tlsCert], kept[tlsKey])
	if err == nil && r.counts(cert) && r.in.Now.Before(renewAt(cert)) && cert.VerifyHostname(host) == nil &&
		cert.CheckSignatureFrom(by.cert) == nil && bytes.Equal(kept[balancerCA], by.trusted) {
		return Secret{tlsCert: kept[tlsCert], tlsKey: kept[tlsKey], balancerCA: kept[balancerCA]}, cert, nil
	}
	made, err := r.issue(r.leafTemplate(by, host), &by)
	if err == nil {
		err = made.cert.CheckSignatureFrom(by.cert)
	}
	if err != nil {
		return nil, nil, r.wrong(".caSecret", "what the authority signs does not count: "+err.Error(), "write another one, or leave caSecret out")
	}
	made.pem[tlsCert] = append(made.pem[tlsCert], intermediates(by)...)
	made.pem[balancerCA] = by.trusted
	return made.pem, made.cert, nil
}

// leafTemplate is what the certificate says. It does not outlive its authority.
func (r *rendering) leafTemplate(by signer, host string) *x509.Certificate {
	template := r.template(r.w.name, leafLife)
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	if template.NotAfter.After(by.cert.NotAfter) {
		template.NotAfter = by.cert.NotAfter
	}
	return template
}

// intermediates are the authority's certificates that clients need to get to a root: none
// where it is one.
func intermediates(by signer) []byte {
	if bytes.Equal(by.cert.RawSubject, by.cert.RawIssuer) {
		return nil
	}
	return by.trusted
}

func (r *rendering) template(name string, life time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: r.in.Now.Add(-skew).UTC().Truncate(time.Second), NotAfter: r.in.Now.Add(life).UTC().Truncate(time.Second),
		BasicConstraintsValid: true,
	}
}

func (r *rendering) counts(c *x509.Certificate) bool {
	return !r.in.Now.Before(c.NotBefore) && r.in.Now.Before(c.NotAfter)
}

// renewAt is when two thirds of a certificate's life are over.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}
