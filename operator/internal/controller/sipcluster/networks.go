package sipcluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/netdata"
)

const (
	// rememberFor is how long the network data of a free host is remembered, and maxNetworks
	// how many are.
	rememberFor = 2 * time.Minute
	maxNetworks = 5000
)

// networks are the network data of free hosts, as they were read a moment ago: a SIPCluster
// that no host fits would have those of all hosts read in each of its passes, and a tenant may
// have hundreds of such. They refuse a host, and never choose one. The zero value is ready.
type networks struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]seenNetwork
}

type seenNetwork struct {
	version string // of the BareMetalHost
	data    netdata.Data
	subject string
	err     error
	at      time.Time
}

// get returns what was read of a host, if that is still worth something.
func (n *networks) get(h *host, now time.Time) (seenNetwork, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, found := n.seen[h.Key()]
	return s, found && s.version == h.uid+h.resourceVersion && now.Sub(s.at) < rememberFor && !now.Before(s.at)
}

func (n *networks) put(h *host, s seenNetwork, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil || len(n.seen) >= maxNetworks {
		n.seen = map[types.NamespacedName]seenNetwork{}
	}
	s.version, s.at = h.uid+h.resourceVersion, now
	n.seen[h.Key()] = s
}
