package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
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

// dryRunRecreated asks whether the API server would accept a workload that is to be recreated. The outcome has no
// object, because a comparison with the existing one would mean nothing.
func (c *Cluster) dryRunRecreated(ctx context.Context, trial *unstructured.Unstructured) plan.Outcome {
	key := plan.IDOf(trial).Key
	if err := c.Client.Update(ctx, trial, client.FieldOwner(FieldManager), client.DryRunAll); err != nil {
		return plan.Outcome{Err: c.refused(ctx, "try", key, err)}
	}
	return plan.Outcome{}
}
