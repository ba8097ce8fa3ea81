package services

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
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
	r.renewAt = tls.renewAt()
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
