package assess_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

// Nodes that are not ready are named, and neither stop a rollout nor count for its progress;
// unless several went soon after they had got the new pod.
func TestARollOutGoesOnWithoutNodesThatAreNotReady(t *testing.T) {
	const (
		minute, hour = time.Minute, time.Hour
		late         = "node c is not ready and gets its new pod when it returns"
		unreachable  = corev1.TaintNodeUnreachable
	)
	for name, c := range map[string]struct {
		pods            string        // by node; gone and got are the old and new one of a node that is not ready
		after           time.Duration // after its pod was made such a node went; 0: before
		taint           string        // of such nodes
		complete        bool
		says            string
		away            int
		requested, done int64
	}{
		"one is away":           {"a=old b=old c=gone", 0, "", false, "has 0 of 3 pods updated; " + late, 1, 2, 0},
		"it went meanwhile":     {"a=new b=old c=got", minute, "", false, "has 2 of 3 pods updated", 1, 2, 1},
		"it is back":            {"a=new b=new c=starting", 0, "", false, "has 2 of 3 pods available, waiting for node c", 0, 3, 2},
		"two went by it":        {"a=new b=old c=got d=got", minute, "", false, "waiting for 2 nodes (c, d)", 0, 4, 1},
		"two had it for long":   {"a=new c=got d=got", hour, "", true, "", 0, 1, 1},
		"two got it while away": {"a=new b=old c=got d=got", 0, "", false, "has 3 of 4 pods updated", 2, 2, 1},
		"it is not counted":     {"a=new b=old c=gone", 0, unreachable, false, "1 of 2 pods updated; " + late, 1, 2, 1},
		"all are away":          {"a=gone b=gone", 0, "", false, "has 0 of 2 pods updated; 2 nodes are not ready", 2, 0, 0},
		"all are away with it":  {"a=got", hour, "", false, "has 0 of 1 pods available", 0, 0, 0},
		"many are away": {"a=new f=gone e=gone d=gone c=gone", 0, "", true,
			"4 nodes are not ready and get their new pods when they return: c, d, e, and 1 more", 4, 1, 1},
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
			requested, done := in.Progress(w)
			require.Equal(t, []int64{c.requested, c.done}, []int64{requested, done})
		})
	}
}

// The pods of an earlier template are available too, but no progress.
func TestProgressOfADeployment(t *testing.T) {
	for name, c := range map[string]struct {
		all, updated, available int32
		behind                  bool
		done                    int64
	}{
		"before its controller saw it": {all: 3, updated: 3, available: 3, behind: true},
		"the first pod starts":         {all: 4, updated: 1, available: 3},
		"the first pod crashes":        {all: 4, updated: 2, available: 2},
		"the first pod is ready":       {all: 4, updated: 1, available: 4, done: 1},
		"all are":                      {all: 3, updated: 3, available: 3, done: 3},
	} {
		d := deployment(3, c.updated, c.available)
		if d.Status.Replicas = c.all; c.behind {
			d.Generation = 2
		}
		w, _ := assess.FromDeployment(&d)
		_, done := (&assess.Observed{}).Progress(w)
		require.Equal(t, c.done, done, name)
	}
}

