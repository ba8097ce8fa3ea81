package maintenance_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/mo"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/maintenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// world is a cluster of four nodes, three of them of the control plane, whose VMs are not as
// they have to be, and kubelets that follow their VMs' power.
type world struct {
	t      *testing.T
	api    client.Client
	ns     string
	target vcenter.Target
	nodes  []preflight.Node
	vms    []vcsim.VM
	v      *vcsim.VCenter

	mu     sync.Mutex
	faults []string // what must never be
}

var names = []string{"cp-0", "cp-1", "cp-2", "worker-0"}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := cluster.Config(t)
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	c, err := client.New(cfg, client.Options{Scheme: s})
	require.NoError(t, err)
	v := vcsim.Start(t, vcsim.Options{Machines: len(names)})
	w := &world{t: t, api: c, v: v, ns: cluster.Namespace(t, cfg), target: vcenter.Target{Host: v.Host, Port: v.Port, Username: vcsim.Administrator.Username,
		Password: vcenter.Password(vcsim.Administrator.Password), Trust: vcenter.Trust{CA: v.CA}}}
	w.vms, err = v.VMs(t.Context(), "/lab")
	require.NoError(t, err)
	for i, n := range names {
		w.bad(i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{}}}
		if i < 3 {
			node.Labels["node-role.kubernetes.io/control-plane"] = ""
		}
		require.NoError(t, c.Create(t.Context(), node))
		t.Cleanup(func() { require.NoError(t, c.Delete(context.Background(), node)) })
		w.nodes = append(w.nodes, preflight.Node{Name: n, UUID: w.vms[i].UUID, ControlPlane: i < 3})
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go w.kubelets(ctx, ended)
	t.Cleanup(func() { stop(); <-ended })
	for _, n := range names {
		require.Eventually(t, func() bool { return w.node(n).Status.NodeInfo.BootID != "" }, time.Minute, 5*time.Millisecond)
	}
	return w
}

// bad makes a VM as it must not be.
func (w *world) bad(i int) {
	w.t.Helper()
	require.NoError(w.t, w.v.Ready(w.vms[i].Path, names[i]))
	require.NoError(w.t, w.v.Change(w.vms[i].Path, func(vm *mo.VirtualMachine) {
		off := false
		vm.Config.Version, vm.Config.Flags.DiskUuidEnabled = "vmx-13", &off
	}))
}

func (w *world) boot(node, id string, ready bool) {
	var n corev1.Node
	if w.api.Get(context.Background(), client.ObjectKey{Name: node}, &n) != nil {
		return
	}
	status := corev1.ConditionUnknown
	if ready {
		status = corev1.ConditionTrue
		n.Status.NodeInfo.BootID = id
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}}
	_ = w.api.Status().Update(context.Background(), &n) // the next turn tries again
}

// kubelets report what the VMs are like, and end pods that are evicted.
func (w *world) kubelets(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	boots, off := map[string]string{}, map[string]bool{}
	for ctx.Err() == nil {
		down := 0
		for i, n := range names {
			is, boot := false, "boot-0"
			_ = w.v.Change(w.vms[i].Path, func(vm *mo.VirtualMachine) {
				is = vm.Runtime.PowerState == "poweredOff"
				if at := vm.Summary.Runtime.BootTime; at != nil {
					boot = at.String()
				}
			})
			if is != off[n] || !is && boots[n] != boot {
				off[n], boots[n] = is, boot
				w.boot(n, boot, !is)
			}
			if is && i < 3 {
				down++
			}
		}
		if down > 1 {
			w.wrong("two nodes of the control plane are off")
		}
		var pods corev1.PodList
		if w.api.List(ctx, &pods, client.InNamespace(w.ns)) == nil {
			for i := range pods.Items {
				p := &pods.Items[i]
				if off[p.Spec.NodeName] {
					w.wrong("pod " + p.Name + " was on a node that is off")
				}
				if p.DeletionTimestamp != nil {
					_ = w.api.Delete(ctx, p, client.GracePeriodSeconds(0))
				}
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *world) wrong(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, what)
}

// plan looks at the VMs as they are.
func (w *world) plan() []maintenance.Machine {
	w.t.Helper()
	found := vcenter.Inspect(w.t.Context(), w.target, vcenter.Ask{Nodes: w.nodes})
	require.NoError(w.t, found.Err)
	found.Name = "lab"
	return maintenance.Plan(preflight.NodeMachines(preflight.Snapshot{Cluster: preflight.Cluster{Nodes: w.nodes}, VCenters: []preflight.VCenter{found}}))
}

// run is one run of the program; done is told of each thing that was done.
func (w *world) run(ctx context.Context, change func(*maintenance.Run), done func(text string)) error {
	w.t.Helper()
	r := &maintenance.Run{
		API: w.api, Drain: true, Wait: 2 * time.Minute, Poll: 20 * time.Millisecond,
		Progress: func(node, text string) {
			if done != nil {
				done(node + ": " + text)
			}
		},
		Open: func(ctx context.Context, _ string) (maintenance.VMs, func(), error) {
			a, err := vcenter.Open(ctx, w.target)
			if err != nil {
				return nil, nil, err
			}
			return a, a.Close, nil
		},
	}
	if change != nil {
		change(r)
	}
	return r.Nodes(ctx, w.plan())
}

func (w *world) pod(name, node string, change func(*corev1.Pod)) {
	w.t.Helper()
	yes, no := true, int64(0)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{"app": name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "u", Controller: &yes}}},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &no, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if change != nil {
		change(p)
	}
	require.NoError(w.t, w.api.Create(w.t.Context(), p))
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	require.NoError(w.t, w.api.Status().Update(w.t.Context(), p))
}

