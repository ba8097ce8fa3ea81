package vdoctl

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unread are the values below a node that their types do not take, each with line and path: of
// those that read themselves, as durations do, the decoder says neither.
func (d document) unread(n *yaml.Node, t reflect.Type, path string) (all []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	below := func(n *yaml.Node, t reflect.Type, step string) {
		all = append(all, d.unread(n, t, strings.TrimPrefix(path+step, "."))...)
	}
	switch {
	case n.Kind == yaml.AliasNode:
		return d.unread(n.Alias, t, path)
	case readsItself(t):
		var value any
		if n.Decode(&value) != nil {
			return nil // no YAML: that is told
		}
		data, err := json.Marshal(value)
		if err == nil && json.Unmarshal(data, reflect.New(t).Interface()) != nil {
			all = append(all, fmt.Sprintf("%s%s: expected %s, got %s", d.at(n.Line), path, form(t), shown(path, inWordsOf(jsonKind(n)), n)))
		}
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			below(item, t.Elem(), fmt.Sprintf("[%d]", i))
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Map:
		for i := 0; i+1 < len(n.Content); i += 2 {
			below(n.Content[i+1], t.Elem(), "."+n.Content[i].Value)
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		fields := fieldsOf(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			if f := fields[n.Content[i].Value]; f != nil {
				below(n.Content[i+1], f, "."+n.Content[i].Value)
			}
		}
	}
	return all
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// readsItself tells of types whose values are more than JSON's.
func readsItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(unmarshaler) || t == reflect.TypeFor[[]byte]()
}

// form is what such a type takes.
func form(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return "a duration, such as 90s, 10m or 1h30m"
	case reflect.TypeFor[metav1.Time]():
		return "a time, such as 2026-01-31T22:00:00Z"
	case reflect.TypeFor[[]byte]():
		return "base64; what is not encoded belongs under stringData"
	}
	return "another value"
}

// fieldsOf are the types of a struct's fields by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct {
			for name, of := range fieldsOf(f.Type) {
				fields[name] = of
			}
		}
		fields[name] = f.Type
	}
	return fields
}
