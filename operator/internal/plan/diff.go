package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Diff returns the paths of the fields that differ, sorted; no values, since an
// object may be a Secret. What the API server keeps for itself does not count.
func Diff(live, wanted *unstructured.Unstructured) []string {
	var paths []string
	diff(stripped(live), stripped(wanted), "", &paths)
	slices.Sort(paths)
	return paths
}

func stripped(o *unstructured.Unstructured) map[string]any {
	out := o.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	delete(out.Object, "status")
	return out.Object
}

// deepest is where a path stops: what lies below is one field for a reader.
const deepest = 5

func diff(a, b any, path string, paths *[]string) {
	if reflect.DeepEqual(a, b) {
		return
	}
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if !aok || !bok || strings.Count(path, ".") >= deepest {
		*paths = append(*paths, path)
		return
	}
	for _, k := range keys(am, bm) {
		diff(am[k], bm[k], join(path, k), paths)
	}
}

func keys(a, b map[string]any) []string {
	var all []string
	for k := range a {
		all = append(all, k)
	}
	for k := range b {
		if _, both := a[k]; !both {
			all = append(all, k)
		}
	}
	slices.Sort(all)
	return all
}

func join(path, key string) string {
	if strings.ContainsAny(key, "./") {
		key = fmt.Sprintf("[%s]", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// summary names a few paths and counts the rest.
func summary(paths []string) string {
	const few = 3
	if len(paths) <= few {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:few], ", "), len(paths)-few)
}
