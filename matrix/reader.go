package matrix

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// maxProblems is how many problems of one document are told; the rest is counted.
const maxProblems = 100

// reader walks the YAML of a document and gathers what is wrong with it.
type reader struct {
	name     string
	problems []problem
	required []requiredAt // by releases
}

type problem struct {
	line            int
	path, why, hint string
}

func (r *reader) problem(line int, path, why, hint string) {
	r.problems = append(r.problems, problem{line, path, why, hint})
}

// err returns the problems as one error, in the order of their lines.
func (r *reader) err() error {
	slices.SortStableFunc(r.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.path, b.path), cmp.Compare(a.why, b.why))
	})
	told := r.problems
	if rest := len(told) - maxProblems; rest > 0 {
		told = append(slices.Clone(told[:maxProblems]), problem{
			why: fmt.Sprintf("%d more problems are not shown", rest), hint: "correct these first",
		})
	}
	return errors.Join(each(told, r.fault)...)
}

func (r *reader) fault(p problem) error {
	subject, why := r.name, p.why
	if p.line > 0 {
		subject = fmt.Sprintf("%s:%d", r.name, p.line)
	}
	if p.path != "" {
		why = p.path + ": " + why
	}
	return fault.Errorf(fault.InvalidInput, "parse", subject, p.hint, "%s", why)
}

// need says whether a key may be left out.
type need bool

const (
	required need = true
	optional need = false
)

// object is a YAML mapping with known keys. One without fields was none.
type object struct {
	reader *reader
	node   *yaml.Node
	path   string
	fields map[string]*yaml.Node
}

// item is an element of a YAML sequence.
type item struct {
	node *yaml.Node
	path string
}

// object reads a mapping and refuses keys that are unknown or given twice.
func (r *reader) object(n *yaml.Node, path string, keys ...string) object {
	o := object{reader: r, node: n, path: path}
	if n.Kind != yaml.MappingNode {
		r.problem(n.Line, path, "is not a mapping of keys", "give it the keys "+strings.Join(keys, ", "))
		return o
	}
	o.fields = map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch name := key.Value; {
		case key.Kind != yaml.ScalarNode || !slices.Contains(keys, name):
			r.problem(key.Line, join(path, short(name)), "is an unknown key", "known here are "+strings.Join(keys, ", "))
		case o.fields[name] != nil:
			r.problem(key.Line, join(path, name), fmt.Sprintf("is given already in line %d", o.fields[name].Line), "remove one of the two")
		default:
			o.fields[name] = n.Content[i+1]
		}
	}
	return o
}

// fail tells a problem of one key.
func (o object) fail(key, why, hint string) {
	n := o.node
	if at := o.fields[key]; at != nil {
		n = at
	}
	o.reader.problem(n.Line, join(o.path, key), why, hint)
}

// has returns the node of a key, and tells when a required one is missing.
func (o object) has(key string, needed need) *yaml.Node {
	n := o.fields[key]
	if n == nil && needed == required && o.fields != nil {
		o.fail(key, "is missing", "add the key")
	}
	return n
}

func (o object) object(key string, needed need, keys ...string) object {
	n := o.has(key, needed)
	if n == nil {
		return object{reader: o.reader}
	}
	return o.reader.object(n, join(o.path, key), keys...)
}

// list returns the elements of a sequence that, where it is given, is not empty.
func (o object) list(key string, needed need, most int) []item {
	n := o.has(key, needed)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		o.fail(key, "is not a list with at least one element", "give a list, or leave the key out where it is optional")
		return nil
	}
	if len(n.Content) > most {
		o.fail(key, fmt.Sprintf("has %d elements, and at most %d are allowed", len(n.Content), most), "shorten the list")
		return nil
	}
	out := make([]item, len(n.Content))
	for i, element := range n.Content {
		out[i] = item{element, index(join(o.path, key), i)}
	}
	return out
}

// lines reads a list of texts that may be left out.
func (o object) lines(key string, most int) (out []string) {
	for _, item := range o.list(key, optional, most) {
		out = append(out, scalar(o.reader, item.node, item.path, line))
	}
	return out
}

// field reads the scalar of one key; the zero value stands for what is not there
// or could not be read.
func field[T any](o object, key string, needed need, read func(string) (T, error)) T {
	n := o.has(key, needed)
	if n == nil {
		var zero T
		return zero
	}
	return scalar(o.reader, n, join(o.path, key), read)
}

// scalar reads one line of printable text. YAML's own types do not matter: 1.30
// is the version that it looks like, quoted or not.
func scalar[T any](r *reader, n *yaml.Node, path string, read func(string) (T, error)) (value T) {
	text := strings.TrimSpace(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode:
		r.problem(n.Line, path, "is not a single value", "give one value")
		return value
	case n.Tag == "!!null" || text == "":
		r.problem(n.Line, path, "is empty", "give a value, or leave the key out where it is optional")
		return value
	case strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }):
		r.problem(n.Line, path, "is more than one line of printable text", "write it on one line")
		return value
	}
	value, err := read(text)
	if err != nil {
		r.problem(n.Line, path, err.Error(), "correct the value")
	}
	return value
}
