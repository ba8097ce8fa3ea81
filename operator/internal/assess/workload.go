package assess

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// Labels that rendering sets.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelVersion   = "vdo.vmware.com/version"
	managedBy      = "vdo-operator"
)

// places are the drivers' places by their names.
var places = func() map[string]drivers.Place {
	all := map[string]drivers.Place{}
	for _, p := range drivers.Places {
		all[p.String()] = p
	}
	return all
}()

// Workload is a DaemonSet or Deployment of a driver.
type Workload struct {
	drivers.Place
	Version string // by label, else by image tag; "" without either
	Helm    string // Helm release, or ""
	// Observed is set if the status is of the current spec.
	Observed                    bool
	Desired, Updated, Available int32  // Desired of a Deployment comes from its spec, whoever set it
	outdated                    int32  // pods of a Deployment's earlier templates
	Stuck                       string // message of a condition that reports failure
	selector                    labels.Selector
	generation                  string          // of a DaemonSet's template
	pod                         *corev1.PodSpec // likewise; nil of a Deployment
	uid                         types.UID
	// onDelete is set if a DaemonSet replaces no pods by itself; whole if such a one has a pod on each node.
	onDelete, whole bool
}

// Selector returns the selector of the workload's pods, if it selects any.
func (w Workload) Selector() (labels.Selector, bool) {
	if w.selector == nil || w.selector.Empty() {
		return nil, false
	}
	_, selects := w.selector.Requirements()
	return w.selector, selects
}

// Workloads returns the workloads of a driver in the places of our installation, sorted.
func (o *Observed) Workloads(d matrix.Driver) []Workload {
	return slices.DeleteFunc(o.All(), func(w Workload) bool { return w.Driver != d || w.Foreign })
}

// Foreign returns the drivers' workloads in the places of other installers.
func (o *Observed) Foreign() []Workload {
	return slices.DeleteFunc(o.All(), func(w Workload) bool { return !w.Foreign })
}

// All returns the workloads of all drivers, sorted. It omits an unused node plugin for Windows that is not ours: an
// earlier installation may have left one, of another version.
func (o *Observed) All() []Workload {
	var all []Workload
	for i := range o.DaemonSets {
		w, ok := FromDaemonSet(&o.DaemonSets[i])
		found := o.DaemonSets[i].Labels[labelManagedBy] != managedBy
		if unused := found && w.Name == drivers.NodeWindows && w.Observed && w.Desired == 0; ok && !unused {
			all = append(all, w)
		}
	}
	for i := range o.Deployments {
		if w, ok := FromDeployment(&o.Deployments[i]); ok {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b Workload) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// FromDaemonSet returns the workload of a DaemonSet, if it is a driver's.
func FromDaemonSet(o *appsv1.DaemonSet) (Workload, bool) {
	w, ok := identify("DaemonSet", o.ObjectMeta, o.Spec.Template.Spec)
	w.Observed = o.Status.ObservedGeneration >= o.Generation && o.Status.ObservedGeneration > 0
	w.Desired, w.Updated, w.Available = o.Status.DesiredNumberScheduled, o.Status.UpdatedNumberScheduled, o.Status.NumberAvailable
	w.selector = selector(o.Spec.Selector)
	w.generation, w.pod = o.Annotations[appsv1.DeprecatedTemplateGeneration], &o.Spec.Template.Spec
	w.onDelete = o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	w.whole = w.onDelete && o.Status.CurrentNumberScheduled >= o.Status.DesiredNumberScheduled
	return w, ok
}

// FromDeployment returns the workload of a Deployment, if it is a driver's.
func FromDeployment(o *appsv1.Deployment) (Workload, bool) {
	w, ok := identify("Deployment", o.ObjectMeta, o.Spec.Template.Spec)
	w.Observed = o.Status.ObservedGeneration >= o.Generation && o.Status.ObservedGeneration > 0
	w.Desired = 1
	if o.Spec.Replicas != nil {
		w.Desired = *o.Spec.Replicas
	}
	w.Updated, w.Available = o.Status.UpdatedReplicas, o.Status.AvailableReplicas
	w.outdated = max(0, o.Status.Replicas-o.Status.UpdatedReplicas)
	w.selector = selector(o.Spec.Selector)
	for _, c := range o.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			w.Stuck = c.Message
		}
	}
	return w, ok
}

func selector(s *metav1.LabelSelector) labels.Selector {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return parsed
}

// identify returns a workload with its driver, by its place, and its version, by our label or else the tag of the
// driver's image.
func identify(kind string, meta metav1.ObjectMeta, pod corev1.PodSpec) (Workload, bool) {
	location, ok := places[drivers.Place{Kind: kind, Namespace: meta.Namespace, Name: meta.Name}.String()]
	if !ok {
		return Workload{}, false
	}
	w := Workload{Place: location, Helm: meta.Annotations["meta.helm.sh/release-name"], uid: meta.UID}
	if meta.Labels[labelManagedBy] == managedBy && meta.Labels[labelVersion] != "" {
		w.Version = meta.Labels[labelVersion]
		return w, true
	}
	for _, c := range pod.Containers {
		if version, ok := byImage(location.Driver, c.Image); ok {
			w.Version = version
			break
		}
	}
	return w, true
}

