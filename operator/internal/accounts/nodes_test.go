package accounts

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// manyNodes is an API server with many nodes.
type manyNodes struct {
	client.Reader

	count, pages int
	largest      int64
	err          error
}

func (m *manyNodes) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	from := 0
	_, _ = fmt.Sscan(o.Continue, &from)
	to := m.count
	if o.Limit > 0 {
		to = min(m.count, from+int(o.Limit))
	}
	m.pages, m.largest = m.pages+1, max(m.largest, int64(to-from))
	nodes, ok := list.(*corev1.NodeList)
	if !ok || m.err != nil {
		return m.err
	}
	for i := from; i < to; i++ {
		var n corev1.Node
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: fmt.Sprint("host-", i)}, {Type: corev1.NodeInternalIP, Address: address(i)}}
		nodes.Items = append(nodes.Items, n)
	}
	if to < m.count {
		nodes.Continue = fmt.Sprint(to)
	}
	return nil
}

func address(i int) string { return fmt.Sprintf("10.0.%d.%d", i/250, i%250) }

func TestNodesAreReadInPagesAndNotAtEachLook(t *testing.T) {
	m := &manyNodes{count: 2*pages.Size + 1}
	var n nodes
	begin := time.Now()
	for ago := time.Duration(0); ago < nodesKept; ago += 2 * time.Second { // as sessions are looked at
		got, err := n.addresses(t.Context(), m, begin.Add(ago))
		require.NoError(t, err)
		require.Len(t, got, m.count, "addresses alone, no names")
		require.True(t, got[address(0)] && got[address(m.count-1)])
	}
	require.Equal(t, 3, m.pages)
	require.Equal(t, int64(pages.Size), m.largest)

	m.count++ // a node that joins
	got, err := n.addresses(t.Context(), m, begin.Add(nodesKept))
	require.NoError(t, err)
	require.True(t, got[address(m.count-1)])

	m.err = errors.New("away")
	_, err = n.addresses(t.Context(), m, begin.Add(3*nodesKept))
	require.ErrorIs(t, err, m.err, "what was read before does not count for what cannot be read")
	require.NotEmpty(t, fault.ReasonOf(err))
	_, err = n.addresses(t.Context(), m, begin.Add(-time.Hour))
	require.ErrorIs(t, err, m.err, "a clock that went back")
}
