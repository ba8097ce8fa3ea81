package vdoctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
)

// document is one of a file: its text, and how many lines of the file are before it; or an item of
// a list that is one.
type document struct {
	text                 []byte
	number, item, before int
}

// at says where in the file a line of the document is; the lines of a list's items are not known.
func (d document) at(line int) string {
	switch {
	case d.item > 0:
		return fmt.Sprintf("item %d: ", d.item)
	case line == 0:
		return ""
	}
	return fmt.Sprintf("line %d: ", d.before+line)
}

// where says where the document is.
func (d document) where() string {
	return fmt.Sprintf("document %d, %s", d.number, strings.TrimSuffix(d.at(lineOf(d.root())), ": "))
}

var (
	unknownField = regexp.MustCompile(`^unknown field "([^"]+)"$`)
	yamlAtLine   = regexp.MustCompile(`^\s*line (\d+): `)
	keyTwice     = regexp.MustCompile(`^(?:mapping )?key "?([^" ]+)"? already (?:set in map|defined at line \d+)$`)
)

// words say of an error of the decoder what is wrong and in which line, without names of Go. The
// type is that of the resource, nil where it is not known.
func (d document) words(err error, of reflect.Type) error {
	var wrong *json.UnmarshalTypeError
	strict, several := runtime.AsStrictDecodingError(err)
	root := d.root()
	var unread []string
	if root != nil && of != nil && !several {
		unread = d.unread(root, of, "")
	}
	switch {
	case root != nil && root.Kind != yaml.MappingNode:
		return fmt.Errorf("%sit is %s, not a resource with apiVersion and kind", d.at(root.Line), kindOfNode(root))
	case len(unread) > 0:
		return errors.New(strings.Join(unread, "; "))
	case errors.As(err, &wrong) && wrong.Field != "":
		node := find(root, strings.Split(wrong.Field, "."), func(n *yaml.Node) bool { return strings.HasPrefix(wrong.Value, jsonKind(n)) })
		return fmt.Errorf("%s%s: expected %s, got %s", d.at(lineOf(node)), wrong.Field, expected(wrong), shown(wrong.Field, inWordsOf(wrong.Value), node))
	case several:
		var all []string
		for _, e := range strict.Errors() {
			for line := range strings.SplitSeq(strings.TrimPrefix(e.Error(), "yaml: unmarshal errors:\n"), "\n") {
				all = append(all, d.word(root, line))
			}
		}
		return errors.New(strings.Join(all, "; "))
	}
	if text, isYAML := strings.CutPrefix(err.Error(), "yaml: "); isYAML {
		return errors.New(d.word(root, text))
	}
	return err
}

// word is one thing that is wrong.
func (d document) word(root *yaml.Node, text string) string {
	if m := unknownField.FindStringSubmatch(text); m != nil {
		path := strings.Split(strings.NewReplacer("[", ".[", "].", ".").Replace(m[1]), ".")
		return d.at(lineOf(find(root, path, func(*yaml.Node) bool { return true }))) + text
	}
	m := yamlAtLine.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	line, _ := strconv.Atoi(m[1]) // they are digits
	text = strings.TrimPrefix(text, m[0])
	if key := keyTwice.FindStringSubmatch(text); key != nil {
		text = fmt.Sprintf("the key %q is there twice", key[1])
	}
	return d.at(line) + text
}

// root is the document as a tree; nil where it is none.
func (d document) root() *yaml.Node {
	var doc yaml.Node
	if yaml.NewDecoder(bytes.NewReader(d.text)).Decode(&doc) != nil || len(doc.Content) != 1 {
		return nil
	}
	return doc.Content[0]
}

// find is the value at a path that satisfies a condition. A list on the way is searched, where the
// path does not say which of it is meant.
func find(n *yaml.Node, path []string, is func(*yaml.Node) bool) *yaml.Node {
	switch {
	case n == nil:
		return nil
	case len(path) == 0 && is(n):
		return n
	case n.Kind == yaml.SequenceNode:
		if i, ok := listIndex(path); ok && i < len(n.Content) {
			return find(n.Content[i], path[1:], is)
		}
		for _, item := range n.Content {
			if found := find(item, path, is); found != nil {
				return found
			}
		}
	case n.Kind == yaml.MappingNode && len(path) == 0: // a map, whose keys the path leaves out
		for i := 1; i < len(n.Content); i += 2 {
			if is(n.Content[i]) {
				return n.Content[i]
			}
		}
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == path[0] {
				return find(n.Content[i+1], path[1:], is)
			}
		}
	}
	return nil
}

// listIndex returns the index that a path begins with, such as [2].
func listIndex(path []string) (i int, ok bool) {
	if len(path) == 0 || !strings.HasPrefix(path[0], "[") {
		return 0, false
	}
	i, err := strconv.Atoi(strings.Trim(path[0], "[]"))
	return i, err == nil
}

func lineOf(n *yaml.Node) int {
	if n == nil {
		return 0
	}
	return n.Line
}

// jsonKind is what encoding/json calls the kind of a value.
func jsonKind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "array"
	case n.Kind == yaml.MappingNode:
		return "object"
	case n.Tag == "!!bool":
		return "bool"
	case n.Tag == "!!int", n.Tag == "!!float":
		return "number"
	}
	return "string"
}

func kindOfNode(n *yaml.Node) string { return inWordsOf(jsonKind(n)) }

// inWordsOf says in words what encoding/json calls a kind of value.
func inWordsOf(kind string) string {
	words := map[string]string{"array": "a list", "object": "a mapping of keys", "bool": "true or false", "number": "a number", "string": "text"}
	first, _, _ := strings.Cut(kind, " ")
	return cmp.Or(words[first], kind)
}

// shown is the value at a path, as it is written; of what may be secret, its kind alone.
func shown(path, kind string, n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || !strings.HasPrefix(path, "spec.") {
		return kind
	}
	if n.Tag == "!!str" {
		return fmt.Sprintf("the text %q", cut(n.Value, maxValue))
	}
	return cut(n.Value, maxValue)
}

// expected is what a field takes.
func expected(wrong *json.UnmarshalTypeError) string {
	if wrong.Type == nil {
		return "another kind of value"
	}
	switch name := wrong.Type.Kind().String(); {
	case name == "bool":
		return "true or false"
	case name == "slice":
		return "a list"
	case name == "string" && strings.HasPrefix(wrong.Value, "number"), name == "string" && wrong.Value == "bool":
		return "text, in quotes"
	case name == "string":
		return "text"
	case strings.HasPrefix(name, "int"):
		if _, err := strconv.ParseInt(strings.TrimPrefix(wrong.Value, "number "), 10, 64); err == nil { // too large for it
			return fmt.Sprintf("a whole number of at most %d", int64(1)<<(wrong.Type.Bits()-1)-1)
		}
		return "a whole number"
	}
	return "a mapping of keys"
}
