// Package needs describes what a driver's manifests need of a cluster. It lists every object, with
// one readable line for everything that gives it power.
//
//	objects, err := needs.Of(manifest)
//	// rbac.authorization.k8s.io/v1 ClusterRole vsphere-csi-node-cluster-role
//	//   may create, get, patch: csinodetopologies in cns.vmware.com
//	// apps/v1 DaemonSet vmware-system-csi/vsphere-csi-node
//	//   spec.template.spec.containers[vsphere-csi-node].securityContext.privileged: true
//
// A matrix keeps these lines for its releases ([matrix.Need]). [Describe] makes them from the
// manifests that it names by sha256. So people can review what a release may do, and how releases
// differ. The operator makes them again from the objects that it is about to install, and refuses
// any difference from the matrix.
//
// # The lines
//
// The lines of an object are sorted and unique. A rule of a role is "may VERBS: RESOURCES [in
// GROUPS] [named NAMES]", or "may VERBS: url URLS". Each list is sorted; the core group is omitted
// if it is the only one. Every other field is its path and its value, "spec.type: ClusterIP":
//
//   - an element of a list of objects is named in brackets by its name, or else by its place; an
//     element with only plain values is one line, "volumeMounts: {mountPath: /csi, name: socket-dir}"
//   - a list of plain values is one line, "args: [--v=4, --leader-election]"
//   - a text of several lines or of more than 120 characters, and a value in a Secret, is its length
//     and sha256
//   - omitted are fields that give no power or are listed elsewhere: images and their pull policy
//     (in the bundle's lock), resources, status, the schemas and printed columns of kinds, CA
//     bundles, and creation times
package needs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// longest is the largest length of a text shown in full; deepest is the largest nesting of an object.
const (
	longest = 120
	deepest = 64
)

// Object is one object and its lines.
type Object struct {
	Name  string // "apps/v1 DaemonSet namespace/name", "v1 Namespace name"
	Lines []string
}

