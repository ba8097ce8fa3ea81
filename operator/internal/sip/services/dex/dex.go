// Package dex writes the configuration of Dex, the OIDC provider that the users of a tenant cluster log
// in by.
//
//	text, err := dex.Config{Issuer: "https://login.tenant.site:32556", Clients: clients, Connectors: connectors}.Text()
//
// Settings are those that Dex documents, and pass through: Dex says what is wrong with them when it
// starts, and the pod that runs stays until one is ready. This package decides what the pod decides: where
// Dex listens, its certificate and its state. That is in resources of the pod's namespace, which outlive it.
// All that run in a namespace would share keys and codes there: who logs in at one could redeem the code at
// another. So one of them is Durable; the others have a file (SQLite) that ends with the pod.
//
// It refuses settings that make a login worthless: see refused.
//
// The text has secrets: it belongs into a Secret. Dex would read environment variables into the settings of
// connectors, so that a password with a $ is another one, and its image's entry point passes the file
// through a template engine. [Env] and [Command] switch both off.
package dex

import (
	"encoding/json"
	"fmt"
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
	StateDir   = "/var/lib/dex"
)

// Command starts Dex, without its image's entry point.
func Command() []string { return []string{"dex", "serve", ConfigFile} }

// Env has the environment variables that Dex runs with. A connector whose provider does
// not answer at the start must not keep the others from serving.
func Env() map[string]string {
	return map[string]string{"DEX_EXPAND_ENV": "false", "DEX_CONTINUE_ON_CONNECTOR_FAILURE": "true"}
}

// Config is one provider. Its parts have Dex's names.
type Config struct {
	Field  string // that it comes from, for errors: spec.services.auth[0]
	Issuer string // https://HOST[:PORT][/PATH]
	// Settings is YAML of further settings, of which oauth2 and expiry have defaults; nil for none.
	Settings   []byte
	Durable    bool // at most one in a namespace
	Clients    []map[string]any
	Connectors []Connector
	Passwords  []map[string]any
}

// String keeps secrets out of logs.
func (Config) String() string { return "[configuration of dex]" }

// GoString keeps secrets out of logs.
func (c Config) GoString() string { return c.String() }

// Connector is a provider of users.
type Connector struct {
	Type, ID, Name string
	Settings       []byte // YAML of its config
}

// refused are settings of connectors, with what to do.
var refused = map[string]string{
	"insecureNoSSL":                   "it sends passwords over the network as they are: use startTLS, or TLS",
	"insecureSkipSignatureValidation": "anybody could log in as anybody: use caData",
}

// ours are the settings that are looked at or written here.
var ours = []string{
	"issuer", "staticClients", "connectors", "enablePasswordDB", "staticPasswords", "storage", "web", "telemetry",
	"oauth2", "expiry", "redirectURI", "insecureNoSSL", "insecureSkipSignatureValidation",
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

// Text returns the configuration, which is secret. Problems are reported together.
func (c Config) Text() ([]byte, error) {
	_, err := c.Host()
	errs := []error{err}
	document, err := c.settings(".configSecret", c.Settings)
	errs = append(errs, err)
	var connectors []any
	for i, one := range c.Connectors {
		config, err := c.connector(fmt.Sprintf(".connectors[%d]", i), one)
		errs = append(errs, err)
		connectors = append(connectors, map[string]any{"type": one.Type, "id": one.ID, "name": one.Name, "config": config})
	}
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		"oauth2": map[string]any{"grantTypes": []string{"authorization_code", "refresh_token"}, "skipApprovalScreen": true},
		"expiry": map[string]any{"idTokens": "1h", "refreshTokens": map[string]any{
			"validIfNotUsedFor": "168h", "absoluteLifetime": "720h", "reuseInterval": "10s",
		}},
	} {
		if _, given := document[name]; !given {
			document[name] = value
		}
	}
	for name, value := range map[string]any{
		"issuer": c.Issuer, "staticClients": c.Clients, "connectors": connectors,
		"enablePasswordDB": len(c.Passwords) > 0, "staticPasswords": c.Passwords,
		"storage": c.storage(),
		"web": map[string]any{
			"https": fmt.Sprintf(":%d", Port), "tlsCert": TLSDir + "/tls.crt", "tlsKey": TLSDir + "/tls.key",
			"headers": map[string]any{"X-Frame-Options": "deny", "X-Content-Type-Options": "nosniff"},
		},
		"telemetry": map[string]any{"http": fmt.Sprintf(":%d", HealthPort)},
	} {
		document[name] = value
	}
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, &fault.Error{Reason: fault.Internal, Op: "configure login", Subject: c.Field} // the cause could quote a secret
	}
	return append(text, '\n'), nil
}

func (c Config) storage() map[string]any {
	if c.Durable {
		return map[string]any{"type": "kubernetes", "config": map[string]any{"inCluster": true}}
	}
	return map[string]any{"type": "sqlite3", "config": map[string]any{"file": StateDir + "/dex.db"}}
}

// connector returns the config of a connector. All but LDAP's have Dex take the answers of its provider.
func (c Config) connector(field string, one Connector) (map[string]any, error) {
	if one.ID == "local" {
		return nil, c.wrong(field+".id", `Dex calls staticPasswords "local"`, "write another id")
	}
	config, err := c.settings(field+".secret", one.Settings)
	if err != nil {
		return nil, err
	}
	for name, hint := range refused {
		if config[name] == true {
			return nil, c.wrong(field+".secret", name+" is refused", hint)
		}
	}
	if _, given := config["redirectURI"]; !given && one.Type != "ldap" {
		config["redirectURI"] = c.Issuer + "/callback"
	}
	return config, nil
}

var lineOfError = regexp.MustCompile(`line \d+`)

// settings reads YAML. Errors never quote it.
func (c Config) settings(field string, text []byte) (map[string]any, error) {
	settings := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &settings); err != nil {
		where := strings.Join(slices.Compact(lineOfError.FindAllString(err.Error(), -1)), ", ")
		return nil, c.wrong(field, strings.TrimSpace("config.yaml is not YAML of names and values, each name once "+where),
			"correct it in the Secret; Dex documents the settings")
	}
	if settings == nil {
		settings = map[string]any{}
	}
	for name := range settings {
		same := func(o string) bool { return strings.EqualFold(name, o) }
		if i := slices.IndexFunc(ours, same); i >= 0 && ours[i] != name { // Dex takes both for one
			return nil, c.wrong(field, "it has "+ours[i]+" in other letters", "write "+ours[i])
		}
	}
	return settings, nil
}

func (c Config) wrong(field, why, hint string) error {
	return fault.Errorf(fault.InvalidInput, "configure login", c.Field+field, hint, "%s", why)
}
