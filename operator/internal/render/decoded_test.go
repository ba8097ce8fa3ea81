package render

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What is kept of a file is not what its readers change.
func TestObjectsOfAKnownFileAreTheCallersOwn(t *testing.T) {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: b}"
	for range 3 {
		objects, err := decodeAgain("f", []byte(text))
		require.NoError(t, err)
		data, _, err := unstructured.NestedStringMap(objects[0].Object, "data")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "b"}, data)
		objects[0].Object["data"].(map[string]any)["a"] = "changed"
	}
}
