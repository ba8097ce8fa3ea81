package vdoconfig

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// matrices keeps the matrices that were read last: a pass reads those of the bundle that was
// accepted, of the one that is installed, and of the one that is gone back to, and the next
// pass the same ones again. A document is never changed.
type matrices struct {
	mu   sync.Mutex
	kept []parsed // the one that was used last comes first
}

type parsed struct {
	sum [sha256.Size]byte
	doc *matrix.Document
}

// keptMatrices is one more than a pass has use for.
const keptMatrices = 4

// parse is matrix.Parse.
func (m *matrices) parse(name string, data []byte) (*matrix.Document, error) {
	p := parsed{sum: sha256.Sum256(data)}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.kept, func(k parsed) bool { return k.sum == p.sum })
	if i >= 0 {
		p = m.kept[i]
		m.kept = slices.Delete(m.kept, i, i+1)
	} else {
		var err error
		if p.doc, err = matrix.Parse(name, data); err != nil {
			return nil, err
		}
	}
	m.kept = slices.Insert(m.kept, 0, p)
	if len(m.kept) > keptMatrices {
		m.kept = slices.Delete(m.kept, keptMatrices, len(m.kept))
	}
	return p.doc, nil
}
