package render

import (
	"crypto/sha256"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/lru"
)

// recent caches decoded manifests by their sums, because every reconcile renders the same ones. A set of releases has
// up to fourteen files (eight of the snapshot-controller), ten times as large in memory. While an upgrade waits, the
// present and the desired set are read in turn, so one file above the limit would evict all.
var recent = lru.New(32)

// decodeAgain is decode with a cache, since the result depends only on the bytes. The caller may change the objects.
func decodeAgain(name string, data []byte) ([]*unstructured.Unstructured, error) {
	sum := sha256.Sum256(data)
	if known, ok := recent.Get(sum); ok {
		return copies(known.([]*unstructured.Unstructured)), nil //nolint:forcetypeassert // nothing else is kept
	}
	objects, err := decode(name, data)
	if err != nil {
		return nil, err // names the file, and is rare
	}
	recent.Add(sum, copies(objects))
	return objects, nil
}

func copies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objects))
	for i, o := range objects {
		out[i] = o.DeepCopy()
	}
	return out
}
