package maintenance_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/maintenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// machine is a VM that remembers whether it was shut down. What powers it on again boots
// its node.
type machine struct {
	maintenance.VMs

	api     client.Client
	off     bool
	exposed bool // disk.EnableUUID
	ignores bool // changes, as where another tool takes them back
	shut    int
	looking func(times int) // before each look at it
	looks   int
}

func (m *machine) MachineState(context.Context, string) (vcenter.MachineState, error) {
	if m.looks++; m.looking != nil {
		m.looking(m.looks)
	}
	return vcenter.MachineState{On: !m.off, Off: m.off, ToolsRunning: true,
		DiskUUID: m.exposed, Hardware: "vmx-15", Controllers: []string{"pvscsi"}}, nil
}

func (m *machine) ExposeDisks(context.Context, string, vcenter.MachineState) error {
	m.exposed = !m.ignores
	return nil
}

func (m *machine) ShutDown(context.Context, string) error {
	m.off, m.shut = true, m.shut+1
	return nil
}

func (m *machine) PowerOn(ctx context.Context, _ string) error {
	var n corev1.Node
	if err := m.api.Get(ctx, client.ObjectKey{Name: "cp-0"}, &n); err != nil {
		return err
	}
	m.off, n.Status.NodeInfo.BootID = false, "boot-1"
	return m.api.Status().Update(ctx, &n)
}

// controlPlane is one of so many nodes, of which the last are not ready.
func controlPlane(all, down int) []client.Object {
	var out []client.Object
	for i := range all {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-" + strconv.Itoa(i), Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
		n.Status.NodeInfo.BootID = "boot-0"
		setReady(n, i < all-down)
		out = append(out, n)
	}
	return out
}

func setReady(n *corev1.Node, ready bool) {
	status := corev1.ConditionUnknown
	if ready {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
}

func begunBefore(nodes []client.Object, which ...int) []client.Object {
	for _, i := range which {
		nodes[i].SetAnnotations(map[string]string{maintenance.Annotation: `{"cordoned":true,"bootID":"boot-0"}`})
		nodes[i].(*corev1.Node).Spec.Unschedulable = true //nolint:forcetypeassert // made above
	}
	return nodes
}

// fixFirst works on cp-0.
func fixFirst(t *testing.T, outage bool, looking func(c client.Client, times int), nodes []client.Object) (*machine, error) {
	t.Helper()
	var m *machine
	err := fixWith(t, outage, nodes, func(c client.Client) *machine {
		m = &machine{api: c}
		if looking != nil {
			m.looking = func(times int) { looking(c, times) }
		}
		return m
	})
	return m, err
}

func fixWith(t *testing.T, outage bool, nodes []client.Object, vm func(client.Client) *machine) error {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(nodes...).WithStatusSubresource(&corev1.Node{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }). //nolint:forcetypeassert // an index of pods
		Build()
	m := vm(c)
	r := &maintenance.Run{API: c, Drain: true, Outage: outage, Wait: time.Minute, Poll: time.Millisecond,
		Open: func(context.Context, string) (maintenance.VMs, func(), error) { return m, func() {}, nil }}
	return r.Nodes(t.Context(), []maintenance.Machine{{Node: "cp-0", ControlPlane: true, ID: "vm-0",
		Off: []maintenance.Fix{maintenance.DiskUUID}}})
}

// Nothing of the control plane is powered off unless what stays is a majority of all of it,
// wherever the work was begun.
func TestTheControlPlaneKeepsItsMajority(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []client.Object
		shut  bool
		why   string
	}{
		"alone":                        {controlPlane(1, 0), false, "0 other nodes"},
		"two":                          {controlPlane(2, 0), false, "1 other nodes"},
		"three":                        {controlPlane(3, 0), true, ""},
		"three, one down":              {controlPlane(3, 1), false, "1 other nodes"},
		"four":                         {controlPlane(4, 0), true, ""},
		"four, one down":               {controlPlane(4, 1), false, "fewer than 3"},
		"five, one down":               {controlPlane(5, 1), true, ""},
		"five, two down":               {controlPlane(5, 2), false, "no majority of 5"},
		"seven, two down":              {controlPlane(7, 2), true, ""},
		"seven, three down":            {controlPlane(7, 3), false, "fewer than 4"},
		"begun before":                 {begunBefore(controlPlane(3, 0), 0), true, ""},
		"begun before, one down":       {begunBefore(controlPlane(3, 1), 0), false, "1 other nodes"},
		"begun before, two of 5 down":  {begunBefore(controlPlane(5, 2), 0), false, "no majority of 5"},
		"begun before, and another is": {begunBefore(controlPlane(5, 0), 1), false, "node cp-1 was begun"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := fixFirst(t, false, nil, c.nodes)
			require.Equal(t, c.shut, m.shut == 1)
			if c.shut {
				require.NoError(t, err)
				return
			}
			require.Equal(t, fault.Refused, fault.ReasonOf(err))
			require.ErrorContains(t, err, c.why)
		})
	}
	m, err := fixFirst(t, true, nil, controlPlane(1, 0))
	require.NoError(t, err)
	require.Equal(t, 1, m.shut, "who accepts an outage has it done")
}

