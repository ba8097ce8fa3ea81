package maintenance_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/maintenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// world is a cluster whose VMs are not as they have to be, and kubelets that follow their power. It
// notes what must never be.
type world struct {
	maintenance.VMs

	t       *testing.T
	api     client.Client
	vms     map[string]*vm // by id, which is the node's name
	names   []string
	owner   string // the Machine of each planned node
	faults  []string
	budget  bool                     // gates evictions
	refusal error                    // of the next eviction
	ignores bool                     // changes, as where another tool takes them back
	hangs   bool                     // guests do not shut down
	late    bool                     // kubelets are noticed late when they stop, and are back late
	looking func(w *world, time int) // before each look at a VM
	looks   int
	run     maintenance.Run
}

type vm struct {
	state      preflight.Machine
	boot, shut int
}

// newWorld has so many nodes of the control plane, of which the last are not ready, and a worker.
func newWorld(t *testing.T, control, down int) *world {
	w := &world{t: t, vms: map[string]*vm{}}
	w.api = fake.NewClientBuilder().WithStatusSubresource(&corev1.Node{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName} //nolint:forcetypeassert // an index of pods
		}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: w.evict}).Build()
	for i := range control + 1 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		if i < control {
			n.Name, n.Labels = fmt.Sprint("cp-", i), map[string]string{drivers.ControlPlaneLabels[i%3]: ""}
		}
		require.NoError(t, w.api.Create(t.Context(), n))
		w.names = append(w.names, n.Name)
		w.vms[n.Name] = &vm{}
		w.bad(n.Name)
		w.report(n.Name, i < control-down || i == control)
	}
	w.run = maintenance.Run{API: w.api, Drain: true, Wait: time.Minute, Poll: time.Millisecond,
		Open: func(context.Context, string) (maintenance.VMs, func(), error) { return w, func() {}, nil }}
	return w
}

func (w *world) evict(
	ctx context.Context, c client.Client, _ string, pod, _ client.Object, _ ...client.SubResourceCreateOption,
) error {
	if w.budget {
		return apierrors.NewTooManyRequests("guarded", 0)
	}
	if err := w.refusal; err != nil {
		w.refusal = nil
		return err
	}
	return c.Delete(ctx, pod)
}

func (w *world) bad(name string) {
	w.vms[name].state = preflight.Machine{
		On: true, Hardware: "vmx-13", Controllers: []string{"pvscsi"}, Guest: preflight.Guest{ToolsRunning: true}}
}

func (w *world) node(name string) *corev1.Node {
	var n corev1.Node
	require.NoError(w.t, w.api.Get(context.Background(), client.ObjectKey{Name: name}, &n))
	return &n
}

func (w *world) change(name string, change func(*corev1.Node)) {
	n := w.node(name)
	change(n)
	require.NoError(w.t, w.api.Update(context.Background(), n))
}

// report is what a kubelet says of its node.
func (w *world) report(name string, ready bool) {
	n, status := w.node(name), corev1.ConditionUnknown
	if ready {
		status, n.Status.NodeInfo.BootID = corev1.ConditionTrue, fmt.Sprint("boot-", w.vms[name].boot)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	require.NoError(w.t, w.api.Status().Update(context.Background(), n))
}

func (w *world) MachineState(_ context.Context, id string) (preflight.Machine, error) {
	if w.looks++; w.looking != nil {
		w.looking(w, w.looks)
	}
	return w.vms[id].state, nil
}

func (w *world) CanUpgrade(_ context.Context, id, version string) error {
	if version == "vmx-99" {
		return fault.Errorf(fault.Refused, "upgrade", id, "", "no %s", version)
	}
	return nil
}

func (w *world) Fix(_ context.Context, id string, f preflight.Fix, version string) error {
	switch s := &w.vms[id].state; f {
	case preflight.DiskUUID:
		s.DiskUUID = !w.ignores
	case preflight.Hardware:
		s.Hardware = version
	case preflight.Controller:
		s.Controllers = []string{"pvscsi"}
	}
	return nil
}

func (w *world) ShutDown(_ context.Context, id string) error {
	var pods corev1.PodList
	require.NoError(w.t, w.api.List(context.Background(), &pods))
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName == id && !strings.HasPrefix(p.Name, "stays") {
			w.faults = append(w.faults, "pod "+p.Name+" was on a node that is off")
		}
	}
	for other, x := range w.vms {
		isBack := !x.state.Off && w.node(other).Status.NodeInfo.BootID == fmt.Sprint("boot-", x.boot)
		if !isBack && other != id && strings.HasPrefix(other, "cp") && strings.HasPrefix(id, "cp") {
			w.faults = append(w.faults, id+" is shut down while "+other+" is not back")
		}
	}
	if w.hangs {
		return nil
	}
	x := w.vms[id]
	if x.state.On, x.state.Off, x.shut = false, true, x.shut+1; !w.late {
		w.report(id, false)
	}
	return nil
}

