package logins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Unanswered is how long an account waits after a login without a recorded answer. Five failed logins in three minutes
// lock an account.
const Unanswered = time.Minute

// Past is the recorded result of a login by an earlier process.
type Past struct {
	Question Question
	At       time.Time // of the answer, or of the question
	Err      error     // a refusal or ErrLost; nil if the vCenter accepted it
}

// ErrLost is the result of a login whose answer was not recorded.
var ErrLost = errors.New("the answer is lost")

// recall is the state of the one read of [Logins.Past].
type recall struct {
	mu    sync.Mutex
	begun time.Time
	done  bool
}

// Recall learns the recorded logins of earlier processes, before the first login. [Logins.Enter] does it too. If some
// are unreadable for as long as failures are counted together, it continues with the readable ones.
func (l *Logins) Recall(ctx context.Context, now time.Time) error {
	l.recall.mu.Lock()
	defer l.recall.mu.Unlock()
	if l.recall.done || l.Past == nil {
		return nil
	}
	if l.recall.begun.IsZero() {
		l.recall.begun = now
	}
	past, err := l.Past(ctx)
	if err != nil && now.Sub(l.recall.begun) < Delay {
		return fmt.Errorf("recall which logins were refused: %w", err)
	}
	l.replay(past)
	l.recall.done = true
	return nil
}

// replay learns logins in order of time. Within one second refusals come last, after which all are delayed.
func (l *Logins) replay(past []Past) {
	slices.SortStableFunc(past, func(a, b Past) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(fault.ReasonOf(a.Err), fault.ReasonOf(b.Err)))
	})
	for _, p := range past {
		l.Learn(p.Question, p.Err, p.At)
	}
}
