package inventory

import (
	"crypto/sha256"
	"encoding/hex"
)

const (
	namePrefix = "vdo-inventory-"
	maxName    = 253
)

// Naming is how the ConfigMaps with records are named. The zero value is [VDOConfigs].
type Naming struct{ record, second string }

// The namings. An owner of the former is the name of a VDOConfig, of the latter
// NAMESPACE.NAME of a SIPCluster, which is another one for each, since a namespace has no
// dots.
var (
	VDOConfigs  = Naming{record: namePrefix, second: namePrefix + "copy-"}
	SIPClusters = Naming{record: "sip-inventory-of-", second: "sip-inventory-copy-"}
)

// ConfigMap returns the name of the ConfigMap with the inventory of an owner.
func (n Naming) ConfigMap(owner string) string { return bounded(n.orDefault().record, owner) }

// Copy returns the name of the ConfigMap with the second copy of an inventory.
func (n Naming) Copy(owner string) string { return bounded(n.orDefault().second, owner) }

// Both returns the names of both, NAMESPACE/NAME, the record's first.
func (n Naming) Both(namespace, owner string) []string {
	return []string{namespace + "/" + n.ConfigMap(owner), namespace + "/" + n.Copy(owner)}
}

func (n Naming) orDefault() Naming {
	if n == (Naming{}) {
		return VDOConfigs
	}
	return n
}

// bounded takes a hash in the place of a long owner.
func bounded(prefix, owner string) string {
	if name := prefix + owner; len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(owner))
	return prefix + hex.EncodeToString(sum[:])
}
