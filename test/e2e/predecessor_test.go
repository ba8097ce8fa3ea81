package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// The steps of the earlier operator's users, with the resources that they have:
// a ConfigMap that says where the matrix is, a Secret in kube-system, a
// VsphereCloudConfig with a thumbprint, a VDOConfig. Only the URL is another one.
func TestThePredecessorsFourSteps(t *testing.T) {
	tier.Later(t, tier.All)
	for _, c := range []struct{ name, configMap string }{
		{"as the former README names it", "comp-matrix-config"},
		{"as the former code names it", "compat-matrix-config"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLine(t, true, "cpi@1.33.1", "csi@3.5.1", "snapshot-controller@8.2.0")
			l.deliver("stable", "vdo", "cpi@1.33.1", "csi@3.5.1")
			l.prepare()
			l.startOperator()

			l.applyYAML(fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: %s}
data:
  versionConfigURL: "oci://%s"
  auto-upgrade: disabled
`, c.configMap, namespace, l.reference("stable")))
			l.applyYAML(fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: vc-creds, namespace: kube-system}
type: kubernetes.io/basic-auth
stringData:
  username: %q
  password: %q
`, vcenter.Admin.Username, vcenter.Admin.Password))
			// The one thing that a test's vCenter cannot have is port 443.
			l.applyYAML(fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: vsphere-sample, namespace: %s}
spec:
  vcIp: %s
  port: %d
  insecure: false
  credentials: vc-creds
  thumbprint: %q
  datacenters: [%q]
`, namespace, l.site.VCenter.Host, l.site.VCenter.Port, l.site.VCenter.SHA1, strings.TrimPrefix(site.Datacenter, "/")))
			l.applyYAML(fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo-sample, namespace: %s}
spec:
  cloudProvider:
    vsphereCloudConfigs:
      - vsphere-sample
  storageProvider:
    vsphereCloudConfig: vsphere-sample
    clusterDistribution: "k3s"
    fileVolumes:
      vsanDataStoreUrl: ["ds:///vmfs/volumes/vsan:1/"]
      netPermissions:
        - ips: "*"
          permissions: READ_WRITE
          rootSquash: true
`, namespace))
			l.installed("vdo-sample", "1.33.1", "3.5.1")
			require.Zero(t, l.strayed.Load(), "connections left the site")
		})
	}
}
