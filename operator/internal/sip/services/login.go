package services

import (
	"bytes"
	"cmp"
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
	"strings"
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
)

// auth is a login. The state of the first one outlives its pod: see package dex.
func (r *rendering) auth(s airship.Auth, first bool) error {
	config, secretsErr := r.dexConfig(s)
	config.Durable = first
	text, textErr := config.Text()
	if err := errors.Join(secretsErr, textErr); err != nil {
		return err
	}
	tls, err := r.certify(s, config)
	if err != nil {
		return err
	}
	r.hash = hashed(tls.pem[tlsKey], text, tls.pem[tlsCert])
	r.size(1, "256Mi")
	r.pod.TerminationGracePeriodSeconds, r.pod.AutomountServiceAccountToken = new(int64(60)), &first
	r.serve("https", httpsPort, s.NodePort, dex.Port)
	r.probe(dex.HealthPort, "/healthz/live", "/healthz/ready", 0)
	r.ingress = []networkingv1.NetworkPolicyPort{tcpPort(dex.Port, 0), tcpPort(dex.HealthPort, 0)}
	r.egress = r.dexReach(s, first)
	r.mount("config", path.Dir(dex.ConfigFile), r.keep(suffixConfig, corev1.SecretTypeOpaque, Secret{path.Base(dex.ConfigFile): text}))
	r.mount("tls", dex.TLSDir, r.keep(suffixTLS, corev1.SecretTypeTLS, tls.pem))
	r.mount("state", dex.StateDir, corev1.VolumeSource{})
	r.container().Command = dex.Command()
	env := dex.Env()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		r.container().Env = append(r.container().Env, corev1.EnvVar{Name: name, Value: env[name]})
	}
	return nil
}

// certify returns the certificate. It adds its authority where that was made here, and what clients trust.
func (r *rendering) certify(s airship.Auth, config dex.Config) (tls issued, err error) {
	host, err := config.Host()
	if err != nil {
		return issued{}, err
	}
	var by issued
	if s.CASecret == "" {
		by, err = r.ownAuthority()
	} else {
		var data Secret
		if data, err = r.secret(".caSecret", s.CASecret, tlsCert, tlsKey); err == nil {
			by, err = r.authority(data)
		}
	}
	if err != nil {
		return issued{}, err
	}
	if tls, err = r.leaf(by, host); err != nil {
		return issued{}, err
	}
	if s.CASecret == "" {
		r.keep(suffixCA, corev1.SecretTypeOpaque, by.pem)
	}
	r.configMap(suffixTrust, map[string]string{balancerCA: string(by.pem[tlsCert])})
	r.RenewAt = tls.renewAt()
	return tls, nil
}

// dexReach lets the login out to its state, and to where its connectors' users are: as far as the site
// allows that. Policies see the port of the pod behind the Service of DNS, which is 5353 on OpenShift.
func (r *rendering) dexReach(s airship.Auth, durable bool) []networkingv1.NetworkPolicyEgressRule {
	rules := []networkingv1.NetworkPolicyEgressRule{}
	if durable {
		for _, at := range r.in.APIServers {
			rules = append(rules, to([]netip.Addr{at.Addr()}, tcpPort(int32(at.Port()), 0))...)
		}
	}
	if len(s.Connectors) == 0 || len(r.in.Egress) == 0 {
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

// dexConfig gathers what the configuration is made of. Of a value that was written into a
// Secret with a line break at its end, the break is not meant.
func (r *rendering) dexConfig(s airship.Auth) (dex.Config, error) {
	var errs []error
	value := func(field string, name airship.SecretName, key string) string {
		data, err := r.secret(field, name, key)
		errs = append(errs, err)
		return strings.TrimRight(string(data[key]), "\r\n")
	}
	config := dex.Config{Field: r.field, Issuer: s.Issuer}
	if s.ConfigSecret != "" {
		config.Settings = []byte(value(".configSecret", s.ConfigSecret, "config.yaml"))
	}
	for i, c := range s.StaticClients {
		client := map[string]any{
			"id": c.ID, "name": cmp.Or(c.Name, c.ID), "redirectURIs": c.RedirectURIs, "public": c.Public,
		}
		if !c.Public {
			client["secret"] = value(fmt.Sprintf(".staticClients[%d].secret", i), c.Secret, "clientSecret")
		}
		config.Clients = append(config.Clients, client)
	}
	for i, c := range s.Connectors {
		field := fmt.Sprintf(".connectors[%d]", i)
		if c.Type != "saml" && len(r.in.Egress) == 0 {
			errs = append(errs, r.wrong(field, "the site allows connections to no provider of users",
				"start the operator with --sip-egress=CIDR,CIDR, the networks of hosts and providers"))
		}
		config.Connectors = append(config.Connectors, dex.Connector{
			Type: c.Type, ID: c.ID, Name: cmp.Or(c.Name, c.ID),
			Settings: []byte(value(field+".secret", c.Secret, "config.yaml")),
		})
	}
	for i, p := range s.StaticPasswords {
		config.Passwords = append(config.Passwords, map[string]any{
			"email": p.Email, "username": cmp.Or(p.Username, p.Email), "userID": p.UserID,
			"hash": value(fmt.Sprintf(".staticPasswords[%d].secret", i), p.Secret, "hash"),
		})
	}
	return config, errors.Join(errs...)
}

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
	own, err := r.readIssued(r.in.Kept[r.Name+suffixCA])
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
	kept, err := r.readIssued(r.in.Kept[r.Name+suffixTLS])
	if err == nil && r.in.Now.Before(kept.renewAt()) && kept.Cert.VerifyHostname(host) == nil &&
		kept.Cert.CheckSignatureFrom(by.Cert) == nil && bytes.Equal(kept.pem[balancerCA], trusted) {
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
