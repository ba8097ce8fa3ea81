package services

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services/dex"
)

const (
	httpsPort = 443
	tlsCert   = corev1.TLSCertKey
	tlsKey    = corev1.TLSPrivateKeyKey
	// tlsTrusted is what clients trust.
	tlsTrusted = corev1.ServiceAccountRootCAKey

	dexSettings = "config.yaml" // in the Secret of configSecret
)

// auth is the login. There is one: those of a namespace would share keys and codes, so that who logs in at one could
// redeem the code at another.
func (r *rendering) auth(s airship.Auth, index int) error {
	if index > 0 {
		return r.wrong("", "a tenant cluster has one OIDC provider", "write its connectors into the first entry of auth")
	}
	config := dex.Config{Field: r.field, Issuer: s.Issuer}
	if s.ConfigSecret != "" {
		data, err := r.secret(".configSecret", s.ConfigSecret, dexSettings)
		if err != nil {
			return err
		}
		config.Settings = data[dexSettings]
	}
	host, hostErr := config.Host()
	text, connectors, textErr := config.Text()
	if err := errors.Join(hostErr, textErr, r.allowed(connectors)); err != nil {
		return err
	}
	tls, err := r.certify(s.CASecret, host)
	if err != nil {
		return err
	}
	r.hash = hashed(tls[tlsKey], text, tls[tlsCert])
	r.size(1, "256Mi")
	r.pod.TerminationGracePeriodSeconds, r.pod.AutomountServiceAccountToken = new(int64(60)), new(true)
	r.serve("https", httpsPort, s.NodePort, dex.Port)
	r.probe(dex.HealthPort, "/healthz/live", "/healthz/ready", 0)
	r.ingress = []networkingv1.NetworkPolicyPort{tcpPort(dex.Port, 0), tcpPort(dex.HealthPort, 0)}
	r.egress = r.dexReach(len(connectors) > 0)
	r.mount("config", path.Dir(dex.ConfigFile), r.keep(suffixConfig, corev1.SecretTypeOpaque, Secret{path.Base(dex.ConfigFile): text}))
	r.mount("tls", dex.TLSDir, r.keep(suffixTLS, corev1.SecretTypeTLS, tls))
	r.container().Command = dex.Command()
	env := dex.Env()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		r.container().Env = append(r.container().Env, corev1.EnvVar{Name: name, Value: env[name]})
	}
	return nil
}

// allowed refuses connectors whose providers the site does not let services connect to. Of SAML's, the user's
// browser alone connects to the provider.
func (r *rendering) allowed(connectors []string) error {
	others := slices.ContainsFunc(connectors, func(typ string) bool { return typ != "saml" })
	if len(r.in.Egress) > 0 || !others {
		return nil
	}
	return r.wrong(".configSecret", "connectors: the site allows connections to no provider of users",
		"start the operator with --sip-egress=CIDR,CIDR, the networks of hosts and providers")
}

// dexReach lets the login out to its state, and to where its connectors' users are: as far as the site
// allows that. Policies see the port of the pod behind the Service of DNS, which is 5353 on OpenShift.
func (r *rendering) dexReach(connects bool) []networkingv1.NetworkPolicyEgressRule {
	rules := []networkingv1.NetworkPolicyEgressRule{}
	for _, at := range r.in.APIServers {
		rules = append(rules, to([]netip.Addr{at.Addr()}, tcpPort(int32(at.Port()), 0))...)
	}
	if !connects || len(r.in.Egress) == 0 {
		return rules
	}
	var dns networkingv1.NetworkPolicyEgressRule
	for _, port := range []int32{53, 5353} {
		udp := tcpPort(port, 0)
		udp.Protocol = new(corev1.ProtocolUDP)
		dns.Ports = append(dns.Ports, udp, tcpPort(port, 0))
	}
	return append(append(rules, toPrefixes(r.in.Egress, tcpPort(1, 65535))...), dns)
}

// How long certificates count. A leaf is renewed after two thirds of its life, an
// authority that was made here before a leaf could outlive it.
const (
	leafLife      = 90 * 24 * time.Hour
	authorityLife = 10 * 365 * 24 * time.Hour
	skew          = 5 * time.Minute // a node's clock may be behind
)

