package dex

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
)

// Connector is a provider of users. It does not print.
type Connector struct {
	Type     string // ldap, oidc or saml
	ID, Name string
	Secret   string // the Secret's name, for hints
	Settings []byte // YAML of the connector's config, as Dex documents it
}

// String keeps the settings out of logs.
func (c Connector) String() string { return "connector " + c.ID }

// GoString keeps the settings out of logs.
func (c Connector) GoString() string { return c.String() }

// kind is what the settings of one type of connector may have.
type kind struct {
	known    []string
	nested   map[string][]string
	deep     map[string][]string // what is in what is nested: in one, or in each of a list
	required []string
	refused  map[string]string // with what to do
}

const noFiles = "it names a file, and the pod has none of yours: "

// What Dex 2.44 knows.
var kinds = map[string]kind{
	"ldap": {
		known: []string{
			"host", "insecureNoSSL", "insecureSkipVerify", "startTLS", "rootCAData", "bindDN", "bindPW", "usernamePrompt", "userSearch", "groupSearch",
		},
		nested: map[string][]string{
			"userSearch":  {"baseDN", "filter", "username", "scope", "idAttr", "emailAttr", "nameAttr", "preferredUsernameAttr", "emailSuffix"},
			"groupSearch": {"baseDN", "filter", "scope", "userAttr", "groupAttr", "recursionGroupAttr", "userMatchers", "nameAttr"},
		},
		deep:     map[string][]string{"groupSearch.userMatchers": {"userAttr", "groupAttr", "recursionGroupAttr"}},
		required: []string{"host", "userSearch.baseDN", "userSearch.username"},
		refused: map[string]string{
			"rootCA": noFiles + "use rootCAData", "clientCert": noFiles + "use bindDN and bindPW", "clientKey": noFiles + "use bindDN and bindPW",
		},
	},
	"oidc": {
		known: []string{
			"issuer", "issuerAlias", "clientID", "clientSecret", "redirectURI", "providerDiscoveryOverrides", "basicAuthUnsupported", "scopes", "rootCAs",
			"insecureSkipEmailVerified", "insecureEnableGroups", "allowedGroups", "acrValues", "insecureSkipVerify", "getUserInfo", "userIDKey", "userNameKey",
			"promptType", "overrideClaimMapping", "claimMapping", "claimModifications",
		},
		nested: map[string][]string{
			"providerDiscoveryOverrides": {"tokenURL", "authURL", "jwksURL"},
			"claimMapping":               {"preferred_username", "email", "groups"},
			"claimModifications":         {"newGroupFromClaims", "filterGroupClaims", "modifyGroupNames"},
		},
		deep: map[string][]string{
			"claimModifications.newGroupFromClaims": {"claims", "delimiter", "clearDelimiter", "prefix"},
			"claimModifications.filterGroupClaims":  {"groupsFilter"},
			"claimModifications.modifyGroupNames":   {"prefix", "suffix"},
		},
		required: []string{"issuer", "clientID", "clientSecret"},
		refused:  map[string]string{"hostedDomains": "Dex does not look at it any more: use allowedGroups"},
	},
	"saml": {
		known: []string{
			"entityIssuer", "ssoIssuer", "ssoURL", "caData", "usernameAttr", "emailAttr", "groupsAttr", "groupsDelim", "allowedGroups", "filterGroups",
			"redirectURI", "nameIDPolicyFormat",
		},
		required: []string{"ssoURL", "caData", "usernameAttr", "emailAttr"},
		refused: map[string]string{
			"ca": noFiles + "use caData", "insecureSkipSignatureValidation": "anybody could log in as anybody: use caData",
		},
	},
}

var lineOfError = regexp.MustCompile(`line \d+`)

// settings reads and checks the connector's settings, for a provider of that issuer.
// Errors never quote them.
func (c Connector) settings(issuer string) (map[string]any, error) {
	k, ok := kinds[c.Type]
	if !ok {
		return nil, fmt.Errorf("the type %q is not ldap, oidc or saml", c.Type)
	}
	if c.ID == "" || c.ID == "local" || unprintable(c.ID) || unprintable(c.Name) || strings.ContainsAny(c.ID, "/?#") {
		return nil, errors.New("its id has to be one line of text without / ? and #, and not local, which is what Dex calls staticPasswords")
	}
	var settings map[string]any
	if err := yaml.UnmarshalStrict(c.Settings, &settings); err != nil {
		return nil, fmt.Errorf("config.yaml is not YAML of names and values, each name once (%s)", first(lineOfError.FindString(err.Error()), "where is not known"))
	}
	if err := errors.Join(k.check(settings), checkTrust(settings)); err != nil {
		return nil, err
	}
	if slices.Contains(k.known, "redirectURI") {
		callback := issuer + "/callback"
		if uri, given := settings["redirectURI"]; given && uri != callback {
			return nil, fmt.Errorf("redirectURI is not %s, which is where this provider takes answers: leave it out", callback)
		}
		settings["redirectURI"] = callback
	}
	return settings, nil
}