// byImage returns the tag as the version, and whether the repository is a known one of the driver.
func byImage(d matrix.Driver, written string) (version string, ok bool) {
	ref, err := image.ParseReference(written)
	if err != nil {
		return "", false
	}
	if v, err := matrix.ParseVersion(ref.Tag()); err == nil {
		version = v.String()
	}
	return version, slices.ContainsFunc(images[d], func(suffix string) bool { return strings.HasSuffix(ref.Repository(), suffix) })
}

// images are the ends of the current and former repositories of the drivers' own images.
var images = map[matrix.Driver][]string{
	matrix.CPI:                {"cpi/release/manager", "cloud-provider-vsphere"},
	matrix.CSI:                {"csi/release/driver", "csi-vsphere/driver", "csi/release/syncer", "csi-vsphere/syncer"},
	matrix.SnapshotController: {"/snapshot-controller"},
	matrix.CNI:                {"antrea/antrea-agent-ubuntu", "antrea/antrea-controller-ubuntu"},
}

// rollout returns the finding for an incomplete rollout. It excuses missing pods on nodes that are not ready, but at
// least one pod must run.
func (in *Input) rollout(w Workload, a away) (Finding, bool) {
	f := Finding{Driver: w.Driver, Subject: w.String(), Reason: fault.Incomplete, Waiting: true}
	needed, requested := w.Desired, w.Desired
	if w.Kind != "DaemonSet" {
		requested = max(w.Desired, 1)
		needed = min(max(needed, requested), in.capacity(w))
	}
	switch {
	case w.Stuck != "":
		f = in.refused(w, w.Stuck)
	case w.Desired < requested:
		f.Message, f.Waiting = fmt.Sprintf("is scaled to %d, %d are wanted", w.Desired, requested), false
		f.Remedy = "the next reconcile puts it back, unless spec.suspend, spec.dryRun or spec.drift prevents that"
	case !w.Observed:
		f.Message = "has a change that its controller has not seen yet"
	case w.Updated < max(needed-(a.counted-a.updated), min(needed, 1)):
		f.Message, f.Rolling = fmt.Sprintf("has %d of %d pods updated", w.Updated, needed), 2*w.Available > needed
	case w.current() < max(needed-(a.counted-a.up), min(needed, 1)):
		f.Message = fmt.Sprintf("has %d of %d pods available", w.current(), needed)
		f.Rolling = w.outdated > 0 && 2*w.Available > needed
	default:
		return Finding{}, false
	}
	return f, true
}

// away has a DaemonSet's pods on nodes that are not ready, or that are young and have no ready pod.
type away struct {
	nodes []string // nodes that are not ready and have a pod of it, sorted
	late  []string // those without a pod of the current template
	// counted are the nodes that the DaemonSet counts, updated those with a current pod, up those with a ready one.
	counted, updated, up int32
}

// mayBreak reports whether a node stopped being ready soon after it got a pod, which may be why.
func mayBreak(p *corev1.Pod, n *corev1.Node) bool {
	after := Readiness(n).LastTransitionTime.Sub(p.CreationTimestamp.Time)
	return !ready(n) && after > 0 && after < 5*time.Minute
}

// away returns the nodes that are not ready, and young ones whose pod is not. If several became not ready soon after
// they got the new pod, they count as ready. Otherwise a release that breaks nodes would break all.
func (o *Observed) away(w Workload) (a away) {
	var absent []*corev1.Node
	for _, n := range o.Nodes {
		if w.Kind == "DaemonSet" && (!ready(n) || o.young(n)) {
			absent = append(absent, n)
		}
	}
	pods := o.podsOn(absent, w)
	absent = slices.DeleteFunc(absent, func(n *corev1.Node) bool {
		on := pods[n.Name]
		return len(on) == 0 || ready(n) && slices.ContainsFunc(on, podReady)
	})
	others := slices.DeleteFunc(slices.Clone(absent), func(n *corev1.Node) bool {
		return slices.ContainsFunc(pods[n.Name], func(p *corev1.Pod) bool {
			return w.updated(p) && mayBreak(p, n)
		})
	})
	if len(absent)-len(others) > 1 {
		absent = others
	}
	for _, n := range absent {
		isNew, counts := slices.ContainsFunc(pods[n.Name], w.updated), w.tolerates(n)
		if !ready(n) {
			a.nodes = append(a.nodes, n.Name)
		}
		if !ready(n) && !isNew && (!counts || w.Updated < w.Desired) {
			a.late = append(a.late, n.Name)
		}
		if !counts {
			continue
		}
		a.counted++
		if isNew {
			a.updated++
		}
		if slices.ContainsFunc(pods[n.Name], podReady) {
			a.up++
		}
	}
	slices.Sort(a.nodes)
	slices.Sort(a.late)
	return a
}

