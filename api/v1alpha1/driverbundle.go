package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DriverBundle is a bundle of drivers in the site's mirror: its location and the signatures that
// make it acceptable. The operator resolves it to a digest, verifies it, and shows its content.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations={"argocd.argoproj.io/sync-options=Prune=false,Delete=false","kustomize.toolkit.fluxcd.io/prune=disabled"}
// +kubebuilder:metadata:annotations={"kapp.k14s.io/delete-strategy=orphan","helm.sh/resource-policy=keep"}
// +kubebuilder:resource:shortName=dbundle
// +kubebuilder:printcolumn:name="Reference",type=string,JSONPath=`.spec.reference`
// +kubebuilder:printcolumn:name="Digest",type=string,JSONPath=`.status.digest`,priority=1
// +kubebuilder:printcolumn:name="Serial",type=integer,JSONPath=`.status.matrix.serial`
// +kubebuilder:printcolumn:name="Kubernetes",type=string,JSONPath=`.status.kubernetes`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DriverBundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DriverBundleSpec   `json:"spec"`
	Status DriverBundleStatus `json:"status,omitempty"`
}

// DriverBundleSpec says where the bundle is and when to accept it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.versions) || !self.reference.contains('@')",message="versions needs a reference without a digest"
type DriverBundleSpec struct {
	// Reference is the bundle in the mirror: HOST/PATH:TAG or HOST/PATH@sha256:….
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9A-Fa-f:.]+\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[a-f0-9]{64})?$')`,message="write HOST/PATH:TAG or HOST/PATH@sha256:…, without oci:// or https://: a host with a port up to 65535 where one is needed, and a path of lower-case letters, digits and . _ - between slashes"
	Reference string `json:"reference"`
	// Versions picks the tag with the highest semantic version in this range, such as ">=1.2 <2",
	// instead of the reference's own tag.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^\s*(=|!=|>=?|=>|<=?|=<|~>?|\^)?\s*v?([0-9]+|[xX*])([.]([0-9]+|[xX*])){0,2}(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?((\s+-\s+|\s*,\s*|\s+)(=|!=|>=?|=>|<=?|=<|~>?|\^)?\s*v?([0-9]+|[xX*])([.]([0-9]+|[xX*])){0,2}(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?)*\s*([|][|]\s*(=|!=|>=?|=>|<=?|=<|~>?|\^)?\s*v?([0-9]+|[xX*])([.]([0-9]+|[xX*])){0,2}(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?((\s+-\s+|\s*,\s*|\s+)(=|!=|>=?|=>|<=?|=<|~>?|\^)?\s*v?([0-9]+|[xX*])([.]([0-9]+|[xX*])){0,2}(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?)*\s*)*$')`,message="write a range of versions, such as '>=1.2 <2' or '~1.4'"
	Versions string `json:"versions,omitempty"`
	// ImageNames says how the drivers' pods name their images, always with the digest. Repository:
	// in the reference's own repository. Paths: below it under upstream's host and path, as
	// vdo-bundle push --layout paths stores them. Upstream: by upstream's names, for nodes whose
	// own configuration redirects to the mirror. vdo-bundle mirror-config writes that (an
	// ImageDigestMirrorSet on OpenShift). Default: Repository, which needs no setup on the nodes.
	// +optional
	// +kubebuilder:validation:Enum=Repository;Paths;Upstream
	ImageNames ImageNames `json:"imageNames,omitempty"`
	// PullSecret is a Secret of type kubernetes.io/dockerconfigjson for the mirror. The drivers'
	// pods get it too. Default: the Secret vdo-registry if it exists.
	// +optional
	PullSecret *LocalReference `json:"pullSecret,omitempty"`
	// CA holds PEM certificates to verify the mirror's certificate, in addition to the system's.
	// Default key: ca.crt. Default: the ConfigMap vdo-registry-ca if it exists.
	// +optional
	CA *KeyReference `json:"ca,omitempty"`
	// Trust says whose signatures make the bundle acceptable. Default: the ConfigMap vdo-trust. Its
	// key policy.yaml is a trust policy as for vdo-bundle verify --policy; the policy's files are
	// other keys of the ConfigMap. Without policy.yaml each key ending in .pub is a public key, and
	// one signature is enough. Without any key or CA the operator accepts no bundle.
	// +optional
	Trust *TrustPolicy `json:"trust,omitempty"`
	// MatrixTrust says whose signatures make the bundle's compatibility matrix acceptable. Default:
	// the bundle's signature is enough.
	// +optional
	MatrixTrust *TrustPolicy `json:"matrixTrust,omitempty"`
	// Interval between checks of the mirror for a moved tag. A change of the annotation
	// reconcile.vdo.vmware.com/requestedAt triggers one at once. Default: 10m.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,6}([.][0-9]{1,9})?h)?([0-9]{1,7}([.][0-9]{1,9})?m)?([0-9]{1,9}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) >= duration('10s')`,message="write a duration of at least 10s, such as 90s, 10m or 1h30m"
	Interval metav1.Duration `json:"interval,omitzero"`
	// Suspend stops the checks of the mirror. The accepted bundle stays in use.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// AcceptOlder accepts one bundle digest whose matrix is expired or older than an accepted one.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^sha256:[a-f0-9]{64}$')`,message="write a digest: sha256: and 64 digits of 0-9 and a-f"
	AcceptOlder string `json:"acceptOlder,omitempty"`
}

