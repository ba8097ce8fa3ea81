package vdoctl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// kubeadm reads v1beta4 from Kubernetes 1.31 on, and nodes may be of different versions meanwhile.
func TestKubeadmIsGivenAFormatThatItReads(t *testing.T) {
	for version, want := range map[string]string{
		"": "v1beta4", "v1.23.17": "v1beta3", "v1.30.4+x": "v1beta3", "v1.31.0": "v1beta4",
	} {
		nodes := []preflight.Node{{Kubelet: "v1.36.0"}, {Kubelet: version}}
		kinds := ""
		for text := range strings.SplitSeq(kubeadmConfiguration(nodes), "---\n") {
			var doc struct {
				APIVersion, Kind string
				NodeRegistration struct{ KubeletExtraArgs any }
			}
			require.NoError(t, yaml.UnmarshalStrict([]byte(text), &doc))
			require.Equal(t, "kubeadm.k8s.io/"+want, doc.APIVersion, version)
			kinds += doc.Kind + " "
			if want == "v1beta3" {
				require.Equal(t, map[string]any{"cloud-provider": "external"}, doc.NodeRegistration.KubeletExtraArgs)
			} else {
				args := []any{map[string]any{"name": "cloud-provider", "value": "external"}}
				require.Equal(t, args, doc.NodeRegistration.KubeletExtraArgs)
			}
		}
		require.Equal(t, "InitConfiguration JoinConfiguration ", kinds)
	}
	for name, text := range configurations {
		var doc map[string]any
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &doc), name)
	}
}

func TestPasswordsOfTheEnvironmentAreHidden(t *testing.T) {
	a := &app{getenv: func(name string) (string, bool) { return "of " + name, true }}
	require.Equal(t, []string{"of VDO_VCENTER_PASSWORD", "of VDO_ACCOUNT_PASSWORD"}, a.passwords())
}
