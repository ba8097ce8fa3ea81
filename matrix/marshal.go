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

// defaultNeeds is the part "needs" of the document, which `make needs` writes.
//
//go:embed default-needs.yaml
var defaultNeeds []byte

// DefaultName names the default document in errors.
const DefaultName = "default matrix"

// Default returns the bytes of the document in the programs.
func Default() []byte { return slices.Concat(defaultDocument, defaultNeeds) }
