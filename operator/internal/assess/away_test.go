package assess_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

// Nodes that are not ready are named, and neither stop a roll-out nor count for its progress;
// unless several went soon after they had got the new pod.
func TestARollOutGoesOnWithoutNodesThatAreNotReady(t *testing.T) {
	const (
		minute, hour = time.Minute, time.Hour
		late         = "node c is not ready and gets its new pod when it returns"
		unreachable  = corev1.TaintNodeUnreachable
	)
	for name, c := range map[string]struct {
		pods         string        // by node; gone and got are the old and new one of a node that is not ready
		after        time.Duration // after its pod was made such a node went; 0: before
		taint        string        // of such nodes
		complete     bool
		says         string
		away         int
		wanted, done int64
	}{
		"none is updated":       {"a=old b=old", 0, "", false, "has 0 of 2 pods updated", 0, 2, 2},
		"a node holds it up":    {"a=starting b=old", 0, "", false, "has 1 of 2 pods updated, waiting for node a", 0, 2, 2},
		"one is away":           {"a=old b=old c=gone", 0, "", false, "has 0 of 3 pods updated; " + late, 1, 2, 2},
		"all others have it":    {"a=new b=new c=gone", 0, "", true, late, 1, 2, 4},
		"it went meanwhile":     {"a=new b=old c=got", minute, "", false, "has 2 of 3 pods updated", 1, 2, 3},
		"it is back":            {"a=new b=new c=starting", 0, "", false, "has 2 of 3 pods available, waiting for node c", 0, 3, 5},
		"two went by it":        {"a=new b=old c=got d=got", minute, "", false, "waiting for 2 nodes (c, d)", 0, 4, 5},
		"two went by it, later": {"a=new c=got d=got", minute, "", false, "waiting for 2 nodes (c, d)", 0, 3, 4},
		"two had it for long":   {"a=new c=got d=got", hour, "", true, "", 0, 1, 2},
		"two got it while away": {"a=new b=old c=got d=got", 0, "", false, "has 3 of 4 pods updated", 2, 2, 3},
		"it is not counted":     {"a=new b=old c=gone", 0, unreachable, false, "1 of 2 pods updated; " + late, 1, 2, 3},
		"all are away":          {"a=gone b=gone", 0, "", false, "has 0 of 2 pods updated; 2 nodes are not ready", 2, 0, 0},
		"many are away": {"a=new f=gone e=gone d=gone c=gone", 0, "", true,
			"4 nodes are not ready and get their new pods when they return: c, d, e, and 1 more", 4, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			in := healthy()
			in.Nodes, in.Pods = nil, nil
			d := daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.7.3", 0, 0, 0)
			d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
			for _, text := range strings.Fields(c.pods) {
				name, is, _ := strings.Cut(text, "=")
				away := is == "gone" || is == "got"
				n, p := node(name, !away, false), pod(d.Name, "driver", corev1.ContainerState{}, "")
				p.Spec.NodeName, p.Labels["pod-template-generation"] = name, "1"
				n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(p.CreationTimestamp.Add(c.after))
				if away && c.taint != "" {
					n.Spec.Taints = []corev1.Taint{{Key: c.taint, Effect: corev1.TaintEffectNoSchedule}}
				} else {
					d.Status.DesiredNumberScheduled++
				}
				if is != "old" && is != "gone" {
					p.Labels["pod-template-generation"] = "2"
					d.Status.UpdatedNumberScheduled++
				}
				if is == "old" || is == "new" {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
					d.Status.NumberAvailable++
				}
				in.Nodes, in.Pods = append(in.Nodes, n), append(in.Pods, p)
				in.CSINodes = append(in.CSINodes, registered(name))
			}
			in.DaemonSets = []appsv1.DaemonSet{d}
			in.Deployments[0].Labels = labels("csi", "3.7.3")
			h := assess.Assess(in).Drivers[matrix.CSI]
			require.Equal(t, c.complete, h.Complete, h)
			text := h.Waits() + h.Note
			require.Contains(t, text, c.says)
			require.Equal(t, c.says == "", text == "", text)
			w, _ := assess.FromDaemonSet(&d)
			require.Equal(t, c.away, in.AwayFrom(w))
			wanted, done := in.Progress(w)
			require.Equal(t, []int64{c.wanted, c.done}, []int64{wanted, done})
		})
	}
}