func (w *world) PowerOn(_ context.Context, id string) error {
	x := w.vms[id]
	if x.state.On, x.state.Off, x.boot = true, false, x.boot+1; !w.late {
		w.report(id, true)
	}
	return nil
}

func (w *world) UnmarkTemplate(_ context.Context, id string) error {
	w.vms[id].state.Template = false
	return nil
}

func (w *world) MarkTemplate(_ context.Context, id string) error {
	w.vms[id].state.Template = true
	return nil
}

// plan looks at the VMs as they are.
func (w *world) plan(names ...string) []maintenance.Machine {
	if len(names) == 0 {
		names = w.names
	}
	var list []preflight.NodeMachine
	for _, name := range names {
		s := w.vms[name].state
		n := preflight.NodeMachine{Node: preflight.Node{Name: name, ControlPlane: name != "worker"}, Path: "/lab/" + name}
		_, n.Node.Begun = w.node(name).Annotations[maintenance.Annotation]
		n.Node.Machine = w.owner
		n.Machine.DiskUUID, n.Machine.Hardware, n.Machine.Controllers = s.DiskUUID, s.Hardware, s.Controllers
		list = append(list, n)
	}
	out := maintenance.Plan(list, preflight.LeastHardware)
	for i := range out {
		out[i].ID = out[i].Node
	}
	return out
}

func (w *world) pod(name string, change func(*corev1.Pod)) {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{NodeName: "worker"}}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: &yes}}
	if change != nil {
		change(p)
	}
	require.NoError(w.t, w.api.Create(w.t.Context(), p))
}

func (w *world) nodes(ctx context.Context, list []maintenance.Machine) error {
	list, err := maintenance.Pending(list)
	if err != nil {
		return err
	}
	return w.run.Do(ctx, list)
}

// well demands that all is as it shall be, and that only this node is cordoned.
func (w *world) well(cordoned string) {
	for _, m := range w.plan() {
		require.Empty(w.t, m.Off, m.Node)
		n := w.node(m.Node)
		require.NotContains(w.t, n.Annotations, maintenance.Annotation, m.Node)
		require.Equal(w.t, cordoned == m.Node, n.Spec.Unschedulable, m.Node)
	}
	require.Empty(w.t, w.faults)
}

