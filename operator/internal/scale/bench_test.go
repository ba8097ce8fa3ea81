package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

const (
	namespace  = "vmware-system-vdo"
	repository = "vdo/drivers"
	interval   = 10 * time.Second // the shortest that may be requested
	patience   = 10 * time.Minute

	maxResident = 120.0  // MiB, at any time
	maxJoin     = 1000.0 // ms of processor, for a node that joins
)

// datacenters of the vCenter that have nodes: as many VMs each.
var datacenters = []string{"site/prod/east", "site/west", "lab"}

func BenchmarkOperator(b *testing.B) {
	sizes := []int{10, 1000, 5000}
	if one, err := strconv.Atoi(os.Getenv("VDO_SCALE_NODES")); err == nil {
		sizes = []int{one}
	}
	mirror, key := deliver(b, upstream.Dir(b))
	for _, n := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			s := newSite(b, n, mirror, key)
			s.install(b)
			for b.Loop() {
				s.measure(b)
			}
			for name, value := range s.measured { // the first turn of the loop forgets what was reported
				b.ReportMetric(value, name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// deliver pushes a signed bundle of the manifests in a directory or, if that is empty, of stand-ins. It
// returns the mirror and the public key.
func deliver(b testing.TB, manifests string) (reg *registry.Registry, key string) {
	b.Helper()
	reg = registry.Start(b, registry.Options{TLS: true, Auth: registry.Basic})
	signer, key := mirror.NewKey(b)
	to := mirror.New(b, reg, repository)
	to.Sign(b, to.Push(b, "site", mirror.Bundle{
		Dir: manifests, Releases: []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.5.1"},
	}), signer)
	return reg, key
}

// site is a cluster with nodes that wait for a cloud provider.
type site struct {
	play
	mirror  *registry.Registry
	vc      *vcsim.VCenter
	cluster *cluster.Cluster
	dir     string
	op      *process

	initialised int                // the first so many nodes are
	measured    map[string]float64 // metrics, reported at the end
}

func newSite(b testing.TB, n int, mirror *registry.Registry, key string) *site {
	s := &site{mirror: mirror, vc: vcsim.Start(b, vcsim.Options{Machines: n/len(datacenters) + 1}), cluster: cluster.New(b, cluster.Options{}), dir: b.TempDir(), measured: map[string]float64{}}
	s.vc.ReadyAll(func(i int) (hostname, id string) { return nodeName(i), uuid(i) })
	cfg := s.cluster.Config()
	cfg.QPS = -1
	s.play = play{Client: cluster.Client(b, cfg), nodes: n}
	s.resources(b, key)
	require.NoError(b, each(b.Context(), n, s.join))
	s.start(b)
	b.Cleanup(func() { s.op.Stop() })
	return s
}

func (s *site) start(b testing.TB) {
	s.op = startOperator(b, s.cluster.Config(), filepath.Join(s.dir, "operator.log"))
}

// resources makes what an installation needs.
func (s *site) resources(b testing.TB, key string) {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	every := metav1.Duration{Duration: interval}
	require.NoError(b, cluster.Operator.Grant(b.Context(), s))
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: named("vc-creds"), StringData: map[string]string{"username": vcsim.Admin.Username, "password": vcsim.Admin.Password}},
		&corev1.ConfigMap{ObjectMeta: named("vc-ca"), Data: map[string]string{"ca.crt": string(s.vc.CA)}},
		&corev1.ConfigMap{ObjectMeta: named(v1alpha1.DefaultCAName), Data: map[string]string{"ca.crt": string(s.mirror.CA())}},
		&corev1.Secret{ObjectMeta: named(v1alpha1.DefaultPullSecretName), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: s.mirror.DockerConfig()}},
		&corev1.ConfigMap{ObjectMeta: named(v1alpha1.DefaultTrustName), Data: map[string]string{"vdo.pub": key}},
		cluster.TopologyCRD(),
		&v1alpha1.VsphereCloudConfig{ObjectMeta: named("vc"), Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: s.vc.Host, Port: int32(s.vc.Port), Credentials: "vc-creds", //nolint:gosec // a port
			CA: &v1alpha1.KeyReference{ConfigMap: "vc-ca"}, Datacenters: datacenters, Interval: every}},
		&v1alpha1.DriverBundle{ObjectMeta: named("drivers"), Spec: v1alpha1.DriverBundleSpec{Reference: s.mirror.Host + "/" + repository + ":site", Interval: every}},
		&v1alpha1.VDOConfig{ObjectMeta: named("site"), Spec: v1alpha1.VDOConfigSpec{Interval: every,
			CloudProvider: &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc"}}, StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "vc"}}},
	} {
		require.NoError(b, s.Create(b.Context(), o))
	}
}

// config reads the VDOConfig.
func (s *site) config(b testing.TB) *v1alpha1.VDOConfig {
	var v v1alpha1.VDOConfig
	require.NoError(b, s.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "site"}, &v))
	return &v
}

// ready tells whether all nodes are served and nothing is left to do.
func (s *site) ready(b testing.TB) bool {
	v := s.config(b)
	return meta.IsStatusConditionTrue(v.Status.Conditions, "Ready") && v.Status.ObservedGeneration == v.Generation && v.Status.NodesReady == fmt.Sprintf("%d/%d", s.nodes, s.nodes)
}

