package plan

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// Cause is why a step exists.
type Cause string

// All causes. Only a drift skips gates: everything else is new, and must prove itself stage by stage.
const (
	// Drift: an object is no longer as last applied.
	Drift Cause = "drift"
	// Configuration: the VDOConfig, a vCenter or its nodes changed.
	Configuration Cause = "configuration"
	// Content: the same release has other contents, since the bundle was rebuilt, the mirror moved, or the program
	// changed.
	Content Cause = "content"
	// Release: another release, or the first one.
	Release Cause = "release"
)

func (in *Input) cause(s Step, live *unstructured.Unstructured, known inventory.Entry) Cause {
	switch {
	case known.Release == "" || known.Release != s.Release:
		return Release
	case known.UID == "" && known.Rendered == "":
		return Release // it was to replace a deprecated one
	case known.Rendered == s.Rendered:
		return Drift
	case live == nil && (sameBundle(known.Content, s.Content) || in.Untrusted[s.Driver] == ""):
		return Drift // nothing runs that it could disturb
	case known.Content != s.Content:
		return Content
	}
	return Configuration
}

// waits reports whether a step waits until the bundle is trusted: it changes what was last applied, and the change
// comes from the bundle.
func (in *Input) waits(s Step, known inventory.Entry) bool {
	if in.Untrusted[s.Driver] == "" || (known.Release == s.Release && known.Rendered == s.Rendered) {
		return false
	}
	return s.Cause == Release || (s.Cause == Content && !sameBundle(known.Content, s.Content))
}

// sameBundle reports whether two contents have the same bundle part, whatever the program.
func sameBundle(a, b string) bool {
	_, a, known := strings.Cut(a, "/")
	_, b, _ = strings.Cut(b, "/")
	return known && a == b
}

// sum returns a keyed hash of an object. A plain hash would let a reader of the inventory try passwords offline.
func (in *Input) sum(o *unstructured.Unstructured) string {
	data, err := json.Marshal(o.Object)
	if err != nil {
		return "" // never: it was made from JSON
	}
	mac := hmac.New(sha256.New, in.Key)
	mac.Write(data)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