func TestVMsArePutRightNodeByNode(t *testing.T) {
	w := newWorld(t, 3, 0)
	ctx, plan := t.Context(), w.plan()
	require.Equal(t, []string{"worker", "cp-0"}, []string{plan[0].Node, plan[1].Node}, "workers first")
	require.Equal(t, []preflight.Fix{preflight.DiskUUID, preflight.Hardware}, plan[0].Off)

	// What would be lost is refused before anything is evicted.
	w.pod("stays", func(p *corev1.Pod) {
		p.OwnerReferences[0].Kind = "DaemonSet"
		p.Spec.Volumes = []corev1.Volume{{Name: "a"}, {Name: "b"}, {Name: "host"}}
		p.Spec.Volumes[0].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}
		p.Spec.Volumes[1].Ephemeral = &corev1.EphemeralVolumeSource{}
	})
	for claim, volume := range map[string]string{"data": "pv-a", "stays-b": "pv-b"} { // they stay attached
		require.NoError(t, w.api.Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: volume},
			Spec: corev1.PersistentVolumeSpec{
				ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: claim}}}))
		require.NoError(t, w.api.Create(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume},
			Spec: storagev1.VolumeAttachmentSpec{NodeName: "worker",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}))
	}
	w.pod("stays-static", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
	w.pod("alone", func(p *corev1.Pod) { p.OwnerReferences = nil })
	w.pod("scratch", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data"}}
		p.Spec.Volumes[0].EmptyDir = &corev1.EmptyDirVolumeSource{}
	})
	err := w.nodes(ctx, plan)
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	require.ErrorContains(t, err, "alone from worker: nothing makes it again")
	require.ErrorContains(t, err, "it keeps data on the node (emptyDir data)")
	w.run.Drain = false
	require.ErrorContains(t, w.nodes(ctx, plan), "2 pods run there")
	require.False(t, w.node("worker").Spec.Unschedulable, "nothing is changed before")
	w.run.Drain, w.run.Force, w.run.EmptyDirs = true, true, true

	// A disruption budget holds it up, and then a volume; nothing is powered off meanwhile.
	w.budget, w.run.Wait = true, time.Nanosecond
	must.Fail(t, w.nodes(ctx, plan), fault.Incomplete, "disruption budgets block ns/alone")
	require.True(t, w.node("worker").Spec.Unschedulable, "it stays cordoned")
	w.budget, w.run.Wait = false, time.Minute
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	attached.Spec.NodeName = "worker"
	require.NoError(t, w.api.Create(ctx, attached))
	w.run.Wait = 50 * time.Millisecond
	require.ErrorContains(t, w.nodes(ctx, plan), "1 volumes are attached")
	require.NoError(t, w.api.Delete(ctx, attached))
	require.Zero(t, w.vms["worker"].shut)
	w.run.Wait = time.Minute

	// So does a namespace that is being deleted: its pods end without an eviction.
	w.pod("late", nil)
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "late", errors.New("ns is terminating"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	w.refusal = ending

	// A node that someone else has cordoned stays so.
	w.change("cp-0", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	require.NoError(t, w.nodes(ctx, plan))
	w.well("cp-0")
}

func TestStoppedAnywhereItGoesOn(t *testing.T) {
	w, steps := newWorld(t, 3, 0), 0
	w.run.Progress = func(node, text string) {
		require.False(t, text == "uncordoned" && w.node(node).Spec.Unschedulable, "it is said afterwards")
		steps++
	}
	require.NoError(t, w.nodes(t.Context(), w.plan()))
	w.well("")
	for n := 1; n <= steps/2; n++ { // two nodes are enough from here on
		w.bad("cp-0")
		w.bad("worker")
		for range 2 { // and again
			ctx, stop := context.WithCancel(t.Context())
			did, last := 0, ""
			w.run.Progress = func(node, text string) {
				if did++; did == n {
					last = node + ": " + text
					stop()
				}
			}
			if err := w.nodes(ctx, w.plan()); err != nil {
				require.ErrorIs(t, err, context.Canceled, last)
			}
			stop()
		}
		require.NoError(t, w.nodes(t.Context(), w.plan()), n)
		w.well("")
	}
}

func (w *world) begun(names ...string) {
	for _, name := range names {
		w.change(name, func(n *corev1.Node) {
			n.Annotations = map[string]string{maintenance.Annotation: `{"cordoned":true,"bootID":"boot-0"}`}
			n.Spec.Unschedulable = true
		})
	}
}

// runEtcd makes nodes those of etcd, as RKE2 labels them: of etcd alone, or of the control plane too.
func (w *world) runEtcd(too bool, names ...string) {
	for _, name := range names {
		w.change(name, func(n *corev1.Node) {
			if !too {
				n.Labels = map[string]string{}
			}
			n.Labels["node-role.kubernetes.io/etcd"] = "true"
		})
	}
}

// Nothing of the control plane is powered off unless what stays is a majority of all of it,
// wherever the work was begun.
func TestTheControlPlaneKeepsItsMajority(t *testing.T) {
	for _, c := range []struct {
		all, down int
		begun     string
		why       string // "" where it is shut down
	}{
		{1, 0, "", "it is the only node"}, {2, 0, "", "1 other nodes"}, {3, 0, "", ""}, {3, 1, "", "1 other nodes"}, {4, 0, "", ""},
		{4, 1, "", "fewer than 3"}, {5, 1, "", ""}, {5, 2, "", "no majority of 5"}, {7, 2, "", ""}, {7, 3, "", "fewer than 4"},
		{3, 0, "cp-0", ""}, {3, 1, "cp-0", "1 other nodes"}, {5, 2, "cp-0", "no majority of 5"}, {5, 0, "cp-1", "cp-1, of the control plane too, is worked on"},
	} {
		w := newWorld(t, c.all, c.down)
		if c.begun != "" {
			w.begun(c.begun)
		}
		err := w.nodes(t.Context(), w.plan("cp-0"))
		require.Equal(t, c.why == "", w.vms["cp-0"].shut == 1, "%+v", c)
		if c.why == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, fault.Refused, fault.ReasonOf(err))
		require.ErrorContains(t, err, c.why)
	}
	w := newWorld(t, 3, 0)
	w.runEtcd(true, "cp-0", "cp-1")
	must.Fail(t, w.nodes(t.Context(), w.plan("cp-0")), fault.Refused, "1 other nodes of etcd")
	w = newWorld(t, 1, 0)
	inner, _ := w.api.(client.WithWatch)
	w.run.Outage, w.run.Wait, w.run.API = true, 20*time.Millisecond, interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, _ ...client.GetOption,
		) error {
			if w.vms["cp-0"].state.Off { // so is the only API server
				return syscall.ECONNREFUSED
			}
			return c.Get(ctx, k, o)
		}})
	require.NoError(t, w.nodes(t.Context(), w.plan("cp-0")), "who accepts an outage has it done")
}

