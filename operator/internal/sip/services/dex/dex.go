// Package dex writes the configuration of Dex, the OIDC provider that the users of a tenant cluster log
// in by.
//
//	text, connectors, err := dex.Config{Issuer: "https://login.tenant.site:32556", Settings: yaml}.Text()
//
// Settings are those that Dex documents, and pass through: Dex says what is wrong with them when it
// starts, and the pod that runs stays until one is ready. This package decides what the pod decides: where
// Dex listens, its certificate and its state. That is in resources of the pod's namespace, which outlive it.
//
// It refuses settings that make a login worthless: see refused. Where users or connectors could not log in without
// them, it adds enablePasswordDB and the redirectURI.
//
// The text has secrets: it belongs into a Secret. Dex would read environment variables into the settings of
// connectors, so that a password with a $ is another one, and its image's entry point passes the file
// through a template engine. [Env] and [Command] switch both off.
package dex

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Where things are in the pod.
const (
	Port       = 5556 // HTTPS
	HealthPort = 5558 // HTTP: /healthz/live, /healthz/ready
	ConfigFile = "/etc/dex/config/config.json"
	TLSDir     = "/etc/dex/tls" // tls.crt, tls.key
)

// Command starts Dex, without its image's entry point.
func Command() []string { return []string{"dex", "serve", ConfigFile} }

// Env has the environment variables that Dex runs with. A connector whose provider does
// not answer at the start must not keep the others from serving.
func Env() map[string]string {
	return map[string]string{"DEX_EXPAND_ENV": "false", "DEX_CONTINUE_ON_CONNECTOR_FAILURE": "true"}
}

// Config is one provider.
type Config struct {
	Field    string // that it comes from, for errors: spec.services.auth[0]
	Issuer   string // https://HOST[:PORT][/PATH]
	Settings []byte // YAML, of which oauth2 and expiry have defaults; nil for none. It has secrets
}

// refused are settings of connectors, with what to do.
var refused = map[string]string{
	"insecureNoSSL":                   "it sends passwords over the network as they are: use startTLS, or TLS",
	"insecureSkipSignatureValidation": "anybody could log in as anybody: use caData",
}

// Host returns the host of the issuer, which the certificate is for.
func (c Config) Host() (string, error) {
	u, err := url.Parse(c.Issuer)
	// Clients compare it byte by byte, and Dex takes a slash at the end away. The CRD refuses user, query and fragment.
	if err != nil || u.Hostname() == "" || strings.HasSuffix(u.Path, "/") {
		return "", c.wrong(".issuer", "it is missing, no URL, or ends in a slash",
			"write the URL that clients reach the service by, such as https://login.example.site:32000")
	}
	return u.Hostname(), nil
}

var lineOfError = regexp.MustCompile(`line \d+`)

// Text returns the configuration, which is secret, and the types of its connectors. Errors quote none of it.
func (c Config) Text() (text []byte, connectors []string, err error) {
	var given map[string]any
	if err := yaml.UnmarshalStrict(c.Settings, &given); err != nil {
		where := strings.Join(slices.Compact(lineOfError.FindAllString(err.Error(), -1)), ", ")
		return nil, nil, c.wrong(".configSecret",
			strings.TrimSpace("config.yaml is not YAML of names and values, each name once "+where),
			"correct it in the Secret; Dex documents the settings")
	}
	err = c.spelled("", given, "connectors", "staticPasswords", "enablePasswordDB", "oauth2", "expiry")
	if err == nil {
		connectors, err = c.connectors(given)
	}
	if err != nil {
		return nil, nil, err
	}
	users, _ := given["staticPasswords"].([]any)
	document := map[string]any{
		"oauth2": map[string]any{"grantTypes": []string{"authorization_code", "refresh_token"}, "skipApprovalScreen": true},
		"expiry": map[string]any{"idTokens": "1h", "refreshTokens": map[string]any{
			"validIfNotUsedFor": "168h", "absoluteLifetime": "720h", "reuseInterval": "10s",
		}},
		"enablePasswordDB": len(users) > 0,
	}
	maps.Copy(document, given)
	for name, value := range map[string]any{
		"issuer":  c.Issuer,
		"storage": map[string]any{"type": "kubernetes", "config": map[string]any{"inCluster": true}},
		"web": map[string]any{
			"https": fmt.Sprintf(":%d", Port), "tlsCert": TLSDir + "/tls.crt", "tlsKey": TLSDir + "/tls.key",
			"headers": map[string]any{"X-Frame-Options": "deny", "X-Content-Type-Options": "nosniff"},
		},
		"telemetry": map[string]any{"http": fmt.Sprintf(":%d", HealthPort)},
	} {
		maps.DeleteFunc(document, func(other string, _ any) bool { return strings.EqualFold(other, name) }) // Dex takes both for one
		document[name] = value
	}
	text, err = json.MarshalIndent(document, "", "  ")
	if err != nil { // the cause could quote a secret
		return nil, nil, &fault.Error{Reason: fault.Internal, Op: "configure login", Subject: c.Field}
	}
	return append(text, '\n'), connectors, nil
}

// spelled refuses names in other letters, which Dex takes for the same.
func (c Config) spelled(where string, given map[string]any, names ...string) error {
	for _, name := range names {
		for other := range given {
			if other != name && strings.EqualFold(other, name) {
				return c.wrong(".configSecret", where+name+" is there in other letters", "write "+name)
			}
		}
	}
	return nil
}

// connectors returns the types of connectors, and has their providers send users back here. Dex says what else is
// wrong with them.
func (c Config) connectors(given map[string]any) (types []string, err error) {
	all, _ := given["connectors"].([]any)
	if users, _ := given["staticPasswords"].([]any); len(all)+len(users) == 0 {
		return nil, c.wrong(".configSecret", "there are neither connectors nor staticPasswords: no user could log in",
			"write them into config.yaml of that Secret, as Dex documents them")
	}
	for i, one := range all {
		connector, _ := one.(map[string]any)
		if err := c.spelled(fmt.Sprintf("connectors[%d]: ", i), connector, "type", "id", "config"); err != nil {
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
					return nil, c.wrong(".configSecret", fmt.Sprintf("connectors[%d]: %s is refused", i, bad), hint)
				}
			}
		}
		if !returns {
			config["redirectURI"] = c.Issuer + "/callback"
		}
	}
	return types, nil
}

func (c Config) wrong(field, why, hint string) error {
	return fault.Errorf(fault.InvalidInput, "configure login", c.Field+field, hint, "%s", why)
}
