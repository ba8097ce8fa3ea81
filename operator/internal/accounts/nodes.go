package accounts

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// nodesKept is how long what was read of nodes counts: thousands of them are not read at
// each look at sessions, and one that joins is known before its driver's session would
// count as idle.
const nodesKept = time.Minute

// nodes are the addresses of the cluster's nodes as they were at some time. The zero value
// has not been read.
type nodes struct {
	known map[string]bool
	at    time.Time
}

// addresses are those of now, at most [nodesKept] old.
func (n *nodes) addresses(ctx context.Context, c client.Reader, now time.Time) (map[string]bool, error) {
	if n.known != nil && !now.Before(n.at) && now.Sub(n.at) < nodesKept {
		return n.known, nil
	}
	known := map[string]bool{}
	var list corev1.NodeList
	if err := pages.Each(ctx, c, &list, func() {
		for i := range list.Items {
			for _, a := range list.Items[i].Status.Addresses {
				if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
					known[a.Address] = true
				}
			}
		}
	}); err != nil {
		return nil, &fault.Error{Reason: reasonOf(err), Op: "read the nodes", Err: err}
	}
	n.known, n.at = known, now
	return known, nil
}
