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
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

// rolling is a cluster in which nodes have pods of the node plugin: of an earlier template (old, broken, ends) or the
// current one (new, starting, leaves), or none. A node is not ready if its old pod is gone, or it got or lost the new
// one. It went some time after that pod was made. Nodes called y are young.
func rolling(pods string, went time.Duration) assess.Input {
	in := healthy()
	in.Nodes = nil
	in.DaemonSets = []appsv1.DaemonSet{daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.7.3", 0, 0, 0)}
	in.Deployments[0].Labels = labels("csi", "3.7.3")
	d := &in.DaemonSets[0]
	d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
	for _, text := range strings.Fields(pods) {
		name, all, _ := strings.Cut(text, "=")
		n := node(name, !slices.Contains([]string{"gone", "got", "lost"}, all), false)
		if strings.HasPrefix(name, "y") {
			n.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
		}
		in.Nodes, in.CSINodes = append(in.Nodes, n), append(in.CSINodes, registered(name))
		d.Status.DesiredNumberScheduled++
		for _, is := range strings.FieldsFunc(all, func(r rune) bool { return r == '+' }) {
			p := pod(d.Name, "driver", corev1.ContainerState{}, "")
			p.Spec.NodeName, p.Labels["pod-template-generation"] = name, "1"
			if slices.Contains([]string{"new", "starting", "leaves", "got", "lost"}, is) {
				p.Labels["pod-template-generation"] = "2"
				d.Status.UpdatedNumberScheduled++
			}
			if slices.Contains([]string{"old", "new", "ends", "leaves"}, is) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				d.Status.NumberAvailable++
			}
			if is == "ends" || is == "leaves" || is == "lost" {
				p.DeletionTimestamp = &metav1.Time{Time: now}
			}
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(p.CreationTimestamp.Add(went))
			in.Pods = append(in.Pods, p)
		}
	}
	return in
}

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
		"a young one starts":    {"a=new b=new y=starting", 0, "", true, "", 0, 2, 2},
		"a young one has it":    {"a=old y=new", 0, "", false, "has 1 of 2 pods updated", 0, 2, 1},
		"young ones come up":    {"a=new y1=starting y2=starting", minute, "", true, "", 0, 1, 1},
		"a young one waits":     {"a=new y=broken", 0, "", true, "", 0, 1, 1},
		"all fail, one young":   {"a=starting b=starting y=starting", 0, "", false, "has 0 of 3 pods available", 0, 2, 0},
		"none runs, all young":  {"y1=starting y2=starting", 0, "", false, "has 0 of 2 pods available", 0, 0, 0},
		"many are away": {"a=new f=gone e=gone d=gone c=gone", 0, "", true,
			"4 nodes are not ready and get their new pods when they return: c, d, e, and 1 more", 4, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			in := rolling(c.pods, c.after)
			d := &in.DaemonSets[0]
			for _, n := range in.Nodes {
				if c.taint != "" && assess.Readiness(n).Status != corev1.ConditionTrue {
					n.Spec.Taints = []corev1.Taint{{Key: c.taint, Effect: corev1.TaintEffectNoSchedule}}
					d.Status.DesiredNumberScheduled--
				}
			}
			h := assess.Assess(in).Drivers[matrix.CSI]
			require.Equal(t, c.complete, h.Complete, h)
			text := h.Waits() + h.Note
			require.Contains(t, text, c.says)
			require.Equal(t, c.says == "", text == "", text)
			w, _ := assess.FromDaemonSet(d)
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
	const ofBefore = "a has the pod of before; b has the pod of before"
	for name, c := range map[string]struct {
		pods    string
		edit    func(*appsv1.DaemonSet)
		went    time.Duration // after nodes that are away had got the pod; default: a minute
		idle    bool
		chosen  string // default: a and b
		updated int
		missing []string
		replace string // node
		why     string
		others  []string
	}{
		"others have it":                 {pods: "d=new c=starting b=new a=new", updated: 2, others: []string{"c", "d"}},
		"others lack it":                 {pods: "a=new b=new c=old d=leaves", updated: 2},
		"nothing was done":               {pods: "c=old b=old a=old", replace: "a", why: ofBefore},
		"the first is replaced":          {pods: "a=starting b=old c=old", why: "b has the pod of before; the pod on a is not ready"},
		"the first has no pod":           {pods: "a= b=old c=old", missing: []string{"a"}, why: "a has no pod of it; b has the pod of before"},
		"the first ends beside its heir": {pods: "a=new+ends b=old", why: "b has the pod of before; the pod on a is not ready"},
		"the pod of before is not well":  {pods: "a=new b=broken c=old", updated: 1, replace: "b", why: "b has the pod of before"},
		"one is away":                    {pods: "a=gone b=new", updated: 1},
		"one went with its new pod":      {pods: "a=got b=new", updated: 1, why: "a is not ready, and has the new pod"},
		"one went, and its pod leaves":   {pods: "a=lost b=new", updated: 1, why: "a is not ready, and has the new pod"},
		"one went before the others":     {pods: "a=got b=old", why: "a is not ready, and has the new pod; b has the pod of before"},
		"one went later":                 {pods: "a=got b=new", went: time.Hour, updated: 1},
		"all are away":                   {pods: "a=got b=got", why: "no chosen node is ready (a, b)"},
		"all are off":                    {pods: "a=gone b=gone", idle: true, why: "no chosen node is ready (a, b)"},
		"pods are replaced by others": {pods: "a=old b=old", why: ofBefore, edit: func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		}},
		"it is not known yet": {pods: "a=old b=old", why: ofBefore, edit: func(d *appsv1.DaemonSet) { d.Status.ObservedGeneration-- }},
		"nobody is chosen":    {pods: "a=old", chosen: "none", idle: true, why: `no node matches the canary selector "role=none"`},
	} {
		t.Run(name, func(t *testing.T) {
			in := rolling(c.pods, cmp.Or(c.went, time.Minute))
			in.DaemonSets[0].Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
			if c.edit != nil {
				c.edit(&in.DaemonSets[0])
			}
			for _, n := range in.Nodes {
				if n.Labels["role"] = "first"; n.Name > "b" {
					n.Labels["role"] = "other"
				}
			}
			got := in.Canaries(apilabels.SelectorFromSet(apilabels.Set{"role": cmp.Or(c.chosen, "first")}))
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
			require.Equal(t, c.replace, ptr.Deref(got.Replace, corev1.Pod{}).Spec.NodeName)
		})
	}
}
