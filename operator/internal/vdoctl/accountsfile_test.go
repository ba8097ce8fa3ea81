package vdoctl_test

import (
	"path/filepath"
	"strings"
	"testing"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// Once the file of accounts was applied, as install.md says, no command changes the file's accounts.
func TestAnAccountThatWasAppliedIsNotRotatedInTheFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	v := vcsim.Start(t, vcsim.Options{Machines: 1})
	file := onlyWest(t, v, vcsim.Account{}, `---
apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo}
spec: {cloudProvider: {vsphereCloudConfigs: [west]}}
`)
	admin := asAdministrator(t)
	create := []string{"users", "create", "-f", file, "--no-cluster", "--principal", "drivers@vsphere.local", "--yes"}
	s.run(append(create, admin...)...).is(0)
	in := strings.ReplaceAll(readFile(t, file), "metadata: {", "metadata: {namespace: "+s.ns+", ")
	made := readFile(t, filepath.Join(filepath.Dir(file), "site.accounts.yaml"))
	for _, manifest := range []string{made, in} { // kubectl apply
		for _, u := range s.read(manifest) {
			s.create(u)
		}
	}
	s.run("users", "verify").is(0)
	rotate := append([]string{"users", "rotate", "-f", file, "--yes"}, admin...)
	s.run(rotate...).is(8, "site.accounts.yaml: the cluster's accounts are in use")
	s.run("users", "verify").is(0)
}
