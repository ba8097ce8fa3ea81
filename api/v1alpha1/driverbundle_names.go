package v1alpha1

import "slices"

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
