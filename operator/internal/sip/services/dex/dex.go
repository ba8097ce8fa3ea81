// Package dex writes the configuration of Dex, the OIDC provider that the users of a
// tenant cluster log in by.
//
//	text, err := dex.Config{Issuer: "https://login.tenant.site:32556", Clients: clients, Connectors: connectors}.Text()
//
// # What it makes Dex do
//
//   - It serves TLS with the certificate below [TLSDir], and its state is a file below
//     [StateDir] (SQLite). Dex can keep it in Kubernetes as well: all that run in one
//     namespace then share their keys and what is being logged in, so that a code issued
//     by one could be redeemed at another, for another tenant. And it would take rights on
//     CustomResourceDefinitions. The price is that the state ends with the pod: there is
//     one of them, and who is logged in when it is replaced logs in again.
//   - It grants by authorization code, and refreshes. Nothing is granted for a password
//     sent by a client.
//   - ID tokens count for [TokenLife]; a login is over after [IdleLife] without use, and
//     after [LoginLife] in any case.
//
// # What it is safe from
//
// The text is JSON written by an encoder, and has secrets: it belongs into a Secret. Dex
// itself reads environment variables into the settings of connectors, so that a password
// with a $ is another one and a connector could read the pod's environment; its image's
// entry point passes the file through a template engine before. [Env] and [Command] switch
// both off.
//
// A connector's settings are those that Dex documents. Dex ignores what it does not know,
// so that a mistyped setting is not there; here it is an error. Settings that name files
// are refused, since the pod has none but its own, and so is what makes a login worthless:
// a SAML response without a signature.
package dex

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

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

// How long a login counts.
const (
	TokenLife = time.Hour
	IdleLife  = 7 * 24 * time.Hour
	LoginLife = 30 * 24 * time.Hour
)

// Command starts Dex, without its image's entry point.
func Command() []string { return []string{"dex", "serve", ConfigFile} }

// Env has the environment variables that Dex runs with. A connector whose provider does
// not answer at the start must not keep the others from serving.
func Env() map[string]string {
	return map[string]string{"DEX_EXPAND_ENV": "false", "DEX_CONTINUE_ON_CONNECTOR_FAILURE": "true"}
}

// Config is one provider. It does not print.
type Config struct {
	Field      string // that it comes from, for errors: spec.services.auth[0]
	Issuer     string // https://HOST[:PORT][/PATH]
	Clients    []Client
	Connectors []Connector
	Passwords  []Password
}

// Client is a program that may ask for tokens.
type Client struct {
	ID, Name     string
	RedirectURIs []string
	Public       bool
	Secret       string
}

// Password is a user of the provider's own.
type Password struct {
	Email, Username, UserID string
	Hash                    string // bcrypt
}

// String keeps secrets out of logs.
func (Config) String() string { return "[configuration of dex]" }

// GoString keeps secrets out of logs.
func (c Config) GoString() string { return c.String() }

// String keeps the secret out of logs.
func (c Client) String() string { return "client " + c.ID }

// GoString keeps the secret out of logs.
func (c Client) GoString() string { return c.String() }

// String keeps the hash out of logs.
func (p Password) String() string { return "user " + p.Email }

// GoString keeps the hash out of logs.
func (p Password) GoString() string { return p.String() }

// Host returns the host of the issuer, which the certificate is for.
func (c Config) Host() (string, error) {
	u, err := url.Parse(c.Issuer)
	switch {
	case c.Issuer == "":
		return "", c.wrong(".issuer", "it is missing", "write the URL that clients reach the service by, such as https://login.example.site:32000")
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || !hostName(u.Hostname()):
		return "", c.wrong(".issuer", "it is not a URL https://HOST:PORT/PATH", "write it without user, query and fragment")
	case strings.HasSuffix(u.Path, "/"): // clients compare it byte by byte, and Dex takes it away
		return "", c.wrong(".issuer", "it ends in a slash", "leave the last slash out")
	}
	return u.Hostname(), nil
}

func hostName(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	return len(s) <= 253 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	})
}

// Text returns the configuration, which is secret. Problems are reported together.
func (c Config) Text() ([]byte, error) {
	_, err := c.Host()
	errs := []error{err, c.checkClients(), c.checkPasswords()}
	if len(c.Connectors) == 0 && len(c.Passwords) == 0 {
		errs = append(errs, c.wrong("", "nobody could log in: it has neither connectors nor staticPasswords", "add one of them"))
	}
	connectors := make([]any, 0, len(c.Connectors))
	for i, one := range c.Connectors {
		settings, err := one.settings(c.Issuer)
		if err != nil {
			errs = append(errs, c.wrong(fmt.Sprintf(".connectors[%d]", i), err.Error(), "mend it in the Secret "+one.Secret+", or in the resource; Dex documents the settings of its connectors"))
		}
		connectors = append(connectors, map[string]any{"type": one.Type, "id": one.ID, "name": first(one.Name, one.ID), "config": settings})
	}
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(c.document(connectors), "", "  ")
	if err != nil {
		return nil, &fault.Error{Reason: fault.Internal, Op: "configure login", Subject: c.Field} // the cause could quote a secret
	}
	return append(text, '\n'), nil
}

