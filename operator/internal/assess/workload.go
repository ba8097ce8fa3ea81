package assess

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// Labels as rendering sets them.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelVersion   = "vdo.vmware.com/version"
	managedBy      = "vdo-operator"
)

// places by what they are called.
var places = func() map[string]drivers.Place {
	all := map[string]drivers.Place{}
	for _, p := range drivers.Places() {
		all[p.String()] = p
	}
	return all
}()

// Workload is a DaemonSet or Deployment of a driver.
type Workload struct {
	drivers.Place
	Version string // by label, else by image tag; "" where neither tells
	Helm    string // Helm release, or ""
	// Observed tells whether the status is of the present spec.
	Observed                    bool
	Desired, Updated, Available int32  // Desired of a Deployment is what its spec says, whoever has set it
	Stuck                       string // message of a condition that tells of failure
	selector                    labels.Selector
	generation                  string // of a DaemonSet's template
	uid                         types.UID
	// whole is set of a DaemonSet that replaces no pods by itself, and has one on each node.
	whole bool
}

// Selector returns the selector of the workload's pods, if it selects any.
func (w Workload) Selector() (labels.Selector, bool) {
	if w.selector == nil || w.selector.Empty() {
		return nil, false
	}
	_, selects := w.selector.Requirements()
	return w.selector, selects
}

// Workloads returns those of a driver where ours are installed, sorted.
func (o *Observed) Workloads(d matrix.Driver) []Workload {
	return slices.DeleteFunc(o.All(), func(w Workload) bool { return w.Driver != d || w.Foreign })
}

// Foreign returns the workloads of drivers that other installers put there.
func (o *Observed) Foreign() []Workload {
	return slices.DeleteFunc(o.All(), func(w Workload) bool { return !w.Foreign })
}

