package plan

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Merged returns what a whole replacement puts: the live object with the rendered
// data, labels, annotations and type.
func Merged(live, wanted *unstructured.Unstructured) *unstructured.Unstructured {
	out := live.DeepCopy()
	for _, field := range []string{"data", "binaryData", "stringData"} {
		delete(out.Object, field)
		if v, ok := wanted.Object[field]; ok {
			out.Object[field] = v
		}
	}
	if v, ok := wanted.Object["type"]; ok {
		out.Object["type"] = v
	}
	out.SetLabels(merge(live.GetLabels(), wanted.GetLabels()))
	out.SetAnnotations(merge(live.GetAnnotations(), wanted.GetAnnotations()))
	return out
}

func merge(base, over map[string]string) map[string]string {
	if len(base)+len(over) == 0 {
		return nil
	}
	out := make(map[string]string, len(base)+len(over))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range over {
		out[k] = v
	}
	return out
}