// podsOn returns a workload's pods on some nodes.
func (o *Observed) podsOn(nodes []*corev1.Node, w Workload) map[string][]*corev1.Pod {
	pods := map[string][]*corev1.Pod{}
	for _, n := range nodes {
		pods[n.Name] = nil
	}
	if len(nodes) == 0 {
		return pods
	}
	for p := range o.podsOf(w) {
		if on, is := pods[nodeOf(p)]; is {
			pods[nodeOf(p)] = append(on, p)
		}
	}
	return pods
}

// podGeneration is the label with the number of a pod's template; the DaemonSet has the current number as an
// annotation.
const podGeneration = "pod-template-generation"

// updated reports whether a pod is of the DaemonSet's current template.
func (w Workload) updated(p *corev1.Pod) bool {
	return w.generation != "" && p.Labels[podGeneration] == w.generation
}

// tolerates reports whether a DaemonSet counts a node that is not ready. For any DaemonSet, its controller tolerates
// the other taints of such a node.
func (w Workload) tolerates(n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		tolerated := func(by corev1.Toleration) bool { return by.ToleratesTaint(klog.Background(), &t, false) }
		return t.Effect == corev1.TaintEffectNoSchedule && !slices.ContainsFunc(w.pod.Tolerations, tolerated) &&
			(t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
	})
}

// podsOf returns the pods that a workload selects.
func (o *Observed) podsOf(w Workload) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for _, p := range o.Pods {
			isOf := p.Namespace == w.Namespace && w.selector != nil && w.selector.Matches(labels.Set(p.Labels))
			if isOf && !yield(p) {
				return
			}
		}
	}
}

// AwayFrom counts the nodes that are not ready and have a pod of a DaemonSet during its rollout. Each uses up one of
// the pods that may be unavailable.
func (o *Observed) AwayFrom(w Workload) int {
	if w.Updated >= w.Desired {
		return 0
	}
	return len(o.away(w).nodes)
}

// Progress returns the number of requested pods, and of those that are done: current and ready. Pods on nodes that are
// not ready do not count.
func (o *Observed) Progress(w Workload) (requested, done int64) {
	switch {
	case w.Kind == "DaemonSet":
	case w.Observed:
		return int64(w.Desired), int64(w.current())
	default:
		return int64(w.Desired), 0
	}
	isReady := map[string]bool{}
	for _, n := range o.Nodes {
		isReady[n.Name] = ready(n)
	}
	for p := range o.podsOf(w) {
		if isReady[p.Spec.NodeName] && w.updated(p) && podReady(p) {
			done++
		}
	}
	return int64(w.Desired - o.away(w).counted), done
}

// current returns how many pods are available, without a Deployment's outdated ones. It does not tell which pods are
// available: these count as such.
func (w Workload) current() int32 { return max(0, w.Available-w.outdated) }

// notUp names the ready nodes whose pod of a DaemonSet is not ready; the others wait for these.
func (in *Input) notUp(w Workload, a away) string {
	var names []string
	for p := range in.podsOf(w) {
		name := nodeOf(p)
		_, away := slices.BinarySearch(a.nodes, name)
		if !away && name != "" && (!podReady(p) || p.DeletionTimestamp != nil) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || w.Kind != "DaemonSet" {
		return ""
	}
	slices.Sort(names)
	return ", waiting for " + nodesNamed(slices.Compact(names))
}

// text names the nodes that are not ready and have a pod of an earlier template, "" for none.
func (a away) text() string {
	switch len(a.late) {
	case 0:
		return ""
	case 1:
		return "node " + a.late[0] + " is not ready and gets its new pod when it returns"
	}
	const form = "%d nodes are not ready and get their new pods when they return: %s"
	return fmt.Sprintf(form, len(a.late), Few(a.late, ", "))
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// RolledOut reports whether a workload's rollout is complete.
func (o *Observed) RolledOut(w Workload) bool {
	_, open := (&Input{Observed: *o}).rollout(w, o.away(w))
	return !open
}

// capacity returns the number of replicas to expect of a Deployment: for the storage driver's controller, one per
// ready control-plane node.
func (o *Observed) capacity(w Workload) int32 {
	const unbounded = 1 << 20
	if w.Driver != matrix.CSI {
		return unbounded
	}
	planes, up := int32(0), int32(0)
	for i := range o.Nodes {
		if !drivers.IsControlPlane(o.Nodes[i].Labels) {
			continue
		}
		planes++
		if ready(o.Nodes[i]) {
			up++
		}
	}
	if planes == 0 {
		return unbounded
	}
	return max(up, 1)
}

func ready(n *corev1.Node) bool { return Readiness(n).Status == corev1.ConditionTrue }

// Readiness returns a node's condition Ready, the zero one if it has none.
func Readiness(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}
