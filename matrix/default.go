package matrix

import (
	_ "embed" // the default document
	"slices"
)

//go:embed default.yaml
var defaultDocument []byte

// defaultNeeds is its part "needs", which `make needs` writes.
//
//go:embed default-needs.yaml
var defaultNeeds []byte

// DefaultName is what errors call the default document.
const DefaultName = "default matrix"

// Default returns the bytes of the document that the programs carry.
func Default() []byte { return slices.Concat(defaultDocument, defaultNeeds) }
