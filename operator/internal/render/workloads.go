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

// Workload is a Deployment or DaemonSet that would be rendered: the images and nodes of its pods.
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
	Upstream string // its upstream repository: registry.k8s.io/csi-vsphere/driver
	Digest   image.Digest
}

// Workloads returns the workloads that Render makes of the chosen releases, before installation. Configuration,
// credentials, nodes and the storage driver's webhook (with images of its controller) do not matter. It includes the
// Windows plugin, and omits drivers that fail to render.
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
			continue // the lint has read it, and no later step changes its shape
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

// Reach returns whether a pod of the workload fits a node: by node selector, required node affinity, lasting taints
// and, except for DaemonSets, cordons.
func (w *Workload) Reach() func(*Node) bool {
	reaches := reach(&w.Pods)
	return func(n *Node) bool { return (w.Kind == "DaemonSet" || !n.Unschedulable) && reaches(n) }
}
