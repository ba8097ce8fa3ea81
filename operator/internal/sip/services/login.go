package services

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
)

const (
	httpsPort = 443
	tlsCert   = corev1.TLSCertKey
	tlsKey    = corev1.TLSPrivateKeyKey
	// tlsTrusted is the key of the certificates that clients trust.
	tlsTrusted = corev1.ServiceAccountRootCAKey

	dexSettings = "config.yaml" // in the Secret of configSecret
	dexPort     = 5556          // HTTPS
	dexHealth   = 5558          // HTTP: /healthz/live, /healthz/ready
	dexDir      = "/etc/dex/config"
	dexConfig   = "config.json"  // in dexDir
	dexTLS      = "/etc/dex/tls" // tls.crt, tls.key
)

// auth renders the OIDC provider. A tenant has one: two in a namespace would share keys and codes. A user of one
// could then redeem the code at the other.
func (r *rendering) auth(s airship.Auth, index int) error {
	if index > 0 {
		return r.wrong("", "a tenant cluster has one OIDC provider", "write its connectors into the first entry of auth")
	}
	var settings []byte
	if s.ConfigSecret != "" {
		data, err := r.secret(".configSecret", s.ConfigSecret, dexSettings)
		if err != nil {
			return err
		}
		settings = data[dexSettings]
	}
	host, hostErr := r.issuerHost(s.Issuer)
	text, connectors, textErr := r.dexConfig(s.Issuer, settings)
	if err := errors.Join(hostErr, textErr, r.allowed(connectors)); err != nil {
		return err
	}
	tls, err := r.certify(s.TLSSecret, host)
	if err != nil {
		return err
	}
	r.hash = hashed(tls[tlsKey], text, tls[tlsCert])
	r.size(1, "256Mi")
	r.pod.TerminationGracePeriodSeconds, r.pod.AutomountServiceAccountToken = new(int64(60)), new(true)
	r.serve("https", httpsPort, s.NodePort, dexPort)
	r.probe(dexHealth, "/healthz/live", "/healthz/ready", 0)
	r.ingress = []networkingv1.NetworkPolicyPort{tcpPort(dexPort, 0), tcpPort(dexHealth, 0)}
	r.egress = r.dexReach(len(connectors) > 0)
	r.mount("config", dexDir, r.keep(suffixConfig, corev1.SecretTypeOpaque, Secret{dexConfig: text}))
	r.mount("tls", dexTLS, r.keep(suffixTLS, corev1.SecretTypeTLS, tls))
	// The image's entry point would pass the file through a template engine. Dex would expand environment variables
	// in connectors, which changes a password with a $. A provider that does not answer must not block the other
	// connectors.
	r.container().Command = []string{"dex", "serve", path.Join(dexDir, dexConfig)}
	r.container().Env = []corev1.EnvVar{
		{Name: "DEX_CONTINUE_ON_CONNECTOR_FAILURE", Value: "true"}, {Name: "DEX_EXPAND_ENV", Value: "false"},
	}
	return nil
}

// issuerHost returns the host of an issuer, https://HOST[:PORT][/PATH], for the certificate.
func (r *rendering) issuerHost(issuer string) (string, error) {
	u, err := url.Parse(issuer)
	// Clients compare it byte by byte, and Dex strips a slash at the end. The CRD refuses user, query and fragment.
	if err != nil || u.Hostname() == "" || strings.HasSuffix(u.Path, "/") {
		return "", r.wrong(".issuer", "it is missing, no URL, or ends in a slash",
			"write the URL that clients reach the service by, such as https://login.example.site:32000")
	}
	return u.Hostname(), nil
}

var lineOfError = regexp.MustCompile(`line \d+`)

