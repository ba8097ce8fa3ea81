package matrix

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
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

// Each of these functions reads one scalar.

func line(s string) (string, error) { return s, nil }

func exactly(want string) func(string) (string, error) {
	return func(s string) (string, error) {
		if s != want {
			return "", fmt.Errorf("is %q, and this format is %q", short(s), want)
		}
		return s, nil
	}
}

func positive[T ~int64 | ~uint64](maximum T) func(string) (T, error) {
	return func(s string) (T, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 || T(n) > maximum || strconv.FormatInt(n, 10) != s {
			return 0, fmt.Errorf("%q is not a whole number from 1 to %d", short(s), maximum)
		}
		return T(n), nil
	}
}

func boolean(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, fmt.Errorf("%q is neither true nor false", short(s))
	}
	return s == "true", nil
}

func instant(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !strings.HasSuffix(s, "Z") {
		return time.Time{}, fmt.Errorf("%q is not a time in UTC: write it as 2026-09-01T00:00:00Z", short(s))
	}
	return t.UTC(), nil
}

func releaseVersion(s string) (Version, error) {
	v, err := ParseVersion(s)
	switch {
	case err != nil:
		return v, err
	case v.v.Metadata() != "":
		return Version{}, fmt.Errorf("%q has build metadata, which does not tell releases apart: leave out +%s", s, v.v.Metadata())
	case v.String() != s:
		return Version{}, fmt.Errorf("%q has a leading v: write %s", s, v)
	}
	return v, nil
}

func parseState(s string) (State, error) {
	if !State(s).Valid() {
		return "", unknown("state", s, States())
	}
	return State(s), nil
}

func parsePart(s string) (Part, error) {
	if !slices.Contains(parts(), Part(s)) {
		return "", unknown("part", s, parts())
	}
	return Part(s), nil
}

var fileNameText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$`)

func fileName(s string) (string, error) {
	if !fileNameText.MatchString(s) {
		return "", fmt.Errorf("%q is not a base name of a file: use letters, digits, dots, dashes and underscores", short(s))
	}
	return s, nil
}

func address(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.User != nil || u.Fragment != "" || len(s) > 2048 {
		return "", fmt.Errorf("%q is not an http or https address of a file", short(s))
	}
	return s, nil
}

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

func sha256Text(s string) (string, error) {
	if !sha256Hex.MatchString(s) {
		return "", fmt.Errorf("%q is not a sha256: it has 64 hexadecimal digits in lower case, as sha256sum prints them", short(s))
	}
	return s, nil
}

var imageReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,500}$`)

func imageText(s string) (string, error) {
	if !imageReference.MatchString(s) {
		return "", fmt.Errorf("%q is not an image reference", short(s))
	}
	return s, nil
}

// pinnedImage refuses what an override is there to replace: a reference that
// does not say which image it means.
func pinnedImage(s string) (string, error) {
	name, err := imageText(s)
	if err != nil {
		return "", err
	}
	if strings.Contains(name, "@") {
		return name, nil
	}
	_, tag, found := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if !found || tag == "" || tag == "latest" {
		return "", fmt.Errorf("%q has neither a fixed tag nor a digest", short(s))
	}
	return name, nil
}

// unknown is the error of a word that is none of a few.
func unknown[T ~string](what, got string, known []T) error {
	words := each(known, func(k T) string { return string(k) })
	return fmt.Errorf("%q is not a %s: it is one of %s", short(got), what, strings.Join(words, ", "))
}
