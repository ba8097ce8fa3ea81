package v1alpha1

import "strings"

// What the predecessor's command line wrote means here what it meant there. The
// shapes are read by the functions of this file alone, so that no reader of a spec
// has to know them.

// Cloud is the cloud provider's settings, nil where none is wanted: those without a
// vCenter, which the predecessor's command line wrote beside every storageProvider,
// ask for none.
func (s *VDOConfigSpec) Cloud() *CloudProvider {
	if s.CloudProvider == nil || len(s.CloudProvider.VsphereCloudConfigs) == 0 {
		return nil
	}
	return s.CloudProvider
}

// KubeletPath is the kubelet's root folder without a slash at its end, "" where it is
// the usual one.
func (p *StorageProvider) KubeletPath() string {
	if trimmed := strings.TrimRight(p.CustomKubeletPath, "/"); trimmed != "" {
		return trimmed
	}
	return p.CustomKubeletPath // "/" is not the usual one, but a mistake
}

// DatacenterNames are the datacenters without the commas and spaces that a list of
// them was typed with.
func (s *VsphereCloudConfigSpec) DatacenterNames() []string {
	var names []string
	for _, d := range s.Datacenters {
		if d = strings.TrimRight(d, ", \t"); d != "" {
			names = append(names, d)
		}
	}
	return names
}

// AnyCertificate tells whether any certificate of the vCenter is taken. A thumbprint
// beside insecure is checked, as the predecessor did.
func (s *VsphereCloudConfigSpec) AnyCertificate() bool {
	return s.Insecure && s.Thumbprint == ""
}
