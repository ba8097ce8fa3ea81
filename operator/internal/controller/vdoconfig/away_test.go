package vdoconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// awayNode has one of the two pods of a cloud provider's DaemonSet, which is not updated.
func awayNode(pods, updated int32) *assess.Observed {
	app := map[string]string{"app": "cloud"}
	return &assess.Observed{
		Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "away"}}},
		Pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Labels: app},
			Spec: corev1.PodSpec{NodeName: "away"}}},
		DaemonSets: []appsv1.DaemonSet{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager",
				Labels: map[string]string{render.LabelManagedBy: render.ManagedBy, render.LabelVersion: "1.33.1"}},
			Spec:   appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: pods, UpdatedNumberScheduled: updated},
		}},
	}
}

// A DaemonSet that is being rolled out may lack the pods of nodes that are not ready beside those
// that its manifest says; the template, and what was rendered, stay as they are.
func TestNodesThatAreNotReadyDoNotUseUpWhatMayBeUnavailable(t *testing.T) {
	rolling := func(field string, value any) map[string]any {
		return map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{field: value}}
	}
	for name, c := range map[string]struct {
		updated int32
		is      map[string]any
		want    map[string]any
	}{
		"a number":                {1, rolling("maxUnavailable", int64(1)), rolling("maxUnavailable", int64(2))},
		"a percentage":            {1, rolling("maxUnavailable", "11%"), rolling("maxUnavailable", int64(3))},
		"a surge":                 {1, rolling("maxSurge", int64(1)), rolling("maxSurge", int64(2))},
		"the default":             {1, map[string]any{"type": "RollingUpdate"}, rolling("maxUnavailable", int64(2))},
		"no pod is replaced":      {1, map[string]any{"type": "OnDelete"}, map[string]any{"type": "OnDelete"}},
		"no roll-out is going on": {10, rolling("maxUnavailable", int64(1)), rolling("maxUnavailable", int64(1))},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"updateStrategy": c.is}}}
		o.SetAPIVersion("apps/v1")
		o.SetKind("DaemonSet")
		o.SetNamespace("kube-system")
		o.SetName("vsphere-cloud-controller-manager")
		was := o.DeepCopy()
		r := &render.Rendered{Stages: []render.Stage{{Objects: []render.Object{{Unstructured: o}}}}}
		allowForAway(r, awayNode(10, c.updated))
		got, _, _ := unstructured.NestedMap(r.Stages[0].Objects[0].Object, "spec", "updateStrategy")
		require.Equal(t, c.want, got, name)
		require.Equal(t, was, o, name)
	}
}

// What is wrong on nodes that are not ready is not held against a revision, and while it may run
// on no other its time does not count.
func TestARevisionDoesNotFailForNodesThatAreNotReady(t *testing.T) {
	for pods, elsewhere := range map[int32]bool{1: true, 2: false} {
		p := &pass{result: result{site: *withCSI(t)}}
		p.config, p.site.observed = p.site.config, awayNode(pods, pods-1)
		p.outcome.report = &assess.Report{Drivers: map[matrix.Driver]assess.Health{matrix.CPI: {Version: "1.33.1",
			Findings: []assess.Finding{{Driver: matrix.CPI, Reason: fault.Unreachable, Away: true}}}}}
		look := p.lookAt(revision.Record{Revision: revision.Revision{Releases: []string{"cpi@1.33.1"}}})
		require.Equal(t, elsewhere, look.Elsewhere)
		require.Empty(t, look.Amiss)
	}
}
