package dex

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

const secret = `s3cret-$HOME-{{.}}-"\`

var hashOf = func() string {
	hash, err := bcrypt.GenerateFromPassword([]byte("password"), bcrypt.DefaultCost)
	if err != nil {
		panic(err)
	}
	return string(hash)
}()

func ldap(settings string) Connector {
	return Connector{Type: "ldap", ID: "ldap", Secret: "ldap", Settings: []byte("host: ldap.site\nuserSearch: {baseDN: dc=site, username: uid}\n" + settings)}
}

func oidc(settings string) Connector {
	return Connector{Type: "oidc", ID: "upstream", Secret: "oidc", Settings: []byte("issuer: https://idp.site\nclientID: dex\nclientSecret: x\n" + settings)}
}

func saml(t testing.TB, settings string) Connector {
	return Connector{Type: "saml", ID: "saml", Secret: "saml", Settings: []byte("ssoURL: https://idp.site/sso\nusernameAttr: name\nemailAttr: mail\ncaData: " + base64.StdEncoding.EncodeToString(caOf(t)) + "\n" + settings)}
}

func caOf(t testing.TB) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pki.Root(t, "idp").Certificate.Raw})
}

func good(t testing.TB) Config {
	return Config{
		Field: "spec.services.auth[0]", Issuer: "https://login.site:30556/dex",
		Clients:    []Client{{ID: "console", Secret: secret, RedirectURIs: []string{"https://console.site/cb"}}, {ID: "kubectl", Public: true}},
		Connectors: []Connector{ldap("bindPW: '" + secret + "'\n"), oidc(""), saml(t, "")},
		Passwords:  []Password{{Email: "a@site", UserID: "1", Hash: hashOf}},
	}
}

// What comes in is what Dex reads, to the byte, and providers are told to answer here.
func TestTextIsWhatWasAskedFor(t *testing.T) {
	text, err := good(t).Text()
	require.NoError(t, err)
	var got struct {
		Issuer  string
		Storage struct {
			Type   string
			Config struct{ File string }
		}
		StaticClients []struct {
			ID, Name, Secret string
			RedirectURIs     []string
			Public           bool
		}
		Connectors []struct {
			Type, ID, Name string
			Config         map[string]any
		}
		EnablePasswordDB bool
		StaticPasswords  []struct{ Email, UserID, Hash string }
	}
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, "https://login.site:30556/dex", got.Issuer)
	require.Equal(t, "sqlite3", got.Storage.Type)
	require.True(t, strings.HasPrefix(got.Storage.Config.File, StateDir+"/"))
	require.Equal(t, secret, got.StaticClients[0].Secret)
	require.Equal(t, []string{"https://console.site/cb"}, got.StaticClients[0].RedirectURIs)
	require.True(t, got.StaticClients[1].Public)
	require.Empty(t, got.StaticClients[1].Secret)
	require.Equal(t, secret, got.Connectors[0].Config["bindPW"])
	require.NotContains(t, got.Connectors[0].Config, "redirectURI")
	for _, c := range got.Connectors[1:] {
		require.Equal(t, "https://login.site:30556/dex/callback", c.Config["redirectURI"])
	}
	require.True(t, got.EnablePasswordDB)
	require.Equal(t, hashOf, got.StaticPasswords[0].Hash)
	c := good(t)
	c.Passwords = nil
	text, err = c.Text()
	require.NoError(t, err)
	require.Contains(t, string(text), `"enablePasswordDB": false`)
}

func TestTargets(t *testing.T) {
	for want, connectors := range map[string][]Connector{
		"[]":            {saml(t, "")},
		"[{636}]":       {ldap("")},
		"[{389}]":       {ldap("startTLS: true\n"), ldap("insecureNoSSL: true\n")},
		"[{1636}]":      {{Type: "ldap", ID: "a", Settings: []byte("host: 'ldap.site:1636'\nuserSearch: {baseDN: a, username: b}\n")}},
		"[{636} {0}]":   {ldap(""), oidc("")},
		"[{63600} {0}]": {{Type: "ldap", ID: "a", Settings: []byte("host: '[fd00::1]:63600'\nuserSearch: {baseDN: a, username: b}\n")}, oidc("")},
	} {
		require.Equal(t, want, fmt.Sprint(Config{Issuer: "https://a", Connectors: connectors}.Targets()))
	}
}

// Every mistake is told with its field and a hint, and never with a secret.
func TestBadInputIsRefused(t *testing.T) {
	path := "rootCA: /etc/passwd\n"
	for want, change := range map[string]func(*Config){
		".issuer: it is missing":                func(c *Config) { c.Issuer = "" },
		".issuer: it is not a URL https":        func(c *Config) { c.Issuer = "http://login.site" },
		".issuer: it ends in a slash":           func(c *Config) { c.Issuer = "https://login.site/" },
		"nobody could log in":                   func(c *Config) { c.Connectors, c.Passwords = nil, nil },
		".staticClients: there is none":         func(c *Config) { c.Clients = nil },
		`.staticClients[1]: the id "console"`:   func(c *Config) { c.Clients[1].ID = "console" },
		".staticClients[0]: its secret has":     func(c *Config) { c.Clients[0].Secret = secret + "\n" + secret },
		".staticClients[0].redirectURIs: there": func(c *Config) { c.Clients[0].RedirectURIs = nil },
		"sends codes over the network":          func(c *Config) { c.Clients[0].RedirectURIs = []string{"http://console.site/cb"} },
		"has the scheme javascript":             func(c *Config) { c.Clients[0].RedirectURIs = []string{"javascript:alert(1)"} },
		"its hash is not one of bcrypt":         func(c *Config) { c.Passwords[0].Hash = secret },
		"its hash has the cost 4":               func(c *Config) { c.Passwords[0].Hash = weak(t) },
		"the email \"a@site\" is there twice": func(c *Config) {
			c.Passwords = append(c.Passwords, Password{Email: "A@site", UserID: "2", Hash: hashOf})
		},
		`.connectors[0]: the type "github"`:  func(c *Config) { c.Connectors[0].Type = "github" },
		"not local":                          func(c *Config) { c.Connectors[0].ID = "local" },
		"rootCA is refused: it names a file": func(c *Config) { c.Connectors[0] = ldap(path) },
		"bindPw is not a setting that Dex":   func(c *Config) { c.Connectors[0] = ldap("bindPw: " + "'" + secret + "'\n") },
		"userSearch has to have names": func(c *Config) {
			c.Connectors[0] = Connector{Type: "ldap", ID: "l", Settings: []byte("host: a\nuserSearch: x\n")}
		},
		"userSearch.baseDn is not a setting": func(c *Config) {
			c.Connectors[0] = Connector{Type: "ldap", ID: "l", Settings: []byte("host: a\nuserSearch: {baseDn: x, username: y}\n")}
		},
		"rootCAs has to be a list of": func(c *Config) { c.Connectors[1] = oidc("rootCAs: [/etc/ssl/x.pem]\n") },
		"claimModifications.filterGroupClaims.groupFilter is not a setting": func(c *Config) {
			c.Connectors[1] = oidc("claimModifications: {filterGroupClaims: {groupFilter: x}}\n")
		},
		"claimModifications.newGroupFromClaims.claim is not a setting": func(c *Config) {
			c.Connectors[1] = oidc("claimModifications: {newGroupFromClaims: [{claims: [a]}, {claim: b}]}\n")
		},
		"claimModifications.modifyGroupNames has to have names": func(c *Config) {
			c.Connectors[1] = oidc("claimModifications: {modifyGroupNames: x}\n")
		},
		"groupSearch.userMatchers.groupAttrr is not a setting": func(c *Config) {
			c.Connectors[0] = ldap("groupSearch: {userMatchers: [{userAttr: a, groupAttrr: b}]}\n")
		},
		"redirectURI is not https://login": func(c *Config) { c.Connectors[1] = oidc("redirectURI: https://evil.site/callback\n") },
		"clientSecret is missing": func(c *Config) {
			c.Connectors[1].Settings = []byte("issuer: https://idp.site\nclientID: x\nclientSecret: ''\n")
		},
		"insecureSkipSignatureValidation is refused: anybody": func(c *Config) { c.Connectors[2] = saml(t, "insecureSkipSignatureValidation: true\n") },
		"caData is not base64 of a PEM": func(c *Config) {
			c.Connectors[2].Settings = []byte("ssoURL: a\nusernameAttr: b\nemailAttr: c\ncaData: eA==\n")
		},
		"config.yaml is not YAML of names and values, each name once (line": func(c *Config) {
			c.Connectors[0].Settings = []byte("host: a\nbindPW: '" + secret + "'\nbindPW: [" + secret + "\n")
		},
		"a name that is not shown here": func(c *Config) { c.Connectors[0] = ldap("\"" + "s3cret-$HOME" + "\": x\n") },
	} {
		c := good(t)
		change(&c)
		_, err := c.Text()
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "configure login spec.services.auth[0]", want)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), want)
		require.NotEmpty(t, fault.HintOf(err), want)
		require.NotContains(t, fault.Text(err), "s3cret", want)
	}
}

// What Dex reads below the second level is let through.
func TestDeepSettingsAreTaken(t *testing.T) {
	c := good(t)
	c.Connectors = []Connector{
		ldap("groupSearch: {userMatchers: [{userAttr: a, groupAttr: b, recursionGroupAttr: c}]}\n"),
		oidc("claimModifications: {newGroupFromClaims: [{claims: [a], delimiter: '-', clearDelimiter: true, prefix: p}], filterGroupClaims: {groupsFilter: '^x'}, modifyGroupNames: {prefix: a, suffix: b}}\n"),
	}
	_, err := c.Text()
	require.NoError(t, err)
}

func weak(t *testing.T) string {
	hash, err := bcrypt.GenerateFromPassword([]byte("x"), bcrypt.MinCost)
	require.NoError(t, err)
	return string(hash)
}

// Nothing in a value can become another setting, and no error shows a value.
func FuzzValuesStayValues(f *testing.F) {
	for _, s := range []string{secret, "a\nb: c", `"`, "}", "'", "#", "${X}", "\u2028", "é", "", "!!binary x", "&a *a"} {
		f.Add(s, "bindPW: x\n")
		f.Add("x", s)
		f.Add("x", "bindPW: "+s+"\n")
	}
	f.Fuzz(func(t *testing.T, value, settings string) {
		c := Config{
			Issuer: "https://a", Clients: []Client{{ID: "c", Secret: value, RedirectURIs: []string{"https://a/" + value}}},
			Connectors: []Connector{ldap(settings)},
		}
		text, err := c.Text()
		if err != nil {
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), err)
			return
		}
		var got struct {
			Issuer        string
			StaticClients []struct{ Secret string }
		}
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, "https://a", got.Issuer)
		require.Len(t, got.StaticClients, 1)
		require.Equal(t, strings.ToValidUTF8(value, "\ufffd"), got.StaticClients[0].Secret)
	})
}

func TestNothingPrintsSecrets(t *testing.T) {
	c := good(t)
	for _, v := range []any{c, c.Clients[0], c.Connectors[0], c.Passwords[0], &c, c.Clients} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			text := fmt.Sprintf(verb, v)
			require.NotContains(t, text, "s3cret")
			require.NotContains(t, text, hashOf)
		}
	}
}
