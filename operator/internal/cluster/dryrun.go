package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// answerLasts is the lifetime of an answer of no change, because an admission policy may change.
const answerLasts = time.Hour

// answers caches dry runs without a change, by rendered object and state of the existing one. An answer ends with
// its lifetime or the API server's version. The zero value is ready, and safe for concurrent use.
type answers struct {
	mu      sync.Mutex
	version string
	until   map[question]time.Time
}

type question [sha256.Size]byte

// server drops all answers if the API server's version changed.
func (a *answers) server(version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version != version {
		a.version, a.until = version, nil
	}
}

// unchanged reports whether a valid answer of no change exists.
func (a *answers) unchanged(q question, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.until[q])
}

// note stores an answer of no change, and drops expired ones.
func (a *answers) note(q question, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[question]time.Time{}
	}
	maps.DeleteFunc(a.until, func(_ question, until time.Time) bool { return !now.Before(until) })
	a.until[q] = now.Add(answerLasts)
}

// ask identifies a rendered object, its strategy, and the state of the existing one. It returns the zero question,
// which has no answer, if none exists.
func ask(o render.Object, live *unstructured.Unstructured) (q question) {
	if live != nil {
		data, _ := json.Marshal([]any{o.Object, o.Apply, live.GetUID(), live.GetResourceVersion()}) //nolint:errcheck,errchkjson // it came as JSON
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
