package matrix

import (
	_ "embed" // the default document
	"slices"
)

func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

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
