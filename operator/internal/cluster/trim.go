package cluster

import (
	"hash/maphash"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// What there is one of for each node is trimmed as it comes, be it listed or watched, so
// that both show the same: a field that is judged has to be kept here. Of a node of 20 KiB
// one is left, of a pod of 15 KiB half of one.

// trimmed returns what is kept of an object; the object itself may go.
func trimmed(o runtime.Object) runtime.Object {
	switch o := o.(type) {
	case *corev1.Node:
		return trimNode(o)
	case *storagev1.CSINode:
		return trimCSINode(o)
	case *corev1.Pod:
		return trimPod(o)
	case *unstructured.Unstructured:
		return trimTopology(o)
	}
	return o
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: known.of(m.Namespace), Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: known.labels(m.Labels),
	}
}

func trimNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: trimMeta(n.ObjectMeta)}
	out.Spec.ProviderID, out.Spec.Unschedulable, out.Spec.Taints = n.Spec.ProviderID, n.Spec.Unschedulable, n.Spec.Taints
	out.Status.NodeInfo.KubeletVersion = known.of(n.Status.NodeInfo.KubeletVersion)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status := corev1.ConditionStatus(known.of(string(c.Status)))
			kept := corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: c.LastTransitionTime}
			out.Status.Conditions = []corev1.NodeCondition{kept}
		}
	}
	return out
}

func trimCSINode(n *storagev1.CSINode) *storagev1.CSINode {
	out := &storagev1.CSINode{ObjectMeta: trimMeta(n.ObjectMeta)}
	for _, d := range n.Spec.Drivers {
		if d.Name == drivers.CSIDriver {
			d.Name, d.Allocatable = drivers.CSIDriver, nil
			out.Spec.Drivers = []storagev1.CSINodeDriver{d}
		}
	}
	return out
}

// trimPod keeps of containers those that wait: why they do, and how they ended before; and
// of a pod without a node which one it is for.
func trimPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: trimMeta(p.ObjectMeta)}
	out.Labels = shared.of(out.Labels) // a workload's pods have the same
	if out.Spec.NodeName = p.Spec.NodeName; out.Spec.NodeName == "" {
		out.Spec.Affinity = p.Spec.Affinity
	}
	out.Status.Phase = corev1.PodPhase(known.of(string(p.Status.Phase)))
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady:
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionStatus(known.of(string(c.Status)))})
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			out.Status.Conditions = append(out.Status.Conditions, c)
		}
	}
	out.Status.InitContainerStatuses = waiting(p.Status.InitContainerStatuses)
	out.Status.ContainerStatuses = waiting(p.Status.ContainerStatuses)
	return out
}

func waiting(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for _, c := range all {
		if c.State.Waiting == nil {
			continue
		}
		is := corev1.ContainerStatus{Name: c.Name, RestartCount: c.RestartCount, State: corev1.ContainerState{Waiting: c.State.Waiting}}
		is.LastTerminationState.Terminated = c.LastTerminationState.Terminated
		kept = append(kept, is)
	}
	return kept
}

// trimTopology keeps of a CSINodeTopology its status, where that is an error.
func trimTopology(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetGroupVersionKind(o.GroupVersionKind())
	out.SetName(o.GetName())
	out.SetUID(o.GetUID())
	out.SetResourceVersion(o.GetResourceVersion())
	if state, _, _ := unstructured.NestedString(o.Object, "status", "status"); state == topologyError {
		message, _, _ := unstructured.NestedString(o.Object, "status", "errorMessage")
		out.Object["status"] = map[string]any{"status": state, "errorMessage": message}
	}
	return out
}

// maxKnown bounds what is kept of texts, most of which come once for each node.
const maxKnown = 1 << 14

// known are the texts of labels and states seen lately: those of thousands of nodes are
// the same few.
var known texts

// texts are texts by themselves. Several goroutines may use it at once.
type texts struct {
	mu  sync.Mutex
	all map[string]string
}

// of returns a text equal to s that others share.
func (t *texts) of(s string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is, ok := t.all[s]; ok {
		return is
	}
	if t.all == nil || len(t.all) >= maxKnown {
		t.all = map[string]string{}
	}
	t.all[s] = s
	return s
}

// shared are the labels of pods seen lately.
var shared labelSets

// labelSets are labels by what is in them. Several goroutines may use it at once.
type labelSets struct {
	mu   sync.Mutex
	seed maphash.Seed
	all  map[uint64]map[string]string
}

// of returns labels equal to m that others share: nobody may change them.
func (s *labelSets) of(m map[string]string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= maxKnown {
		s.seed, s.all = maphash.MakeSeed(), map[uint64]map[string]string{}
	}
	var key uint64
	for k, v := range m { // in any order
		key += maphash.Comparable(s.seed, [2]string{k, v})
	}
	if is, ok := s.all[key]; ok && maps.Equal(is, m) {
		return is
	}
	s.all[key] = m
	return m
}

// labels returns labels of such texts.
func (t *texts) labels(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[t.of(k)] = t.of(v)
	}
	return out
}