// dexConfig returns the secret configuration of Dex and the types of its connectors. Settings pass through: Dex
// reports wrong ones at its start, and the old pod stays until a new one is ready. The operator sets where Dex
// listens, its certificate and its state: resources in the pod's namespace that outlive it. Errors quote no settings.
func (r *rendering) dexConfig(issuer string, settings []byte) (text []byte, connectors []string, err error) {
	var given map[string]any
	if err := yaml.UnmarshalStrict(settings, &given); err != nil {
		where := strings.Join(slices.Compact(lineOfError.FindAllString(err.Error(), -1)), ", ")
		return nil, nil, r.wrong(".configSecret",
			strings.TrimSuffix("config.yaml is not YAML of names and values, each name once: "+where, ": "),
			"correct it in the Secret; Dex documents the settings")
	}
	err = r.spelled("", given, "connectors", "staticPasswords", "enablePasswordDB", "oauth2", "expiry", "web")
	if err == nil {
		connectors, err = r.connectors(issuer, given)
	}
	if err != nil {
		return nil, nil, err
	}
	users, _ := given["staticPasswords"].([]any)
	web, _ := given["web"].(map[string]any)
	maps.DeleteFunc(web, func(name string, _ any) bool { return name != "allowedOrigins" && name != "allowedHeaders" })
	served := map[string]any{
		"https": fmt.Sprintf(":%d", dexPort), "tlsCert": dexTLS + "/tls.crt", "tlsKey": dexTLS + "/tls.key",
		"headers": map[string]any{"X-Frame-Options": "deny", "X-Content-Type-Options": "nosniff"},
	}
	maps.Copy(served, web)
	document := map[string]any{
		"oauth2": map[string]any{"grantTypes": []string{"authorization_code", "refresh_token"}, "skipApprovalScreen": true},
		"expiry": map[string]any{"idTokens": "1h", "refreshTokens": map[string]any{
			"validIfNotUsedFor": "168h", "absoluteLifetime": "720h", "reuseInterval": "10s",
		}},
		"enablePasswordDB": len(users) > 0,
	}
	maps.Copy(document, given)
	for name, value := range map[string]any{
		"issuer":    issuer,
		"storage":   map[string]any{"type": "kubernetes", "config": map[string]any{"inCluster": true}},
		"web":       served,
		"telemetry": map[string]any{"http": fmt.Sprintf(":%d", dexHealth)},
	} {
		same := func(other string, _ any) bool { return strings.EqualFold(other, name) } // to Dex
		maps.DeleteFunc(document, same)
		document[name] = value
	}
	text, err = json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, nil, r.defect(errors.New("settings of Dex cannot be written")) // the cause could quote a secret
	}
	return append(text, '\n'), connectors, nil
}

// spelled refuses names in another case, which Dex takes for the same.
func (r *rendering) spelled(where string, given map[string]any, names ...string) error {
	for _, name := range names {
		for other := range given {
			if other != name && strings.EqualFold(other, name) {
				return r.wrong(".configSecret", where+name+" is there in other letters", "write "+name)
			}
		}
	}
	return nil
}

// refused are settings of connectors that make a login worthless, each with the alternative.
var refused = map[string]string{
	"insecureNoSSL":                   "it sends passwords over the network as they are: use startTLS, or TLS",
	"insecureSkipSignatureValidation": "anybody could log in as anybody: use caData",
}

// connectors returns the types of connectors, and sets their redirect to this provider. Dex reports other mistakes.
func (r *rendering) connectors(issuer string, given map[string]any) (types []string, err error) {
	all, _ := given["connectors"].([]any)
	if users, _ := given["staticPasswords"].([]any); len(all)+len(users) == 0 {
		return nil, r.wrong(".configSecret", "there are neither connectors nor staticPasswords: no user could log in",
			"write them into config.yaml of that Secret, as Dex documents them")
	}
	for i, one := range all {
		connector, _ := one.(map[string]any)
		if err := r.spelled(fmt.Sprintf("connectors[%d]: ", i), connector, "type", "id", "config"); err != nil {
			return nil, err
		}
		typ, _ := connector["type"].(string)
		types = append(types, typ)
		config, configured := connector["config"].(map[string]any)
		returns := typ == "ldap" || !configured
		for name, value := range config {
			returns = returns || strings.EqualFold(name, "redirectURI")
			for bad, hint := range refused {
				if strings.EqualFold(name, bad) && value == true {
					return nil, r.wrong(".configSecret", fmt.Sprintf("connectors[%d]: %s is refused", i, bad), hint)
				}
			}
		}
		if !returns {
			config["redirectURI"] = issuer + "/callback"
		}
	}
	return types, nil
}

