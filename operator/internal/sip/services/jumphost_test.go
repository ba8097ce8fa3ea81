package services

import (
	"net/netip"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

// files are those that a service's pod has, by path.
func files(t *testing.T, s Service, others map[string]Secret) map[string][]byte {
	t.Helper()
	pod := s.deployment(t).Spec.Template.Spec
	out := map[string][]byte{}
	for _, m := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		require.GreaterOrEqual(t, i, 0, m.Name)
		require.Empty(t, m.SubPath, "a mounted file would not follow changes")
		switch v := pod.Volumes[i]; {
		case v.ConfigMap != nil:
			for name, text := range object[corev1.ConfigMap](t, s, "ConfigMap", v.ConfigMap.Name).Data {
				out[path.Join(m.MountPath, name)] = []byte(text)
			}
		case v.Secret != nil:
			data, other := others[v.Secret.SecretName]
			if !other {
				data = object[corev1.Secret](t, s, "Secret", v.Secret.SecretName).Data
			}
			for name, value := range data {
				if len(v.Secret.Items) == 0 || v.Secret.Items[0].Key == name {
					out[path.Join(m.MountPath, name)] = value
				}
			}
		}
	}
	return out
}

// What the pod has is what its program reads, and all that it reads.
func TestJumpHostReadsWhatIsRendered(t *testing.T) {
	in := full(t)
	in.Hosts[airship.RoleWorker] = append(in.Hosts[airship.RoleWorker], bmHost("no-address"))
	got := files(t, rendered(t, in).of(t, JumpHost), map[string]Secret{"node-keys": in.Secrets["node-keys"]})
	config, err := jumphost.ParseConfig("config.json", got[path.Join(jumphost.Dir, jumphost.ConfigFile)])
	require.NoError(t, err)
	require.Equal(t, "tenants/one", config.Cluster)
	require.Equal(t, "alice", config.Keys[0].Comment)
	require.Equal(t, []jumphost.Ports{{First: 22, Last: 22}, {First: 6443, Last: 6443}, {First: 31000, Last: 31009}}, config.Ports)
	host, _ := config.Host("cp-1")
	require.Equal(t, jumphost.Host{Name: "cp-1", Role: "ControlPlane", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}}, host)
	_, listed := config.Host("no-address")
	require.True(t, listed, "it is one of the cluster's, if not reached")
	_, err = jumphost.ParseHostKey("host key", got[path.Join(jumphost.Dir, jumphost.HostKeys, hostKeyFile)])
	require.NoError(t, err)
	require.Equal(t, in.Secrets["node-keys"]["id_ed25519"], got[path.Join(jumphost.Dir, jumphost.NodeKeys, "id_ed25519")])
	require.Len(t, got, 3, "BMC credentials are not among them, though the spec has bmc")
}

// Who was shown a host key is shown it again, whatever else changes, and a damaged one is
// made anew.
func TestHostKeysStay(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	name := Name("one", JumpHost, 0) + "-host-keys"
	key := keep(t, set)[name][hostKeyFile]
	in.Kept = keep(t, set)
	in.Spec.JumpHost[0], in.Hosts = airship.JumpHost{NodePort: 30023}, nil
	require.Equal(t, key, keep(t, rendered(t, in))[name][hostKeyFile])
	in.Kept[name][hostKeyFile] = key[:50]
	anew := keep(t, rendered(t, in))[name][hostKeyFile]
	require.NotEqual(t, key, anew)
	_, err := jumphost.ParseHostKey("host key", anew)
	require.NoError(t, err)
}