// TrustPolicy says which signatures are valid: those of keys, of certificates that a CA of the site
// issued, and of logins at a sigstore. It has the meaning of vdo-bundle's policy file (api/trust).
//
// +kubebuilder:validation:XValidation:rule="has(self.keys) || has(self.certificates) || has(self.keyless)",message="give keys, certificates or keyless: without any, nothing could ever be accepted"
// +kubebuilder:validation:XValidation:rule="!has(self.threshold) || self.threshold <= (has(self.keys) ? size(self.keys) : 0) + (has(self.certificates) ? size(self.certificates) : 0) + (has(self.keyless) ? size(self.keyless) : 0)",message="threshold asks for more keys than are listed: keys, certificates and keyless count together"
type TrustPolicy struct {
	// Keys whose signatures are valid. Two entries with the same public key count once.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=id
	Keys []TrustKey `json:"keys,omitempty"`
	// Certificates are CAs, and the valid identities in their certificates.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=id
	Certificates []TrustAuthority `json:"certificates,omitempty"`
	// Keyless are sigstores, and the valid identities in their certificates.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=id
	Keyless []TrustKeyless `json:"keyless,omitempty"`
	// Threshold is the required number of distinct signers: keys, certificates entries and keyless
	// entries together. An entry counts once, whichever of its identities signed. A key counts
	// once, whoever certified it.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	Threshold int32 `json:"threshold,omitempty"`
	// RevokedDigests are never accepted, whoever signed them.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=71
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^sha256:[a-f0-9]{64}$')`,message="write a digest: sha256: and 64 digits of 0-9 and a-f"
	RevokedDigests []string `json:"revokedDigests,omitempty"`
}

// TrustKey is a public key.
//
// +kubebuilder:validation:XValidation:rule="has(self.publicKey) != has(self.from)",message="give exactly one of publicKey and from"
type TrustKey struct {
	// ID names the key in status and messages.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// PublicKey is the key in PEM (PKIX), as in cosign.pub.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	PublicKey string `json:"publicKey,omitempty"`
	// From reads the key from a ConfigMap or Secret. Default key: cosign.pub.
	// +optional
	From *KeyReference `json:"from,omitempty"`
	// NotBefore and NotAfter limit the time in which the key is valid.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// Revoked keys are never valid.
	// +optional
	Revoked bool `json:"revoked,omitempty"`
}

