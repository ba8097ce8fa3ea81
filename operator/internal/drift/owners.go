package drift

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
			path = slices.Clone(path)
			for i, key := range path {
				path[i] = "f:" + key
			}
			_, is := m.has(path)
			return is
		}
		if slices.ContainsFunc(fields, sets) {
			found = m
		}
	}
	return found.name
}
