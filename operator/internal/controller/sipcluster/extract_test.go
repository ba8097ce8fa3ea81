package sipcluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

const networkData = `{
 "links": [{"id": "eno4", "type": "phy", "mtu": 1500}, {"id": "bond0.41", "type": "vlan", "vlan_link": "bond0"}],
 "networks": [
  {"id": "oam-ipv6", "type": "ipv6", "link": "bond0.41", "network_id": "oam", "ip_address": "2001:1890:1001:293d::139", "routes": [{"network": "::/0", "gateway": "2001:1890:1001:293d::1"}]},
  {"id": "oam-ipv4", "type": "ipv4", "link": "bond0.41", "network_id": "oam", "ip_address": "32.68.51.139", "netmask": "255.255.255.128"},
  {"id": "pxe", "type": "ipv4", "link": "eno4", "ip_address": "172.30.0.11/25"},
  {"id": "pxe", "type": "ipv6", "link": "eno4", "ip_address": "fd00:900:100:138::11"},
  {"id": "twice", "type": "ipv4", "link": "a", "ip_address": "10.0.0.1"},
  {"id": "twice", "type": "ipv4", "link": "b", "ip_address": "10.0.0.2"},
  {"id": "dynamic", "type": "ipv4_dhcp", "link": "eno5"},
  {"id": "wrong", "type": "ipv4", "link": "c", "ip_address": "10.0.0"},
  {"id": "local", "type": "ipv4", "link": "d", "ip_address": "127.0.0.1"},
  {"id": "linklocal", "type": "ipv6", "link": "e", "ip_address": "fe80::1"}
 ]}`

const asYAML = `
networks:
  - {id: only, type: ipv4, link: eth0, ip_address: 10.0.0.5}
  - {id: also, type: ipv6, link: eth0, ip_address: "fd00::5"}
`

func TestAddressesOfNetworkData(t *testing.T) {
	for name, c := range map[string]struct {
		networks, id string
		want         []string
		reason       fault.Reason
		message      string
	}{
		"v4":                 {networks: networkData, id: "oam-ipv4", want: []string{"32.68.51.139"}},
		"v6":                 {networks: networkData, id: "oam-ipv6", want: []string{"2001:1890:1001:293d::139"}},
		"both, v4 first":     {networks: networkData, id: "pxe", want: []string{"172.30.0.11", "fd00:900:100:138::11"}},
		"by network_id":      {networks: networkData, id: "oam", want: []string{"32.68.51.139", "2001:1890:1001:293d::139"}},
		"by link":            {networks: networkData, id: "bond0.41", want: []string{"32.68.51.139", "2001:1890:1001:293d::139"}},
		"YAML, the only one": {networks: asYAML, want: []string{"10.0.0.5", "fd00::5"}},
		"unknown":            {networks: asYAML, id: "oam", reason: fault.NotFound, message: `no address on network "oam"; networks: "also", "only"`},
		"nothing":            {reason: fault.NotFound, message: "networks: none"},
		"by DHCP":            {networks: networkData, id: "dynamic"},
		"two of a family":    {networks: networkData, id: "twice", reason: fault.InvalidInput, message: `network "twice" has 2 addresses`},
		"several and no id":  {networks: asYAML + "  - {id: third, type: ipv4, ip_address: 10.0.0.6}\n", reason: fault.InvalidInput, message: `network "" has 3 addresses; networks: "also", "only", "third"`},
		"no address":         {networks: networkData, id: "wrong", reason: fault.InvalidInput, message: `network "wrong": its ip_address is no address`},
		"loopback":           {networks: networkData, id: "local", reason: fault.InvalidInput, message: "no address that other machines can use"},
		"link-local":         {networks: networkData, id: "linklocal", reason: fault.InvalidInput, message: "no address that other machines can use"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := parseNetworks([]byte(c.networks))
			require.NoError(t, err)
			got, err := addressesOn(all, c.id)
			if c.message != "" {
				require.Contains(t, fault.Text(err), c.message)
				require.Equal(t, c.reason, fault.ReasonOf(err))
				require.NotEmpty(t, fault.HintOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, strings.Join(c.want, " "), strings.Trim(fmt.Sprint(got), "[]"))
		})
	}
}

// What cannot be read is told of without a byte of it.
func TestNetworkDataThatCannotBeRead(t *testing.T) {
	for _, document := range []string{"s3cret: [", `{"networks": "s3cret"}`, `["s3cret"]`} {
		_, err := parseNetworks([]byte(document))
		require.ErrorContains(t, err, "network data cannot be read")
		require.NotContains(t, fault.Text(err), "s3cret")
	}
}

// Else who can write a host could have the operator read any Secret.
func TestAHostNamesNoSecretOfAnotherNamespace(t *testing.T) {
	h := &choose.Host{BareMetalHost: hostIn("h", "", "OK")}
	h.Spec.NetworkData = corev1.SecretReference{Namespace: "others", Name: "n"}
	_, _, err := new(pass).readNetworks(t.Context(), h)
	require.ErrorContains(t, err, "it names the Secret others/n, of another namespace")
}
