package maintenance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// Annotation marks a node whose VM is being changed.
const Annotation = clusterstate.FixAnnotation

type begun struct {
	Cordoned bool   `json:"cordoned"`         // by this package; false if it was cordoned before
	BootID   string `json:"bootID,omitempty"` // of the node before its VM was shut down or powered on
}

// noteOf returns the note of an annotation. An unreadable one has no boot ID, and does not count as cordoned here.
func noteOf(text string) *begun {
	var out begun
	_ = json.Unmarshal([]byte(text), &out)
	return &out
}

func (b begun) write(n *corev1.Node) error {
	text, err := json.Marshal(b)
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, Annotation, string(text))
	return err
}

// VMs is the session of an administrator of VMs. [vcenter.Admin] is one.
type VMs interface {
	MachineState(ctx context.Context, id string) (preflight.Machine, error)
	ShutDown(ctx context.Context, id string) error
	PowerOn(ctx context.Context, id string) error
	// CanUpgrade refuses a hardware version that the VM's host does not support.
	CanUpgrade(ctx context.Context, id, version string) error
	// Fix changes a setting of a VM that is off. version is that of the hardware.
	Fix(ctx context.Context, id string, f preflight.Fix, version string) error
	// UnmarkTemplate converts a template to a VM, MarkTemplate a VM that is off to a template.
	UnmarkTemplate(ctx context.Context, id string) error
	MarkTemplate(ctx context.Context, id string) error
}

// Run is a run over nodes or other VMs.
type Run struct {
	API client.Client
	// Open opens a session at a vCenter, and returns a function that ends it.
	Open func(ctx context.Context, vcenter string) (VMs, func(), error)
	// Drain evicts pods; without it a node with pods is refused.
	Drain bool
	// Force deletes pods without a controller, EmptyDirs those with data on the node.
	Force, EmptyDirs bool
	// Hardware is the lowest accepted hardware version; default [preflight.LeastHardware].
	Hardware int
	// Outage allows work on the control plane even if the other nodes have no majority.
	Outage bool
	// Progress receives each change.
	Progress func(node, text string)
	// Wait bounds each wait, default 15 minutes; Poll is the interval of its checks, default 2 s.
	Wait, Poll time.Duration
}