// Which pods on canary nodes are replaced, and when all of them are well. Another node that has a new pod
// has joined, or its pod was deleted.
func TestCanaries(t *testing.T) {
	const old, next = "1", "2"
	type pod struct {
		node, generation string
		ready, ends      bool
	}
	ok := func(node string) pod { return pod{node, next, true, false} }
	before := func(node string) pod { return pod{node, old, true, false} }
	for name, c := range map[string]struct {
		pods    []pod
		away    []string
		rolling bool          // the DaemonSet replaces pods by itself
		behind  bool          // its status is of an earlier spec
		went    time.Duration // after nodes that are away had got the pod; default: a minute
		idle    bool
		chosen  string
		updated int
		missing []string
		replace string
		why     string
		others  []string
	}{
		"others have it":                 {pods: []pod{ok("a"), ok("b"), ok("d"), {"c", next, false, false}}, updated: 2, others: []string{"c", "d"}},
		"others lack it":                 {pods: []pod{ok("a"), ok("b"), before("c"), {"d", next, true, true}}, updated: 2},
		"nothing was done":               {pods: []pod{before("a"), before("b"), before("c")}, replace: "a", why: "a has the pod of before; b has the pod of before"},
		"the first is replaced":          {pods: []pod{{"a", next, false, false}, before("b"), before("c")}, why: "b has the pod of before; the pod on a is not ready"},
		"the first has no pod":           {pods: []pod{before("b"), before("c")}, missing: []string{"a"}, why: "a has no pod of it; b has the pod of before"},
		"the first ends beside its heir": {pods: []pod{ok("a"), {"a", old, true, true}, before("b")}, why: "b has the pod of before; the pod on a is not ready"},
		"the pod of before is not well":  {pods: []pod{ok("a"), {"b", old, false, false}, before("c")}, updated: 1, replace: "b", why: "b has the pod of before"},
		"one is away":                    {pods: []pod{before("a"), ok("b")}, away: []string{"a"}, updated: 1},
		"one went with its new pod":      {pods: []pod{{"a", next, false, false}, ok("b")}, away: []string{"a"}, updated: 1, why: "a is not ready, and has the new pod"},
		"one went before the others":     {pods: []pod{ok("a"), before("b")}, away: []string{"a"}, why: "a is not ready, and has the new pod; b has the pod of before"},
		"one went later":                 {pods: []pod{ok("a"), ok("b")}, away: []string{"a"}, went: time.Hour, updated: 1},
		"all are away":                   {pods: []pod{ok("a"), ok("b")}, away: []string{"a", "b"}, why: "no chosen node is ready (a, b)"},
		"all are off":                    {pods: []pod{before("a"), before("b")}, away: []string{"a", "b"}, idle: true, why: "no chosen node is ready (a, b)"},
		"pods are replaced by others":    {pods: []pod{before("a"), before("b")}, rolling: true, why: "a has the pod of before; b has the pod of before"},
		"it is not known yet":            {pods: []pod{before("a"), before("b")}, behind: true, why: "a has the pod of before; b has the pod of before"},
		"nobody is chosen":               {pods: []pod{before("a")}, chosen: "none", idle: true, why: `no node matches the canary selector "role=none"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := assess.Observed{DaemonSets: []appsv1.DaemonSet{daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.7.3", 3, 0, 3)}}
			d := &o.DaemonSets[0]
			d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: next}
			if d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType; c.rolling {
				d.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
			}
			if c.behind {
				d.Status.ObservedGeneration--
			}
			for _, name := range []string{"d", "c", "b", "a"} {
				up := true
				for _, away := range c.away {
					up = up && away != name
				}
				n := node(name, up, false)
				if n.Labels["role"] = "first"; name > "b" {
					n.Labels["role"] = "other"
				}
				n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Time{}.Add(cmp.Or(c.went, time.Minute)))
				o.Nodes = append(o.Nodes, n)
			}
			for _, p := range c.pods {
				made := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "p-" + p.node, UID: types.UID("uid-" + p.node),
					Labels: map[string]string{"app": "vsphere-csi-node", "pod-template-generation": p.generation}}, Spec: corev1.PodSpec{NodeName: p.node}}
				if p.ends {
					made.Name, made.DeletionTimestamp = "ends", &metav1.Time{Time: now}
				}
				if p.ready {
					made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				}
				o.Pods = append(o.Pods, &made)
			}
			role := "first"
			if c.chosen != "" {
				role = c.chosen
			}
			got := o.Canaries(apilabels.SelectorFromSet(apilabels.Set{"role": role}))
			require.Equal(t, c.why, got.Why)
			require.Equal(t, c.idle, got.Idle)
			require.Equal(t, c.updated, got.Updated)
			require.Equal(t, c.missing, got.Missing)
			var others []string
			for _, n := range got.Others {
				others = append(others, n.Name)
			}
			require.Equal(t, c.others, others)
			require.True(t, c.chosen != "" || slices.Equal(got.Nodes, []string{"a", "b"}), got.Nodes)
			if c.replace == "" {
				require.Nil(t, got.Replace)
				return
			}
			require.NotNil(t, got.Replace)
			require.Equal(t, []string{c.replace, "p-" + c.replace, "uid-" + c.replace}, []string{got.Replace.Spec.NodeName, got.Replace.Name, string(got.Replace.UID)})
		})
	}
}
