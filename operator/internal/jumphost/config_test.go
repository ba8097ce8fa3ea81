package jumphost_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

func publicLine(t *testing.T) string {
	t.Helper()
	data, err := jumphost.NewHostKey()
	require.NoError(t, err)
	signer, err := jumphost.ParseHostKey("key", data)
	require.NoError(t, err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
}

func TestConfigRoundTrips(t *testing.T) {
	line := publicLine(t)
	config := `{"apiVersion": "vdo.vmware.com/jumphost/v1", "kind": "JumpHost", "cluster": "tenants/sub-1",
	  "authorizedKeys": ["` + line + ` alice@site"], "ports": ["22", "30000-32767"],
	  "hosts": [{"name": "node02", "role": "Worker", "addresses": ["::ffff:10.0.0.12"]},
	            {"name": "node01", "role": "ControlPlane", "addresses": ["10.0.0.11", "fd00::11"]}]}`
	c, err := jumphost.ParseConfig("config.json", []byte(config))
	require.NoError(t, err)
	require.Equal(t, "node01", c.Hosts[0].Name)
	require.Equal(t, "alice@site", c.Keys[0].Comment)

	data, err := c.Marshal()
	require.NoError(t, err)
	again, err := jumphost.ParseConfig("config.json", data)
	require.NoError(t, err)
	require.Equal(t, c, again)

	_, at, ok := c.Find("NODE01")
	require.True(t, ok)
	require.Len(t, at, 2)
	host, at, ok := c.Find("::ffff:10.0.0.12")
	require.True(t, ok)
	require.Equal(t, "node02", host.Name)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.0.0.12")}, at)
	for _, stranger := range []string{"", "10.0.0.13", "node", "node011", "localhost", "10.0.0.011", "fd00::11%eth0", "10.0.0.11 ", "node01.", "167772171", "0x0a00000b"} {
		_, _, ok := c.Find(stranger)
		require.False(t, ok, "%q is a host of none", stranger)
	}
	for port, want := range map[uint32]bool{0: false, 21: false, 22: true, 23: false, 29999: false, 30000: true, 32767: true, 32768: false, 65558: false} {
		require.Equal(t, want, c.Allows(port), port)
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	line := publicLine(t)
	head := `"apiVersion": "vdo.vmware.com/jumphost/v1", "kind": "JumpHost", "cluster": "a/b"`
	rest := func(keys, ports, hosts string) string {
		return "{" + head + `, "authorizedKeys": [` + keys + `], "ports": [` + ports + `], "hosts": [` + hosts + `]}`
	}
	for name, c := range map[string]struct{ config, want string }{
		"empty":            {``, "not the JSON"},
		"no JSON":          {`{"a`, "not the JSON"},
		"twice":            {rest("", "", "") + "{}", "after the JSON object"},
		"unknown key":      {`{"shell": true}`, `unknown field "shell"`},
		"another kind":     {`{"apiVersion": "v1", "kind": "Secret"}`, `kind: "Secret" is not JumpHost`},
		"a number":         {`{"ports": [22]}`, "ports: is not of the expected type"},
		"options":          {rest(`"command=\"ls\" `+line+`"`, "", ""), "options"},
		"not a key":        {rest(`"ssh-ed25519 AAAA"`, "", ""), "authorizedKeys[0]"},
		"a private key":    {rest(`"-----BEGIN OPENSSH PRIVATE KEY-----"`, "", ""), "private key"},
		"two keys":         {rest(`"`+line+`\n`+line+`"`, "", ""), "not one line"},
		"port 0":           {rest("", `"0"`, ""), "neither a port"},
		"port 65536":       {rest("", `"65536"`, ""), "neither a port"},
		"inverted":         {rest("", `"23-22"`, ""), "neither a port"},
		"a word":           {rest("", `"ssh"`, ""), "neither a port"},
		"upper case":       {rest("", "", `{"name": "Node", "addresses": []}`), "not a name"},
		"an address":       {rest("", "", `{"name": "10.0.0.1", "addresses": []}`), "not a name"},
		"a path":           {rest("", "", `{"name": "../node", "addresses": []}`), "not a name"},
		"a name twice":     {rest("", "", `{"name": "a", "addresses": []}, {"name": "a", "addresses": []}`), "there twice"},
		"an address twice": {rest("", "", `{"name": "a", "addresses": ["10.0.0.1"]}, {"name": "b", "addresses": ["::ffff:10.0.0.1"]}`), "is also that of a"},
		"unspecified":      {rest("", "", `{"name": "a", "addresses": ["0.0.0.0"]}`), "not an address of a host"},
		"itself":           {rest("", "", `{"name": "a", "addresses": ["::ffff:127.0.0.2"]}`), "not an address of a host"},
		"multicast":        {rest("", "", `{"name": "a", "addresses": ["ff02::1"]}`), "not an address of a host"},
		"metadata":         {rest("", "", `{"name": "a", "addresses": ["169.254.169.254"]}`), "not an address of a host"},
		"a zone":           {rest("", "", `{"name": "a", "addresses": ["fd00::1%eth0"]}`), "not an address of a host"},
		"no address":       {rest("", "", `{"name": "a", "addresses": ["x"]}`), "not the JSON"},
		"large":            {strings.Repeat(" ", jumphost.MaxFileSize+1), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := jumphost.ParseConfig("config.json", []byte(c.config))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "config.json")
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			require.NotEmpty(t, fault.HintOf(err))
		})
	}
}

func TestWeakKeysAreRefused(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	public, err := ssh.NewPublicKey(&weak.PublicKey)
	require.NoError(t, err)
	_, err = jumphost.ParseAuthorizedKey(string(ssh.MarshalAuthorizedKey(public)))
	require.ErrorContains(t, err, "fewer than 2048 bits")

	block, err := ssh.MarshalPrivateKeyWithPassphrase(weak, "", []byte("hush"))
	require.NoError(t, err)
	_, err = jumphost.ParseHostKey("id_rsa", pem.EncodeToMemory(block))
	require.ErrorContains(t, err, "encrypted")
	_, err = jumphost.ParseHostKey("id_rsa", []byte("hush-hush"))
	require.ErrorContains(t, err, "id_rsa")
	require.NotContains(t, err.Error(), "hush-hush")
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"apiVersion": "vdo.vmware.com/jumphost/v1", "kind": "JumpHost", "cluster": "a/b", "authorizedKeys": [], "ports": ["22", "1-2"], "hosts": [{"name": "a", "role": "r", "addresses": ["10.0.0.1", "fd00::1"]}]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := jumphost.ParseConfig("config.json", data)
		if err != nil {
			return
		}
		out, err := c.Marshal()
		require.NoError(t, err)
		again, err := jumphost.ParseConfig("config.json", out)
		require.NoError(t, err, "%s", out)
		final, err := again.Marshal()
		require.NoError(t, err)
		require.Equal(t, string(out), string(final))
		for _, h := range c.Hosts {
			for _, a := range h.Addresses {
				got, _, ok := c.Find(a.String())
				require.True(t, ok)
				require.Equal(t, h.Name, got.Name)
			}
		}
	})
}