// What others do to the VM, and to the control plane, meanwhile counts, and not what it was like when
// the plan was made. Nodes of a Machine are refused unless work on them was begun.
func TestWhatOthersDoMeanwhileCounts(t *testing.T) {
	offAt := func(look int) func(*world, int) {
		return func(w *world, now int) {
			if w.late, w.run.Wait = true, 20*time.Millisecond; now == look {
				w.vms["cp-0"].state.On, w.vms["cp-0"].state.Off = false, true
			}
		}
	}
	for name, c := range map[string]struct {
		arrange func(*world)
		look    func(w *world, time int)
		shut    int
		why     string
	}{
		"fixed since the plan": {look: func(w *world, _ int) { w.vms["cp-0"].state.DiskUUID, w.vms["cp-0"].state.Hardware = true, "vmx-15" }},
		"powered on before the change": {shut: 1, why: "the VM is not powered off any more", look: func(w *world, time int) {
			s := &w.vms["cp-0"].state
			s.Off = s.Off && time != 4 // the first look after the shutdown has ended
		}},
		"the change is taken back": {arrange: func(w *world) { w.ignores = true }, shut: 1, why: "it still needs: [disk.EnableUUID]"},
		"another fails in the drain": {why: "1 other nodes of the control plane are ready", look: func(w *world, time int) {
			w.report("cp-2", time != 2) // the second look is the one after the drain
		}},
		"another of etcd alone fails in the drain": {why: "1 other nodes of etcd are ready", arrange: func(w *world) {
			w.runEtcd(false, "cp-0", "cp-1", "cp-2")
		}, look: func(w *world, time int) { w.report("cp-2", time != 2) }},
		"another is worked on": {why: "cp-2, of the control plane too, is worked on", look: func(w *world, _ int) { w.begun("cp-2") }},
		"a Machine's":          {arrange: func(w *world) { w.owner = "cp-0-x7x2m" }, why: "Machine cp-0-x7x2m owns the node"},
		"and begun": {shut: 1, arrange: func(w *world) {
			w.begun("cp-0")
			w.owner = "cp-0-x7x2m"
		}},
		"begun with a hardware version": {arrange: func(w *world) { // and this run is without it
			state := &w.vms["cp-0"].state
			state.DiskUUID, state.ToolsRunning, w.run.Hardware = true, false, 19
			require.ErrorContains(w.t, w.nodes(w.t.Context(), w.plan("cp-0")), "VMware Tools does not run")
			state.Hardware, w.run.Hardware = "vmx-15", 0
		}},
		"uncordoned by hand since it was begun": {shut: 1, arrange: func(w *world) {
			w.begun("cp-0")
			w.change("cp-0", func(n *corev1.Node) { n.Spec.Unschedulable = false })
		}, look: func(w *world, time int) {
			if time > 1 && !w.node("cp-0").Spec.Unschedulable { // the first look is before the cordon
				w.faults = append(w.faults, "the node is worked on and not cordoned")
			}
		}},
		"the guest did not shut down, and was corrected": {arrange: func(w *world) {
			w.hangs, w.run.Wait = true, 200*time.Millisecond
			require.ErrorContains(w.t, w.nodes(w.t.Context(), w.plan("cp-0")), "the guest is not off yet")
			w.vms["cp-0"].state.DiskUUID, w.vms["cp-0"].state.Hardware = true, "vmx-15"
		}},
		"off before":             {why: "its kubelet has not reported", look: offAt(1)},
		"shut down in the drain": {why: "its kubelet has not reported", look: offAt(2)},
		"a hardware version that the host does not support": {arrange: func(w *world) { w.run.Hardware = 99 }, why: "no vmx-99"},
		"a guest without Tools":                             {arrange: func(w *world) { w.vms["cp-0"].state.ToolsRunning = false }, why: "VMware Tools does not run in it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, 0)
			if c.arrange != nil {
				c.arrange(w)
			}
			plan := w.plan("cp-0")
			w.looking = c.look
			err := w.nodes(t.Context(), plan)
			require.Equal(t, c.shut, w.vms["cp-0"].shut)
			require.Empty(t, w.faults)
			if c.why == "" {
				require.NoError(t, err)
				require.False(t, w.node("cp-0").Spec.Unschedulable)
				return
			}
			require.ErrorContains(t, err, c.why)
			require.Equal(t, !strings.Contains(c.why, "owns") && c.why != "no vmx-99", w.node("cp-0").Spec.Unschedulable, "a node that is not done stays cordoned")
		})
	}
}

