package v1alpha1

// InventoryStatus is the last record of what is installed (ConfigMaps vdo-inventory-NAME and
// vdo-inventory-copy-NAME) that the operator has written, or seen to be its own. A record that
// is older, or bears no seal of the key, is not believed.
type InventoryStatus struct {
	// Serial of the record: it grows with each write.
	Serial int64 `json:"serial"`
	// KeyID identifies the operator's key that the record is sealed with, and says nothing
	// of it.
	KeyID string `json:"keyID"`
	// Epoch is random, and another one each time that the record was made where there was none:
	// what was written before that is not believed any more.
	// +optional
	Epoch string `json:"epoch,omitempty"`
}
