package inventory

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const maxName = 253

// Naming is how ConfigMaps with records are named. The zero value is [VDOConfigs].
type Naming struct{ record, second string }

// The namings by kind of owner: the name of a VDOConfig, or NAMESPACE.NAME of a SIPCluster. The latter is unique,
// since a namespace has no dots.
var (
	VDOConfigs  = Naming{record: "vdo-inventory-", second: "vdo-inventory-copy-"}
	SIPClusters = Naming{record: "sip-inventory-of-", second: "sip-inventory-copy-"}
)

// ConfigMap returns the name of the ConfigMap with the inventory of an owner.
func (n Naming) ConfigMap(owner string) string {
	n = cmp.Or(n, VDOConfigs)
	return bounded(n.record, owner, n.shares(owner))
}

// Copy returns the ConfigMap name of an inventory's second copy, which programs before v0.1 kept. It is removed with
// the first one. Dropped in v0.2.
func (n Naming) Copy(owner string) string {
	n = cmp.Or(n, VDOConfigs)
	return bounded(n.second, owner, n.shares(owner))
}

// shares reports whether an owner's record would have another one's name: that of its second copy, or of an owner
// whose name is a hash.
func (n Naming) shares(owner string) bool {
	_, err := hex.DecodeString(owner)
	return strings.HasPrefix(n.record+owner, n.second) || (err == nil && len(owner) == 2*sha256.Size)
}

// bounded returns prefix and owner, or a hash of the owner if it is too long or hashed is set.
func bounded(prefix, owner string, hashed bool) string {
	if name := prefix + owner; len(name) <= maxName && !hashed {
		return name
	}
	sum := sha256.Sum256([]byte(owner))
	return prefix + hex.EncodeToString(sum[:])
}