// certify returns the certificate that Dex serves by, with its key and what clients trust. It adds the authority
// where that was made here. What is kept serves until it is to be renewed.
func (r *rendering) certify(ca airship.SecretName, host string) (Secret, error) {
	by, trusted, err := r.authority(ca)
	if err != nil {
		return nil, err
	}
	r.configMap(suffixTrust, map[string]string{tlsTrusted: string(trusted)})
	kept := r.in.Kept[r.Name+suffixTLS]
	leaf, err := r.read(kept)
	if err == nil && r.in.Now.Before(renewAt(leaf.Cert)) && leaf.Cert.VerifyHostname(host) == nil &&
		leaf.Cert.CheckSignatureFrom(by.Cert) == nil && bytes.Equal(kept[tlsTrusted], trusted) {
		return kept, nil
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: r.Name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	made, err := r.issue(template, leafLife, &by)
	if err != nil {
		return nil, r.defect(err)
	}
	if !bytes.Equal(by.Cert.RawSubject, by.Cert.RawIssuer) { // clients need it to get to a root
		made[tlsCert] = append(made[tlsCert], trusted...)
	}
	made[tlsTrusted] = trusted
	return made, nil
}

// renewAt is when two thirds of a certificate's life are over.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// authority is that of a Secret; without one it is made, once: the tenant's API server is given it to trust, so
// that it has to outlive the certificates it issues. It returns what of it clients trust.
func (r *rendering) authority(name airship.SecretName) (by certificate.Issued, trusted []byte, err error) {
	if name != "" {
		data, err := r.secret(".caSecret", name, tlsCert, tlsKey)
		if err != nil {
			return by, nil, err
		}
		by, err = r.read(data)
		if err == nil && (!by.Cert.IsCA || by.Cert.KeyUsage != 0 && by.Cert.KeyUsage&x509.KeyUsageCertSign == 0) {
			err = errors.New("its certificate is not that of an authority")
		}
		if err != nil {
			return by, nil, r.wrong(".caSecret", err.Error(), "write the authority's certificate alone into tls.crt "+
				"and its private key into tls.key, PEM both, unencrypted; or leave caSecret out")
		}
		trusted, err = certificate.Public(data[tlsCert])
		return by, trusted, err
	}
	own := r.in.Kept[r.Name+suffixCA]
	if by, err = r.read(own); err != nil || !r.in.Now.Add(leafLife).Before(by.Cert.NotAfter) {
		own, err = r.issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: "sip-login-ca " + r.in.Cluster.String()},
			IsCA:    true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		}, authorityLife, nil)
		if err != nil {
			return by, nil, r.defect(err)
		}
		by, err = r.read(own)
	}
	r.keep(suffixCA, corev1.SecretTypeOpaque, own)
	return by, own[tlsCert], err
}

// read reads a certificate that is valid now, and its private key.
func (r *rendering) read(data Secret) (certificate.Issued, error) {
	cert, key, err := certificate.Pair(data[tlsCert], data[tlsKey])
	if err == nil && (r.in.Now.Before(cert.NotBefore) || !r.in.Now.Before(cert.NotAfter)) {
		err = fmt.Errorf("its certificate is valid from %s to %s: renew it",
			cert.NotBefore.UTC().Format(time.DateOnly), cert.NotAfter.UTC().Format(time.DateOnly))
	}
	return certificate.Issued{Cert: cert, Key: key}, err
}

// issue issues a certificate, which does not outlive who signs it. Without who signs, it is self-signed.
func (r *rendering) issue(template *x509.Certificate, life time.Duration, by *certificate.Issued) (Secret, error) {
	now := r.in.Now.UTC()
	template.NotBefore, template.NotAfter = now.Add(-skew).Truncate(time.Second), now.Add(life).Truncate(time.Second)
	if by != nil && template.NotAfter.After(by.Cert.NotAfter) {
		template.NotAfter = by.Cert.NotAfter
	}
	made, err := certificate.Issue(template, by, rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := certificate.EncodeKey(made.Key)
	return Secret{tlsCert: certificate.Encode(made.Cert.Raw), tlsKey: key}, err
}
