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

// Unanswered is how long an account is left alone after a login of which no answer is on
// record. Five failed logins in three minutes lock an account.
const Unanswered = time.Minute

// Past is the end of what is on record of a login by a process before this one.
type Past struct {
	Question Question
	At       time.Time // of the answer, or of the question
	Err      error     // a refusal or ErrLost; nil where the vCenter let it in
}

// ErrLost says that the vCenter was about to be asked, and that the answer is not on record.
var ErrLost = errors.New("the answer is lost")

// recall is what a process does once, before anything else.
type recall struct {
	mu    sync.Mutex
	begun time.Time
	done  bool
}

// Recall learns what is on record of logins before this process: no one is asked before.
// [Logins.Enter] does it too. Where some of it cannot be read for as long as failures are
// counted together, what can be read has to do.
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

// replay learns in the order of time; of what happened within one second the refusals come
// last, after which all are delayed.
func (l *Logins) replay(past []Past) {
	slices.SortStableFunc(past, func(a, b Past) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(fault.ReasonOf(a.Err), fault.ReasonOf(b.Err)))
	})
	for _, p := range past {
		l.Learn(p.Question, p.Err, p.At)
	}
}
