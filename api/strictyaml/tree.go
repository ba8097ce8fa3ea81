package strictyaml

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Tree is a document that was read, with all that is wrong with it.
type Tree struct {
	Problems []Problem
	lines    map[string]int
}

// Problem is what is wrong at a key, such as releases[0].version.
type Problem struct{ Key, Why, Hint string }

// Read reads a tree into a struct with JSON tags: text, whole numbers, what is parsed from
// text, lists, and mappings of text. Unknown and repeated keys, and missing ones that are
// not tagged omitempty or omitzero, are problems; all of them are told.
func Read(root *yaml.Node, v any) *Tree {
	d := &Tree{lines: map[string]int{}}
	d.value(root, "", reflect.ValueOf(v).Elem())
	return d
}

// Line is where a key is in the document, or else what it is in.
func (d *Tree) Line(key string) int {
	for key != "" {
		if n := d.lines[key]; n > 0 {
			return n
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return d.lines[""]
}

func (d *Tree) add(key, format string, args ...any) {
	d.Problems = append(d.Problems, Problem{Key: key, Why: fmt.Sprintf(format, args...)})
}

// value reads a node into a value, whose key is its full path.
func (d *Tree) value(n *yaml.Node, key string, v reflect.Value) {
	if d.lines[key] == 0 {
		d.lines[key] = n.Line
	}
	text, isText := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case isText:
		d.parsed(n, key, text)
	case v.Kind() == reflect.Struct:
		d.object(n, key, v)
	case v.Kind() == reflect.Slice && n.Kind != yaml.SequenceNode:
		d.add(key, "is not a list")
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, c := range n.Content {
			d.value(c, fmt.Sprintf("%s[%d]", key, i), v.Index(i))
		}
	case v.Kind() == reflect.Map:
		texts := map[string]string{}
		d.pairs(n, key, func(at string, k, n *yaml.Node) { texts[k.Value], _ = d.scalar(n, at) })
		v.Set(reflect.ValueOf(texts))
	case v.Kind() == reflect.Int64:
		s, ok := d.scalar(n, key)
		number, err := strconv.ParseInt(s, 10, 64)
		if v.SetInt(number); ok && (err != nil || n.ShortTag() != "!!int") {
			d.add(key, "%.80q is not a whole number", s)
		}
	default:
		s, _ := d.scalar(n, key)
		v.SetString(s)
	}
}

// pairs gives the keys and values of a mapping and refuses what is none.
func (d *Tree) pairs(n *yaml.Node, key string, visit func(at string, k, v *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.add(key, "is not a mapping of keys")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(key+"."+k.Value, ".")
		d.lines[at] = k.Line
		switch {
		case k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str":
			d.add(at, "the key is not text")
		case seen[k.Value]:
			d.add(at, "the key is there twice")
		default:
			seen[k.Value] = true
			visit(at, k, v)
		}
	}
}

// object reads a mapping into a struct; a key without omitempty or omitzero has to be there.
func (d *Tree) object(n *yaml.Node, key string, v reflect.Value) {
	fields, needed := map[string]reflect.Value{}, map[string]bool{}
	for i := range v.NumField() {
		name, optional, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i)
		needed[name] = optional == ""
	}
	d.pairs(n, key, func(at string, k, n *yaml.Node) {
		to, ok := fields[k.Value]
		if !ok {
			d.add(at, "there is no such key here; known are %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			return
		}
		delete(needed, k.Value)
		d.value(n, at, to)
	})
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if needed[name] && n.Kind == yaml.MappingNode {
			d.add(strings.TrimPrefix(key+"."+name, "."), "is missing")
		}
	}
}

// scalar returns the text of a node; numbers and the like are taken as written.
func (d *Tree) scalar(n *yaml.Node, key string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || n.ShortTag() == "!!binary" {
		d.add(key, "is not a single value")
		return "", false
	}
	return n.Value, true
}

func (d *Tree) parsed(n *yaml.Node, key string, to encoding.TextUnmarshaler) {
	s, ok := d.scalar(n, key)
	if ok && s == "" {
		d.add(key, "is empty")
	} else if ok {
		if err := to.UnmarshalText([]byte(s)); err != nil {
			d.Problems = append(d.Problems, Problem{key, err.Error(), fault.HintOf(err)})
		}
	}
}
