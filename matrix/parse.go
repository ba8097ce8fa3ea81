package matrix

import (
	"fmt"
	"strings"
)

// unknown is the error of a word that is none of a few.
func unknown[T ~string](what, got string, known []T) error {
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	return fmt.Errorf("%.*q is no %s: it is one of %s", maxVersionText, got, what, strings.Join(words, ", "))
}

// Parse reads a document; name is the file's name, for errors.
func Parse(name string, data []byte) (*Document, error) { panic("not written") }

// Default returns the bytes of the document that the programs carry.
func Default() []byte { panic("not written") }