func (k kind) check(settings map[string]any) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if hint, refused := k.refused[name]; refused {
			errs = append(errs, fmt.Errorf("%s is refused: %s", name, hint))
		} else if !slices.Contains(k.known, name) {
			errs = append(errs, unknown(name, k.known))
		}
		known, nested := k.nested[name]
		inner, isMap := settings[name].(map[string]any)
		switch {
		case nested && !isMap:
			errs = append(errs, fmt.Errorf("%s has to have names and values", name))
		case nested:
			errs = append(errs, k.checkNested(name, inner, known)...)
		}
	}
	for _, name := range k.required {
		if text, ok := at(settings, name).(string); !ok || text == "" {
			errs = append(errs, fmt.Errorf("%s is missing, or not text", name))
		}
	}
	return errors.Join(errs...)
}

// checkNested checks what is in the settings below name, and what is in those. Dex ignores
// a setting that it does not know: with a name misspelt, groups would not be filtered.
func (k kind) checkNested(name string, inner map[string]any, known []string) []error {
	var errs []error
	for _, in := range slices.Sorted(maps.Keys(inner)) {
		at := name + "." + in
		deep, has := k.deep[at]
		switch {
		case !slices.Contains(known, in):
			errs = append(errs, unknown(at, known))
		case has:
			errs = append(errs, checkDeep(at, inner[in], deep)...)
		}
	}
	return errs
}

// checkDeep checks names and values, or a list of such.
func checkDeep(name string, value any, known []string) []error {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	var errs []error
	for _, one := range list {
		settings, isMap := one.(map[string]any)
		if !isMap {
			errs = append(errs, fmt.Errorf("%s has to have names and values", name))
		}
		for _, in := range slices.Sorted(maps.Keys(settings)) {
			if !slices.Contains(known, in) {
				errs = append(errs, unknown(name+"."+in, known))
			}
		}
	}
	return errs
}

// unknown names a setting that is not known. A name is quoted as far as it is one: a
// mistake in indentation can make a name of a secret.
func unknown(name string, known []string) error {
	if !regexp.MustCompile(`^[A-Za-z][A-Za-z_.]{0,79}$`).MatchString(name) {
		name = "a name that is not shown here"
	}
	return fmt.Errorf("%s is not a setting that Dex knows; it knows %s", name, strings.Join(known, ", "))
}

func at(settings map[string]any, path string) any {
	outer, inner, nested := strings.Cut(path, ".")
	if !nested {
		return settings[outer]
	}
	m, _ := settings[outer].(map[string]any)
	return m[inner]
}

// checkTrust checks what is trusted: PEM itself, never a file's name.
func checkTrust(settings map[string]any) error {
	var errs []error
	for _, name := range []string{"rootCAData", "caData"} {
		if v, given := settings[name]; given && !isPEM(v, false) {
			errs = append(errs, fmt.Errorf("%s is not base64 of a PEM certificate", name))
		}
	}
	roots, given := settings["rootCAs"]
	list, isList := roots.([]any)
	if given && (!isList || slices.ContainsFunc(list, func(v any) bool { return !isPEM(v, true) })) {
		errs = append(errs, errors.New("rootCAs has to be a list of certificates in PEM, not of files"))
	}
	return errors.Join(errs...)
}

// isPEM tells whether a value is base64 of PEM certificates alone, or, where plain is allowed,
// one itself.
func isPEM(v any, plain bool) bool {
	text, _ := v.(string)
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil && plain {
		data = []byte(text)
	}
	_, err = certificate.Public(data)
	return err == nil
}

// Target is where a connector makes connections to.
type Target struct {
	Port uint16 // 0 for any: where a provider's parts are is known when it is asked
}

// Targets returns what the connectors connect to; those of SAML connect to nothing. It
// says nothing about connectors that cannot be read.
func (c Config) Targets() []Target {
	var out []Target
	for _, one := range c.Connectors {
		settings, err := one.settings(c.Issuer)
		if err != nil || one.Type == "saml" {
			continue
		}
		target := Target{}
		if host, _ := settings["host"].(string); one.Type == "ldap" {
			target.Port = ldapPort(host, settings["startTLS"] == true || settings["insecureNoSSL"] == true)
		}
		if !slices.Contains(out, target) {
			out = append(out, target)
		}
	}
	return out
}

// ldapPort is the port of HOST[:PORT], as Dex guesses it where there is none.
func ldapPort(host string, plain bool) uint16 {
	if u, err := url.Parse("ldap://" + host); err == nil && u.Port() != "" {
		var port uint16
		if _, err := fmt.Sscanf(u.Port(), "%d", &port); err == nil {
			return port
		}
	}
	if plain {
		return 389
	}
	return 636
}
