package dex

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const secret = `s3cret-$HOME-{{.}}-"\`

func good(settings string) Config {
	return Config{Field: "spec.services.auth[0]", Issuer: "https://login.site:30556/dex", Settings: []byte(settings)}
}

// What comes in is what Dex reads, to the byte; where it runs is the pod's business.
func TestSettingsPassThrough(t *testing.T) {
	text, connectors, err := good(`
logger: {level: debug}
oauth2: {alwaysShowLoginScreen: true}
issuer: https://other
Storage: {type: memory}
staticClients: [{id: console, secret: '` + secret + `'}]
connectors: [{type: ldap, id: l, config: {bindPW: '` + secret + `', future: {setting: 1}}}, {type: github, id: g},
  {type: oidc, id: o, config: {clientID: c}}, {type: oidc, id: p, config: {RedirectURI: https://own}}]
staticPasswords: [{email: alice@site}]
`).Text()
	require.NoError(t, err)
	require.Equal(t, []string{"ldap", "github", "oidc", "oidc"}, connectors)
	var got struct {
		Issuer          string
		Storage, Logger struct{ Type, Level string }
		OAuth2, Expiry  map[string]any
		StaticClients   []struct{ ID, Secret string }
		Connectors      []struct{ Config map[string]any }

		EnablePasswordDB bool
	}
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, "https://login.site:30556/dex", got.Issuer)
	require.Equal(t, "kubernetes", got.Storage.Type, "whatever configSecret says, in whatever letters")
	require.NotContains(t, string(text), "memory")
	require.Equal(t, "debug", got.Logger.Level)
	require.Equal(t, map[string]any{"alwaysShowLoginScreen": true}, got.OAuth2)
	require.Equal(t, "1h", got.Expiry["idTokens"])
	require.Equal(t, secret, got.StaticClients[0].Secret)
	require.Equal(t, map[string]any{"bindPW": secret, "future": map[string]any{"setting": 1.0}}, got.Connectors[0].Config)
	back := "https://login.site:30556/dex/callback"
	require.Equal(t, map[string]any{"clientID": "c", "redirectURI": back}, got.Connectors[2].Config)
	require.Equal(t, map[string]any{"RedirectURI": "https://own"}, got.Connectors[3].Config)
	require.True(t, got.EnablePasswordDB)
	text, _, err = good("enablePasswordDB: false\nstaticPasswords: [{email: alice@site}]").Text()
	require.NoError(t, err)
	require.Contains(t, string(text), `"enablePasswordDB": false`)
}

// Mistakes are told with the field and a hint, and never with a secret.
func TestBadInputIsRefused(t *testing.T) {
	for want, settings := range map[string]string{
		"connectors[0]: insecureNoSSL is refused":                   "connectors: [{config: {insecureNoSSL: true}}]",
		"connectors[1]: insecureSkipSignatureValidation is refused": "connectors: [{}, {config: {InsecureSkipSignatureValidation: true}}]",
		"each name once line 2":                                     "host: a\nbindPW: '" + secret + "'\nbindPW: [" + secret + "\n",
		"connectors[0]: config is there in other letters":           "connectors: [{Config: {insecureNoSSL: true}}]",
		"connectors is there in other letters":                      "Connectors: [{type: ldap}]\nconnectors: [{type: ldap}]",
		"there are neither connectors nor staticPasswords":          "staticClients: [{id: console}]",
		".configSecret: config.yaml is not YAML of names":           "- " + secret,
	} {
		_, _, err := good(settings).Text()
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "configure login spec.services.auth[0]", want)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), want)
		require.NotEmpty(t, fault.HintOf(err), want)
		require.NotContains(t, fault.Text(err), "s3cret", want)
	}
	for _, issuer := range []string{"", "https://login.site/"} {
		_, err := Config{Issuer: issuer}.Host()
		require.ErrorContains(t, err, "it is missing, no URL, or ends in a slash")
	}
}
