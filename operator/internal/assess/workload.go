package assess

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Labels as rendering sets them.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelDriver    = "vdo.vmware.com/driver"
	labelVersion   = "vdo.vmware.com/version"
	managedBy      = "vdo-operator"
)

// Workload is a DaemonSet or Deployment of a driver.
type Workload struct {
	Kind, Namespace, Name string
	Driver                matrix.Driver
	Version               string // by label, else by image tag; "" where neither tells
	Ours                  bool
	Helm                  string // Helm release, or ""
	// Observed tells whether the status is of the present spec.
	Observed                    bool
	Desired, Updated, Available int32
	Stuck                       string // message of a condition that tells of failure
	selector                    labels.Selector
}

// String returns "Kind namespace/name".
func (w Workload) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// Workloads returns those of a driver, ours and those of known names, sorted.
func (o *Observed) Workloads(d matrix.Driver) []Workload {
	return slices.DeleteFunc(o.All(), func(w Workload) bool { return w.Driver != d || w.Foreign() })
}

// Foreign returns the workloads of drivers that are neither ours nor in the place
// where ours are installed.
func (o *Observed) Foreign() []Workload {
	return slices.DeleteFunc(o.All(), func(w Workload) bool { return !w.Foreign() })
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

// home is where upstream's manifests install the drivers, and so we do.
var home = map[matrix.Driver][]string{
	matrix.CPI:                {"DaemonSet kube-system/vsphere-cloud-controller-manager"},
	matrix.SnapshotController: {"Deployment kube-system/snapshot-controller"},
	matrix.CSI: {
		"Deployment vmware-system-csi/vsphere-csi-controller", "DaemonSet vmware-system-csi/vsphere-csi-node",
		"DaemonSet vmware-system-csi/vsphere-csi-node-windows", "Deployment vmware-system-csi/vsphere-csi-webhook",
	},
	matrix.CNI: {"DaemonSet kube-system/antrea-agent", "Deployment kube-system/antrea-controller"},
}

// Foreign tells whether a workload is neither labelled as ours nor at home. What is at
// home is taken over or is a conflict of its own.
func (w Workload) Foreign() bool { return !w.Ours && !slices.Contains(home[w.Driver], w.String()) }

// FromDaemonSet returns the workload, if it is one of a driver.
func FromDaemonSet(o *appsv1.DaemonSet) (Workload, bool) {
	w, ok := identify("DaemonSet", o.ObjectMeta, o.Spec.Template.Spec)
	w.Observed = o.Status.ObservedGeneration >= o.Generation && o.Status.ObservedGeneration > 0
	w.Desired, w.Updated, w.Available = o.Status.DesiredNumberScheduled, o.Status.UpdatedNumberScheduled, o.Status.NumberAvailable
	w.selector = selector(o.Spec.Selector)
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

// identify tells which driver a workload is of: by our label, else by the names and
// images that the drivers are known by.
func identify(kind string, meta metav1.ObjectMeta, pod corev1.PodSpec) (Workload, bool) {
	w := Workload{Kind: kind, Namespace: meta.Namespace, Name: meta.Name, Helm: meta.Annotations["meta.helm.sh/release-name"]}
	if meta.Labels[labelManagedBy] == managedBy && meta.Labels[labelDriver] != "" {
		w.Ours, w.Driver, w.Version = true, matrix.Driver(meta.Labels[labelDriver]), meta.Labels[labelVersion]
		return w, true
	}
	for _, c := range pod.Containers {
		if d, version, ok := byImage(c.Image); ok {
			w.Driver, w.Version = d, version
			return w, true
		}
	}
	d, ok := byName[meta.Name]
	w.Driver = d
	return w, ok
}

// byName are names that installations of a driver go by whose images do not tell.
var byName = map[string]matrix.Driver{
	"vsphere-cloud-controller-manager":     matrix.CPI,
	"vsphere-cpi":                          matrix.CPI,
	"vsphere-csi-controller":               matrix.CSI,
	"vsphere-csi-node":                     matrix.CSI,
	"vmware-vsphere-csi-driver-controller": matrix.CSI,
	"vmware-vsphere-csi-driver-node":       matrix.CSI,
	"snapshot-controller":                  matrix.SnapshotController,
	"csi-snapshot-controller":              matrix.SnapshotController,
}

// byImage knows the repositories that the drivers' own images are or were in; the
// tag is the version.
func byImage(ref string) (matrix.Driver, string, bool) {
	repository, _, _ := strings.Cut(ref, "@")
	tag := ""
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:i], repository[i+1:]
	}
	version := ""
	if v, err := matrix.ParseVersion(tag); err == nil {
		version = v.String()
	}
	for _, known := range []struct {
		suffix string
		driver matrix.Driver
	}{
		{"cpi/release/manager", matrix.CPI}, {"cloud-provider-vsphere", matrix.CPI},
		{"csi/release/driver", matrix.CSI}, {"csi-vsphere/driver", matrix.CSI},
		{"csi/release/syncer", matrix.CSI}, {"csi-vsphere/syncer", matrix.CSI},
		{"/snapshot-controller", matrix.SnapshotController},
		{"antrea/antrea-agent-ubuntu", matrix.CNI}, {"antrea/antrea-controller-ubuntu", matrix.CNI},
	} {
		if strings.HasSuffix(repository, known.suffix) {
			return known.driver, version, true
		}
	}
	return "", "", false
}

// rollout finds a roll-out that is not complete.
func (in *Input) rollout(w Workload) (Finding, bool) {
	f := Finding{Driver: w.Driver, Subject: w.String(), Reason: fault.Incomplete, Waiting: true}
	needed := w.Desired
	slack := int32(0)
	if w.Kind == "DaemonSet" {
		slack = in.notReady()
	} else {
		needed = min(needed, in.capacity(w))
	}
	switch {
	case w.Stuck != "":
		f = refused(w.Driver, w.String(), w.Stuck)
	case !w.Observed:
		f.Message = "is taken up"
	case w.Updated < needed-slack:
		f.Message = fmt.Sprintf("has %d of %d pods updated", w.Updated, needed)
	case w.Available < needed-slack, needed > 0 && w.Available == 0 && slack < needed:
		f.Message = fmt.Sprintf("has %d of %d pods available", w.Available, needed)
	default:
		return Finding{}, false
	}
	return f, true
}

// RolledOut tells whether a workload's roll-out is complete.
func (o *Observed) RolledOut(w Workload) bool {
	_, open := (&Input{Observed: *o}).rollout(w)
	return !open
}

// notReady counts the nodes that cannot be expected to run pods.
func (o *Observed) notReady() int32 {
	n := int32(0)
	for i := range o.Nodes {
		if !ready(&o.Nodes[i]) {
			n++
		}
	}
	return n
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
		if !controlPlane(&o.Nodes[i]) {
			continue
		}
		planes++
		if ready(&o.Nodes[i]) {
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