// settle plays until all is installed and healthy.
func (s *site) settle(b testing.TB) {
	b.Helper()
	for end := time.Now().Add(patience); !s.ready(b); time.Sleep(200 * time.Millisecond) {
		cloud, storage := s.step(b)
		if cloud {
			require.NoError(b, s.initialiseTo(b.Context(), s.nodes))
		}
		if storage {
			require.NoError(b, each(b.Context(), s.nodes, s.register))
		}
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(s.dir, "operator.log")) //nolint:errcheck // for the message
			v := s.config(b)
			b.Fatalf("not ready: %+v\n%s\n%s", v.Status.Conditions, v.Status.NodesReady, log[max(0, len(log)-4<<10):])
		}
	}
}

// measure goes through what the package comment says.
func (s *site) measure(b *testing.B) {
	s.op.Stop()
	s.phase(b, "start", func() {
		s.start(b)
		s.until(b, "start", func() bool { return s.op.trySeen().Passes > 0 && s.ready(b) })
	})
	time.Sleep(2 * interval)
	rest := func() { time.Sleep(4 * interval) }
	quiet := s.quiet()
	s.phase(b, "idle", rest)
	quiet.holds(b)
	quiet, still := s.quiet(), s.beating(b)
	require.Less(b, s.phase(b, "beat", rest), maxShare)
	still()
	quiet.holds(b)
	s.measured["resident-MiB"] = s.op.memory("VmRSS")

	s.phase(b, "join", func() {
		require.NoError(b, s.join(b.Context(), s.nodes))
		s.nodes++
		require.NoError(b, s.initialiseTo(b.Context(), s.nodes))
		s.settle(b)
	})
	require.Less(b, s.measured["join-cpu-ms"], maxJoin)
	s.phase(b, "change", func() {
		v := s.config(b)
		change := client.MergeFrom(v.DeepCopy())
		v.Spec.StorageProvider.ClusterDistribution = fmt.Sprint("measured-", time.Now().Unix()%1000)
		require.NoError(b, s.Patch(b.Context(), v, change))
		s.settle(b)
	})
}

// phase reports what the operator did while something happened, and what was resident at most. It returns what the
// operator took of a processor.
func (s *site) phase(b *testing.B, name string, happens func()) (share float64) {
	b.Helper()
	before, begun := s.op.trySeen(), time.Now() // of an operator that is stopped nothing is seen
	happens()
	after, took, peak := s.op.seen(), time.Since(begun), s.op.memory("VmHWM")
	s.op.forgetPeak()
	spent, passes := after.CPU-before.CPU, after.Passes-before.Passes
	s.measured[name+"-cpu-ms"] = float64(spent.Milliseconds())
	s.measured[name+"-wall-ms"] = float64(took.Milliseconds())
	s.measured[name+"-passes"] = passes
	s.measured[name+"-peak-MiB"] = peak
	if passes > 0 {
		s.measured[name+"-pass-ms"] = 1000 * (after.PassSeconds - before.PassSeconds) / passes
	}
	b.Logf("%s: %s of processor, %.0f passes, at most %.1f MiB resident", name, spent, passes, peak) // of several runs
	require.Less(b, peak, maxResident)
	return float64(spent) / float64(took)
}

func (s *site) until(b testing.TB, what string, done func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("waited %s for: %s", patience, what)
		}
	}
}

// slow is how long a cloud provider that runs initialises no node, and then how long it takes
// for all of them.
const slow = 3 * interval

// install installs for the first time, where all nodes wait for a cloud provider that is slow.
// As soon as it has initialised one of them the storage driver comes, so that the pods of all
// nodes start while the others wait.
func (s *site) install(b *testing.B) {
	s.until(b, "metrics", func() bool { return s.op.trySeen().CPU > 0 })
	require.Less(b, s.phase(b, "wait", func() { s.wait(b) }), maxShare)
	s.phase(b, "install", func() { s.settle(b) })
}

// wait plays until all nodes are initialised.
func (s *site) wait(b testing.TB) {
	s.until(b, "the cloud provider's pods", func() bool { cloud, _ := s.step(b); return cloud })
	all := make(chan error, 1)
	go func() { all <- s.initialiseSlowly(b.Context()) }()
	for {
		select {
		case err := <-all:
			require.NoError(b, err)
			return
		case <-time.After(200 * time.Millisecond):
			s.step(b)
		}
	}
}

func (s *site) initialiseSlowly(ctx context.Context) error {
	for begun := time.Now(); s.initialised < s.nodes; time.Sleep(100 * time.Millisecond) {
		part := float64(time.Since(begun)-slow) / float64(slow)
		if err := s.initialiseTo(ctx, min(s.nodes, int(part*float64(s.nodes)))); err != nil {
			return err
		}
	}
	return nil
}

// initialiseTo does the cloud provider's part for the first nodes.
func (s *site) initialiseTo(ctx context.Context, n int) error {
	from := s.initialised
	if n <= from {
		return nil
	}
	s.initialised = n
	return each(ctx, n-from, func(ctx context.Context, i int) error { return s.initialise(ctx, from+i) })
}

// step plays what workloads' controllers do; it tells which drivers' pods run.
func (s *site) step(b testing.TB) (cloud, storage bool) {
	cloud, storage, err := s.roll(b.Context())
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, false // the operator wrote it meanwhile
	}
	require.NoError(b, err)
	return cloud, storage
}
