package bundle

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

// ParseLock reads a lock, YAML or JSON; name is the file's name, for errors. It is
// strict: unknown, missing and repeated keys, wrong types, anchors, a second
// document and everything that [Lock.Validate] reports are faults, each naming
// file, line and key, all of them together.
func ParseLock(name string, data []byte) (*Lock, error) {
	root, err := parseYAML(name, data)
	if err != nil {
		return nil, err
	}
	if err := checkKind(name, root); err != nil {
		return nil, err
	}
	d := &decoder{lines: map[string]int{}}
	lock := &Lock{}
	d.object(root, "", d.lock(lock))
	if len(d.problems) > 0 {
		return nil, d.join(name, d.line)
	}
	if err := lock.faults(name, d.line); err != nil {
		return nil, err
	}
	return lock, nil
}

// checkKind refuses a document that says that it is another one: what else is wrong
// with it as a lock is of no interest then.
func checkKind(name string, root *yaml.Node) error {
	if root.Kind != yaml.MappingNode {
		return nil // it is told with its line
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if k, v := root.Content[i], root.Content[i+1]; k.Value == "kind" && v.ShortTag() == "!!str" && v.Value != LockKind {
			return &fault.Error{
				Reason: fault.InvalidInput, Op: "parse lock", Subject: fmt.Sprintf("%s:%d", name, k.Line),
				Err: fmt.Errorf("kind: %.100q is not %s", v.Value, LockKind), Hint: "give the lock that `vdo-bundle lock` wrote",
			}
		}
	}
	return nil
}

func parseYAML(name string, data []byte) (*yaml.Node, error) {
	root, err := strictyaml.Parse(data, MaxLockSize)
	var wrong *strictyaml.Error
	if errors.As(err, &wrong) {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "parse lock", Subject: name, Err: wrong,
			Hint: cmp.Or(wrong.Hint, "give the lock that `vdo-bundle lock` wrote"),
		}
	}
	return root, err
}

// A decoder turns nodes into values and collects problems with the key they are
// at; lines remembers where each key is.
type decoder struct {
	checker
	lines map[string]int
}

// field reads one value; key is its full path.
type field struct {
	read     func(n *yaml.Node, key string)
	optional bool
}

