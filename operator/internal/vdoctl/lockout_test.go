package vdoctl_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// Linked vCenters count the failed logins of an account together, and five lock it.
func TestAWrongPasswordIsTriedOnce(t *testing.T) {
	c := control(t)
	east, west := vcenters(t)
	dir := t.TempDir()
	file, wrong := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "wrong")
	require.NoError(t, os.WriteFile(wrong, []byte("wrong"), 0o600))
	site := ""
	for name, v := range map[string]*vcsim.VCenter{"east": east, "west": west} {
		site += fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: %s}
spec: {vcIp: %s, port: %d, credentials: vc, thumbprint: "%s", datacenters: [site/west]}
---
`, name, v.Host, v.Port, v.SHA256)
	}
	require.NoError(t, os.WriteFile(file, []byte(site+`apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo}
spec:
  cloudProvider: {vsphereCloudConfigs: [east, west], topology: {zone: k8s-zone, region: k8s-region}}
  storageProvider: {vsphereCloudConfigs: [east, west], topologyCategories: [k8s-zone]}
`), 0o600))
	for _, args := range [][]string{
		{"preflight", "--no-cluster"}, {"topology", "tag", "--no-cluster"}, {"users", "plan"}, {"users", "create", "--yes"},
	} {
		user := vcsim.Administrator.Username
		before := east.Refused(user) + west.Refused(user)
		args = append(args, "-f", file, "--kubeconfig", c.Kubeconfig(), "--username", user, "--password-file", wrong)
		out, err := exec.CommandContext(t.Context(), "vdoctl", args...).CombinedOutput()
		require.Error(t, err)
		require.Equal(t, before+1, east.Refused(user)+west.Refused(user), "%s\n%s", args, out)
		require.Contains(t, string(out), "the same account and password was refused by")
	}
}
