package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// answerLasts is how long the API server's word that it would change nothing counts: an
// admission policy may be another one by then.
const answerLasts = time.Hour

// answers are the objects that the API server would change nothing of, were they applied:
// as they were rendered, and as they were there. It is not asked again while both are the
// same, and neither is the API server's version another. Of an object that is
// rendered in several ways (what is in force, and what waits for an approval) the answers
// to the latest of them are kept. The zero value is ready, and several goroutines may use
// it at once.
type answers struct {
	mu      sync.Mutex
	version string
	of      map[inventory.Key][]answer // the latest one last
}

// maxAnswers is how many answers are kept of one object.
const maxAnswers = 2

type answer struct {
	sum   [sha256.Size]byte
	until time.Time
}

// server forgets what an API server of another version has answered.
func (a *answers) server(version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version != version {
		a.version, a.of = version, nil
	}
}

// unchanged tells whether the API server has answered that it would change nothing.
func (a *answers) unchanged(o render.Object, live *unstructured.Unstructured, now time.Time) bool {
	sum, ok := sumOf(o, live)
	if !ok {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.of[plan.IDOf(live).Key], func(is answer) bool { return is.sum == sum && now.Before(is.until) })
}

// note keeps what the API server would make of an object that is there.
func (a *answers) note(o render.Object, live, would *unstructured.Unstructured, now time.Time) {
	sum, ok := sumOf(o, live)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := plan.IDOf(live).Key
	kept := slices.DeleteFunc(a.of[key], func(is answer) bool { return is.sum == sum })
	if len(plan.Diff(live, would)) == 0 {
		kept = append(kept, answer{sum, now.Add(answerLasts)})
	}
	if len(kept) == 0 {
		delete(a.of, key)
		return
	}
	if a.of == nil {
		a.of = map[inventory.Key][]answer{}
	}
	a.of[key] = kept[max(0, len(kept)-maxAnswers):]
}

// sum identifies an object as it was rendered, how it is applied, and the state of the one
// that is there.
func sumOf(o render.Object, live *unstructured.Unstructured) (sum [sha256.Size]byte, ok bool) {
	data, err := json.Marshal([]any{o.Object, o.Apply, live.GetUID(), live.GetResourceVersion()})
	if err != nil {
		return sum, false
	}
	return sha256.Sum256(data), true
}

// tryAnew asks whether a workload that is to be made anew would be accepted. What it would be cannot
// be compared with the one that is there.
func (c *Cluster) tryAnew(ctx context.Context, trial *unstructured.Unstructured) plan.Outcome {
	key := plan.IDOf(trial).Key
	if err := c.Client.Update(ctx, trial, client.FieldOwner(FieldManager), client.DryRunAll); err != nil {
		return plan.Outcome{Err: c.refused(ctx, "try", key, err)}
	}
	return plan.Outcome{}
}
