package drift

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// An object that was repaired Repairs times within Window is contested: another manager keeps changing it. It is left
// alone for Pause, then repaired once, and so on. It stops being contested if it is as desired at the end of a pause.
const (
	Repairs = 5
	Window  = 10 * time.Minute
	Pause   = 30 * time.Minute
)

// RepairCounter counts repairs, in memory; decisions are in the status. So a restarted operator repairs a contested
// object after its pause, and any other at most Repairs times more. The zero value is empty.
type RepairCounter struct{ repairs map[inventory.Key][]time.Time }

// Repaired records the repair of an object, and returns the number of its repairs within Window.
func (l *RepairCounter) Repaired(key inventory.Key, now time.Time) int {
	if l.repairs == nil {
		l.repairs = map[inventory.Key][]time.Time{}
	}
	recent := slices.DeleteFunc(l.repairs[key], func(at time.Time) bool { return now.Sub(at) >= Window || at.After(now) })
	l.repairs[key] = append(recent, now)
	return len(l.repairs[key])
}

// KeyOf returns the key of a status entry, without the group, which a status lacks.
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

// Paused reports whether a contested object is left alone now. A pause longer than Pause is of a clock that was ahead.
func Paused(s v1alpha1.DriftStatus, now time.Time) bool {
	return s.Until != nil && now.Before(s.Until.Time) && s.Until.Sub(now) <= Pause
}

// Repaired returns an object's entry after count repairs within Window; contested is false below the limit.
func Repaired(was v1alpha1.DriftStatus, count int, now time.Time) (s v1alpha1.DriftStatus, contested bool) {
	s = was
	if was.Until == nil && count < Repairs {
		return s, false
	}
	s.Repairs = max(was.Repairs+1, count)
	s.Until = &metav1.Time{Time: now.Add(Pause).Truncate(time.Second)}
	return s, true
}
