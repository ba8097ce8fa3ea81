package strictyaml

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const (
	maxProblems = 50    // reported for one document
	maxElements = 20000 // of one list
)

// Format is a kind of document with fields apiVersion and kind.
type Format struct {
	Op         string // for messages: "parse lock"
	APIVersion string // required value of apiVersion
	Kind       string // required value of kind
	Limit      int    // bytes
	Hint       string // remedy for an invalid one
}

// Load reads the one document in data into a struct with yaml or JSON tags: text, integers, parsed
// text, lists, and maps of text. Unknown, repeated and missing keys (unless omitempty or omitzero)
// are problems; without any, check runs. It returns all problems as faults with file, line and key.
func (f Format) Load(name string, data []byte, v any, check func(*Check)) error {
	c := &Check{lines: map[string]int{}}
	root, err := Parse(data, f.Limit)
	if wrong, ok := errors.AsType[*Error](err); ok {
		subject := name
		if wrong.Line > 0 {
			subject = fmt.Sprintf("%s:%d", name, wrong.Line)
		}
		return fault.Errorf(fault.InvalidInput, f.Op, subject, cmp.Or(wrong.Hint, f.Hint), "%s", wrong.Why)
	}
	if f.isAnother(c, root, false) {
		return c.Err(f, name)
	}
	c.value(root, "", reflect.ValueOf(v).Elem())
	if len(c.problems) == 0 {
		check(c)
	}
	return c.Err(f, name)
}

// isAnother reports whether a document declares another kind or version, or none if they are required, and adds that
// as its only problem. Keys of a newer version are no misspellings.
func (f Format) isAnother(c *Check, root *yaml.Node, required bool) bool {
	newer := "read it with the release that wrote it, or a newer one"
	return c.differs(root, required, "kind", f.Kind, "") || c.differs(root, required, "apiVersion", f.APIVersion, newer)
}

func (c *Check) differs(root *yaml.Node, required bool, key, want, hint string) bool {
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		if k.Value != key || v.Kind != yaml.ScalarNode {
			continue
		}
		if v.Value == want {
			return false
		}
		c.lines[key] = k.Line
		c.add(problem{key: key, why: fmt.Sprintf("%.100q is not %s", v.Value, want), hint: hint})
		return true
	}
	if required {
		c.Add(key, "is missing: write %s", want)
	}
	return required
}

// Check collects the problems of a document, and knows the lines of its keys. The zero value is for
// data that is not from a file.
type Check struct {
	problems []problem
	more     int
	lines    map[string]int
}

// problem is a problem of a key, such as releases[0].version.
type problem struct{ key, why, hint string }

// Add adds a problem of a key.
func (c *Check) Add(key, format string, args ...any) {
	c.add(problem{key: key, why: fmt.Sprintf(format, args...)})
}

func (c *Check) add(p problem) {
	if len(c.problems) == maxProblems {
		c.more++
		return
	}
	c.problems = append(c.problems, p)
}

// Require adds a problem of a key unless ok.
func (c *Check) Require(ok bool, key, format string, args ...any) {
	if !ok {
		c.Add(key, format, args...)
	}
}

// Err returns all problems in the order of their lines, or nil.
func (c *Check) Err(f Format, name string) error {
	slices.SortStableFunc(c.problems, func(a, b problem) int { return cmp.Compare(c.line(a.key), c.line(b.key)) })
	var all []error
	for _, p := range c.problems {
		subject, why := name, p.why
		if line := c.line(p.key); line > 0 {
			subject = fmt.Sprintf("%s:%d", name, line)
		}
		if p.key != "" {
			why = p.key + ": " + why
		}
		all = append(all, fault.Errorf(fault.InvalidInput, f.Op, subject, cmp.Or(p.hint, f.Hint), "%s", why))
	}
	if c.more > 0 {
		more := fault.Errorf(fault.InvalidInput, f.Op, name, f.Hint, "%d more problems are not listed", c.more)
		all = append(all, more)
	}
	return errors.Join(all...)
}

