package cluster

import (
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// What there is one of for each node is trimmed as it comes, be it listed or watched, so
// that both show the same: a field that is judged has to be kept here. Of a node of 20 KiB
// one is left, of a pod of 15 KiB half of one.

// trimmed returns what is kept of an object; the object itself may go. One without managed fields,
// which the API server adds, is trimmed already.
func trimmed(o any) any {
	if m, ok := o.(metav1.Object); ok && len(m.GetManagedFields()) == 0 {
		return o
	}
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
		Namespace: intern(m.Namespace), Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: internLabels(m.Labels),
	}
}

func trimNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: trimMeta(n.ObjectMeta)}
	out.Spec.ProviderID, out.Spec.Unschedulable, out.Spec.Taints = n.Spec.ProviderID, n.Spec.Unschedulable, n.Spec.Taints
	out.Status.NodeInfo.KubeletVersion = intern(n.Status.NodeInfo.KubeletVersion)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status := intern(c.Status)
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
	out.Labels = shareLabels(out.Labels) // a workload's pods have the same
	if out.Spec.NodeName = p.Spec.NodeName; out.Spec.NodeName == "" {
		out.Spec.Affinity = p.Spec.Affinity
	}
	out.Status.Phase = intern(p.Status.Phase)
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady:
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: intern(c.Status)})
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

// shared are the labels of pods by their text. The pods of a workload have the same.
var shared sync.Map

// shareLabels returns labels equal to m that others share: the caller must not change them.
func shareLabels(m map[string]string) map[string]string {
	is, _ := shared.LoadOrStore(labels.FormatLabels(m), m)
	return is.(map[string]string) //nolint:forcetypeassert // nothing else is stored
}

// internLabels returns m with texts that equal ones share: those of thousands of nodes are few.
func internLabels(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[intern(k)] = intern(v)
	}
	return out
}

// intern returns the one copy of a text.
func intern[T ~string](s T) T { return unique.Make(s).Value() }
