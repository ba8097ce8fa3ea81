package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CompatibilityConfig names the compatibility matrix, as resources of the earlier operator do. It acts as a
// DriverBundle of its reference, like the ConfigMap that it replaced. Create a DriverBundle instead.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:annotations={"argocd.argoproj.io/sync-options=Prune=false,Delete=false","kustomize.toolkit.fluxcd.io/prune=disabled"}
// +kubebuilder:metadata:annotations={"kapp.k14s.io/delete-strategy=orphan","helm.sh/resource-policy=keep"}
// +kubebuilder:resource:path=compatibilityconfigs,singular=compatibilityconfig
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.matrixURL`
type CompatibilityConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec CompatibilityConfigSpec `json:"spec,omitzero"`
}

// CompatibilityConfigSpec is the earlier operator's setting.
type CompatibilityConfigSpec struct {
	// MatrixURL is oci://HOST/PATH:TAG of a bundle. Another URL is kept and has no effect: the
	// annotation vdo.vmware.com/message says what to do.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	MatrixURL string `json:"matrixURL,omitempty"`
}

// CompatibilityConfigList is a list of CompatibilityConfig.
//
// +kubebuilder:object:root=true
type CompatibilityConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CompatibilityConfig `json:"items"`
}
