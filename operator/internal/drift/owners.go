package drift

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// owned is who manages which fields of an object, as its managedFields have it.
type owned []manager

type manager struct {
	name   string
	at     time.Time
	fields map[string]any // of FieldsV1: "f:key" and `k:{"name":"x"}`
}

func owners(o *unstructured.Unstructured) owned {
	var all owned
	for _, e := range o.GetManagedFields() {
		if e.FieldsV1 == nil || e.Subresource != "" {
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

// fieldsOf is a path as managedFields write it.
func fieldsOf(o any, path []string) []string {
	var all []string
	for _, s := range named(o, path) {
		if s.name == "" {
			all = append(all, "f:"+s.key)
			continue
		}
		key, _ := json.Marshal(map[string]string{"name": s.name}) //nolint:errcheck,errchkjson // it is made of texts
		all = append(all, "k:"+string(key))
	}
	return all
}

// has tells whether a manager manages a field, or something in it.
func (m manager) has(path []string) bool {
	in := m.fields
	for _, key := range path {
		next, ok := in[key].(map[string]any)
		if !ok {
			return false
		}
		in = next
	}
	return true
}

// without is a value, less all in it that a manager other than ours has set: nil where that
// is all of it.
func (all owned) without(ours string, path []string, value any) any {
	if !slices.ContainsFunc(all, func(m manager) bool { return m.name != ours && m.has(path) }) {
		return value
	}
	in, ok := value.(map[string]any)
	if !ok {
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

// Changer is the manager that has last set one of an object's fields and is not ours, "" where
// managedFields do not tell. Fields are written as a plan writes them: spec.replicas.
func Changer(o *unstructured.Unstructured, ours string, fields []string) string {
	if o == nil {
		return ""
	}
	var found manager
	for _, m := range owners(o) {
		if m.name == ours || (found.name != "" && m.at.Before(found.at)) {
			continue
		}
		if slices.ContainsFunc(fields, func(f string) bool { return m.has(dotted(f)) }) {
			found = m
		}
	}
	return found.name
}

// dotted is a plan's path as managedFields write it.
func dotted(field string) []string {
	var all []string
	for len(field) > 0 {
		var key string
		if field[0] == '[' { // a key that has a dot or a slash
			end := slices.Index([]byte(field), ']')
			if end < 0 {
				end = len(field) - 1
			}
			key, field = field[1:end], field[end+1:]
		} else {
			end := slices.Index([]byte(field), '.')
			if end < 0 {
				end = len(field)
			}
			key, field = field[:end], field[end:]
		}
		all = append(all, "f:"+key)
		if len(field) > 0 && field[0] == '.' {
			field = field[1:]
		}
	}
	return all
}
