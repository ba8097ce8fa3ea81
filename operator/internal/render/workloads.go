package render

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Workload is a Deployment or DaemonSet that would be rendered: what its pods are of, and
// where they may be.
type Workload struct {
	Driver  matrix.Driver
	Release string // csi@3.5.1
	Kind    string
	Name    string
	Images  []Image        // each once, sorted
	Pods    corev1.PodSpec // of its template
}

// Image is an image of the bundle.
type Image struct {
	Upstream string // its repository there: registry.k8s.io/csi-vsphere/driver
	Digest   image.Digest
}

// Workloads are those of the chosen releases, as Render makes them, for who wants to know
// where their pods may be before they are installed. Configuration, credentials, the nodes that
// there are and the storage driver's webhook, whose pods are of the images of its controller,
// make no difference: the Windows node plugin is among them. A driver that cannot be rendered
// is left out.
func Workloads(in Input) []Workload {
	in.ImageNames, in.PullSecret, in.VCenters, in.HashKey = v1alpha1.ImageNamesUpstream, nil, nil, make([]byte, minHashKey)
	in.Keep = map[matrix.Driver]bool{matrix.CPI: true, matrix.CSI: true}
	in.Cluster.Nodes = []Node{{Labels: map[string]string{corev1.LabelOSStable: "windows"}}}
	if p := in.Spec.StorageProvider; p != nil {
		p = p.DeepCopy()
		p.Webhook, in.Spec.StorageProvider = false, p
	}
	for {
		rendered, err := Render(in)
		var failed Failed
		switch {
		case err == nil:
			return workloads(rendered, in.Releases)
		case !errors.As(err, &failed):
			return nil
		}
		in.Releases = slices.DeleteFunc(slices.Clone(in.Releases), func(id matrix.ReleaseID) bool { return failed[id.Driver] != nil })
	}
}

func workloads(r *Rendered, of []matrix.ReleaseID) []Workload {
	release := map[matrix.Driver]string{}
	for _, id := range of {
		release[id.Driver] = id.String()
	}
	var all []Workload
	for _, o := range r.Objects() {
		spec := podSpec(o.Unstructured)
		if spec == nil {
			continue
		}
		w := Workload{Driver: o.Driver, Release: release[o.Driver], Kind: o.GetKind(), Name: o.GetName()}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &w.Pods) != nil {
			continue // the lint has read it; nothing has changed its shape since
		}
		seen := map[Image]bool{}
		for _, c := range containers(spec) {
			written, _ := c["image"].(string)
			if ref, err := image.ParseReference(written); err == nil {
				seen[Image{Upstream: ref.Repository(), Digest: ref.Digest()}] = true
			}
		}
		w.Images = slices.SortedFunc(maps.Keys(seen), func(a, b Image) int {
			return cmp.Or(cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Digest.String(), b.Digest.String()))
		})
		all = append(all, w)
	}
	return all
}

// Reach returns whether a pod of the workload may come to a node, as the scheduler decides by
// node selector, required node affinity, taints that last, and, but for DaemonSets, cordons.
func (w *Workload) Reach() func(*Node) bool {
	reaches := reach(&w.Pods)
	return func(n *Node) bool { return (w.Kind == "DaemonSet" || !n.Unschedulable) && reaches(n) }
}