func (d *decoder) line(key string) int {
	for key != "" {
		if n := d.lines[key]; n > 0 {
			return n
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return d.lines[""]
}

func (d *decoder) lock(l *Lock) map[string]field {
	return map[string]field{
		"apiVersion": {read: d.text(&l.APIVersion)},
		"kind":       {read: d.text(&l.Kind)},
		"matrix": {read: func(n *yaml.Node, key string) {
			d.object(n, key, map[string]field{
				"serial": {read: d.number(&l.Matrix.Serial)},
				"digest": {read: d.parsed(&l.Matrix.Digest)},
				"size":   {read: d.number(&l.Matrix.Size)},
			})
		}},
		"platforms": {read: func(n *yaml.Node, key string) {
			l.Platforms = list(d, n, key, func(n *yaml.Node, key string, p *image.Platform) { d.parsed(p)(n, key) })
		}},
		"releases": {read: func(n *yaml.Node, key string) { l.Releases = list(d, n, key, d.release) }},
		"images":   {read: func(n *yaml.Node, key string) { l.Images = list(d, n, key, d.image) }},
	}
}

func (d *decoder) release(n *yaml.Node, key string, r *Release) {
	d.object(n, key, map[string]field{
		"driver":    {read: d.text((*string)(&r.Driver))},
		"version":   {read: d.parsed(&r.Version)},
		"manifests": {read: func(n *yaml.Node, key string) { r.Manifests = list(d, n, key, d.file) }},
		"images":    {read: d.texts(&r.Images)},
	})
}

func (d *decoder) file(n *yaml.Node, key string, f *File) {
	d.object(n, key, map[string]field{
		"name":   {read: d.text(&f.Name)},
		"url":    {read: d.text(&f.URL), optional: true}, // of drivers it is not: see checkFiles
		"digest": {read: d.parsed(&f.Digest)},
		"size":   {read: d.number(&f.Size)},
	})
}

func (d *decoder) image(n *yaml.Node, key string, im *Image) {
	d.object(n, key, map[string]field{
		"reference": {read: d.parsed(&im.Reference)},
		"source":    {read: d.parsed(&im.Source), optional: true},
		"reason":    {read: d.text(&im.Reason), optional: true},
		"digest":    {read: d.parsed(&im.Digest)},
		"mediaType": {read: d.text(&im.MediaType)},
		"size":      {read: d.number(&im.Size)},
		"usedBy": {read: func(n *yaml.Node, key string) {
			im.UsedBy = list(d, n, key, func(n *yaml.Node, key string, s *string) { d.text(s)(n, key) })
		}},
	})
}

// pairs gives the keys and values of a mapping and refuses what is none.
func (d *decoder) pairs(n *yaml.Node, key string, visit func(k, v *yaml.Node)) {
	d.lines[key] = n.Line
	if n.Kind != yaml.MappingNode {
		d.add(key, "is not a mapping of keys")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		at := join(key, k.Value)
		if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" {
			d.lines[at] = k.Line
			d.add(at, "the key is not text")
			continue
		}
		if seen[k.Value] {
			d.lines[at] = k.Line
			d.add(at, "the key is there twice")
			continue
		}
		seen[k.Value] = true
		visit(k, v)
	}
}

func (d *decoder) object(n *yaml.Node, key string, fields map[string]field) {
	found := map[string]bool{}
	d.pairs(n, key, func(k, v *yaml.Node) {
		at := join(key, k.Value)
		d.lines[at] = k.Line
		f, ok := fields[k.Value]
		if !ok {
			d.add(at, "there is no such key here; known are %s", strings.Join(sortedKeys(fields), ", "))
			return
		}
		found[k.Value] = true
		f.read(v, at)
	})
	if n.Kind != yaml.MappingNode {
		return
	}
	for _, k := range sortedKeys(fields) {
		if !found[k] && !fields[k].optional {
			d.add(join(key, k), "is missing")
		}
	}
}

func join(key, sub string) string {
	if key == "" {
		return sub
	}
	return key + "." + sub
}

func list[T any](d *decoder, n *yaml.Node, key string, read func(*yaml.Node, string, *T)) []T {
	if n.Kind != yaml.SequenceNode {
		d.add(key, "is not a list")
		return nil
	}
	out := make([]T, len(n.Content))
	for i, c := range n.Content {
		at := fmt.Sprintf("%s[%d]", key, i)
		d.lines[at] = c.Line
		read(c, at, &out[i])
	}
	return out
}

// scalar returns the text of a node; numbers and the like are taken as written.
func (d *decoder) scalar(n *yaml.Node, key string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || n.ShortTag() == "!!binary" {
		d.add(key, "is not a single value")
		return "", false
	}
	return n.Value, true
}

func (d *decoder) text(to *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, key string) { *to, _ = d.scalar(n, key) }
}

func (d *decoder) number(to *int64) func(*yaml.Node, string) {
	return func(n *yaml.Node, key string) {
		s, ok := d.scalar(n, key)
		if !ok {
			return
		}
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n.ShortTag() != "!!int" {
			d.add(key, "%.80q is not a whole number", s)
			return
		}
		*to = v
	}
}

func (d *decoder) parsed(to encoding.TextUnmarshaler) func(*yaml.Node, string) {
	return func(n *yaml.Node, key string) {
		s, ok := d.scalar(n, key)
		switch {
		case !ok:
		case s == "":
			d.add(key, "is empty")
		default:
			if err := to.UnmarshalText([]byte(s)); err != nil {
				d.problems = append(d.problems, problem{key, err.Error(), fault.HintOf(err)})
			}
		}
	}
}

func (d *decoder) texts(to *map[string]string) func(*yaml.Node, string) {
	return func(n *yaml.Node, key string) {
		*to = map[string]string{}
		d.pairs(n, key, func(k, v *yaml.Node) {
			d.lines[join(key, k.Value)] = k.Line
			s, _ := d.scalar(v, join(key, k.Value))
			(*to)[k.Value] = s
		})
	}
}
