package vdoconfig

import (
	"crypto/sha256"
	"sync"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// matrices keeps the matrix that was read last: every pass reads the same one again, until
// another bundle is accepted. A document is never changed.
type matrices struct {
	mu  sync.Mutex
	sum [sha256.Size]byte
	doc *matrix.Document
}

// parse is matrix.Parse.
func (m *matrices) parse(name string, data []byte) (*matrix.Document, error) {
	sum := sha256.Sum256(data)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doc != nil && m.sum == sum {
		return m.doc, nil
	}
	doc, err := matrix.Parse(name, data)
	if err == nil {
		m.sum, m.doc = sum, doc
	}
	return doc, err
}
