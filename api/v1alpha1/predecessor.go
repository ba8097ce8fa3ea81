package v1alpha1

import "strings"

// Fields that the earlier operator's command line wrote keep their meaning. Only the functions of
// this file read their forms, so that other readers of a spec need not know them.

// Cloud returns the cloud provider's settings, nil if none is requested. Settings without a vCenter
// request none: the earlier operator's command line wrote them beside every storageProvider.
func (s *VDOConfigSpec) Cloud() *CloudProvider {
	if s.CloudProvider == nil || len(s.CloudProvider.VsphereCloudConfigs) == 0 {
		return nil
	}
	return s.CloudProvider
}

// KubeletPath returns the kubelet's root directory without a trailing slash, "" for the default one.
func (p *StorageProvider) KubeletPath() string {
	if trimmed := strings.TrimRight(p.CustomKubeletPath, "/"); trimmed != "" {
		return trimmed
	}
	return p.CustomKubeletPath // "/" is not the default, but a mistake
}

// DatacenterNames returns the datacenters without trailing commas and spaces from a typed list.
func (s *VsphereCloudConfigSpec) DatacenterNames() []string {
	var names []string
	for _, d := range s.Datacenters {
		if d = strings.TrimRight(d, ", \t"); d != "" {
			names = append(names, d)
		}
	}
	return names
}

// AnyCertificate reports whether any certificate of the vCenter is accepted. A thumbprint beside
// insecure is checked, as in the earlier operator.
func (s *VsphereCloudConfigSpec) AnyCertificate() bool {
	return s.Insecure && s.Thumbprint == ""
}
