package maintenance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/maintenance"
)

// late has kubelets whose stop is noticed late, as by the node lifecycle controller, and that are back late.
type late struct{ *world }

func (l late) ShutDown(_ context.Context, id string) error {
	for other, x := range l.vms {
		if other != id && strings.HasPrefix(other, "cp") && strings.HasPrefix(id, "cp") &&
			l.node(other).Status.NodeInfo.BootID != fmt.Sprint("boot-", x.boot) {
			l.faults = append(l.faults, id+" is shut down while "+other+" is not back")
		}
	}
	x := l.vms[id]
	x.state.On, x.state.Off, x.shut = false, true, x.shut+1
	return nil
}

func (l late) PowerOn(_ context.Context, id string) error {
	x := l.vms[id]
	x.state.On, x.state.Off, x.boot = true, false, x.boot+1
	return nil
}

// An earlier run noted the boot, and ended with "it still needs" after the VM had been started again (or the
// node was restarted since). The same command goes on.
func TestANodeThatWasBegunIsWaitedForAgain(t *testing.T) {
	w := newWorld(t, 3, 0)
	w.run.Wait = 200 * time.Millisecond
	w.vms["cp-0"].boot = 1
	w.report("cp-0", true) // boot-1
	w.change("cp-0", func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{maintenance.Annotation: `{"cordoned":true,"bootID":"boot-0"}`}
	})
	w.run.Open = func(context.Context, string) (maintenance.VMs, func(), error) { return late{w}, func() {}, nil }
	_ = w.run.Nodes(t.Context(), w.plan("cp-0", "cp-1")) // nothing reports cp-0 here
	require.Empty(t, w.faults)
}

// After a run that stopped, somebody gave the node back with kubectl uncordon; the annotation stays.
func TestANodeThatWasUncordonedMeanwhileIsCordonedAgain(t *testing.T) {
	w := newWorld(t, 3, 0)
	w.budget, w.run.Wait = true, time.Nanosecond
	w.pod("app", nil)
	require.Error(t, w.run.Nodes(t.Context(), w.plan("worker"))) // stopped; it stays cordoned
	w.change("worker", func(n *corev1.Node) { n.Spec.Unschedulable = false })
	w.budget, w.run.Wait = false, time.Minute
	w.looking = func(w *world, _ int) {
		if n := w.node("worker"); !n.Spec.Unschedulable && n.Annotations[maintenance.Annotation] != "" && w.looks > 2 {
			w.faults = append(w.faults, fmt.Sprintf("look %d: the node is worked on and not cordoned", w.looks))
		}
	}
	require.NoError(t, w.run.Nodes(t.Context(), w.plan("worker")))
	require.Empty(t, w.faults)
}

// hung has guests that do not shut down.
type hung struct{ *world }

func (hung) ShutDown(context.Context, string) error { return nil }

func TestANodeWhoseGuestDidNotShutDownIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, 3, 0)
	w.run.Wait = 200 * time.Millisecond
	w.run.Open = func(context.Context, string) (maintenance.VMs, func(), error) { return hung{w}, func() {}, nil }
	require.ErrorContains(t, w.run.Nodes(t.Context(), w.plan("worker")), "the guest is not off yet")
	w.vms["worker"].state.DiskUUID, w.vms["worker"].state.Hardware = true, "vmx-15" // an administrator corrected it
	require.NoError(t, w.run.Nodes(t.Context(), w.plan("worker")))
	require.False(t, w.node("worker").Spec.Unschedulable)
}
