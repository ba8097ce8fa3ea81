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

// Cause is why a step is there.
type Cause string

// The causes. Only a drift skips gates: everything else is something new, which has
// to prove itself stage by stage.
const (
	// Drift: what was applied last shall be there again.
	Drift Cause = "drift"
	// Configuration: the site says something else: a field, a vCenter, its nodes.
	Configuration Cause = "configuration"
	// Content: the same release is made of something else: the bundle was rebuilt, the
	// mirror has moved, or the program is another one.
	Content Cause = "content"
	// Release: another release, or the first one.
	Release Cause = "release"
)

// cause compares what shall be applied with what was applied last.
func (in *Input) cause(s Step, live *unstructured.Unstructured, known inventory.Entry) Cause {
	switch {
	case known.Release == "" || known.Release != s.Release:
		return Release
	case known.UID == "" && known.Rendered == "":
		return Release // it was about to be made in the place of a deprecated one
	case known.Rendered == s.Rendered:
		return Drift
	case live == nil && (sameBundle(known.Content, s.Content) || in.Untrusted[s.Driver] == ""):
		return Drift // nothing runs that it could disturb
	case known.Content != s.Content:
		return Content
	}
	return Configuration
}

// waits tells whether a step has to wait until the bundle is trusted: what it would make is
// not what was applied last, and what differs comes from the bundle.
func (in *Input) waits(s Step, known inventory.Entry) bool {
	if in.Untrusted[s.Driver] == "" || (known.Release == s.Release && known.Rendered == s.Rendered) {
		return false
	}
	return s.Cause == Release || in.rebuilt(s, known)
}

// rebuilt tells whether the bundle makes something else of the same release.
func (in *Input) rebuilt(s Step, known inventory.Entry) bool {
	return s.Cause == Content && !sameBundle(known.Content, s.Content)
}

// sameBundle tells whether the bundles gave the same in two contents, whatever the program.
func sameBundle(a, b string) bool {
	_, a, known := strings.Cut(a, "/")
	_, b, _ = strings.Cut(b, "/")
	return known && a == b
}

// sum is a keyed hash of an object: a plain one would let whoever reads the inventory
// try passwords offline.
func (in *Input) sum(o *unstructured.Unstructured) string {
	data, err := json.Marshal(o.Object)
	if err != nil {
		return "" // never: it was made from JSON
	}
	mac := hmac.New(sha256.New, in.Key)
	mac.Write(data)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
