package v1alpha1

import (
	"crypto/sha256"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxAsked is how many bytes of an annotation's value are kept in a status. Annotations may
// have a quarter of a mebibyte.
const MaxAsked = 256

// Asked returns the value of an annotation by which somebody asks for something, as it is kept:
// that is its beginning and its SHA-256 where it is longer than [MaxAsked].
func Asked(o metav1.Object, annotation string) string {
	value := o.GetAnnotations()[annotation]
	if len(value) <= MaxAsked {
		return value
	}
	return fmt.Sprintf("%s sha256:%x", strings.ToValidUTF8(value[:128], ""), sha256.Sum256([]byte(value)))
}
