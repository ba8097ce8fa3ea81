package site

import (
	"fmt"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// ResourceOptions say what Resources names.
type ResourceOptions struct {
	Namespace string
	Reference string // of the bundle in the mirror; "" leaves the DriverBundle out
}

// Resources returns the resources, as YAML, with which a site's administrator
// points the operator at the mirror and at the vCenter: the vCenter's account and
// authority, a VsphereCloudConfig, a DriverBundle and a VDOConfig, named site.
func (s *Site) Resources(o ResourceOptions) string {
	documents := []string{
		fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: vcenter-account, namespace: %s}
type: kubernetes.io/basic-auth
stringData:
  username: %q
  password: %q
`, o.Namespace, vcenter.Admin.Username, vcenter.Admin.Password),
		fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: vcenter-ca, namespace: %s}
data:
  ca.crt: |
    %s
`, o.Namespace, strings.ReplaceAll(strings.TrimSpace(string(s.VCenter.CA)), "\n", "\n    ")),
		fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: site, namespace: %s}
spec:
  vcIp: %s
  port: %d
  credentials: vcenter-account
  ca: {configMap: vcenter-ca}
  datacenters: [%q]
`, o.Namespace, s.VCenter.Host, s.VCenter.Port, strings.TrimPrefix(Datacenter, "/")),
	}
	if o.Reference != "" {
		documents = append(documents, fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: DriverBundle
metadata: {name: site, namespace: %s}
spec:
  reference: %s
`, o.Namespace, o.Reference))
	}
	documents = append(documents, fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: site, namespace: %s}
spec:
  cloudProvider:
    vsphereCloudConfigs: [site]
  storageProvider:
    vsphereCloudConfig: site
    clusterDistribution: demo
`, o.Namespace))
	return strings.Join(documents, "---\n")
}
