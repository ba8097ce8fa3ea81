package services

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services/dex"
)

const (
	httpsPort = 443
	tlsCert   = corev1.TLSCertKey
	tlsKey    = corev1.TLSPrivateKeyKey
)

// auth is the login. Its state is in its pod, so that there is one pod.
func (r *rendering) auth(s airship.Auth) error {
	config, secretsErr := r.dexConfig(s)
	text, textErr := config.Text()
	if err := errors.Join(secretsErr, textErr); err != nil {
		return err
	}
	tls, err := r.certify(s, config)
	if err != nil {
		return err
	}
	name := r.w.name + suffixConfig
	key, hash, err := r.keyedHash(r.in.Kept[name], text, tls)
	if err != nil {
		return err
	}
	r.before = append(r.before, r.w.secret(name, Secret{path.Base(dex.ConfigFile): text, hashKey: key}))
	r.dexPod(s, hash)
	return nil
}

// certify adds the certificate, its authority where it was made here, and what clients
// trust. It returns the certificate, PEM.
func (r *rendering) certify(s airship.Auth, config dex.Config) ([]byte, error) {
	host, err := config.Host()
	if err != nil {
		return nil, err
	}
	authority, err := r.authority(s)
	if err != nil {
		return nil, err
	}
	tls, leaf, err := r.leaf(authority, host)
	if err != nil {
		return nil, err
	}
	if authority.made != nil {
		r.before = append(r.before, r.w.secret(r.w.name+suffixCA, authority.made))
	}
	served := r.w.secret(r.w.name+suffixTLS, tls)
	served.Type = corev1.SecretTypeTLS
	r.before = append(r.before, served, r.w.configMap(r.w.name+suffixTrust, map[string]string{balancerCA: string(authority.trusted)}))
	r.renewAt = renewAt(leaf)
	return tls[tlsCert], nil
}

func (r *rendering) dexPod(s airship.Auth, hash string) {
	w := &r.w
	w.replicas, w.memory, w.grace, w.hash = 1, "256Mi", 60, hash
	w.command, w.env = dex.Command(), environment(dex.Env())
	w.ports = []port{{name: "https", service: httpsPort, node: s.NodePort, pod: dex.Port}, {pod: dex.HealthPort, withoutService: true}}
	w.health = health{port: dex.HealthPort, live: "/healthz/live", ready: "/healthz/ready"}
	w.mounts = []mount{
		{name: "config", path: path.Dir(dex.ConfigFile), secret: w.name + suffixConfig, only: path.Base(dex.ConfigFile)},
		{name: "tls", path: dex.TLSDir, secret: w.name + suffixTLS},
		{name: "state", path: dex.StateDir},
	}
	w.egress = r.dexReach(s)
}

// dexReach lets the login out to where its connectors' users are: as far as the site allows that.
func (r *rendering) dexReach(s airship.Auth) []networkingv1.NetworkPolicyEgressRule {
	if len(s.Connectors) == 0 || len(r.in.Egress) == 0 {
		return []networkingv1.NetworkPolicyEgressRule{}
	}
	return append(toPrefixes(r.in.Egress, tcpPort(1, 65535)), dns())
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

// signer is an authority: its certificate, PEM, for clients, and what signs with it.
type signer struct {
	trusted []byte
	cert    *x509.Certificate
	key     crypto.Signer
	made    Secret // where it was made here
}

// authority is the one of caSecret, or one that is made once and kept: the tenant's API
// server is given it to trust, so that it has to outlive the certificates it issues.
func (r *rendering) authority(s airship.Auth) (signer, error) {
	if s.CASecret == "" {
		return r.ownAuthority()
	}
	data, err := r.secret(".caSecret", s.CASecret, tlsCert, tlsKey)
	if err != nil {
		return signer{}, err
	}
	cert, key, err := certificate.Pair(data[tlsCert], data[tlsKey])
	if err != nil {
		return signer{}, r.wrong(".caSecret", err.Error(), "write the authority's certificate alone into tls.crt and its private key into tls.key, PEM both, unencrypted")
	}
	trusted, err := certificate.Public(data[tlsCert])
	return signer{trusted: trusted, cert: cert, key: key}, errors.Join(err, r.mayIssue(cert))
}

// mayIssue tells why what a certificate issues would not count.
func (r *rendering) mayIssue(cert *x509.Certificate) error {
	switch {
	case !cert.IsCA || cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return r.wrong(".caSecret", "its certificate is not that of an authority", "write one that may issue others, or leave caSecret out")
	case !r.counts(cert):
		return &fault.Error{
			Reason: fault.Expired, Op: "render", Subject: r.field + ".caSecret", Hint: "renew the authority",
			Err: fmt.Errorf("its certificate counts from %s to %s", cert.NotBefore.UTC().Format(time.DateOnly), cert.NotAfter.UTC().Format(time.DateOnly)),
		}
	}
	return nil
}
