package cluster

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// answerLasts is the lifetime of an answer of no change, because an admission policy may change.
const answerLasts = time.Hour

// unchanged has the dry runs without a change.
var unchanged = cache.NewExpiring()

// question identifies a dry run: the API server's version, the rendered object, its strategy, and the state of the
// existing one.
type question [sha256.Size]byte

// ask returns the zero question, which has no answer, if no object exists.
func (c *Cluster) ask(o render.Object, live *unstructured.Unstructured) (q question) {
	if live != nil {
		data, _ := json.Marshal([]any{c.version.Load(), o.Object, o.Apply, live.GetUID(), live.GetResourceVersion()}) //nolint:errcheck,errchkjson // it came as JSON
		q = sha256.Sum256(data)
	}
	return q
}
