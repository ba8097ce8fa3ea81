package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
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
func (n Naming) ConfigMap(owner string) string {
	n = n.orDefault()
	return bounded(n.record, owner, n.shares(owner))
}

// Copy returns the name of the ConfigMap with the second copy of an inventory, which programs before
// v0.1 kept: it is removed with the first one. To be dropped in v0.2.
func (n Naming) Copy(owner string) string {
	n = n.orDefault()
	return bounded(n.second, owner, n.shares(owner))
}

// shares tells whether an owner's record would have the name of another one's: of its second copy,
// or of one whose name is a hash.
func (n Naming) shares(owner string) bool {
	_, err := hex.DecodeString(owner)
	return strings.HasPrefix(n.record+owner, n.second) || (err == nil && len(owner) == 2*sha256.Size)
}

func (n Naming) orDefault() Naming {
	if n == (Naming{}) {
		return VDOConfigs
	}
	return n
}

// bounded takes a hash in the place of an owner that is long, or not to be named.
func bounded(prefix, owner string, hashed bool) string {
	if name := prefix + owner; len(name) <= maxName && !hashed {
		return name
	}
	sum := sha256.Sum256([]byte(owner))
	return prefix + hex.EncodeToString(sum[:])
}
