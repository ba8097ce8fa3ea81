package drift

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// owned has the managers of an object's fields, from its managedFields, also through subresources: autoscalers and
// kubectl scale set replicas through scale.
type owned []manager

type manager struct {
	name   string
	at     time.Time
	fields map[string]any // of FieldsV1: "f:key" and `k:{"name":"x"}`
}

func owners(o *unstructured.Unstructured) owned {
	var all owned
	for _, e := range o.GetManagedFields() {
		if e.FieldsV1 == nil {
			continue
		}
		m := manager{name: e.Manager}
		if e.Time != nil {
			m.at = e.Time.Time
		}
		if json.Unmarshal(e.FieldsV1.GetRawBytes(), &m.fields) == nil {
			all = append(all, m)
		}
	}
	return all
}

// has returns the fields that a manager manages below a field, and whether it manages that field or one of them.
func (m manager) has(path []string) (below map[string]any, is bool) {
	in := m.fields
	for _, key := range path {
		next, ok := in[key].(map[string]any)
		if !ok {
			return nil, false
		}
		in = next
	}
	return in, true
}

// without returns a value less all fields that a manager other than ours has set, nil if none is left. A map without
// managers of its parts, such as a node selector, is atomic. It is left to the other as a whole.
func (all owned) without(ours string, path []string, value any) any {
	theirs, parts := false, false
	for _, m := range all {
		below, is := m.has(path)
		theirs, parts = theirs || is && m.name != ours, parts || len(below) > 0
	}
	if !theirs {
		return value
	}
	in, ok := value.(map[string]any)
	if !ok || !parts {
		return nil
	}
	rest := map[string]any{}
	for key, v := range in {
		if left := all.without(ours, append(slices.Clone(path), "f:"+key), v); left != nil {
			rest[key] = left
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// Changer returns the manager other than ours that last set one of an object's fields, by their paths. It returns ""
// if managedFields do not say.
func Changer(o *unstructured.Unstructured, ours string, fields [][]string) string {
	var found manager
	for _, m := range owners(o) {
		if m.name == ours || (found.name != "" && m.at.Before(found.at)) {
			continue
		}
		sets := func(path []string) bool {
			_, path = follow(o.Object, o.Object, path)
			_, is := m.has(path)
			return is
		}
		if slices.ContainsFunc(fields, sets) {
			found = m
		}
	}
	return found.name
}

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
