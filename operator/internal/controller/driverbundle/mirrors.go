package driverbundle

import (
	"sync"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

const (
	// concurrent is how many DriverBundles are looked at at once, and perMirror how many of
	// them at one registry: one that drips holds each for as long as a pass may take, and
	// nobody else's are to wait for it.
	concurrent = 8
	perMirror  = 2
	// busyAgain is when a DriverBundle whose mirror is busy with others is tried again.
	busyAgain = 5 * time.Second
)

// mirrors are the registries that are being read. The zero value is ready.
type mirrors struct {
	mu   sync.Mutex
	busy map[string]int
}

// enter tells whether a DriverBundle's mirror may be read now. Then call leave when done.
func (m *mirrors) enter(b *v1alpha1.DriverBundle) (leave func(), free bool) {
	ref, err := image.ParseReference(b.Spec.Reference)
	if err != nil || b.Spec.Suspend || !b.DeletionTimestamp.IsZero() {
		return func() {}, true // none is read
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[ref.Host()] >= perMirror {
		return nil, false
	}
	if m.busy == nil {
		m.busy = map[string]int{}
	}
	m.busy[ref.Host()]++
	return func() { m.leave(ref.Host()) }, true
}

func (m *mirrors) leave(host string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[host]--; m.busy[host] == 0 {
		delete(m.busy, host)
	}
}
