package plan

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

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
	case live == nil:
		return Drift // nothing runs that it could disturb
	case known.Rendered == s.Rendered:
		return Drift
	case known.Content != s.Content:
		return Content
	}
	return Configuration
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
