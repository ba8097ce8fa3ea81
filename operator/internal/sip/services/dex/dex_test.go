package dex

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const secret = `s3cret-$HOME-{{.}}-"\`

func good() Config {
	return Config{
		Field: "spec.services.auth[0]", Issuer: "https://login.site:30556/dex",
		Settings: []byte("logger: {level: debug}\noauth2: {alwaysShowLoginScreen: true}\nissuer: https://other\nstorage: {type: memory}\n"),
		Clients:  []map[string]any{{"id": "console", "secret": secret}},
		Connectors: []Connector{
			{Type: "ldap", ID: "ldap", Name: "LDAP", Settings: []byte("host: ldap.site\nbindPW: '" + secret + "'\nfuture: {setting: 1}\n")},
			{Type: "github", ID: "github", Settings: []byte("clientID: x\n")},
			{Type: "oidc", ID: "oidc", Settings: []byte("redirectURI: https://proxy.site/callback\n")},
		},
		Passwords: []map[string]any{{"email": "a@site", "hash": "$2a$10$x"}},
	}
}

// What comes in is what Dex reads, to the byte; where it runs is the pod's business.
func TestSettingsPassThrough(t *testing.T) {
	text, err := good().Text()
	require.NoError(t, err)
	var got struct {
		Issuer          string
		Storage, Logger struct{ Type, Level string }
		OAuth2, Expiry  map[string]any
		StaticClients   []struct{ ID, Secret string }
		Connectors      []struct {
			Type, ID, Name string
			Config         map[string]any
		}
		EnablePasswordDB bool
		StaticPasswords  []struct{ Email, Hash string }
	}
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, "https://login.site:30556/dex", got.Issuer)
	require.Equal(t, "sqlite3", got.Storage.Type, "whatever configSecret says")
	require.Equal(t, "debug", got.Logger.Level)
	require.Equal(t, map[string]any{"alwaysShowLoginScreen": true}, got.OAuth2)
	require.Equal(t, "1h", got.Expiry["idTokens"])
	require.Equal(t, secret, got.StaticClients[0].Secret)
	require.Equal(t, "LDAP", got.Connectors[0].Name)
	require.Equal(t, map[string]any{"host": "ldap.site", "bindPW": secret, "future": map[string]any{"setting": 1.0}}, got.Connectors[0].Config)
	require.Equal(t, "https://login.site:30556/dex/callback", got.Connectors[1].Config["redirectURI"])
	require.Equal(t, "https://proxy.site/callback", got.Connectors[2].Config["redirectURI"])
	require.True(t, got.EnablePasswordDB)
	require.Equal(t, "$2a$10$x", got.StaticPasswords[0].Hash)
}

// Mistakes are told with the field and a hint, and never with a secret.
func TestBadInputIsRefused(t *testing.T) {
	connector := func(settings string) func(*Config) {
		return func(c *Config) { c.Connectors[0].Settings = []byte(settings) }
	}
	for want, change := range map[string]func(*Config){
		".issuer: it is missing":    func(c *Config) { c.Issuer = "" },
		"or ends in a slash":        func(c *Config) { c.Issuer = "https://login.site/" },
		`Dex calls staticPasswords`: func(c *Config) { c.Connectors[0].ID = "local" },
		"insecureNoSSL is refused":  connector("insecureNoSSL: true\n"),
		".connectors[0].secret: insecureSkipSignatureValidation is refused": connector("insecureSkipSignatureValidation: true\n"),
		"it has insecureNoSSL in other letters":                             connector("InsecureNoSSL: true\n"),
		"it has web in other letters":                                       func(c *Config) { c.Settings = []byte("Web: {http: ':80'}") },
		"each name once line 2":                                             connector("host: a\nbindPW: '" + secret + "'\nbindPW: [" + secret + "\n"),
		"names and values, each":                                            connector(secret),
		".configSecret: config.yaml":                                        func(c *Config) { c.Settings = []byte("- " + secret) },
	} {
		c := good()
		change(&c)
		_, err := c.Text()
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "configure login spec.services.auth[0]", want)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), want)
		require.NotEmpty(t, fault.HintOf(err), want)
		require.NotContains(t, fault.Text(err), "s3cret", want)
	}
}
