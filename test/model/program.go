//go:build linux

package model

import (
	"encoding/json"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/random"
)

// A Program is a list of steps.
type Program = random.Program[Step]

// A Step is a command, or damage to a location between two commands. Its text is JSON:
// {"do":"push","from":"x.tar","to":"reg:r:1","trust":"k1","with":["check-all"],
// "fault":{"kind":"kill","on":"mirror","at":7}}.
type Step struct {
	// Do is the verb: pull, sign, split, repair, push, prune or verify; or flip, shorten, remove or lose, see
	// damage.go.
	Do string `json:"do"`
	// Bundle is the selection that pull takes: a, b or c.
	Bundle string `json:"bundle,omitempty"`
	// From and To are locations. A command in place has only To.
	From place `json:"from,omitempty"`
	To   place `json:"to,omitempty"`
	// Key signs, Trust is the required signer: k1, k2; both, for a policy that requires k1 and k2.
	Key   string `json:"key,omitempty"`
	Trust string `json:"trust,omitempty"`
	// With are further options.
	With []string `json:"with,omitempty"`
	// File is the damaged file of the location, by the end of its name; N is the position.
	File  string `json:"file,omitempty"`
	N     int    `json:"n,omitempty"`
	Fault Fault  `json:"fault,omitzero"`
}

// A Fault is a fault while a command runs.
type Fault struct {
	Kind string `json:"kind"`
	On   string `json:"on,omitempty"` // mirror, up (the upstream registry) or files
	At   int    `json:"at,omitempty"` // number of the request or of the file change, or a size
}

// String returns the step's text.
func (s Step) String() string {
	data, _ := json.Marshal(s) //nolint:errchkjson // strings and numbers
	return string(data)
}

func (s Step) has(option string) bool { return slices.Contains(s.With, option) }

func (s Step) quiet() Step {
	s.Fault = Fault{}
	return s
}
