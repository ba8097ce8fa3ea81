package services

import (
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

// Who was shown a host key is shown it again, whatever else changes, and a damaged one is
// made anew.
func TestHostKeysStay(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	name := Name("one", JumpHost, 0) + "-host-keys"
	key := keep(t, set)[name][jumphost.HostKey]
	in.Kept = keep(t, set)
	in.Spec.JumpHost[0], in.Hosts = airship.JumpHost{NodePort: 30023}, nil
	require.Equal(t, key, keep(t, rendered(t, in))[name][jumphost.HostKey])
	in.Kept[name][jumphost.HostKey] = key[:50]
	anew := keep(t, rendered(t, in))[name][jumphost.HostKey]
	require.NotEqual(t, key, anew)
	require.True(t, jumphost.IsHostKey(anew))
}