// line returns the line of a key, or of its nearest parent; 0 if not known.
func (c *Check) line(key string) int {
	for key != "" {
		if n := c.lines[key]; n > 0 {
			return n
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return c.lines[""]
}

// value reads a node into a value; key is its full path.
func (c *Check) value(n *yaml.Node, key string, v reflect.Value) {
	if c.lines[key] == 0 {
		c.lines[key] = n.Line
	}
	text, isText := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case isText:
		c.parsed(n, key, text)
	case v.Kind() == reflect.Struct:
		c.object(n, key, v)
	case v.Kind() == reflect.Slice:
		c.list(n, key, v)
	case v.Kind() == reflect.Map:
		texts := map[string]string{}
		c.pairs(n, key, func(at string, k, n *yaml.Node) { texts[k.Value], _ = c.scalar(n, at) })
		v.Set(reflect.ValueOf(texts))
	case v.Kind() == reflect.Int64, v.Kind() == reflect.Uint64:
		s, ok := c.scalar(n, key)
		number, err := strconv.ParseInt(s, 10, 64)
		if ok && (err != nil || n.ShortTag() != "!!int" || v.Kind() == reflect.Uint64 && number < 0) {
			c.Add(key, "%.80q is not a whole number", s)
		} else if ok {
			v.Set(reflect.ValueOf(number).Convert(v.Type()))
		}
	case v.Kind() == reflect.Bool:
		s, ok := c.scalar(n, key)
		c.Require(!ok || s == "true" || s == "false", key, "%.80q is neither true nor false", s)
		v.SetBool(s == "true")
	default:
		s, _ := c.scalar(n, key)
		v.SetString(s)
	}
}

func (c *Check) list(n *yaml.Node, key string, v reflect.Value) {
	switch {
	case n.Kind != yaml.SequenceNode:
		c.Add(key, "is not a list")
	case len(n.Content) > maxElements:
		c.Add(key, "has %d elements, more than %d", len(n.Content), maxElements)
	case len(n.Content) > 0:
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, e := range n.Content {
			c.value(e, fmt.Sprintf("%s[%d]", key, i), v.Index(i))
		}
	}
}

// pairs visits the keys and values of a mapping and adds its problems.
func (c *Check) pairs(n *yaml.Node, key string, visit func(at string, k, v *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		c.Add(key, "is not a mapping of keys")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(key+"."+k.Value, ".")
		c.lines[at] = k.Line
		switch {
		case k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str":
			c.Add(at, "the key is not text")
		case seen[k.Value]:
			c.Add(at, "the key is there twice")
		default:
			seen[k.Value] = true
			visit(at, k, v)
		}
	}
}

// object reads a mapping into a struct; keys without omitempty or omitzero are required.
func (c *Check) object(n *yaml.Node, key string, v reflect.Value) {
	fields, needed := map[string]reflect.Value{}, map[string]bool{}
	gather(v, fields, needed)
	c.pairs(n, key, func(at string, k, n *yaml.Node) {
		to, ok := fields[k.Value]
		if !ok {
			c.Add(at, "there is no such key here; known are %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			return
		}
		delete(needed, k.Value)
		c.value(n, at, to)
	})
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if needed[name] && n.Kind == yaml.MappingNode {
			c.Add(strings.TrimPrefix(key+"."+name, "."), "is missing")
		}
	}
}

// gather finds the fields of a struct, including those of inline structs.
func gather(v reflect.Value, fields map[string]reflect.Value, needed map[string]bool) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name, options, _ := strings.Cut(cmp.Or(tag.Get("yaml"), tag.Get("json")), ",")
		if options == "inline" {
			gather(v.Field(i), fields, needed)
			continue
		}
		fields[name], needed[name] = v.Field(i), !strings.HasPrefix(options, "omit")
	}
}

// scalar returns the one-line text of a node. Numbers stay as written: 1.30 is a version.
func (c *Check) scalar(n *yaml.Node, key string) (string, bool) {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() == "!!binary":
		c.Add(key, "is not a single value")
	case n.ShortTag() == "!!null" || n.Value == "":
		c.Add(key, "is empty")
	case strings.ContainsFunc(n.Value, unprintable):
		c.Add(key, "is more than one line of printable text")
	default:
		return n.Value, true
	}
	return "", false
}

func (c *Check) parsed(n *yaml.Node, key string, to encoding.TextUnmarshaler) {
	if s, ok := c.scalar(n, key); ok {
		err := to.UnmarshalText([]byte(s))
		if err != nil {
			c.add(problem{key, plain(err).Error(), fault.HintOf(err)})
		}
	}
}

// plain replaces the words of Go's parser of times.
func plain(err error) error {
	if wrong, isTime := errors.AsType[*time.ParseError](err); isTime {
		return fmt.Errorf("%.80q is not a time: write 2026-01-01T00:00:00Z", wrong.Value)
	}
	return err
}