func (c Config) document(connectors []any) map[string]any {
	clients, passwords := make([]any, 0, len(c.Clients)), make([]any, 0, len(c.Passwords))
	for _, one := range c.Clients {
		client := map[string]any{"id": one.ID, "name": first(one.Name, one.ID), "redirectURIs": one.RedirectURIs, "public": one.Public}
		if !one.Public {
			client["secret"] = one.Secret
		}
		clients = append(clients, client)
	}
	for _, one := range c.Passwords {
		passwords = append(passwords, map[string]any{"email": one.Email, "username": first(one.Username, one.Email), "userID": one.UserID, "hash": one.Hash})
	}
	return map[string]any{
		"issuer":  c.Issuer,
		"storage": map[string]any{"type": "sqlite3", "config": map[string]any{"file": StateDir + "/dex.db"}},
		"web": map[string]any{
			"https": fmt.Sprintf(":%d", Port), "tlsCert": TLSDir + "/tls.crt", "tlsKey": TLSDir + "/tls.key", "tlsMinVersion": "1.2",
			"headers": map[string]any{"X-Frame-Options": "deny", "X-Content-Type-Options": "nosniff"},
		},
		"telemetry": map[string]any{"http": fmt.Sprintf(":%d", HealthPort)},
		"logger":    map[string]any{"level": "info", "format": "json"},
		"oauth2": map[string]any{
			"grantTypes": []string{"authorization_code", "refresh_token"}, "responseTypes": []string{"code"}, "skipApprovalScreen": true,
		},
		"expiry": map[string]any{
			"idTokens":      TokenLife.String(),
			"refreshTokens": map[string]any{"validIfNotUsedFor": IdleLife.String(), "absoluteLifetime": LoginLife.String(), "reuseInterval": "10s"},
		},
		"staticClients": clients, "connectors": connectors,
		"enablePasswordDB": len(passwords) > 0, "staticPasswords": passwords,
	}
}

func (c Config) checkClients() error {
	var errs []error
	if len(c.Clients) == 0 {
		errs = append(errs, c.wrong(".staticClients", "there is none, so that nobody could ask for a token", "add the program that users log in with, such as kubectl's"))
	}
	seen := map[string]bool{}
	for i, one := range c.Clients {
		field := fmt.Sprintf(".staticClients[%d]", i)
		switch {
		case one.ID == "" || unprintable(one.ID) || unprintable(one.Name):
			errs = append(errs, c.wrong(field, "its id and name have to be one line of text", "write an id"))
		case seen[one.ID]:
			errs = append(errs, c.wrong(field, fmt.Sprintf("the id %q is there twice", one.ID), "give each client another id"))
		case !one.Public && (one.Secret == "" || unprintable(one.Secret)):
			errs = append(errs, c.wrong(field, "its secret has to be one line of text that is not empty", "write it into the Secret under clientSecret, without a line break"))
		case !one.Public && len(one.RedirectURIs) == 0:
			errs = append(errs, c.wrong(field+".redirectURIs", "there is none", "write the URLs that logins end at; only a public client can do without: it is then led to localhost"))
		}
		seen[one.ID] = true
		for _, uri := range one.RedirectURIs {
			if err := checkRedirect(uri); err != "" {
				errs = append(errs, c.wrong(field+".redirectURIs", err, "write https://…, or http://localhost:PORT for a program on the user's own machine"))
			}
		}
	}
	return fault.Join(errs...)
}

// checkRedirect says what is wrong with a URL that codes are sent to.
func checkRedirect(uri string) string {
	u, err := url.Parse(uri)
	switch {
	case uri == "urn:ietf:wg:oauth:2.0:oob":
		return ""
	case err != nil || unprintable(uri) || u.Scheme == "" || u.Fragment != "" || u.User != nil:
		return fmt.Sprintf("%q is not a URL without user and fragment", uri)
	case slices.Contains([]string{"javascript", "data", "file", "vbscript", "blob", "about"}, u.Scheme):
		return fmt.Sprintf("%q has the scheme %s", uri, u.Scheme)
	case (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() == "":
		return fmt.Sprintf("%q names no host", uri)
	case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
		return fmt.Sprintf("%q sends codes over the network without TLS", uri)
	}
	return ""
}

func (c Config) checkPasswords() error {
	var errs []error
	seen := map[string]bool{}
	for i, one := range c.Passwords {
		field := fmt.Sprintf(".staticPasswords[%d]", i)
		email := strings.ToLower(one.Email) // as Dex compares it
		cost, err := bcrypt.Cost([]byte(one.Hash))
		switch {
		case email == "" || one.UserID == "" || unprintable(one.Email+one.UserID+one.Username):
			errs = append(errs, c.wrong(field, "its email, username and userID have to be one line of text", "write email and userID"))
		case seen[email]:
			errs = append(errs, c.wrong(field, fmt.Sprintf("the email %q is there twice", email), "leave one of them out"))
		case err != nil:
			errs = append(errs, c.wrong(field, "its hash is not one of bcrypt", "write what `htpasswd -BinC 12 x | cut -d: -f2` prints into the Secret under hash"))
		case cost < bcrypt.DefaultCost:
			errs = append(errs, c.wrong(field, fmt.Sprintf("its hash has the cost %d, expected at least %d", cost, bcrypt.DefaultCost), "write what `htpasswd -BinC 12 x | cut -d: -f2` prints into the Secret under hash"))
		}
		seen[email] = true
	}
	return fault.Join(errs...)
}

func (c Config) wrong(field, why, hint string) error {
	return &fault.Error{Reason: fault.InvalidInput, Op: "configure login", Subject: c.Field + field, Hint: hint, Err: fmt.Errorf("%s", why)}
}

func unprintable(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r == '\ufffd' })
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