// TrustAuthority is a private CA, and the valid identities in its certificates.
//
// +kubebuilder:validation:XValidation:rule="has(self.roots) != has(self.rootsFrom)",message="give exactly one of roots and rootsFrom"
// +kubebuilder:validation:XValidation:rule="!(has(self.intermediates) && has(self.intermediatesFrom))",message="give one of intermediates and intermediatesFrom, not both"
// +kubebuilder:validation:XValidation:rule="!(has(self.timestampRoots) && has(self.timestampRootsFrom))",message="give one of timestampRoots and timestampRootsFrom, not both"
type TrustAuthority struct {
	// ID names the CA in status and messages.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// Roots are its self-signed certificates, in PEM.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Roots string `json:"roots,omitempty"`
	// RootsFrom reads the roots from a ConfigMap or Secret. Default key: ca.crt.
	// +optional
	RootsFrom *KeyReference `json:"rootsFrom,omitempty"`
	// Intermediates are used besides those of a signature, in PEM.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Intermediates string `json:"intermediates,omitempty"`
	// IntermediatesFrom reads them from a ConfigMap or Secret. Default key: ca.crt.
	// +optional
	IntermediatesFrom *KeyReference `json:"intermediatesFrom,omitempty"`
	// Identities whose certificates are valid: each is a subject alternative name.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Identities []TrustIdentity `json:"identities"`
	// ExtendedKeyUsage that a certificate must list: codeSigning, emailProtection, clientAuth, or
	// an object identifier in dots. Default: codeSigning.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self == '' || self.matches(r'^(codeSigning|emailProtection|clientAuth|[0-9]+([.][0-9]+)+)$')`,message="write codeSigning, emailProtection, clientAuth, or an object identifier in dots such as 1.3.6.1.5.5.7.3.3"
	ExtendedKeyUsage string `json:"extendedKeyUsage,omitempty"`
	// TimestampRoots are authorities in PEM, with intermediates. Their time stamps (RFC 3161) prove
	// that a signature is older than its certificate's end.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	TimestampRoots string `json:"timestampRoots,omitempty"`
	// TimestampRootsFrom reads them from a ConfigMap or Secret. Default key: ca.crt.
	// +optional
	TimestampRootsFrom *KeyReference `json:"timestampRootsFrom,omitempty"`
	// RevokedSerials are serial numbers of revoked certificates, in hex.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^[0-9A-Fa-f:]+$')`,message="write the serial number of a certificate in hex digits, such as 1f:03"
	// +listType=atomic
	RevokedSerials []string `json:"revokedSerials,omitempty"`
	// NotBefore and NotAfter limit the time in which the CA is valid.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// Revoked CAs are never valid.
	// +optional
	Revoked bool `json:"revoked,omitempty"`
}

// TrustIdentity is one subject alternative name of a certificate, compared character by character.
//
// +kubebuilder:validation:XValidation:rule="(has(self.email) ? 1 : 0) + (has(self.uri) ? 1 : 0) + (has(self.dns) ? 1 : 0) == 1",message="an identity is exactly one of email, uri and dns"
type TrustIdentity struct {
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('*')",message="identities are compared character by character, without wildcards"
	Email string `json:"email,omitempty"`
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('*')",message="identities are compared character by character, without wildcards"
	URI string `json:"uri,omitempty"`
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('*')",message="identities are compared character by character, without wildcards"
	DNS string `json:"dns,omitempty"`
}

// TrustKeyless is a sigstore, and the valid identities in its certificates.
//
// +kubebuilder:validation:XValidation:rule="has(self.trustedRoot) != has(self.trustedRootFrom)",message="give exactly one of trustedRoot and trustedRootFrom"
type TrustKeyless struct {
	// ID names the entry in status and messages.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// TrustedRoot is the sigstore's trusted_root.json. The operator never fetches or renews it:
	// expired parts stay expired.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	TrustedRoot string `json:"trustedRoot,omitempty"`
	// TrustedRootFrom reads it from a ConfigMap or Secret. Default key: trusted_root.json.
	// +optional
	TrustedRootFrom *KeyReference `json:"trustedRootFrom,omitempty"`
	// Identities that may have signed.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Identities []TrustLogin `json:"identities"`
	// WithoutTransparencyLog accepts a time stamp of the trusted root's authorities instead of an
	// entry in its transparency log.
	// +optional
	WithoutTransparencyLog bool `json:"withoutTransparencyLog,omitempty"`
	// WithoutCertificateLog is for a sigstore without a certificate log.
	// +optional
	WithoutCertificateLog bool `json:"withoutCertificateLog,omitempty"`
	// NotBefore and NotAfter limit the time in which the entry is valid.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// Revoked entries are never valid.
	// +optional
	Revoked bool `json:"revoked,omitempty"`
}

