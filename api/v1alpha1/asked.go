package v1alpha1

import (
	"crypto/sha256"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxAsked is how many bytes of an annotation's value a status keeps. Annotations may have 256 KiB.
const MaxAsked = 256

// Asked returns the value of a request annotation as a status keeps it. A value longer than
// [MaxAsked] is cut, with its SHA-256.
func Asked(o metav1.Object, annotation string) string {
	value := o.GetAnnotations()[annotation]
	if len(value) <= MaxAsked {
		return value
	}
	return fmt.Sprintf("%s sha256:%x", strings.ToValidUTF8(value[:128], ""), sha256.Sum256([]byte(value)))
}
