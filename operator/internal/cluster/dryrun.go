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

// answerLasts is how long the API server's word that it would change nothing counts: an
// admission policy may be another one by then.
const answerLasts = time.Hour

// answers are the questions that the API server has answered with no change: an object as it was
// rendered, and the state of the one that is there. A question is not asked again until both or the API
// server's version differ, or the answer is old. The zero value is ready, and several goroutines may use
// it at once.
type answers struct {
	mu      sync.Mutex
	version string
	until   map[question]time.Time
}

type question [sha256.Size]byte

// server forgets what an API server of another version has answered.
func (a *answers) server(version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version != version {
		a.version, a.until = version, nil
	}
}

// unchanged tells whether the API server has answered that it would change nothing.
func (a *answers) unchanged(q question, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.until[q])
}

// note keeps that the API server would change nothing.
func (a *answers) note(q question, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[question]time.Time{}
	}
	maps.DeleteFunc(a.until, func(_ question, until time.Time) bool { return !now.Before(until) })
	a.until[q] = now.Add(answerLasts)
}

// ask identifies an object as it was rendered, how it is applied, and the state of the one that is
// there. The zero question, of one that is not there, has no answer.
func ask(o render.Object, live *unstructured.Unstructured) (q question) {
	if live != nil {
		data, _ := json.Marshal([]any{o.Object, o.Apply, live.GetUID(), live.GetResourceVersion()}) //nolint:errcheck,errchkjson // it came as JSON
		q = sha256.Sum256(data)
	}
	return q
}

// dryRunRecreated asks whether a workload that is to be recreated would be accepted. What it would be cannot
// be compared with the one that is there.
func (c *Cluster) dryRunRecreated(ctx context.Context, trial *unstructured.Unstructured) plan.Outcome {
	key := plan.IDOf(trial).Key
	if err := c.Client.Update(ctx, trial, client.FieldOwner(FieldManager), client.DryRunAll); err != nil {
		return plan.Outcome{Err: c.refused(ctx, "try", key, err)}
	}
	return plan.Outcome{}
}