// TrustLogin is the subject of a short-lived certificate and the login's issuer, in exactly these characters.
type TrustLogin struct {
	// Issuer of the login, such as https://accounts.google.com.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('*')",message="identities are compared character by character, without wildcards"
	Issuer string `json:"issuer"`
	// Subject is an e-mail address or a URI.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('*')",message="identities are compared character by character, without wildcards"
	Subject string `json:"subject"`
}

// DriverBundleStatus is the bundle in the mirror.
type DriverBundleStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Digest of the accepted bundle.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Repository of the accepted bundle, HOST/PATH: images are REPOSITORY@DIGEST.
	// +optional
	Repository string `json:"repository,omitempty"`
	// Tag that had the digest.
	// +optional
	Tag string `json:"tag,omitempty"`
	// VerifiedBy are the ids of the keys and CAs with valid signatures.
	// +optional
	VerifiedBy []string `json:"verifiedBy,omitempty"`
	// VerifiedPolicy identifies the state of the trust policy's ConfigMaps and Secrets at the last
	// verification. While their state differs, the operator does not install or upgrade drivers.
	// +optional
	VerifiedPolicy string `json:"verifiedPolicy,omitempty"`
	// VerifiedLogin identifies the state of the pull Secret that the mirror last accepted for the bundle's
	// repository, or is "none" without a Secret. The drivers' pods get the Secret in exactly this state.
	// +optional
	VerifiedLogin string `json:"verifiedLogin,omitempty"`
	// +optional
	Matrix *MatrixStatus `json:"matrix,omitempty"`
	// HighestSerial is the highest matrix serial accepted from the repository, as in the Secret
	// vdo-highest-serials. Lower ones are refused. If it is wrong, delete the Secret: the accepted
	// bundle's serial then applies.
	// +optional
	HighestSerial int64 `json:"highestSerial,omitempty"`
	// Releases in the bundle.
	// +optional
	// +listType=atomic
	Releases []ReleaseStatus `json:"releases,omitempty"`
	// Kubernetes versions that the bundle has drivers for: "1.32, 1.33".
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
	// AcceptedAt is when the digest was accepted.
	// +optional
	AcceptedAt *metav1.Time `json:"acceptedAt,omitempty"`
	// HandledReconcileAt is the last handled value of the annotation
	// reconcile.vdo.vmware.com/requestedAt. A value of more than 256 bytes is cut, with its SHA-256.
	// +optional
	HandledReconcileAt string `json:"handledReconcileAt,omitempty"`
}

// MatrixStatus describes the compatibility matrix of a bundle.
type MatrixStatus struct {
	Serial  int64       `json:"serial"`
	Issued  metav1.Time `json:"issued"`
	Expires metav1.Time `json:"expires"`
	Digest  string      `json:"digest"`
}

// ReleaseStatus is one driver release of a bundle.
type ReleaseStatus struct {
	Driver     string `json:"driver"`
	Version    string `json:"version"`
	State      string `json:"state"`
	Kubernetes string `json:"kubernetes"`
	VSphere    string `json:"vSphere"`
}

// DriverBundleList is a list of DriverBundle.
//
// +kubebuilder:object:root=true
type DriverBundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DriverBundle `json:"items"`
}

// ImageNames is how pods name the images of a bundle.
type ImageNames string

// The ways to name images.
const (
	ImageNamesRepository ImageNames = "Repository" // HOST/PATH@sha256:…; also the meaning of ""
	ImageNamesPaths      ImageNames = "Paths"      // HOST/PATH/registry.k8s.io/csi-vsphere/driver@sha256:…
	ImageNamesUpstream   ImageNames = "Upstream"   // registry.k8s.io/csi-vsphere/driver@sha256:…
)