// Do changes VMs one after another: nodes in the order of [Pending], and VMs that are no nodes. Those stay on, off
// or a template as before.
func (r *Run) Do(ctx context.Context, list []Machine) error {
	for _, m := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		vms, end, err := r.Open(ctx, m.VCenter)
		if err != nil {
			return err
		}
		do := r.apart
		if m.Node != "" {
			do = r.node
		}
		err = do(ctx, vms, m)
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

// node changes the VM of one node, unless it has become right since the plan.
func (r *Run) node(ctx context.Context, vms VMs, m Machine) error {
	const stopped = "stopped; it stays cordoned, and the same command goes on with it"
	if m.ControlPlane && !m.Begun {
		if err := r.majority(ctx, m.Node); err != nil {
			return err
		}
	}
	state, err := vms.MachineState(ctx, m.ID)
	if err != nil {
		return err
	}
	if len(r.fixes(state)) == 0 && !m.Begun {
		r.say(m.Node, "nothing left to change")
		return nil
	}
	if err := r.supported(ctx, vms, m, state); err != nil {
		return err
	}
	steps := []step{r.change, r.powerOn, r.back, r.verify, r.uncordon}
	if len(r.fixes(state)) > 0 && state.On {
		if _, err := r.leaving(ctx, m.Node); err != nil {
			if m.Begun {
				r.say(m.Node, stopped)
			}
			return err
		}
		steps = slices.Concat([]step{r.drain, r.detached, r.shutDown}, steps)
	}
	if err := r.cordon(ctx, m.Node, state.Off); err != nil {
		return err
	}
	r.say(m.Node, "cordoned")
	if err := inOrder(ctx, vms, m, steps...); err != nil {
		r.say(m.Node, stopped)
		return err
	}
	r.say(m.Node, "done")
	return nil
}

func (r *Run) apart(ctx context.Context, vms VMs, m Machine) error {
	state, err := vms.MachineState(ctx, m.ID)
	if err == nil {
		err = r.supported(ctx, vms, m, state)
	}
	if err != nil {
		return err
	}
	steps := []step{r.change}
	switch { // a later run does not know the earlier state, so report it before any change
	case len(r.fixes(state)) == 0 && (state.Template || !m.Template):
		r.say(m.Name(), "nothing left to change")
		return nil
	case state.On && !m.On && !m.Template: // no one agreed to shut it down
		return fault.Errorf(fault.Conflict, "change", m.Path, "run the same command again",
			"it was powered on meanwhile")
	case state.On && m.Template:
		return fault.Errorf(fault.Conflict, "change template", m.Path, "name it with --vm", "it is a VM that runs")
	case m.Template || state.Template:
		r.say(m.Name(), "if an interrupted run leaves it as a VM: govc vm.markastemplate "+fault.Quote(m.Path))
		if state.Template {
			steps = []step{unmark, r.change}
		}
		steps = append(steps, mark)
	case state.On:
		steps = []step{r.shutDown, r.change, r.powerOn}
	}
	if err := inOrder(ctx, vms, m, append(steps, r.verify)...); err != nil {
		return err
	}
	r.say(m.Name(), "done")
	return nil
}

// fixes returns what a VM still needs by the hardware version of this run.
func (r *Run) fixes(s preflight.Machine) []preflight.Fix { return fixes(s, r.Hardware) }

func (r *Run) version() string {
	return fmt.Sprintf("vmx-%d", max(r.Hardware, preflight.LeastHardware))
}

// supported refuses, before anything is done, to change a suspended VM, and a hardware version that the VM's host does
// not support.
func (r *Run) supported(ctx context.Context, vms VMs, m Machine, s preflight.Machine) error {
	if !s.On && !s.Off && len(r.fixes(s)) > 0 {
		return fault.Errorf(fault.Refused, "change", m.Path, "power it on in vCenter, or off, first", "it is suspended")
	}
	if !slices.Contains(r.fixes(s), preflight.Hardware) {
		return nil
	}
	return vms.CanUpgrade(ctx, m.ID, r.version())
}

type step func(ctx context.Context, vms VMs, m Machine) error

func unmark(ctx context.Context, vms VMs, m Machine) error { return vms.UnmarkTemplate(ctx, m.ID) }

func mark(ctx context.Context, vms VMs, m Machine) error { return vms.MarkTemplate(ctx, m.ID) }

func inOrder(ctx context.Context, vms VMs, m Machine, steps ...step) error {
	for _, do := range steps {
		if err := do(ctx, vms, m); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) verify(ctx context.Context, vms VMs, m Machine) error {
	state, err := vms.MachineState(ctx, m.ID)
	if left := r.fixes(state); err == nil && len(left) > 0 {
		return &fault.Error{Reason: fault.Incomplete, Op: "verify", Subject: m.Path,
			Err: fmt.Errorf("it still needs: %v", left), Hint: "run the same command again"}
	}
	return err
}

func (r *Run) say(node, text string) {
	if r.Progress != nil {
		r.Progress(node, text)
	}
}

// majority requires that the control plane and etcd, where a node is of them, have their majority without it.
func (r *Run) majority(ctx context.Context, node string) error {
	if err := r.majorityOf(ctx, node, "the control plane", drivers.IsControlPlane); err != nil {
		return err
	}
	return r.majorityOf(ctx, node, "etcd", drivers.IsEtcd)
}

// majorityOf counts the nodes of a group that are ready and not begun. Two parallel runs write their annotations before
// this check, so that at least one sees the other's.
func (r *Run) majorityOf(ctx context.Context, node, group string, has func(map[string]string) bool) error {
	all, ready, busy, member := 0, 0, "", false
	if err := pages.Each(ctx, r.API, &corev1.NodeList{}, func(n *corev1.Node) {
		_, begun := n.Annotations[Annotation]
		switch {
		case !has(n.Labels):
			return
		case n.Name == node:
			member = true
		case begun:
			busy = cmp.Or(busy, n.Name)
		case isReady(n):
			ready++
		}
		all++
	}, client.Limit(pages.PerNode)); err != nil {
		return clusterstate.Fault("read the nodes", err)
	}
	if !member {
		return nil
	}
	if busy != "" {
		return &fault.Error{Reason: fault.Refused, Op: "power off the VM of", Subject: node, Err: fmt.Errorf("%s, of %s too, is worked on", busy, group), Hint: "finish that first; where two runs began both, end the work on one: kubectl annotate node " + busy + " " + Annotation + "- and kubectl uncordon " + busy}
	}
	needed := max(all/2+1, 2)
	if ready >= needed || r.Outage {
		return nil
	}
	why := fmt.Errorf("%d other nodes of %s are ready, and with fewer than %d the cluster has no majority of %d while it is off", ready, group, needed, all)
	if all == 1 {
		why = errors.New("it is the only node of " + group)
	}
	return &fault.Error{Reason: fault.Refused, Op: "power off the VM of", Subject: node, Err: why,
		Hint: "see that the others are ready; or accept that the API server is away meanwhile: --control-plane-outage"}
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// cordon sets the cordon and the annotation in one write, with the last boot of a VM that is off already. Otherwise the
// annotation of a node that was begun stays.
func (r *Run) cordon(ctx context.Context, name string, off bool) error {
	return r.edit(ctx, name, func(n *corev1.Node) error {
		note := noteOf(n.Annotations[Annotation])
		if note.Cordoned, n.Spec.Unschedulable = note.Cordoned || !n.Spec.Unschedulable, true; off {
			note.BootID = n.Status.NodeInfo.BootID
		}
		return note.write(n)
	})
}

// noteBoot notes whether the present boot has ended or is about to, so that its end is awaited. A VM that is no node
// has none.
func (r *Run) noteBoot(ctx context.Context, m Machine, ends bool) error {
	if m.Node == "" {
		return nil
	}
	return r.edit(ctx, m.Node, func(n *corev1.Node) error {
		note := noteOf(n.Annotations[Annotation])
		if note.BootID = ""; ends {
			note.BootID = n.Status.NodeInfo.BootID
		}
		return note.write(n)
	})
}

// edit changes a node in the state that was read, and retries if that is stale.
func (r *Run) edit(ctx context.Context, name string, change func(*corev1.Node) error) error {
	return r.until(ctx, "change node "+name, func() (string, error) {
		var n corev1.Node
		if err := r.API.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return "", err
		}
		before := n.DeepCopy()
		if err := change(&n); err != nil {
			return "", err
		}
		return "", r.API.Patch(ctx, &n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}

func (r *Run) shutDown(ctx context.Context, vms VMs, m Machine) error {
	state, err := vms.MachineState(ctx, m.ID)
	if err != nil {
		return err
	}
	if state.Off {
		return r.noteBoot(ctx, m, true)
	}
	if m.ControlPlane { // the drain took time, and the work may have begun long ago
		if err := r.majority(ctx, m.Node); err != nil {
			return err
		}
	}
	if !state.ToolsRunning {
		return &fault.Error{Reason: fault.Refused, Op: "shut down the guest of", Subject: m.Path, Err: errors.New("VMware Tools does not run in it"),
			Hint: "shut it down in the guest, and run the same command again: it goes on from there"}
	}
	if err := r.noteBoot(ctx, m, true); err != nil {
		return err
	}
	r.say(m.Name(), "shutting down "+m.Path+"; if an interrupted run leaves it off, start it: govc vm.power -on "+
		fault.Quote(m.Path))
	if err = vms.ShutDown(ctx, m.ID); err == nil {
		err = r.until(ctx, "shut down "+m.Path, func() (string, error) {
			state, err := vms.MachineState(ctx, m.ID)
			if err != nil || state.Off {
				return "", err
			}
			return "the guest is not off yet", nil
		})
	}
	if err != nil && ctx.Err() == nil { // it still runs, so the next run waits for no other boot
		err = fault.Join(err, r.noteBoot(ctx, m, false))
	}
	return err
}

// detached waits until no volume of an evicted pod is attached to the node. While the VM is off, such a volume cannot
// be mounted elsewhere. Volumes of pods that stay are never detached.
func (r *Run) detached(ctx context.Context, _ VMs, m Machine) error {
	_, stay, err := r.pods(ctx, m.Node)
	if err != nil {
		return err
	}
	kept, err := r.volumes(ctx, stay)
	if err != nil {
		return err
	}
	return r.until(ctx, "detach the volumes of "+m.Node, func() (string, error) {
		left := 0
		err := pages.Each(ctx, r.API, &storagev1.VolumeAttachmentList{}, func(a *storagev1.VolumeAttachment) {
			volume := a.Spec.Source.PersistentVolumeName
			if a.Spec.NodeName == m.Node && (volume == nil || !kept[*volume]) {
				left++
			}
		})
		if err != nil || left == 0 {
			return "", err
		}
		return fmt.Sprintf("%d volumes are attached", left), nil
	})
}

// change fixes the remaining settings. It reads the VM before each step, since others may have changed it or powered
// it on.
func (r *Run) change(ctx context.Context, vms VMs, m Machine) error {
	for _, f := range []preflight.Fix{preflight.Hardware, preflight.DiskUUID, preflight.Controller} {
		state, err := vms.MachineState(ctx, m.ID)
		if err != nil {
			return err
		}
		if !slices.Contains(r.fixes(state), f) {
			continue
		}
		if !state.Off {
			return &fault.Error{Reason: fault.Conflict, Op: "set " + string(f) + " of", Subject: m.Path,
				Err: errors.New("the VM is not powered off any more"), Hint: "run the same command again"}
		}
		r.say(m.Name(), "setting "+string(f)+" of "+m.Path)
		if err := vms.Fix(ctx, m.ID, f, r.version()); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) powerOn(ctx context.Context, vms VMs, m Machine) error {
	state, err := vms.MachineState(ctx, m.ID)
	if err != nil || state.On {
		return err
	}
	r.say(m.Name(), "powering on "+m.Path)
	return vms.PowerOn(ctx, m.ID)
}

func (r *Run) back(ctx context.Context, _ VMs, m Machine) error {
	r.say(m.Node, "waiting until it is ready")
	return r.until(ctx, "wait for node "+m.Node, func() (string, error) {
		var n corev1.Node
		if err := r.API.Get(ctx, client.ObjectKey{Name: m.Node}, &n); err != nil {
			return "", err
		}
		was := noteOf(n.Annotations[Annotation])
		if !isReady(&n) || was.BootID != "" && n.Status.NodeInfo.BootID == was.BootID {
			return "its kubelet has not reported since the VM was powered on", nil
		}
		return "", nil
	})
}

// uncordon uncordons the node if this package cordoned it, and ends its work.
func (r *Run) uncordon(ctx context.Context, _ VMs, m Machine) error {
	was := false
	err := r.edit(ctx, m.Node, func(n *corev1.Node) error {
		was = noteOf(n.Annotations[Annotation]).Cordoned
		n.Spec.Unschedulable = n.Spec.Unschedulable && !was
		delete(n.Annotations, Annotation)
		return nil
	})
	if err == nil && was {
		r.say(m.Node, "uncordoned")
	}
	return err
}
