package revision

import "time"

// VCenter is a vCenter as it was last seen.
type VCenter struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Changed is when another version of it was first seen, the zero time where there never
	// was one.
	Changed time.Time `json:"changed,omitzero"`
}