// allowed refuses connectors if the site lets services connect to no provider. With SAML only the user's browser
// connects to it.
func (r *rendering) allowed(connectors []string) error {
	others := slices.ContainsFunc(connectors, func(typ string) bool { return typ != "saml" })
	if len(r.in.Egress) > 0 || !others {
		return nil
	}
	return r.wrong(".configSecret", "connectors: the site allows connections to no provider of users",
		"start the operator with --sip-egress=CIDR,CIDR, the networks of hosts and providers")
}

// dexReach allows Dex its state, and its connectors' providers as far as the site allows them. Policies see the port
// of the pod behind the Service of DNS: 5353 on OpenShift.
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

// A certificate that is made here serves for certificateLife: clients would have to trust each new one.
const (
	certificateLife = 10 * 365 * 24 * time.Hour
	renewBefore     = 30 * 24 * time.Hour
	formerLife      = 91 * 24 * time.Hour // more than that of certificates of programs before v0.1
)

// certify returns Dex's certificate with its key and the certificates that clients trust. The Secret that the spec
// names has them, else they are made once.
func (r *rendering) certify(name airship.SecretName, host string) (tls Secret, err error) {
	if name == "" {
		until := r.in.Now.Add(renewBefore)
		if r.in.Kept[r.Name+suffixFormerCA] != nil {
			until = r.in.Now.Add(formerLife)
		}
		if tls, err = serving(r.in.Kept[r.Name+suffixTLS], host, until); err != nil {
			tls, err = r.makeCertificate(host)
		}
	} else if tls, err = r.secret(".tlsSecret", name, tlsCert, tlsKey); err == nil {
		if tls, err = serving(tls, host, r.in.Now); err != nil {
			err = r.wrong(".tlsSecret", err.Error(), "write a certificate for the host of issuer into tls.crt, "+
				"and its key into tls.key, as cert-manager does; or leave tlsSecret out")
		}
	}
	if err != nil {
		return nil, err
	}
	r.configMap(suffixTrust, map[string]string{tlsTrusted: string(tls[tlsTrusted])})
	return tls, nil
}

// serving returns what of a Secret's data serves a host until then. Without ca.crt, clients trust tls.crt itself.
func serving(data Secret, host string, until time.Time) (Secret, error) {
	leaf, _, err := certificate.Pair(data[tlsCert], data[tlsKey])
	if err == nil {
		err = leaf.VerifyHostname(host)
	}
	if err == nil && (until.Before(leaf.NotBefore) || !until.Before(leaf.NotAfter)) {
		err = fmt.Errorf("its certificate is valid from %s to %s",
			leaf.NotBefore.UTC().Format(time.DateOnly), leaf.NotAfter.UTC().Format(time.DateOnly))
	}
	if err != nil {
		return nil, err
	}
	trusted := data[tlsTrusted]
	if len(trusted) == 0 {
		trusted = data[tlsCert]
	}
	trusted, err = certificate.Public(trusted)
	return Secret{tlsCert: data[tlsCert], tlsKey: data[tlsKey], tlsTrusted: trusted}, err
}

// makeCertificate makes a certificate below a CA of its own. A CA of programs before v0.1, which tenants trust, signs
// one last time; to be dropped in v0.2.
func (r *rendering) makeCertificate(host string) (Secret, error) {
	ca, end := "sip-login-ca "+r.in.Cluster.String(), r.in.Now.Add(certificateLife)
	var by *certificate.Issued
	former := r.in.Kept[r.Name+suffixFormerCA]
	if cert, key, err := certificate.Pair(former[tlsCert], former[tlsKey]); err == nil &&
		r.in.Now.Add(formerLife).Before(cert.NotAfter) {
		by = &certificate.Issued{Cert: cert, Key: key}
		if end.After(cert.NotAfter) {
			end = cert.NotAfter
		}
	}
	made, err := certificate.IssueServing(ca, by, host, r.in.Now, end)
	if err != nil {
		return nil, r.defect(err)
	}
	return Secret{tlsCert: made.Cert, tlsKey: made.Key, tlsTrusted: made.CA}, nil
}