// An earlier run noted the boot, and ended with "it still needs" after the VM had been started again (or the
// node was restarted since). The same command goes on.
func TestANodeThatWasBegunIsWaitedForAgain(t *testing.T) {
	w := newWorld(t, 3, 0)
	w.late, w.run.Wait = true, 200*time.Millisecond
	w.vms["cp-0"].boot = 1
	w.report("cp-0", true)                           // boot-1
	w.begun("cp-0")                                  // at boot-0
	_ = w.nodes(t.Context(), w.plan("cp-0", "cp-1")) // nothing reports cp-0 here
	require.Empty(t, w.faults)
}

// VMs that are no nodes are left on, off or a template as they were, also where a run before was interrupted. What
// has become right since the plan is not shut down, nor is what was off then.
func TestVMsThatAreNoNodesStayAsTheyWere(t *testing.T) {
	for name, c := range map[string]struct {
		state preflight.Machine
		named bool   // as a template
		off   bool   // when the plan was made
		says  string // what puts back what a run that is stopped leaves, and a further one takes for as it was
		why   string
	}{
		"on":       {state: preflight.Machine{On: true, Guest: preflight.Guest{ToolsRunning: true}}, says: "govc vm.power -on '/lab/a worker'\n"},
		"off":      {state: preflight.Machine{Off: true}},
		"template": {state: preflight.Machine{Off: true, Template: true}, named: true, says: "govc vm.markastemplate '/lab/a worker'\n"},
		"template by now": {
			state: preflight.Machine{Off: true, Template: true}, says: "govc vm.markastemplate '/lab/a worker'\n"},
		"interrupted": {state: preflight.Machine{Off: true}, named: true},
		"no template": {state: preflight.Machine{On: true}, named: true, why: "it is a VM that runs"},
		"no Tools":    {state: preflight.Machine{On: true}, why: "VMware Tools does not run in it"},
		"suspended":   {why: "it is suspended"},
		"powered on meanwhile": {
			state: preflight.Machine{On: true, Guest: preflight.Guest{ToolsRunning: true}}, off: true,
			why: "it was powered on meanwhile"},
		"right meanwhile": {says: "nothing left to change\n",
			state: preflight.Machine{On: true, DiskUUID: true, Hardware: "vmx-19", Controllers: []string{"pvscsi"}}},
	} {
		w := newWorld(t, 0, 0)
		c.state.Hardware = cmp.Or(c.state.Hardware, "vmx-15")
		w.vms["worker"].state, w.run.Hardware = c.state, 19
		at := preflight.NodeMachine{Path: "/lab/a worker"}
		at.Machine = preflight.Machine{On: c.state.On && !c.off, Template: c.named, Hardware: "vmx-15"}
		plan := maintenance.Plan([]preflight.NodeMachine{at}, 19)
		require.Len(t, plan[0].Off, 3)
		plan[0].ID = "worker"
		said := ""
		w.run.Progress = func(_, text string) { said += text + "\n" }
		err, is := w.run.Do(t.Context(), plan), w.vms["worker"].state
		require.Contains(t, said, c.says, name)
		if c.why != "" {
			require.ErrorContains(t, err, c.why, name)
			require.Equal(t, c.state, is, name)
			continue
		}
		require.NoError(t, err, name)
		want := []any{c.state.On, c.named || c.state.Template, true, "vmx-19"}
		require.Equal(t, want, []any{is.On, is.Template, is.DiskUUID, is.Hardware}, name)
		require.Equal(t, []string{"pvscsi"}, is.Controllers)
	}
}