// Names in a DriverBundle's namespace for fields that its spec omits.
const (
	DefaultTrustName      = "vdo-trust"       // ConfigMap: a policy, or public keys
	DefaultTrustPolicyKey = "policy.yaml"     // key of it: the policy; without it each key ending in .pub is a public key
	DefaultPullSecretName = "vdo-registry"    //nolint:gosec // a name: Secret of type kubernetes.io/dockerconfigjson
	DefaultCAName         = "vdo-registry-ca" // ConfigMap: key ca.crt
	DefaultCAKey          = "ca.crt"
	DefaultPublicKeyKey   = "cosign.pub"
	DefaultRootsKey       = "ca.crt" // of CAs
	DefaultTrustedRootKey = "trusted_root.json"
)

// SerialsName is the Secret with the highest matrix serial accepted from each repository, by the
// hash of the repository's name. The operator never deletes it: a recreated DriverBundle, under any
// name, accepts no older bundle.
const SerialsName = "vdo-highest-serials"

// ForgetSerials returns the command that makes the operator forget serials. It then uses the serial
// of the accepted bundle.
func ForgetSerials(namespace string) string {
	return "kubectl delete secret -n " + namespace + " " + SerialsName
}

// Both names of the earlier operator's matrix ConfigMap, which acts as a DriverBundle.
const (
	LegacyMatrixName      = "compat-matrix-config"
	LegacyMatrixOtherName = "comp-matrix-config"
)

// AnnotationUpgrade on a DriverBundle is the UpgradeMode of VDOConfigs that set none. It carries
// the earlier operator's auto-upgrade setting.
const AnnotationUpgrade = "vdo.vmware.com/upgrade"

// AnnotationAcceptRepository on the DriverBundle of the earlier operator's matrix ConfigMap or
// CompatibilityConfig is the HOST/PATH that its URL may change to.
const AnnotationAcceptRepository = "vdo.vmware.com/accept-repository"

// AnnotationMessage on the DriverBundle and on that resource says why it has no effect.
const AnnotationMessage = "vdo.vmware.com/message"

// NoLogin is status.verifiedLogin if the operator read the mirror without a pull secret.
const NoLogin = "none"

// PullSecretName returns the mirror's pull secret, and whether the spec names it: the default one need not exist.
func (in *DriverBundle) PullSecretName() (name string, named bool) {
	if in.Spec.PullSecret != nil {
		return in.Spec.PullSecret.Name, true
	}
	return DefaultPullSecretName, false
}

// CAReference returns the location of the mirror's CA certificates, and whether the spec names it:
// the default ConfigMap need not exist.
func (in *DriverBundle) CAReference() (ref KeyReference, named bool) {
	if in.Spec.CA == nil {
		return KeyReference{ConfigMap: DefaultCAName, Key: DefaultCAKey}, false
	}
	ref = *in.Spec.CA
	if ref.Key == "" {
		ref.Key = DefaultCAKey
	}
	return ref, true
}

// TrustSources returns the ConfigMaps and Secrets of the trust policies, each once, without keys.
func (in *DriverBundle) TrustSources() []KeyReference {
	var named []*KeyReference
	if in.Spec.Trust == nil {
		named = append(named, &KeyReference{ConfigMap: DefaultTrustName})
	}
	for _, p := range []*TrustPolicy{in.Spec.Trust, in.Spec.MatrixTrust} {
		if p == nil {
			continue
		}
		for _, key := range p.Keys {
			named = append(named, key.From)
		}
		for _, c := range p.Certificates {
			named = append(named, c.RootsFrom, c.IntermediatesFrom, c.TimestampRootsFrom)
		}
		for _, k := range p.Keyless {
			named = append(named, k.TrustedRootFrom)
		}
	}
	var out []KeyReference
	for _, ref := range named {
		if ref == nil {
			continue
		}
		if one := (KeyReference{ConfigMap: ref.ConfigMap, Secret: ref.Secret}); !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}
