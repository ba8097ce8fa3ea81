package preflight

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Images are the releases that would be installed from the bundle, and the nodes that their
// pods would come to. All of it was verified: no registry is asked.
type Images struct {
	// Err is why nothing is known; the rest is empty then.
	Err       error
	Workloads []render.Workload
	// Platforms are those that each image is for; one that is not there is not known.
	Platforms map[image.Digest][]image.Platform
	Nodes     []render.Node
	// Mirrors lead names of upstream's to the mirror; nil where pods name images in the mirror
	// itself, or the cluster is not OpenShift.
	Mirrors *Mirrors
}

// CheckImages runs the checks of what the bundle holds, which need no one's answer: each pass
// makes them again.
func CheckImages(i *Images) []Result { return run(&Snapshot{Images: i}, imageChecks()) }

// OfBundle tells whether a check is one of what the bundle holds.
func (id ID) OfBundle() bool { return strings.HasPrefix(string(id), "image-") }

// platformOf is a node's, as the kubelet labels it; zero where it does not.
func platformOf(n *render.Node) image.Platform {
	p := image.Platform{OS: n.Labels[corev1.LabelOSStable], Architecture: n.Labels[corev1.LabelArchStable]}
	if p.OS == "" || p.Architecture == "" {
		return image.Platform{}
	}
	return p
}

// present are the platforms of the nodes.
func (i *Images) present() map[image.Platform]bool {
	all := map[image.Platform]bool{}
	for n := range i.Nodes {
		all[platformOf(&i.Nodes[n])] = true
	}
	delete(all, image.Platform{})
	return all
}

// maxImages is how many images a finding names.
const maxImages = 2

// imagePlatforms holds the platforms of images against the nodes that pods would come to. Only
// where a platform of the cluster lacks is it looked at where the pods would come.
func imagePlatforms(s *Snapshot) []found {
	i := s.Images
	if i.Err != nil {
		return []found{{what: fmt.Sprintf("it is not known which images would be installed: %v", i.Err), action: Warn,
			remedy: "this ends when the DriverBundle is accepted; else see its conditions"}}
	}
	var out []found
	present := i.present()
	for n := range i.Workloads {
		w := &i.Workloads[n]
		about := map[image.Platform]found{}
		for p := range present {
			if images := i.lacking(w, p); len(images) > 0 {
				about[p] = found{action: BlockInstall, drivers: gatedDrivers(w.Driver), remedy: away(w),
					what: fmt.Sprintf("%s: %s %s would run on nodes of %s, which these images are not for: %s",
						w.Release, w.Kind, w.Name, p, fault.Few(images, maxImages))}
			}
		}
		if len(about) > 0 {
			out = append(out, i.reached(w, about)...)
		}
	}
	return out
}

// lacking are a workload's images that are known not to be for a platform.
func (i *Images) lacking(w *render.Workload, p image.Platform) []string {
	var all []string
	for _, im := range w.Images {
		has, known := i.Platforms[im.Digest]
		if known && !slices.ContainsFunc(has, func(o image.Platform) bool { return o.OS == p.OS && o.Architecture == p.Architecture }) {
			all = append(all, im.Upstream)
		}
	}
	return all
}

// reached is what is found about platforms that a workload's images are not for, at each node of them
// that its pods would come to. A Deployment's pods may find another node: it is gated where there
// is none.
func (i *Images) reached(w *render.Workload, about map[image.Platform]found) []found {
	var out []found
	fits, reaches := false, w.Reach()
	for n := range i.Nodes {
		node := &i.Nodes[n]
		f, lacks := about[platformOf(node)]
		switch {
		case !reaches(node):
		case lacks:
			f.object = node.Name
			out = append(out, f)
		default:
			fits = true
		}
	}
	for n := range out {
		if w.Kind != "DaemonSet" && fits {
			out[n].action = Warn
		}
	}
	return out
}

// gatedDrivers are the drivers that are gated with one: the storage driver does not start
// without what the snapshot-controller's release has.
func gatedDrivers(d matrix.Driver) []matrix.Driver {
	if d == matrix.SnapshotController {
		return []matrix.Driver{d, matrix.CSI}
	}
	return []matrix.Driver{d}
}

// away is what keeps a workload's pods away from nodes, where no bundle has images for them.
func away(w *render.Workload) string {
	return fmt.Sprintf("make a bundle of these platforms, `vdo-bundle lock --platform=all`, where upstream has them; or keep its pods "+
		"away by a nodeSelector in spec.drivers[%s].workloads[%s], or by spec.excludedNodes where they are not on vSphere", w.Driver, w.Name)
}
