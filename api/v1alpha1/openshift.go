package v1alpha1

// OpenShift settings. They have no meaning on other clusters.
type OpenShift struct {
	// MirrorSet says who leads the nodes from upstream's names of images to the mirror, where
	// a DriverBundle's imageNames is Upstream. Check: the administrator, and the operator
	// holds back what the nodes would not find. Write: the operator, by one
	// ImageDigestMirrorSet, vdo-operator, which needs rights of its own. It changes the
	// configuration of all nodes: OpenShift's Machine Config Operator writes it onto one after
	// the other. What is added is taken up without a drain; when the set goes, with the
	// VDOConfig, the nodes are drained, and by some releases rebooted. Default: Check.
	// +optional
	// +kubebuilder:validation:Enum=Check;Write
	MirrorSet MirrorSetMode `json:"mirrorSet,omitempty"`
}

// MirrorSetMode is Check or Write; "" is Check.
type MirrorSetMode string

// The modes of mirror sets.
const (
	MirrorSetCheck MirrorSetMode = "Check"
	MirrorSetWrite MirrorSetMode = "Write"
)

// WritesMirrorSet tells whether the operator shall lead OpenShift's nodes to the mirror.
func (s *VDOConfigSpec) WritesMirrorSet() bool {
	return s.OpenShift != nil && s.OpenShift.MirrorSet == MirrorSetWrite
}
