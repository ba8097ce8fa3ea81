package upgrade_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

func TestNodesThatChangeAreWaitedFor(t *testing.T) {
	node := func(name, kubelet string) upgrade.Node { return upgrade.Node{Name: name, Kubelet: kubelet} }
	cordoned := func(n upgrade.Node, ago time.Duration) upgrade.Node {
		n.Cordoned, n.Since = true, t0.Add(-ago)
		return n
	}
	unknown := node("c", "v1.33.1")
	unknown.Cordoned = true
	for name, c := range map[string]struct {
		nodes []upgrade.Node
		want  string
	}{
		"none":                         {},
		"all the same":                 {nodes: []upgrade.Node{node("a", "v1.33.1"), node("b", "v1.33.1")}},
		"two minors":                   {nodes: []upgrade.Node{node("a", "v1.33.1"), node("b", "v1.34.0"), node("c", "v1.33.1")}, want: "nodes are being upgraded: kubelets are of v1.33.1 (2 nodes), v1.34.0 (1 node)"},
		"pools of two patches":         {nodes: []upgrade.Node{node("a", "v1.33.1"), node("b", "v1.33.4")}},
		"two patches, one is cordoned": {nodes: []upgrade.Node{cordoned(node("a", "v1.33.1"), 9*time.Hour), node("b", "v1.33.4")}, want: "nodes are being upgraded: kubelets are of v1.33.1 (1 node), v1.33.4 (1 node)"},
		"cordoned lately":              {nodes: []upgrade.Node{cordoned(node("b", "v1.33.1"), time.Minute), cordoned(node("a", "v1.33.1"), time.Minute)}, want: "nodes are being emptied: a, b"},
		"cordoned long ago":            {nodes: []upgrade.Node{cordoned(node("a", "v1.33.1"), 2*time.Hour), node("b", "v1.33.1")}},
		"cordoned just ahead of us":    {nodes: []upgrade.Node{cordoned(node("a", "v1.33.1"), -time.Minute)}, want: "nodes are being emptied: a"},
		"cordoned in a far future":     {nodes: []upgrade.Node{cordoned(node("a", "v1.33.1"), -24*365*time.Hour)}},
		"cordoned, nobody knows when":  {nodes: []upgrade.Node{unknown}},
		"kubelets of no version":       {nodes: []upgrade.Node{node("a", "kwok-v0.7.0"), node("b", "v1.33.1"), node("c", "")}},
	} {
		require.Equal(t, c.want, upgrade.NodesChange(c.nodes, t0), name)
	}
	var many []upgrade.Node
	for i := range 5000 {
		many = append(many, cordoned(node(fmt.Sprintf("n%04d", i), fmt.Sprintf("v1.%d.0", 20+i%50)), time.Minute))
	}
	require.Less(t, len(upgrade.NodesChange(many, t0)), 300)
}

// A vCenter whose version has changed is waited for a while, across restarts; one that is seen
// for the first time, or is away, is not.
func TestVCentersThatChangeAreWaitedFor(t *testing.T) {
	names := []string{"two", "one", "two"}
	seen := upgrade.SeenVCenters(nil, names, map[string]string{"one": "8.0.2"}, t0)
	require.Equal(t, []revision.VCenter{{Name: "one", Version: "8.0.2"}}, seen)
	require.Empty(t, upgrade.VCentersChange(seen, t0))
	seen = upgrade.SeenVCenters(seen, names, map[string]string{"two": "8.0.2"}, t0)
	require.Equal(t, []revision.VCenter{{Name: "one", Version: "8.0.2"}, {Name: "two", Version: "8.0.2"}}, seen, "it is away")
	seen = upgrade.SeenVCenters(seen, names, map[string]string{"one": "8.0.3", "two": "8.0.2"}, t0)
	require.Equal(t, "vCenter one is of version 8.0.3 since 2026-01-03T01:00:00Z: drivers are upgraded 10m0s after the last change", upgrade.VCentersChange(seen, t0))
	later := t0.Add(9 * time.Minute)
	seen = upgrade.SeenVCenters(seen, names, map[string]string{"one": "8.0.3", "two": "8.0.2"}, later)
	require.NotEmpty(t, upgrade.VCentersChange(seen, later))
	require.Empty(t, upgrade.VCentersChange(seen, t0.Add(10*time.Minute)))
	require.Empty(t, upgrade.VCentersChange(seen, t0.Add(-time.Minute)), "a clock that was wrong holds nothing back for ever")
	require.Equal(t, []revision.VCenter{{Name: "two", Version: "8.0.2"}}, upgrade.SeenVCenters(seen, []string{"two"}, nil, later))
}
