package sipcluster

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// turns is a queue in which namespaces take turns: of each one pass, then the next one's. So a
// tenant with a thousand SIPClusters, or with some that are always due, makes another wait for
// one pass of its own and no more. Within a namespace who is first is served first. The zero
// value is ready; the work queue that it is part of has the lock.
type turns struct {
	order   []string // namespaces with something due, the next one first
	waiting map[string][]reconcile.Request
}

var _ workqueue.Queue[reconcile.Request] = &turns{}

// newTurns is a controller's NewQueue.
func newTurns(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: &turns{}})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: queue})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, DelayingQueue: delaying})
}

// Touch is told of what is added again: its turn stays.
func (t *turns) Touch(reconcile.Request) {}

// Push adds one.
func (t *turns) Push(r reconcile.Request) {
	if t.waiting == nil {
		t.waiting = map[string][]reconcile.Request{}
	}
	if len(t.waiting[r.Namespace]) == 0 {
		t.order = append(t.order, r.Namespace)
	}
	t.waiting[r.Namespace] = append(t.waiting[r.Namespace], r)
}

// Len is how many wait.
func (t *turns) Len() int {
	n := 0
	for _, w := range t.waiting {
		n += len(w)
	}
	return n
}

// Pop takes the one whose turn it is; there has to be one.
func (t *turns) Pop() reconcile.Request {
	namespace := t.order[0]
	t.order = t.order[1:]
	next, rest := t.waiting[namespace][0], t.waiting[namespace][1:]
	if len(rest) == 0 {
		delete(t.waiting, namespace)
		return next
	}
	t.waiting[namespace] = rest
	t.order = append(t.order, namespace)
	return next
}
