package v1alpha1

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VsphereCloudConfig is one vCenter: its address, its account, and how its certificate is verified.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations={"argocd.argoproj.io/sync-options=Prune=false,Delete=false","kustomize.toolkit.fluxcd.io/prune=disabled"}
// +kubebuilder:metadata:annotations={"kapp.k14s.io/delete-strategy=orphan","helm.sh/resource-policy=keep"}
// +kubebuilder:resource:shortName=vcc
// +kubebuilder:printcolumn:name="vCenter",type=string,JSONPath=`.spec.vcIp`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VsphereCloudConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VsphereCloudConfigSpec   `json:"spec"`
	Status VsphereCloudConfigStatus `json:"status,omitempty"`
}

// VsphereCloudConfigSpec is how to reach a vCenter.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.insecure) && self.insecure && has(self.ca))",message="insecure excludes ca: it turns the check of the certificate off"
type VsphereCloudConfigSpec struct {
	// VcIP is the vCenter's IP address or, better, the fully qualified name in its certificate. No scheme, no path.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])[.]){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])$') || self.matches(r'^(([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|([0-9A-Fa-f]{1,4}:){1,7}:|([0-9A-Fa-f]{1,4}:){1,6}(:[0-9A-Fa-f]{1,4}){1,1}|([0-9A-Fa-f]{1,4}:){1,5}(:[0-9A-Fa-f]{1,4}){1,2}|([0-9A-Fa-f]{1,4}:){1,4}(:[0-9A-Fa-f]{1,4}){1,3}|([0-9A-Fa-f]{1,4}:){1,3}(:[0-9A-Fa-f]{1,4}){1,4}|([0-9A-Fa-f]{1,4}:){1,2}(:[0-9A-Fa-f]{1,4}){1,5}|([0-9A-Fa-f]{1,4}:){1,1}(:[0-9A-Fa-f]{1,4}){1,6}|:((:[0-9A-Fa-f]{1,4}){1,7}|:))$') || (self.matches(r'^([A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?[.])*[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?[.]?$') && !self.matches(r'(^|[.])[0-9]+[.]?$'))`,message="write a host name such as vcenter.site.example, or an IP address; a host name or IP address only: no scheme, path, port, brackets or user"
	VcIP string `json:"vcIp"`
	// Port of the vCenter's API.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Insecure turns off the check of the certificate, here and in the drivers. With a thumbprint
	// it has no effect: the thumbprint is checked.
	// +optional
	Insecure bool `json:"insecure,omitempty"`
	// Credentials names a Secret with the keys username and password, in the resource's own
	// namespace or, if it does not exist there, in kube-system.
	Credentials objectName `json:"credentials"`
	// Datacenters to use. Default: all. A name in a folder is FOLDER/NAME. A trailing comma has no
	// effect: the earlier operator's command line kept the commas of a typed list.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule=`!self.matches(r',\s*[^,\s]|^[,\s]+$')`,message="a datacenter's name cannot have a comma: list several as items"
	// +kubebuilder:validation:items:XValidation:rule=`!self.matches(r'\p{Cc}')`,message="a datacenter's name is one line: no line ends, tabs or other control characters"
	// +listType=atomic
	Datacenters []string `json:"datacenters,omitempty"`
	// Thumbprint of the vCenter's certificate, SHA-1 or SHA-256 as hex pairs with colons.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^$|^([0-9A-Fa-f]{2}:){19}[0-9A-Fa-f]{2}$|^([0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}$')`,message="write a thumbprint as 20 (SHA-1) or 32 (SHA-256) pairs of hex digits with colons between them"
	Thumbprint string `json:"thumbprint,omitempty"`
	// CA holds PEM certificates to verify the vCenter's certificate. Default key: ca.crt.
	// +optional
	CA *KeyReference `json:"ca,omitempty"`
	// AcceptInstanceUUID is the instance UUID of a vCenter that replaces the one in use. Until it
	// is set the operator does not log in to another vCenter. It also does not configure, install
	// or upgrade drivers with it, and the cloud provider deletes no Nodes.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AcceptInstanceUUID string `json:"acceptInstanceUUID,omitempty"`
	// Interval between checks.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,6}([.][0-9]{1,9})?h)?([0-9]{1,7}([.][0-9]{1,9})?m)?([0-9]{1,9}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) >= duration('10s')`,message="write a duration of at least 10s, such as 90s, 10m or 1h30m"
	Interval metav1.Duration `json:"interval,omitzero"`
	// Suspend stops the checks.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// VsphereCloudConfigStatus is the state of the vCenter.
type VsphereCloudConfigStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Version that the vCenter reports, such as 8.0.3, and its build.
	// +optional
	Version string `json:"version,omitempty"`
	// +optional
	Build string `json:"build,omitempty"`
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// InstanceUUID is that of the vCenter in use: the first one that accepted the account, or the
	// one accepted since.
	// +optional
	InstanceUUID string `json:"instanceUUID,omitempty"`
	// UnacceptedInstanceUUID is that of another vCenter that answers instead, and that
	// spec.acceptInstanceUUID does not name.
	// +optional
	UnacceptedInstanceUUID string `json:"unacceptedInstanceUUID,omitempty"`
	// User of the session, as the vCenter names it.
	// +optional
	User string `json:"user,omitempty"`
	// Datacenters of the vCenter, as inventory paths.
	// +optional
	// +listType=atomic
	Datacenters []string `json:"datacenters,omitempty"`
	// MissingDatacenters are requested ones that do not exist or are not readable.
	// +optional
	// +listType=atomic
	MissingDatacenters []string `json:"missingDatacenters,omitempty"`
	// CheckedAt is when the vCenter was last checked.
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
	// AskedAt is when the last check started. The operator writes it before it uses the password.
	// +optional
	AskedAt *metav1.Time `json:"askedAt,omitempty"`
	// AskedWith identifies the input of a check without a result yet: the generation, and the state
	// of the Secret and of the CA.
	// +optional
	AskedWith string `json:"askedWith,omitempty"`
	// CredentialsVersion identifies the last used state of the Secret (and of the CA's ConfigMap or
	// Secret). It keeps the operator from repeating a wrong password until the account locks.
	// +optional
	CredentialsVersion string `json:"credentialsVersion,omitempty"`
	// VerifiedCredentials is the CredentialsVersion that the vCenter last accepted, with a hash of the spec that was
	// checked. The drivers are configured from the Secret in exactly this state. It is empty after a refusal.
	// +optional
	VerifiedCredentials string `json:"verifiedCredentials,omitempty"`
	// Thumbprint is the SHA-1 thumbprint of the accepted certificate.
	// +optional
	Thumbprint string `json:"thumbprint,omitempty"`
	// HandledReconcileAt is the last handled value of the annotation
	// reconcile.vdo.vmware.com/requestedAt. A value of more than 256 bytes is cut, with its SHA-256.
	// +optional
	HandledReconcileAt string `json:"handledReconcileAt,omitempty"`
	// Config is "verified" or "failed", as in earlier versions.
	// +optional
	Config string `json:"config,omitempty"`
	// Message of the Ready condition, as in earlier versions.
	// +optional
	Message string `json:"message,omitempty"`
}

// InstanceUUIDs returns those of the vCenters that the operator may use, nil for any.
func (in *VsphereCloudConfig) InstanceUUIDs() []string {
	if in.Status.InstanceUUID == "" {
		return nil
	}
	return []string{in.Status.InstanceUUID, in.Spec.AcceptInstanceUUID}
}

// VsphereCloudConfigList is a list of VsphereCloudConfig.
//
// +kubebuilder:object:root=true
type VsphereCloudConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VsphereCloudConfig `json:"items"`
}

// BareHost returns a vCenter's host without surrounding space, and an IPv6 address without brackets.
func BareHost(host string) string {
	host = strings.TrimSpace(host)
	if inner, ok := strings.CutPrefix(host, "["); ok {
		return strings.TrimSuffix(inner, "]")
	}
	return host
}

// CanonicalHost returns a vCenter's host in the form for comparison. Names are in lower case
// without the root dot; IP addresses are canonical, without brackets.
func CanonicalHost(host string) string {
	host = BareHost(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
