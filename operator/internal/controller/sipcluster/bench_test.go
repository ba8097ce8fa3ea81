package sipcluster

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
)

// BenchmarkSIP is a site of 2,000 hosts and 100 SIPClusters of ten hosts with a load
// balancer each: what making them takes, what a pass takes that has nothing to do (at most 60 ms), and what
// one takes that adds one host (at most 2 s).
func BenchmarkSIP(b *testing.B) {
	const hosts, clusters = 2000, 100
	w, _ := start(b)
	for i := range hosts {
		w.host(metal3.Host{Name: fmt.Sprintf("h%04d", i), Labels: map[string]string{"rack": fmt.Sprint(i)}, Address: fmt.Sprintf("10.%d.%d.%d", 2+i/60000, i/250, 1+i%250)})
	}
	before := heap()
	r, calls := w.benched()
	made := time.Now()
	for i := range clusters {
		w.sip(fmt.Sprintf("t%03d", i), bigSite(i, 10))
		w.settle(r, fmt.Sprintf("t%03d", i))
	}
	each, callsEach, memory := time.Since(made).Seconds()/clusters, float64(calls.Load())/clusters, float64(heap()-before)/(1<<20)
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
			n := int64(0)
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				c.change(i)
				was := calls.Load()
				b.StartTimer()
				require.NoError(b, w.pass(r, fmt.Sprintf("t%03d", i%clusters)))
				n += calls.Load() - was
			}
			b.ReportMetric(float64(n)/float64(b.N), "calls/pass")
			b.ReportMetric(each, "s/cluster-made")
			b.ReportMetric(callsEach, "calls/cluster-made")
			b.ReportMetric(memory, "MiB-more")
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

// benched is an operator with a cache of hosts as the program has it, and how many requests
// it makes.
func (w *world) benched() (*Reconciler, *atomic.Int64) {
	w.Helper()
	var calls atomic.Int64
	c := w.through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		calls.Add(1)
		return w.counting(r, next)
	})
	hosts, err := cache.New(cluster.SIPOperator.Config(cluster.Config(w)), cache.Options{Scheme: w.Scheme(), ByObject: CacheOptions()})
	require.NoError(w, err)
	ctx, stop := context.WithCancel(context.Background())
	w.Cleanup(stop)
	go func() { _ = hosts.Start(ctx) }()
	require.True(w, hosts.WaitForCacheSync(w.Context()))
	require.NoError(w, hosts.List(w.Context(), &choose.BareMetalHostList{}), "it waits until the cache is filled")
	r := w.operator(c)
	r.Hosts = hosts
	return r, &calls
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // of a test
}