func (w *world) node(name string) corev1.Node {
	w.t.Helper()
	var n corev1.Node
	require.NoError(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &n))
	return n
}

// well demands that all is as it shall be, and that only those nodes are cordoned.
func (w *world) well(cordoned ...string) {
	w.t.Helper()
	for _, m := range w.plan() {
		require.Empty(w.t, m.Off, m.Node)
	}
	for _, name := range names {
		n := w.node(name)
		require.NotContains(w.t, n.Annotations, maintenance.Annotation, name)
		require.Equal(w.t, len(cordoned) > 0 && cordoned[0] == name, n.Spec.Unschedulable, name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(w.t, w.faults)
}

func TestVMsArePutRightNodeByNode(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	plan := w.plan()
	require.Equal(t, []string{"worker-0", "cp-0", "cp-1", "cp-2"}, []string{plan[0].Node, plan[1].Node, plan[2].Node, plan[3].Node}, "workers first")
	require.Equal(t, []maintenance.Fix{maintenance.DiskUUID, maintenance.Hardware}, plan[0].Off)

	// What would be lost is refused before anything is evicted.
	w.pod("alone", "worker-0", func(p *corev1.Pod) { p.OwnerReferences = nil })
	w.pod("scratch", "worker-0", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	err := w.run(ctx, nil, nil)
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	require.ErrorContains(t, err, "alone from worker-0: nothing makes it again")
	require.ErrorContains(t, err, "it keeps data on the node (emptyDir data)")
	err = w.run(ctx, func(r *maintenance.Run) { r.Drain = false }, nil)
	require.ErrorContains(t, err, "2 pods run there")
	for _, name := range []string{"alone", "scratch"} {
		require.NoError(t, w.api.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}))
	}

	// A disruption budget holds it up, and nothing is powered off meanwhile.
	w.pod("guarded", "worker-0", nil)
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "guard"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}}}
	require.NoError(t, w.api.Create(ctx, budget))
	err = w.run(ctx, func(r *maintenance.Run) { r.Wait = time.Nanosecond }, nil)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.ErrorContains(t, err, "disruption budgets hold back "+w.ns+"/guarded")
	require.True(t, w.node("worker-0").Spec.Unschedulable, "it stays cordoned")
	require.NoError(t, w.api.Delete(ctx, budget))

	// The API server's own majority is kept.
	w.boot("cp-2", "boot-0", false)
	err = w.run(ctx, nil, nil)
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	require.ErrorContains(t, err, "1 other nodes of the control plane are ready")
	require.False(t, w.node("worker-0").Spec.Unschedulable, "the worker is done before")
	w.boot("cp-2", "boot-0", true)

	// A node that somebody else has cordoned stays so.
	cp := w.node("cp-0")
	cp.Spec.Unschedulable = true
	require.NoError(t, w.api.Update(ctx, &cp))
	require.NoError(t, w.run(ctx, nil, nil))
	w.well("cp-0")
}

// Stopped after anything that it does, it goes on with the node that it was at, and ends
// with all VMs as they have to be.
func TestStoppedAnywhereItGoesOn(t *testing.T) {
	w := newWorld(t)
	steps := 0
	require.NoError(t, w.run(t.Context(), nil, func(string) { steps++ }))
	w.well()
	steps /= 2
	w.bad(0)
	w.bad(3)
	for n := 1; n < steps; n++ {
		ctx, stop := context.WithCancel(t.Context())
		did, last := 0, ""
		err := w.run(ctx, nil, func(text string) {
			if did++; did == n {
				last = text
				stop()
			}
		})
		stop()
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.Canceled, last)
		w.mu.Lock()
		require.Empty(t, w.faults, last)
		w.mu.Unlock()
		if n%3 == 0 { // some runs are stopped again and again, others have the end of it
			require.NoError(t, w.run(t.Context(), nil, nil), last)
			w.well()
			w.bad(n % len(names))
		}
	}
	require.NoError(t, w.run(t.Context(), nil, nil))
	w.well()
}
