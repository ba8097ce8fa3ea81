package vdoctl_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// Once the file of accounts was applied, as install.md says, no command changes the file's accounts.
func TestAnAccountThatWasAppliedIsNotRotatedInTheFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	v := vcsim.Start(t, vcsim.Options{Machines: 1})
	dir := t.TempDir()
	file := filepath.Join(dir, "site.yaml")
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: west}
spec: {vcIp: %s, port: %d, credentials: vc, thumbprint: "%s", datacenters: [site/west]}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo}
spec: {cloudProvider: {vsphereCloudConfigs: [west]}}
`, v.Host, v.Port, v.SHA256)), 0o600))
	admin := asAdministrator(t)
	create := []string{"users", "create", "-f", file, "--no-cluster", "--principal", "drivers@vsphere.local", "--yes"}
	s.run(append(create, admin...)...).is(0)
	in := strings.ReplaceAll(readFile(t, file), "metadata: {", "metadata: {namespace: "+s.ns+", ")
	for _, manifest := range []string{readFile(t, filepath.Join(dir, "site.accounts.yaml")), in} { // kubectl apply
		for _, u := range s.read(manifest) {
			s.create(u)
		}
	}
	s.run("users", "verify").is(0)
	rotate := append([]string{"users", "rotate", "-f", file, "--yes"}, admin...)
	s.run(rotate...).is(8, "delete the file")
	s.run("users", "verify").is(0)
}
