package deploy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// What a bundle carries for the operator of SIPClusters is what the folder installs, byte for
// byte, and nothing of it is taken for the other operator's.
func TestSIPManifestsAreThoseOfTheFolder(t *testing.T) {
	var k struct{ Resources []string }
	data := must.Have(os.ReadFile("sip/kustomization.yaml"))(t)
	require.NoError(t, sigsyaml.Unmarshal(data, &k))
	var want, got []string
	for _, file := range k.Resources {
		data := must.Have(os.ReadFile(filepath.Join("sip", file)))(t)
		want = append(want, string(data))
	}
	for _, m := range append(deploy.Manifests(), deploy.SIPManifests()...) {
		if deploy.ForSIP(m.Name) {
			got = append(got, string(m.Data))
		}
	}
	require.ElementsMatch(t, want, got)
	names := map[string]bool{}
	for _, m := range deploy.Manifests() {
		require.False(t, deploy.OnlySIP(m.Name), m.Name)
		names[m.Name] = true
	}
	for _, m := range deploy.SIPManifests() {
		require.True(t, deploy.OnlySIP(m.Name), m.Name)
		require.False(t, names[m.Name], m.Name)
	}
}
