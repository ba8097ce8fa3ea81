package v1alpha1

// OpenShift settings. They have no effect on other clusters.
type OpenShift struct {
	// MirrorSet says who redirects the nodes from upstream's image names to the mirror, if a
	// DriverBundle's imageNames is Upstream. Check: the administrator; the operator blocks changes
	// whose images the nodes would not find. Write: the operator, by one ImageDigestMirrorSet,
	// vdo-operator, which needs additional permissions. It changes the configuration of all nodes,
	// which OpenShift's Machine Config Operator writes node by node. The nodes load added entries
	// without a drain. When the set is deleted with the VDOConfig, OpenShift drains the nodes, and
	// some releases reboot them. Default: Check.
	// +optional
	// +kubebuilder:validation:Enum=Check;Write
	MirrorSet MirrorSetMode `json:"mirrorSet,omitempty"`
}

// MirrorSetMode is Check or Write; "" is Check.
type MirrorSetMode string

// MirrorSetWrite lets the operator write the mirror set.
const MirrorSetWrite MirrorSetMode = "Write"

// WritesMirrorSet reports whether the operator redirects OpenShift's nodes to the mirror.
func (s *VDOConfigSpec) WritesMirrorSet() bool {
	return s.OpenShift != nil && s.OpenShift.MirrorSet == MirrorSetWrite
}