// Of describes objects, as YAML or JSON decodes them, sorted by name.
func Of(objects ...map[string]any) ([]Object, error) {
	out := make([]Object, 0, len(objects))
	for _, o := range objects {
		w := &writer{}
		w.object(o)
		if w.err != nil {
			return nil, fmt.Errorf("%s: %w", name(o), w.err)
		}
		slices.Sort(w.lines)
		out = append(out, Object{Name: name(o), Lines: slices.Compact(w.lines)})
	}
	slices.SortStableFunc(out, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Describe replaces the needs of a release in a document with those of its manifests. The files, by
// their names in the document, must have the document's sha256 sums.
func Describe(doc *matrix.Document, id matrix.ReleaseID, files map[string][]byte) error {
	release, ok := doc.Release(id)
	if !ok {
		return bad(fault.NotFound, id.String(), "list the release first", "the matrix does not list it")
	}
	var objects []map[string]any
	for _, m := range release.Manifests {
		data, ok := files[m.Name]
		if !ok {
			return bad(fault.NotFound, id.String()+"/"+m.Name, "get it from "+m.URL, "the file is not there")
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != m.SHA256 {
			return bad(fault.Corrupt, id.String()+"/"+m.Name, "get it from "+m.URL, "its sha256 is %x and the matrix has %s", sum, m.SHA256)
		}
		more, err := Decode(data)
		if err != nil {
			return bad(fault.InvalidInput, id.String()+"/"+m.Name, "use the manifest as it was published", "%w", err)
		}
		for n, o := range more {
			meta, _ := o["metadata"].(map[string]any) //nolint:errcheck // without it the name is missing
			isList := strings.HasSuffix(plainText(o["kind"]), "List")
			if o["apiVersion"] == nil || o["kind"] == nil || meta["name"] == nil && !isList {
				return bad(fault.InvalidInput, id.String()+"/"+m.Name, "use the manifest as it was published",
					"object %d lacks apiVersion, kind or metadata.name", n+1)
			}
		}
		objects = append(objects, more...)
	}
	all, err := Of(objects...)
	if err != nil {
		return bad(fault.InvalidInput, id.String(), "use the manifests as they were published", "%w", err)
	}
	put(doc, id, all)
	return nil
}

func bad(reason fault.Reason, subject, hint, format string, args ...any) error {
	return fault.Errorf(reason, "list what is needed by", subject, hint, format, args...)
}

// put replaces the entries of a release; releases share equal entries.
func put(doc *matrix.Document, id matrix.ReleaseID, objects []Object) {
	doc.Needs = slices.DeleteFunc(doc.Needs, func(n matrix.Need) bool {
		return len(n.Of) == 1 && n.Of[0].Compare(id) == 0
	})
	for i := range doc.Needs {
		doc.Needs[i].Of = slices.DeleteFunc(slices.Clone(doc.Needs[i].Of), func(r matrix.ReleaseID) bool { return r.Compare(id) == 0 })
	}
	for _, o := range objects {
		i := slices.IndexFunc(doc.Needs, func(n matrix.Need) bool { return n.Object == o.Name && slices.Equal(n.Has, o.Lines) })
		if i < 0 {
			doc.Needs = append(doc.Needs, matrix.Need{Object: o.Name, Of: []matrix.ReleaseID{id}, Has: o.Lines})
			continue
		}
		doc.Needs[i].Of = append(slices.Clone(doc.Needs[i].Of), id)
		slices.SortFunc(doc.Needs[i].Of, matrix.ReleaseID.Compare)
	}
	slices.SortStableFunc(doc.Needs, func(a, b matrix.Need) int {
		if d := a.Of[0].Compare(b.Of[0]); a.Object == b.Object && d != 0 {
			return d
		}
		return strings.Compare(string(a.Of[0].Driver)+"\x00"+a.Object, string(b.Of[0].Driver)+"\x00"+b.Object)
	})
}

// separator begins a document; the rest of its line belongs to that.
var separator = regexp.MustCompile(`(?m)^---([ \t]|\r?$)`)

// Documents returns the documents of a manifest as JSON, read like kubectl does: as YAML 1.1, in which no is false. It
// omits empty ones, and refuses duplicate keys, because readers differ in which one counts.
func Documents(data []byte) ([][]byte, error) {
	var all [][]byte
	for n, doc := range separator.Split(string(data), -1) {
		asJSON, err := yaml.YAMLToJSONStrict([]byte(doc))
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n+1, err)
		}
		if string(asJSON) != "null" {
			all = append(all, asJSON)
		}
	}
	return all, nil
}

// Decode reads the objects of a manifest.
func Decode(data []byte) ([]map[string]any, error) {
	docs, err := Documents(data)
	var all []map[string]any
	for _, doc := range docs {
		var o map[string]any
		if err := json.Unmarshal(doc, &o); err != nil {
			return nil, err
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	return all, err
}

func name(o map[string]any) string {
	meta, _ := o["metadata"].(map[string]any) //nolint:errcheck // without it the name is empty
	text := plainText                         // names may look like numbers
	place := text(meta["name"])
	if ns := text(meta["namespace"]); ns != "" {
		place = ns + "/" + place
	}
	return text(o["apiVersion"]) + " " + text(o["kind"]) + " " + place
}

// writer collects the lines of one object.
type writer struct {
	lines  []string
	secret bool
	err    error
}

// leftOut are fields, by the end of their path, that give no power.
var leftOut = []string{
	".image", ".imagePullPolicy", ".resources", ".caBundle", "metadata.creationTimestamp",
}

func (w *writer) object(o map[string]any) {
	kind := plainText(o["kind"])
	w.secret = kind == "Secret"
	for _, key := range slices.Sorted(maps.Keys(o)) {
		switch {
		case key == "apiVersion", key == "kind", key == "status":
		case key == "metadata":
			meta, _ := o[key].(map[string]any) //nolint:errcheck // the check of the name finds it
			rest := maps.Clone(meta)
			delete(rest, "name")
			delete(rest, "namespace")
			if kind == "CustomResourceDefinition" {
				delete(rest, "annotations") // notes of generators
			}
			w.value(key, rest, 1)
		case key == "rules" && (kind == "Role" || kind == "ClusterRole"):
			for _, rule := range w.objects(key, o[key]) {
				w.rule(rule)
			}
		case key == "spec" && kind == "CustomResourceDefinition":
			w.definition(o[key])
		default:
			w.value(key, o[key], 1)
		}
	}
}

// definition writes a kind's definition without its schemas: the API server validates those, and
// they give no power.
func (w *writer) definition(v any) {
	spec, ok := v.(map[string]any)
	if !ok {
		w.err = errors.New("spec is not an object")
		return
	}
	spec = maps.Clone(spec)
	versions := []any{}
	for _, version := range w.objects("spec.versions", spec["versions"]) {
		version = maps.Clone(version)
		delete(version, "schema")
		delete(version, "additionalPrinterColumns")
		versions = append(versions, version)
	}
	spec["versions"] = versions
	w.value("spec", spec, 1)
}

// objects returns the objects of a list; nil is an empty one.
func (w *writer) objects(path string, v any) []map[string]any {
	list, ok := v.([]any)
	if !ok && v != nil {
		w.err = fmt.Errorf("%s is not a list", path)
	}
	out := make([]map[string]any, len(list))
	for i, item := range list {
		if out[i], ok = item.(map[string]any); !ok {
			w.err = fmt.Errorf("%s[%d] is not an object", path, i)
		}
	}
	return out
}

func (w *writer) rule(rule map[string]any) {
	part := func(key string) []string {
		list, ok := rule[key].([]any)
		if !ok && rule[key] != nil {
			w.err = fmt.Errorf("%s of a rule is not a list", key)
		}
		out := make([]string, len(list))
		for i, v := range list {
			out[i] = quoted(plainText(v))
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	for key := range rule {
		if !slices.Contains([]string{"verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"}, key) {
			w.err = fmt.Errorf("a rule has the unknown field %q", key)
			return
		}
	}
	groups, names, urls := part("apiGroups"), part("resourceNames"), part("nonResourceURLs")
	line := "may " + strings.Join(part("verbs"), ", ") + ":"
	if resources := part("resources"); len(resources) > 0 || len(urls) == 0 {
		line += " " + strings.Join(resources, ", ")
	}
	if len(groups) != 0 && !slices.Equal(groups, []string{`""`}) {
		line += " in " + strings.Join(groups, ", ")
	}
	if len(names) > 0 {
		line += " named " + strings.Join(names, ", ")
	}
	if len(urls) > 0 {
		line += " url " + strings.Join(urls, ", ")
	}
	w.lines = append(w.lines, line)
}

func (w *writer) value(path string, v any, depth int) {
	switch {
	case depth > deepest:
		w.err = errors.New("is nested too deep")
		return
	case slices.ContainsFunc(leftOut, func(end string) bool { return strings.HasSuffix(path, end) }):
		return
	}
	switch v := v.(type) {
	case nil:
	case map[string]any:
		if len(v) == 0 && !strings.HasPrefix(path, "metadata") {
			w.lines = append(w.lines, path+": {}")
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.value(path+"."+quoted(key), v[key], depth+1)
		}
	case []any:
		w.list(path, v, depth)
	default:
		w.lines = append(w.lines, path+": "+w.scalar(path, v))
	}
}

func (w *writer) list(path string, list []any, depth int) {
	if !slices.ContainsFunc(list, isObject) {
		parts := make([]string, len(list))
		for i, v := range list {
			if _, nested := v.([]any); nested {
				w.err = fmt.Errorf("%s has a list within a list", path)
				return
			}
			parts[i] = w.scalar(path, v)
		}
		w.lines = append(w.lines, path+": ["+strings.Join(parts, ", ")+"]")
		return
	}
	seen := map[string]bool{}
	for i, v := range list {
		o, ok := v.(map[string]any)
		if !ok {
			w.err = fmt.Errorf("%s has objects and others", path)
			return
		}
		if flat(o) {
			w.lines = append(w.lines, path+": "+w.inline(path, o))
			continue
		}
		id := quoted(plainText(o["name"]))
		if id == `""` || seen[id] {
			id = strconv.Itoa(i)
		}
		seen[id] = true
		w.value(path+"["+id+"]", o, depth+1)
	}
}

func isObject(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// flat reports whether a non-empty object has only plain values, for one line. A container (with an
// image) is never flat.
func flat(o map[string]any) bool {
	for _, v := range o {
		switch v.(type) {
		case map[string]any, []any:
			return false
		}
	}
	_, container := o["image"]
	return len(o) > 0 && !container
}

func (w *writer) inline(path string, o map[string]any) string {
	parts := make([]string, 0, len(o))
	for _, key := range slices.Sorted(maps.Keys(o)) {
		parts = append(parts, quoted(key)+": "+w.scalar(path+"."+key, o[key]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (w *writer) scalar(path string, v any) string {
	text := plainText(v)
	of := strings.HasPrefix(path, "data.") || strings.HasPrefix(path, "stringData.")
	if len(text) > longest || strings.ContainsAny(text, "\n\r") || (w.secret && of) {
		sum := sha256.Sum256([]byte(text))
		return fmt.Sprintf("%d bytes of sha256 %x", len(text), sum)
	}
	return quoted(text)
}

// plainText returns a plain value as YAML writes it.
func plainText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// quoted returns a text, in quotes if it is ambiguous.
func quoted(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune("\"[]{},", r) }
	if s == "" || strings.ContainsFunc(s, odd) || strings.TrimSpace(s) != s || strings.Contains(s, ": ") {
		return strconv.Quote(s)
	}
	return s
}
