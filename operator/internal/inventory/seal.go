package inventory

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
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
	boundContext = "vdo.vmware.com/inventory-bound/v1"
	takenContext = "vdo.vmware.com/inventory-taken/v1"
	keyIDContext = "vdo.vmware.com/inventory-key/v1"
)

// Epoch is what the records have in common that go back to one that was made where there was
// none: those of before that are put back later are known by it.
type Epoch struct {
	ID    string // random
	After string // the ID that the anchor had then
}

// Sealer seals records. The zero value leaves them unsealed.
type Sealer struct {
	Key    []byte
	Owner  string // NAMESPACE/NAME of the first ConfigMap of the record
	UID    string // of the resource: what had its name before was another one
	Epoch  Epoch
	Serial int64 // of the record that is written: higher than that of every one before
	// Known are the versions of the ConfigMaps, NAMESPACE/NAME, that were there when the record
	// was read; "" is not known. One of them that is not there now was removed by somebody else, as
	// an operator that leads since, and of one of another version [Sealer.Outdated] says whose it is.
	Known map[string]string
}

// Next is how the record of a resource is sealed that takes the place of one that was loaded. The
// epoch of one that has none begins now.
func (l Loaded) Next(key []byte, uid string, at Anchor) Sealer {
	by := Sealer{Key: key, UID: uid, Epoch: l.Epoch, Serial: l.Serial + 1, Known: l.There}
	if by.Epoch.ID == "" {
		by.Epoch = Epoch{ID: rand.Text(), After: at.Epoch}
	}
	return by
}

// Saved is a record once it is written, to both ConfigMaps, NAMESPACE/NAME.
func (s Sealer) Saved(inv Inventory, both []string) Loaded {
	out := Loaded{Inventory: inv, Found: true, Sealed: len(s.Key) > 0, Serial: s.Serial, Epoch: s.Epoch, Whole: true, There: map[string]string{}}
	for _, name := range both {
		out.There[name] = ""
	}
	return out
}

// Data is what the ConfigMaps of a record hold.
func (s Sealer) Data(inv Inventory) map[string]string {
	text := string(inv.Marshal())
	data := map[string]string{DataKey: text}
	if marks := inv.marks(); marks != "" {
		data[MarksKey] = marks
	}
	if len(s.Key) > 0 {
		by := seal{Serial: s.Serial, MAC: s.mac(text), Epoch: s.Epoch.ID, After: s.Epoch.After}
		by.Bound = s.bound(by, data[MarksKey])
		if taken := inv.memory.Taken; taken != "" {
			data[TakenKey], by.Taken = taken, s.taken(by.MAC, taken)
		}
		data[SealKey] = string(mustJSON(by))
	}
	return data
}

// Outdated tells whether a ConfigMap that was written since the record was read has one that is
// sealed by the same key and is as new or newer than the one to write, of an epoch that is not
// known, or of another resource of the name: somebody else writes, as an operator that leads
// since. What has no seal by the key is written over, and what is known to be older.
func (s Sealer) Outdated(data map[string]string) bool {
	there := unseal(data, Proof{Key: s.Key, Owner: s.Owner, UID: s.UID})
	switch {
	case !there.good, s.Epoch.ID != "" && there.Bound == "":
		return false
	case s.Epoch.ID != "" && !there.whole:
		return true
	case there.Epoch != s.Epoch.ID:
		return s.Epoch.ID != "" && there.Epoch != s.Epoch.After
	}
	return there.Serial >= s.Serial
}

func (s Sealer) mac(text string) string {
	mac := hmac.New(sha256.New, s.Key)
	fmt.Fprintf(mac, "%s\n%s\n%d\n%s", sealContext, s.Owner, s.Serial, text)
	return hex.EncodeToString(mac.Sum(nil))
}

func (s Sealer) bound(by seal, marks string) string {
	mac := hmac.New(sha256.New, s.Key)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n%s\n%s", boundContext, by.MAC, s.UID, by.Epoch, by.After, marks)
	return hex.EncodeToString(mac.Sum(nil))
}

func (s Sealer) taken(by, text string) string {
	mac := hmac.New(sha256.New, s.Key)
	fmt.Fprintf(mac, "%s\n%s\n%s", takenContext, by, text)
	return hex.EncodeToString(mac.Sum(nil))
}

// seal is the text under SealKey.
type seal struct {
	Serial int64  `json:"serial"`
	MAC    string `json:"mac"` // hex
	Epoch  string `json:"epoch,omitempty"`
	After  string `json:"after,omitempty"`
	Bound  string `json:"bound,omitempty"` // hex
	Taken  string `json:"taken,omitempty"` // hex
}

// unsealed is a seal that was held against a key.
type unsealed struct {
	seal
	good  bool // the record is as it was sealed
	whole bool // and so is what is bound to it
	taken bool // and so is what is under TakenKey
}

func unseal(data map[string]string, by Proof) unsealed {
	var there unsealed
	if len(by.Key) == 0 || json.Unmarshal([]byte(data[SealKey]), &there.seal) != nil {
		return unsealed{}
	}
	s := Sealer{Key: by.Key, Owner: by.Owner, UID: by.UID, Serial: there.Serial}
	there.good = equal(there.MAC, s.mac(data[DataKey]))
	there.taken = there.good && equal(there.Taken, s.taken(s.mac(data[DataKey]), data[TakenKey]))
	there.whole = there.good && equal(there.Bound, s.bound(seal{MAC: s.mac(data[DataKey]), Epoch: there.Epoch, After: there.After}, data[MarksKey]))
	return there
}

func equal(mac, want string) bool { return hmac.Equal([]byte(strings.ToLower(mac)), []byte(want)) }

// KnownKeys are the keys that statuses know, by [KeyID].
type KnownKeys struct {
	// Own is of the status of the resource whose record is read; "" where it knows none.
	Own string
	// Others lists those of the statuses of all resources of its kind, "" among them; nil for none.
	// It is asked where Own does not decide.
	Others func(ctx context.Context) ([]string, error)
	// Kind is of these resources, for people.
	Kind string
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