// What becomes of the others while a node is drained counts, too.
func TestTheMajorityIsLookedAtAfterTheDrain(t *testing.T) {
	fails := func(c client.Client, times int) {
		if times != 2 { // the second look is the one after the drain
			return
		}
		var n corev1.Node
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "cp-2"}, &n))
		setReady(&n, false)
		require.NoError(t, c.Status().Update(t.Context(), &n))
	}
	m, err := fixFirst(t, false, fails, controlPlane(3, 0))
	require.ErrorContains(t, err, "1 other nodes of the control plane are ready")
	require.Zero(t, m.shut)

	begins := func(c client.Client, _ int) {
		var n corev1.Node
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "cp-2"}, &n))
		n.Annotations = map[string]string{maintenance.Annotation: "{}"}
		require.NoError(t, c.Update(t.Context(), &n))
	}
	m, err = fixFirst(t, false, begins, controlPlane(3, 0))
	require.ErrorContains(t, err, "cp-2, of the control plane too, is worked on")
	require.Zero(t, m.shut)
}

// What others do to the VM meanwhile counts, and not what it was like when the plan was made.
func TestTheVMIsReadBeforeEachStep(t *testing.T) {
	for name, c := range map[string]struct {
		vm   machine
		look func(m *machine, times int)
		shut int
		why  string
	}{
		"fixed since the plan":          {vm: machine{exposed: true}},
		"off, and fixed since the plan": {vm: machine{exposed: true, off: true}},
		"powered on before the change": {
			shut: 1, why: "the VM is not powered off any more",
			look: func(m *machine, times int) {
				m.off = m.off && times != 4 // the first look after the shutdown has ended
			},
		},
		"the change is taken back": {vm: machine{ignores: true}, shut: 1, why: "it runs, and still needs: [disk.EnableUUID]"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &c.vm
			nodes := controlPlane(3, 0)
			err := fixWith(t, false, nodes, func(api client.Client) *machine {
				m.api = api
				if c.look != nil {
					m.looking = func(times int) { c.look(m, times) }
				}
				return m
			})
			require.Equal(t, c.shut, m.shut)
			var n corev1.Node
			require.NoError(t, m.api.Get(t.Context(), client.ObjectKey{Name: "cp-0"}, &n))
			require.Equal(t, c.why != "", n.Spec.Unschedulable, "a node that is not done stays cordoned")
			if c.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.why)
		})
	}
}

// Nodes of a Machine are refused, all at once, unless work on them was begun.
func TestNodesOfMachinesAreRefused(t *testing.T) {
	for _, key := range []string{"cluster.x-k8s.io/machine", "machine.openshift.io/machine"} {
		nodes := controlPlane(3, 0)
		nodes[0].SetAnnotations(map[string]string{key: "cp-0-x7x2m"})
		m, err := fixFirst(t, false, nil, nodes)
		require.Equal(t, fault.Refused, fault.ReasonOf(err))
		require.ErrorContains(t, err, "Machine cp-0-x7x2m owns the node")
		require.Zero(t, m.shut)
	}
	nodes := begunBefore(controlPlane(3, 0), 0)
	nodes[0].GetAnnotations()["cluster.x-k8s.io/machine"] = "cp-0-x7x2m"
	m, err := fixFirst(t, false, nil, nodes)
	require.NoError(t, err)
	require.Equal(t, 1, m.shut)
}

// A right that is missing is named, and is no API server that is away.
func TestAMissingRightIsNamed(t *testing.T) {
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	c := fake.NewClientBuilder().WithScheme(s).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
		},
	}).Build()
	_, err := (&maintenance.Run{API: c}).Pending(t.Context(), nil)
	require.Equal(t, fault.Forbidden, fault.ReasonOf(err))
}
