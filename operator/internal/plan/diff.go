package plan

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Diff returns the paths of the fields that differ, in no order. It returns no values, since an object may be a
// Secret. Fields that the API server sets do not count.
func Diff(live, desired *unstructured.Unstructured) [][]string {
	return diff(stripped(live), stripped(desired), nil)
}

// Fields formats paths, sorted: "metadata.labels.[example.com/x]", "spec.replicas".
func Fields(paths [][]string) []string {
	var all []string
	for _, path := range paths {
		keys := slices.Clone(path)
		for i, key := range keys {
			if strings.ContainsAny(key, "./") {
				keys[i] = "[" + key + "]"
			}
		}
		all = append(all, strings.Join(keys, "."))
	}
	slices.Sort(all)
	return all
}

func stripped(o *unstructured.Unstructured) map[string]any {
	out := o.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(out.Object, "metadata", "annotations", appsv1.DeprecatedTemplateGeneration)
	delete(out.Object, "status")
	return out.Object
}

// deepest is the longest path: everything below it is one field for a reader.
const deepest = 5

func diff(a, b any, path []string) [][]string {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	am, aok := keyed(a)
	bm, bok := keyed(b)
	if !aok || !bok || len(path) > deepest {
		return [][]string{path}
	}
	all := map[string]any{}
	maps.Copy(all, am)
	maps.Copy(all, bm)
	var paths [][]string
	for k := range all {
		paths = append(paths, diff(am[k], bm[k], append(slices.Clip(path), k))...)
	}
	return paths
}

// keyed returns a map, or a list of containers by their indexes.
func keyed(v any) (map[string]any, bool) {
	list, isList := v.([]any)
	if !isList {
		m, ok := v.(map[string]any)
		return m, ok
	}
	all := map[string]any{}
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok || m["image"] == nil {
			return nil, false
		}
		all[strconv.Itoa(i)] = m
	}
	return all, true
}

func summary(paths [][]string) string {
	return fault.Few(Fields(paths), 3)
}

// Merged returns the object of a whole replacement: the live one with the rendered data, labels, annotations and type.
func Merged(live, desired *unstructured.Unstructured) *unstructured.Unstructured {
	out := live.DeepCopy()
	for _, field := range []string{"data", "binaryData", "stringData"} {
		delete(out.Object, field)
		if v, ok := desired.Object[field]; ok {
			out.Object[field] = v
		}
	}
	if v, ok := desired.Object["type"]; ok {
		out.Object["type"] = v
	}
	out.SetLabels(merge(live.GetLabels(), desired.GetLabels()))
	out.SetAnnotations(merge(live.GetAnnotations(), desired.GetAnnotations()))
	return out
}

func merge(base, over map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, base)
	maps.Copy(out, over)
	return out
}
