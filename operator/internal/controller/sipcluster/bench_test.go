package sipcluster

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
)

// BenchmarkSIP is a site of 2,000 hosts and 100 SIPClusters of ten hosts with a load
// balancer each: what a pass takes that has nothing to do (at most 60 ms), and what one takes that adds one host
// (at most 2 s).
func BenchmarkSIP(b *testing.B) {
	const hosts, clusters = 2000, 100
	w, _ := start(b)
	for i := range hosts {
		w.host(metal3.Host{Name: fmt.Sprintf("h%04d", i), Labels: map[string]string{"rack": fmt.Sprint(i)}, Address: fmt.Sprintf("10.%d.%d.%d", 2+i/60000, i/250, 1+i%250)})
	}
	r := w.benched()
	for i := range clusters {
		w.sip(fmt.Sprintf("t%03d", i), bigSite(i, 10))
		w.settle(r, fmt.Sprintf("t%03d", i))
	}
	for _, c := range []struct {
		name   string
		change func(i int)
	}{
		{"nothing", func(int) {}},
		{"one-more-host", func(i int) {
			w.change(fmt.Sprintf("t%03d", i%clusters), bigSite(i%clusters, 11+i/clusters))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				c.change(i)
				b.StartTimer()
				require.NoError(b, w.pass(r, fmt.Sprintf("t%03d", i%clusters)))
			}
		})
	}
}

// bigSite is the spec of one of many SIPClusters, with a port of its own.
func bigSite(i, active int) string {
	return fmt.Sprintf(`
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: %d}}}
services: {loadBalancerWorker: [{nodePortRange: {start: %[2]d, end: %[2]d}, nodeInterfaceId: oam}]}
`, active, 32100+i)
}

// benched is an operator with a cache of hosts as the program has it.
func (w *world) benched() *Reconciler {
	w.Helper()
	hosts, err := cache.New(cluster.SIPOperator.Config(cluster.Config(w)), cache.Options{Scheme: w.Scheme(), ByObject: CacheOptions()})
	require.NoError(w, err)
	ctx, stop := context.WithCancel(context.Background())
	w.Cleanup(stop)
	go func() { _ = hosts.Start(ctx) }()
	require.True(w, hosts.WaitForCacheSync(w.Context()))
	require.NoError(w, hosts.List(w.Context(), &choose.BareMetalHostList{}), "it waits until the cache is filled")
	r := w.operator(w.own)
	r.Hosts = hosts
	return r
}
