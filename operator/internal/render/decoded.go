package render

import (
	"crypto/sha256"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxDecoded is how many bytes of YAML are kept decoded. Decoded they take some ten
// times as much memory. Of each driver one release is in use, and two while it is
// upgraded: 700 kB with Antrea.
const maxDecoded = 1 << 20

// recent are the manifests decoded last. Every pass renders the same ones again, and
// decoding them is most of that work. What decode returns depends on the bytes alone, so
// this changes nothing but the time that it takes.
var recent = decoded{limit: maxDecoded}

// decoded keeps the objects of manifests. Several goroutines may use it at once.
type decoded struct {
	limit int // bytes of YAML

	mu    sync.Mutex
	files []decodedFile // the one used last comes last
	bytes int
}

type decodedFile struct {
	sum     [sha256.Size]byte
	size    int
	objects []*unstructured.Unstructured // never changed
}

// decode is the function decode, of bytes that may be known. The caller may change the
// objects.
func (m *decoded) decode(name string, data []byte) ([]*unstructured.Unstructured, error) {
	sum := sha256.Sum256(data)
	if objects, ok := m.recall(sum); ok {
		return copies(objects), nil
	}
	objects, err := decode(name, data)
	if err != nil {
		return nil, err // names the file, and is seldom
	}
	m.keep(decodedFile{sum, len(data), copies(objects)})
	return objects, nil
}

func (m *decoded) recall(sum [sha256.Size]byte) ([]*unstructured.Unstructured, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.index(sum)
	if i < 0 {
		return nil, false
	}
	f := m.files[i]
	m.files = append(slices.Delete(m.files, i, i+1), f)
	return f.objects, true
}

// keep adds a file and drops those that were not used for longest.
func (m *decoded) keep(f decodedFile) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.index(f.sum) >= 0 || f.size > m.limit {
		return
	}
	m.files, m.bytes = append(m.files, f), m.bytes+f.size
	for m.bytes > m.limit {
		m.bytes -= m.files[0].size
		m.files = slices.Delete(m.files, 0, 1)
	}
}

func (m *decoded) index(sum [sha256.Size]byte) int {
	return slices.IndexFunc(m.files, func(f decodedFile) bool { return f.sum == sum })
}

func copies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objects))
	for i, o := range objects {
		out[i] = o.DeepCopy()
	}
	return out
}
