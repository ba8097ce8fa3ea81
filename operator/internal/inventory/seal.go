package inventory

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// SealKey is the key of the ConfigMap that holds the seal of the record beside it.
const SealKey = "seal"

// What is hashed with the operator's key begins with what it is for: no hash of one purpose
// is good for another.
const (
	sealContext  = "vdo.vmware.com/inventory-seal/v1"
	keyIDContext = "vdo.vmware.com/inventory-key/v1"
)

// Sealer seals records. The zero value leaves them unsealed.
type Sealer struct {
	Key    []byte
	Owner  string // NAMESPACE/NAME of the first ConfigMap of the record
	Serial int64  // of the record that is written: higher than that of every one before
	// Known are the ConfigMaps, NAMESPACE/NAME, that were there when the record was read. One of
	// them that is not there now was removed by somebody else, as an operator that leads since.
	Known []string
}

// Data is what the ConfigMaps of a record hold.
func (s Sealer) Data(inv Inventory) map[string]string {
	text := string(inv.Marshal())
	data := map[string]string{DataKey: text}
	if len(s.Key) > 0 {
		data[SealKey] = string(mustJSON(seal{Serial: s.Serial, MAC: s.mac(text)}))
	}
	return data
}

// Outdated tells whether a ConfigMap has a record that is sealed by the same key and is as
// new or newer than the one to write: somebody else writes, as an operator that leads since.
func (s Sealer) Outdated(data map[string]string) bool {
	there, ok := sealed(data, s.Key, s.Owner)
	return ok && there >= s.Serial
}

func (s Sealer) mac(text string) string {
	mac := hmac.New(sha256.New, s.Key)
	fmt.Fprintf(mac, "%s\n%s\n%d\n%s", sealContext, s.Owner, s.Serial, text)
	return hex.EncodeToString(mac.Sum(nil))
}

// seal is the text under SealKey.
type seal struct {
	Serial int64  `json:"serial"`
	MAC    string `json:"mac"` // hex
}

// sealed returns the serial of a record, and whether its seal is good.
func sealed(data map[string]string, key []byte, owner string) (serial int64, ok bool) {
	var there seal
	if len(key) == 0 || json.Unmarshal([]byte(data[SealKey]), &there) != nil {
		return 0, false
	}
	want := Sealer{Key: key, Owner: owner, Serial: there.Serial}.mac(data[DataKey])
	return there.Serial, hmac.Equal([]byte(strings.ToLower(there.MAC)), []byte(want))
}

// KeyID identifies a key, and says nothing of it; "" is of none.
func KeyID(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(keyIDContext))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
