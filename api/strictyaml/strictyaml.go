// Package strictyaml reads the YAML that people write for this project: locks, matrices, policies,
// settings of registries. A file is one document of a bounded size. Problems come with their line.
// A key that the format does not have is an error, since it may be misspelt.
//
//	err := format.Load(name, data, &value, check)  // into a struct, all problems at once, each with its line
//	err := format.Decode(name, data, &value)       // into a struct with yaml tags, the first problem
//
// Kubernetes manifests, which have many documents, are read elsewhere.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Error is why a file is not one YAML document of the expected form.
type Error struct {
	Line int // from 1; 0 for the whole file or several lines
	Why  string
	Hint string // what to do; empty if only the format's owner knows
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s", e.Line, e.Why)
	}
	return e.Why
}

// Parse returns the root of the one document in data, of at most limit bytes, without expanding
// aliases. Its errors are an *[Error].
func Parse(data []byte, limit int) (*yaml.Node, error) {
	if len(data) > limit {
		return nil, &Error{Why: fmt.Sprintf("longer than %d bytes", limit)}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, &Error{Why: "it is empty"}
	case err != nil:
		return nil, syntax(err)
	}
	switch err := decoder.Decode(&more); {
	case err == nil:
		return nil, &Error{Line: more.Line, Why: "a second YAML document begins here", Hint: "keep one document in the file"}
	case !errors.Is(err, io.EOF):
		return nil, syntax(err)
	}
	if len(doc.Content) != 1 {
		return nil, &Error{Why: "it is empty"}
	}
	return doc.Content[0], nil
}

// Decode reads the one document in data into v, which has yaml tags. It refuses another kind and version,
// unknown and repeated keys, and those without a value. The error is a fault about the file of that name.
func (f Format) Decode(name string, data []byte, v any) error {
	c := &Check{lines: map[string]int{}}
	root, err := Parse(data, f.Limit)
	switch {
	case err != nil:
		return f.fault(name, err)
	case f.isAnother(c, root, true):
		return c.Err(f, name)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true) // decoding a yaml.Node ignores the option
	if err := cmp.Or(decoder.Decode(v), strict(root), root.Decode(v)); err != nil {
		return f.fault(name, syntax(err))
	}
	return nil
}

// strict refuses keys without a value, which the library takes for missing ones. It gives fractions a
// tag that no integer takes: the library would cut them.
func strict(n *yaml.Node) error {
	for i, v := range n.Content {
		switch tag := v.ShortTag(); {
		case tag == "!!float":
			v.Tag = "!!fraction"
		case tag == "!!null" && n.Kind == yaml.MappingNode && i%2 == 1:
			const why = "the key %s has no value: write one, or leave the key out"
			return &Error{Line: n.Content[i-1].Line, Why: fmt.Sprintf(why, n.Content[i-1].Value)}
		}
		if err := strict(v); err != nil {
			return err
		}
	}
	return nil
}

func (f Format) fault(name string, err error) error {
	return fault.Errorf(fault.InvalidInput, f.Op, name, f.Hint, "%w", err)
}

var (
	atLine     = regexp.MustCompile(`^line (\d+): `)
	unknownKey = regexp.MustCompile(`field (\S+) not found in type [\w.]+`)
	wrongType  = regexp.MustCompile("cannot unmarshal !!(\\w+)( `[^`]*`)? into \\S+")
)

// syntax returns the library's error on one line, without Go names.
func syntax(err error) error {
	const hint = "correct the YAML"
	text := unknownKey.ReplaceAllString(strings.TrimPrefix(plain(err).Error(), "yaml: "), "the key $1 is not known")
	text = wrongType.ReplaceAllString(text, "another kind of value is expected than $1$2")
	if several, ok := strings.CutPrefix(text, "unmarshal errors:\n"); ok {
		lines := strings.Split(several, "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		text = strings.Join(lines, "; ")
		if len(lines) > 1 {
			return &Error{Why: text, Hint: hint}
		}
	}
	line := 0
	if m := atLine.FindStringSubmatch(text); m != nil {
		if n, convErr := strconv.Atoi(m[1]); convErr == nil {
			line, text = n, strings.TrimPrefix(text, m[0])
		}
	}
	return &Error{Line: line, Why: strings.Join(strings.Fields(text), " "), Hint: hint}
}
