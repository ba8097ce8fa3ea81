package render

import (
	"crypto/sha256"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/lru"
)

// recent are the manifests decoded last, by their sums. Every pass renders the same ones again,
// and decoding them is most of that work. What decode returns depends on the bytes alone, so this
// changes nothing but the time that it takes. Of each driver one release is in use, with up to fourteen files
// in all (eight of them the snapshot-controller's), and decoded they take some ten times as much memory. The files are
// read in the same order each time: one more than fit would have all be decoded again.
var recent = lru.New(16)

// decodeAgain is the function decode, of bytes that may be known. The caller may change the
// objects.
func decodeAgain(name string, data []byte) ([]*unstructured.Unstructured, error) {
	sum := sha256.Sum256(data)
	if known, ok := recent.Get(sum); ok {
		return copies(known.([]*unstructured.Unstructured)), nil //nolint:forcetypeassert // nothing else is kept
	}
	objects, err := decode(name, data)
	if err != nil {
		return nil, err // names the file, and is seldom
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