// All returns the workloads of all drivers, sorted.
func (o *Observed) All() []Workload {
	var all []Workload
	for i := range o.DaemonSets {
		if w, ok := FromDaemonSet(&o.DaemonSets[i]); ok {
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

// FromDaemonSet returns the workload, if it is one of a driver.
func FromDaemonSet(o *appsv1.DaemonSet) (Workload, bool) {
	w, ok := identify("DaemonSet", o.ObjectMeta, o.Spec.Template.Spec)
	w.Observed = o.Status.ObservedGeneration >= o.Generation && o.Status.ObservedGeneration > 0
	w.Desired, w.Updated, w.Available = o.Status.DesiredNumberScheduled, o.Status.UpdatedNumberScheduled, o.Status.NumberAvailable
	w.selector = selector(o.Spec.Selector)
	w.generation = o.Annotations[appsv1.DeprecatedTemplateGeneration]
	w.whole = o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType && o.Status.CurrentNumberScheduled >= o.Status.DesiredNumberScheduled
	return w, ok
}

// FromDeployment returns the workload, if it is one of a driver.
func FromDeployment(o *appsv1.Deployment) (Workload, bool) {
	w, ok := identify("Deployment", o.ObjectMeta, o.Spec.Template.Spec)
	w.Observed = o.Status.ObservedGeneration >= o.Generation && o.Status.ObservedGeneration > 0
	w.Desired = 1
	if o.Spec.Replicas != nil {
		w.Desired = *o.Spec.Replicas
	}
	w.Updated, w.Available = o.Status.UpdatedReplicas, o.Status.AvailableReplicas
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

// identify tells which driver a workload is of, by its place, and of which version:
// by our label, else by the tag of the driver's image.
func identify(kind string, meta metav1.ObjectMeta, pod corev1.PodSpec) (Workload, bool) {
	place, ok := places[drivers.Place{Kind: kind, Namespace: meta.Namespace, Name: meta.Name}.String()]
	if !ok {
		return Workload{}, false
	}
	w := Workload{Place: place, Helm: meta.Annotations["meta.helm.sh/release-name"], uid: meta.UID}
	if meta.Labels[labelManagedBy] == managedBy && meta.Labels[labelVersion] != "" {
		w.Version = meta.Labels[labelVersion]
		return w, true
	}
	for _, c := range pod.Containers {
		if version, ok := byImage(place.Driver, c.Image); ok {
			w.Version = version
			break
		}
	}
	return w, true
}

// byImage knows the repositories that a driver's own images are or were in; the
// tag is the version.
func byImage(d matrix.Driver, ref string) (version string, ok bool) {
	repository, _, _ := strings.Cut(ref, "@")
	tag := ""
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:i], repository[i+1:]
	}
	if v, err := matrix.ParseVersion(tag); err == nil {
		version = v.String()
	}
	return version, slices.ContainsFunc(images[d], func(suffix string) bool { return strings.HasSuffix(repository, suffix) })
}

// images are ends of the repositories of the drivers' own images.
var images = map[matrix.Driver][]string{
	matrix.CPI:                {"cpi/release/manager", "cloud-provider-vsphere"},
	matrix.CSI:                {"csi/release/driver", "csi-vsphere/driver", "csi/release/syncer", "csi-vsphere/syncer"},
	matrix.SnapshotController: {"/snapshot-controller"},
	matrix.CNI:                {"antrea/antrea-agent-ubuntu", "antrea/antrea-controller-ubuntu"},
}

// rollout finds a roll-out that is not complete. Forgiven are only the pods that lack
// on nodes that are not ready, and never all of them: what runs on no node is not rolled out.
func (in *Input) rollout(w Workload) (Finding, bool) {
	f := Finding{Driver: w.Driver, Subject: w.String(), Reason: fault.Incomplete, Waiting: true}
	needed, wanted := w.Desired, w.Desired
	var a away
	if w.Kind == "DaemonSet" {
		a = in.away(w)
	} else {
		wanted = in.replicas(w)
		needed = min(max(needed, wanted), in.capacity(w))
	}
	switch {
	case w.Stuck != "":
		f = in.refused(w, w.Stuck)
	case w.Desired < wanted:
		f.Message, f.Waiting = fmt.Sprintf("is scaled to %d, %d are wanted", w.Desired, wanted), false
		f.Remedy = "the next pass puts it back, unless spec.suspend, spec.dryRun or spec.drift has it left as it is: see the conditions Suspended and Drifted"
	case !w.Observed:
		f.Message = "is taken up"
	case w.Updated < max(needed-a.outdated, min(needed, 1)):
		f.Message = fmt.Sprintf("has %d of %d pods updated", w.Updated, needed)
	case w.Available < max(needed-a.down, min(needed, 1)):
		f.Message = fmt.Sprintf("has %d of %d pods available", w.Available, needed)
	default:
		return Finding{}, false
	}
	return f, true
}

// replicas are those that are wanted of a Deployment.
func (in *Input) replicas(w Workload) int32 {
	if wanted, known := in.Replicas[w.String()]; known {
		return wanted
	}
	return max(w.Desired, 1)
}

// away counts the nodes that are not ready and whose pod of a DaemonSet is not of the
// present template, or not up.
type away struct{ outdated, down int32 }

func (o *Observed) away(w Workload) away {
	absent := map[string]bool{}
	for i := range o.Nodes {
		if !ready(o.Nodes[i]) {
			absent[o.Nodes[i].Name] = true
		}
	}
	if len(absent) == 0 {
		return away{}
	}
	type state struct{ updated, up bool }
	pods := map[string]state{}
	for i := range o.Pods {
		p := o.Pods[i]
		if !absent[p.Spec.NodeName] || p.Namespace != w.Namespace || w.selector == nil || !w.selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		s := pods[p.Spec.NodeName]
		s.updated = s.updated || (w.generation != "" && p.Labels[podGeneration] == w.generation)
		s.up = s.up || podReady(p)
		pods[p.Spec.NodeName] = s
	}
	var a away
	for _, s := range pods {
		if !s.updated {
			a.outdated++
		}
		if !s.up {
			a.down++
		}
	}
	return a
}

// podGeneration is the label by which the DaemonSet controller tells pods of the
// present template from others; the DaemonSet has the number as an annotation.
const podGeneration = "pod-template-generation"

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// RolledOut tells whether a workload's roll-out is complete.
func (o *Observed) RolledOut(w Workload) bool {
	_, open := (&Input{Observed: *o}).rollout(w)
	return !open
}

// capacity is how many replicas of a Deployment can be expected: of the storage
// driver's controller, one for each control-plane node that is ready.
func (o *Observed) capacity(w Workload) int32 {
	const unbounded = 1 << 20
	if w.Driver != matrix.CSI {
		return unbounded
	}
	planes, up := int32(0), int32(0)
	for i := range o.Nodes {
		if !controlPlane(o.Nodes[i]) {
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

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func controlPlane(n *corev1.Node) bool {
	for _, role := range []string{"control-plane", "controlplane", "master"} {
		if _, ok := n.Labels["node-role.kubernetes.io/"+role]; ok {
			return true
		}
	}
	return false
}
