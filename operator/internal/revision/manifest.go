package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LabelOf is the label of the ConfigMaps of one VDOConfig's revisions: see [LabelsOf].
	LabelOf = "vdo.vmware.com/revision-of"
	// LabelDigest is the first 63 digits of the bundle's digest: while a ConfigMap has it
	// the copy of that bundle stays in the cluster.
	LabelDigest = "vdo.vmware.com/revision-digest"
	// LabelCopy is the label of the ConfigMaps that a bundle's copy consists of, with the
	// same value (package store). Revisions own the copies of their bundles too: a copy
	// goes with the last of its owners.
	LabelCopy = "vdo.vmware.com/digest"

	namePrefix = "vdo-revision-"
	maxName    = 253
)

// ConfigMapName returns the name of the ConfigMap of a revision of a VDOConfig.
func ConfigMapName(vdoConfig, revision string) string {
	if name := namePrefix + vdoConfig + "-" + revision; len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(vdoConfig))
	return namePrefix + hex.EncodeToString(sum[:]) + "-" + revision
}

// Owner refers to the ConfigMap of a revision as an owner of the copy of its bundle.
func Owner(cm metav1.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: cm.GetName(), UID: cm.GetUID()}
}

// LabelsOf are the labels by which all revisions of a VDOConfig are found.
func LabelsOf(vdoConfig string) map[string]string {
	sum := sha256.Sum256([]byte(vdoConfig))
	return map[string]string{LabelOf: hex.EncodeToString(sum[:8])}
}

// DigestLabel returns the label's value for a bundle, "" for one without a digest.
func DigestLabel(bundle string) string {
	_, digest, _ := strings.Cut(bundle, "@sha256:")
	if len(digest) != 64 {
		return ""
	}
	return digest[:63]
}
