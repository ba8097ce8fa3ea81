package drift

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// An object that was repaired Repairs times within Window is contested: someone sets its
// fields again each time. It is left alone for Pause, and then tried once more, again and again.
// It is contested no more once it is as it shall be at the end of a pause.
const (
	Repairs = 5
	Window  = 10 * time.Minute
	Pause   = 30 * time.Minute
)

// maxKept bounds the memory of a ledger; an object that is forgotten is counted again.
const maxKept = 1024

// RepairCounter counts repairs. It is in memory: what was decided from it is in the status, so that
// an operator that starts again repairs a contested object after its pause, and any other one
// Repairs times more at most. The zero value is empty.
type RepairCounter struct {
	mu      sync.Mutex
	repairs map[inventory.Key][]time.Time
}

// Repaired notes the repair of an object, and returns how often it was repaired within the
// window.
func (l *RepairCounter) Repaired(key inventory.Key, now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.repairs == nil || len(l.repairs) >= maxKept {
		l.repairs = map[inventory.Key][]time.Time{}
	}
	recent := slices.DeleteFunc(l.repairs[key], func(at time.Time) bool { return now.Sub(at) >= Window || at.After(now) })
	l.repairs[key] = append(recent, now)
	return len(l.repairs[key])
}

// KeyOf is the kind and name of an entry; its group is not in a status.
func KeyOf(s v1alpha1.DriftStatus) inventory.Key {
	return inventory.Key{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}
}

// Find returns the entry of an object among those of a status.
func Find(all []v1alpha1.DriftStatus, key inventory.Key) (v1alpha1.DriftStatus, bool) {
	key.Group = ""
	i := slices.IndexFunc(all, func(s v1alpha1.DriftStatus) bool { return KeyOf(s) == key })
	if i < 0 {
		return v1alpha1.DriftStatus{}, false
	}
	return all[i], true
}

// Paused tells whether a contested object is left alone now.
func Paused(s v1alpha1.DriftStatus, now time.Time) bool {
	return s.Until != nil && now.Before(s.Until.Time)
}

// Repaired is what becomes of an object's entry once it was repaired count times within the
// window: contested is false where no one has fought over it enough yet.
func Repaired(was v1alpha1.DriftStatus, count int, now time.Time) (s v1alpha1.DriftStatus, contested bool) {
	s = was
	if was.Until == nil && count < Repairs {
		return s, false
	}
	s.Repairs = max(was.Repairs+1, count)
	s.Until = &metav1.Time{Time: now.Add(Pause).Truncate(time.Second)}
	return s, true
}
